"""From Enter to the first training step: four hosts over ssh beside the same roles on one machine, in turns.

    python -m benchmarks.launch_start [--rounds 3]

Needs root and Debian's openssh-server: the hosts are network namespaces with a real sshd. Both ways have the same
processors, so what differs is the launching itself.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.lab.hosts import Lab, hosts_up

from phalanx.runs.events import read_events

TRAINING = ["train", "digits", "model.name=wrn10_1", "train.length=2st", "machine.threads=1", "train.log_every=1"]
TRAINING += ["train.global_batch_size=96", "eval.every=100%"]
ROLES = {
    "4 trainers, collective": ["-n", "4"],
    "4 trainers and 4 parameter servers": ["-n", "4", "-s", "4"],
}


def first_step_s(lab: Lab, roles: list[str], out: Path, *, hosts: bool) -> float:
    """Seconds until a job has made its first step. All is run as a user would, to the end."""
    options = ["--ssh", f"ssh -F {lab.ssh_config}", "--ips", ",".join(lab.names)] if hosts else []
    words = [sys.executable, "-m", "phalanx", "launch", *roles, *options, "--", *TRAINING, "--out", str(out)]
    began = time.time()
    done = subprocess.run(lab.command(lab.names[0], words), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(float(event["t"]) for event in read_events(out) if event["kind"] == "step") - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    try:
        with hosts_up(4) as lab, TemporaryDirectory() as folder:
            print("| seconds to the first step, medians | one machine | 4 hosts | median of the rounds' ratios |")
            print("| --- | ---: | ---: | ---: |")
            for name, roles in ROLES.items():
                pairs = [
                    [
                        first_step_s(lab, roles, Path(folder, f"{name}-{number}-{way}"), hosts=way)
                        for way in (False, True)
                    ]
                    for number in range(rounds)
                ]
                here, there = (statistics.median(times) for times in zip(*pairs, strict=True))
                ratio = statistics.median(far / near for near, far in pairs)
                print(f"| {name} | {here:.1f} | {there:.1f} | **{ratio:.2f}** |", flush=True)
    except pytest.skip.Exception as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
