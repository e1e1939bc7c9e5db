"""The speed of one job on several hosts, or of as many trainers that exchange nothing. Prints images/s of all together.

    python -m benchmarks.lab_speed HOSTFILE --workers 4 --batch-size 8 --steps 30 [--independent]
        [--method pserver --servers 2 --mode async] [--compress 2bit]

For benchmarks.plan_lab, which runs it on a host of the lab; `phalanx bench scaling` is what users want.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from phalanx.bench.scaling import Jobs
from phalanx.bench.scaling_plan import ScalingPlan
from phalanx.launch.hosts import read_hostfile

MODEL, SIZE = f"{Path(__file__).with_name('paced_net.py')}:PacedNet", 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hostfile", type=Path)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--independent", action="store_true")
    parser.add_argument("--method", default="collective")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--mode", default="sync")
    parser.add_argument("--compress", default="none")
    given = parser.parse_args()
    plan = ScalingPlan(
        workers=(given.workers,),
        method=given.method,
        mode=given.mode,
        servers=given.servers,
        model=MODEL,
        batch_size=given.batch_size,
        size=SIZE,
        steps=given.steps,
        rounds=1,
        launcher="ssh",
        hostfile=given.hostfile,
        compress=given.compress,
    )
    with tempfile.TemporaryDirectory(prefix="phalanx-lab-speed-") as folder:
        jobs = Jobs(plan, read_hostfile(given.hostfile), Path(folder), lambda _percent: None)
        measure = jobs.independents if given.independent else jobs.job
        sys.stdout.write(f"{measure('weak', given.workers, 0).images_per_s}\n")


if __name__ == "__main__":
    main()
