"""Predicted beside measured: jobs on four hosts of the lab with shaped links.

    python -m benchmarks.plan_lab --json lab.json [--resume] [--links 100Mbit,1Gbit] [--cases few|all] [--rounds 3]
        [--steps 30] [--markdown FILE] [--plot FILE.png]
    python -m benchmarks.plan_lab --json lab.json --resume --predict-only      # predict again what was measured

Needs root, Debian's openssh-server and iproute2, and two cores that do nothing else: a quarter of an hour for one round
of all cases. The hosts share this machine's cores, so what they train computes by sleeping (benchmarks/paced_net.py). A
prediction uses the speed of one worker beside three others that exchange nothing, the link's figure, and the planner's
own table. Every speed is written to the JSON file at once; --resume measures only what it lacks.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.lab.hosts import Lab, find_tool, hosts_up

from benchmarks.lab_speed import MODEL, SIZE
from phalanx.api.plan_setup import Asked, make_setup
from phalanx.atomic import write_text_atomically
from phalanx.observe.figures import save_figure
from phalanx.plan.check import Check, Checked, check
from phalanx.plan.measured import Measurement, Row
from phalanx.plan.setup import Arrangement
from phalanx.plan.units import parse_rate

WORKERS, BATCH = 4, 8
TOGETHER = 15  # jobs between two measurements of workers that exchange nothing
BURST_S = 0.004  # at a link's rate: the kernel's clock ticks so often, and a shorter burst would not reach the rate
# The hosts reach one another by the lab's own keys; what is benchmarked there is this checkout's code.
SSH = """#!/bin/bash
words=("$@"); last=$((${{#words[@]}} - 1))
words[$last]="export PYTHONPATH={source}; ${{words[$last]}}"
exec /usr/bin/ssh -F {config} "${{words[@]}}"
"""
HEAD = (
    "| link | | measured images/s | predicted | range | error |",
    "| --- | --- | ---: | ---: | ---: | ---: |",
)
FEW = (
    Arrangement(WORKERS, "collective"),
    Arrangement(WORKERS, "collective", compress="2bit"),
    Arrangement(WORKERS, "pserver", 1, "sync"),
    Arrangement(WORKERS, "pserver", 2, "async"),
)
ALL = (
    *(Arrangement(WORKERS, "collective", compress=codec) for codec in ("none", "fp16", "2bit")),
    *(
        Arrangement(WORKERS, "pserver", servers, mode, codec)
        for servers in (1, 2)
        for mode in ("sync", "async")
        for codec in ("none", "fp16", "2bit")
    ),
)


class Speeds:
    """Images/s by what was measured, in a JSON file that is complete at any moment."""

    def __init__(self, path: Path, resume: bool) -> None:
        self._path = path
        if path.exists() and not resume:
            sys.exit(f"{path} exists: --resume goes on with it, or name another file")
        self._speeds: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def get(self, key: str) -> float | None:
        return self._speeds.get(key)

    def put(self, key: str, images_per_s: float) -> None:
        self._speeds[key] = images_per_s
        write_text_atomically(self._path, json.dumps(self._speeds, indent=1) + "\n")


def shape(lab: Lab, link: str) -> None:
    """Every host sends and receives at this rate: the ends of its cable, one in the host and one in the switch."""
    bytes_per_s = parse_rate(link, "--links")
    burst = max(64_000, round(BURST_S * bytes_per_s))
    rate = ["rate", f"{8 * bytes_per_s:.0f}bit", "burst", f"{burst}b", "latency", "50ms"]
    for number, host in enumerate(lab.names, start=1):
        for network, port in ((lab.network(host), "eth0"), (f"{lab.prefix}-sw", f"e{number}")):
            inside = ["ip", "netns", "exec", network, find_tool("tc") or "tc"]
            subprocess.run([*inside, "qdisc", "replace", "dev", port, "root", "tbf", *rate], check=True)


def measure(lab: Lab, arranged: Arrangement | None, steps: int) -> float:
    """Images/s of a job; of workers that exchange nothing, where there is no arrangement."""
    hosts, shell, home = (lab.folder / name for name in ("bench_hosts", "bin", "home"))
    hosts.write_text("".join(f"{name} slots=1\n" for name in lab.names))
    shell.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    (shell / "ssh").write_text(SSH.format(config=lab.ssh_config, source=os.environ.get("PYTHONPATH", "")))
    (shell / "ssh").chmod(0o755)
    words = [sys.executable, "-m", "benchmarks.lab_speed", str(hosts), "--workers", str(WORKERS)]
    words += ["--batch-size", str(BATCH), "--steps", str(steps)]
    if arranged is None:
        words.append("--independent")
    else:
        words += ["--method", arranged.method, "--servers", str(arranged.servers)]
        words += ["--mode", arranged.mode, "--compress", arranged.compress]
    env = {"PATH": f"{shell}:/usr/local/bin:/usr/bin:/bin:/usr/sbin", "XDG_STATE_HOME": str(home)}
    done = lab.run(lab.names[0], words, cwd=Path.cwd(), env=env, timeout_s=1800, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{arranged or 'alone'}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


Wanted = tuple[str, Arrangement | None]  # key in the file, what


def wanted(link: str, cases: Sequence[Arrangement], rounds: int) -> Iterator[Wanted]:
    """What is measured on a link, in order."""
    for number in range(rounds):
        for first in range(0, len(cases), TOGETHER):
            yield f"{link}, round {number}, alone before {first}", None
            for arranged in cases[first : first + TOGETHER]:
                yield f"{link}, round {number}, {arranged}", arranged
            yield f"{link}, round {number}, alone after {first}", None


def measure_all(speeds: Speeds, links: Sequence[str], cases: Sequence[Arrangement], steps: int, rounds: int) -> None:
    """What the file lacks."""
    lacking = [(link, *one) for link in links for one in wanted(link, cases, rounds) if speeds.get(one[0]) is None]
    if not lacking:
        return
    with hosts_up(WORKERS) as lab:
        for number, (link, key, arranged) in enumerate(lacking):
            shape(lab, link)
            begin = time.monotonic()
            speeds.put(key, measure(lab, arranged, steps))
            took = f"{number + 1} of {len(lacking)}, {time.monotonic() - begin:.0f} s"
            print(f"{took}: {key}: {speeds.get(key):.1f} images/s", file=sys.stderr, flush=True)


def row_of(speeds: Speeds, link: str, cases: Sequence[Arrangement], number: int, rounds: int) -> Row | None:
    """A case's medians over rounds; None if nothing of it was measured."""
    arranged, first = cases[number], number // TOGETHER * TOGETHER
    pairs = []
    for one in range(rounds):
        before, job, after = (
            speeds.get(f"{link}, round {one}, {what}")
            for what in (f"alone before {first}", arranged, f"alone after {first}")
        )
        if before and job and after:
            pairs.append((job, (before + after) / 2))
    if not pairs:
        return None
    return Row(
        workers=WORKERS,
        method=arranged.method,
        servers=arranged.servers,
        mode=arranged.mode,
        compress=arranged.compress,
        batch_size=BATCH,
        images_per_s=statistics.median(job for job, _ in pairs),
        alone_images_per_s=statistics.median(alone for _, alone in pairs) / WORKERS,
    )


def predicted(row: Row, link: str) -> Checked:
    """A measured job, with its prediction."""
    words = [f"model.name={MODEL}", f"data.synthetic.size={SIZE}", f"train.batch_size={BATCH}"]
    cluster = {"device": "cpu-avx2", "hosts": WORKERS, "per_host": 1, "link": link}
    setup, _ = make_setup(Asked("synthetic", words, cluster=cluster))
    (checked,) = check(setup, Measurement(model=MODEL, image_size=SIZE, rows=(row,)))
    return checked


def line(link: str, arranged: Arrangement, each: Checked) -> str:
    """A row of the table."""
    speed = each.predicted
    numbers = (f"{each.row.images_per_s:.1f}", f"{speed.expected:.1f}", f"{speed.low:.1f} to {speed.high:.1f}")
    return f"| {link} | {arranged} | {' | '.join(numbers)} | {100 * each.error:+.0f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", default="100Mbit,1Gbit")
    parser.add_argument("--cases", choices=("few", "all"), default="all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", type=Path, required=True, help="what was measured")
    parser.add_argument("--resume", action="store_true", help="go on with that file")
    parser.add_argument("--predict-only", action="store_true", help="measure nothing")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    links, cases = given.links.split(","), FEW if given.cases == "few" else ALL
    speeds = Speeds(given.json, given.resume)
    if not given.predict_only:
        try:
            measure_all(speeds, links, cases, given.steps, given.rounds)
        except pytest.skip.Exception as missing:
            sys.exit(str(missing))
    lines, rows = list(HEAD), []
    for link in links:
        for number, arranged in enumerate(cases):
            row = row_of(speeds, link, cases, number, given.rounds)
            if row is not None:
                rows.append(predicted(row, link))
                lines.append(line(link, arranged, rows[-1]))
    if not rows:
        sys.exit("nothing is measured yet")
    checked = Check(rows)
    inside = sum(each.predicted.low <= each.row.images_per_s <= each.predicted.high for each in rows)
    text = "\n".join([*lines, "", f"{checked.summary}; {inside} of {len(rows)} are inside of their range"])
    print(text)
    if given.markdown is not None:
        given.markdown.write_text(text + "\n", encoding="utf-8")
    if given.plot is not None:
        save_figure(checked.figure(), given.plot)


if __name__ == "__main__":
    main()
