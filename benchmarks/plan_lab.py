"""Predicted beside measured: four hosts of the lab with shaped links, `phalanx bench scaling` on them.

    python -m benchmarks.plan_lab [--links 100Mbit,1Gbit] [--cases few|all] [--rounds 1] [--steps 12] [--markdown FILE]

Needs root, Debian's openssh-server and iproute2. A prediction uses the speed of one worker beside three others that
exchange nothing (the hosts share this machine's cores), the link's figure, and the planner's own table.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.lab.hosts import Lab, find_tool, hosts_up

from phalanx.api.plan_setup import Asked, make_setup
from phalanx.plan.check import Checked, check, check_rows
from phalanx.plan.measured import read_measurement

WORKERS = 4
MODEL, SIZE, BATCH = "cifar_resnet20", 32, 32
# The hosts reach one another by the lab's own keys; what is benchmarked there is this checkout's code.
SSH = """#!/bin/bash
words=("$@"); last=$((${{#words[@]}} - 1))
words[$last]="export PYTHONPATH={source}; ${{words[$last]}}"
exec /usr/bin/ssh -F {config} "${{words[@]}}"
"""
Case = tuple[str, int, str, str]  # method, servers, mode, compression
FEW: tuple[Case, ...] = (
    ("collective", 1, "sync", "none"),
    ("collective", 1, "sync", "2bit"),
    ("pserver", 1, "sync", "none"),
    ("pserver", 2, "async", "none"),
)
ALL: tuple[Case, ...] = (
    *(("collective", 1, "sync", codec) for codec in ("none", "fp16", "2bit")),
    *(
        ("pserver", servers, mode, codec)
        for servers in (1, 2)
        for mode in ("sync", "async")
        for codec in ("none", "fp16", "2bit")
    ),
)


def shape(lab: Lab, link: str) -> None:
    """Every host sends at this rate."""
    rate = ["rate", link.lower(), "burst", "256kb", "latency", "50ms"]
    for host in lab.names:
        inside = ["ip", "netns", "exec", lab.network(host), find_tool("tc") or "tc"]
        subprocess.run([*inside, "qdisc", "replace", "dev", "eth0", "root", "tbf", *rate], check=True)


def measure(lab: Lab, case: Case, out: Path, steps: int, rounds: int) -> None:
    """`phalanx bench scaling` on the hosts, into a JSON file."""
    method, servers, mode, codec = case
    hosts, shell, home = (lab.folder / name for name in ("bench_hosts", "bin", "home"))
    hosts.write_text("".join(f"{name} slots=1\n" for name in lab.names))
    shell.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    (shell / "ssh").write_text(SSH.format(config=lab.ssh_config, source=os.environ.get("PYTHONPATH", "")))
    (shell / "ssh").chmod(0o755)
    words = [sys.executable, "-m", "phalanx", "bench", "scaling", "--workers", f"1,{WORKERS}", "--only", "weak"]
    words += ["--update-method", method, "--compress", codec, "-H", str(hosts), "--json", str(out)]
    words += ["--servers", str(servers), "--mode", mode] if method == "pserver" else []
    words += ["--model", MODEL, "--size", str(SIZE), "--batch-size", str(BATCH)]
    words += ["--steps", str(steps), "--rounds", str(rounds)]
    env = {"PATH": f"{shell}:/usr/local/bin:/usr/bin:/bin:/usr/sbin", "XDG_STATE_HOME": str(home)}
    done = lab.run(lab.names[0], words, cwd=home, env=env, timeout_s=1800, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{case}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def predicted(file: Path, link: str) -> list[Checked]:
    """The rows of several workers of a measurement, with predictions."""
    words = [f"model.name={MODEL}", f"data.synthetic.size={SIZE}", f"train.batch_size={BATCH}"]
    cluster = {"device": "cpu-avx2", "hosts": WORKERS, "per_host": 1, "link": link}
    setup, _ = make_setup(Asked("synthetic", words, cluster=cluster))
    return [each for each in check(setup, read_measurement(file)) if each.row.workers > 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", default="100Mbit,1Gbit")
    parser.add_argument("--cases", choices=("few", "all"), default="all")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--keep", type=Path, help="a folder for the JSON files")
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    lines = [
        "| link | workers | | batch | measured | predicted | error |",
        "| --- | ---: | --- | --- | ---: | ---: | ---: |",
    ]
    print("\n".join(lines), flush=True)
    errors: list[float] = []
    try:
        with hosts_up(WORKERS) as lab, TemporaryDirectory() as scratch:
            folder = given.keep or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            for link in given.links.split(","):
                shape(lab, link)
                for case in FEW if given.cases == "few" else ALL:
                    file = folder / f"{link}-{'-'.join(map(str, case))}.json"
                    measure(lab, case, file, given.steps, given.rounds)
                    found = predicted(file, link)
                    errors += [abs(each.error) for each in found]
                    lines += [f"| {link} | {' | '.join(row)} |" for row in check_rows(found)]
                    print(lines[-1], flush=True)
    except pytest.skip.Exception as missing:
        sys.exit(str(missing))
    said = f"median error {100 * statistics.median(errors):.0f} %, largest {100 * max(errors):.0f} %"
    print(said)
    if given.markdown is not None:
        given.markdown.write_text("\n".join([*lines, "", said]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
