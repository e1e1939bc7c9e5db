"""A job on four hosts under random faults from a seed: three workers and, for sync and async, two servers; elastic.

    python -m benchmarks.soak [--minutes 60] [--faults 200] [--seed 1] [--mode sync|async|collective] [--json FILE]
                             [--patience 1]

Needs root, Debian's openssh-server and iptables. Exit code 1 unless the job finishes, its weights are those of an
undisturbed run (sync, collective: bit for bit; async: the same accuracy), no sample was lost or repeated, nothing is
left behind, and neither launcher nor servers grow.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.lab.hosts import Lab, hosts_up

from benchmarks.chaos import measure
from benchmarks.chaos.job import Job
from benchmarks.chaos.modes import Mode
from benchmarks.soak.events import Scene, plan
from benchmarks.soak.growth import Growth
from benchmarks.soak.leftovers import left_behind, own_folders

WORKERS, SERVERS = 3, 2
MODES = {
    "sync": Mode("sync", WORKERS, SERVERS),
    "collective": Mode("collective", WORKERS, 0),
    "async": Mode("async", WORKERS, SERVERS, ("exchange.mode=async",), lockstep=False),
}
STEPS_A_MINUTE, STEPS_MORE = 40, 100
STARTS_S = 300.0
RECOVERS_S = 120.0  # after a fault, until two more steps are made
FINISH_S = 600.0
TOLERANCE = 0.03  # of async's accuracy
TRAINING = ["digits", "model.name=wrn10_1", "machine.threads=1", "machine.precision=fp32", "train.curves=false"]
TRAINING += ["train.global_batch_size=48", "train.micro_batches=3", "train.log_every=1", "eval.every=100%"]
TRAINING += ["checkpoint.every=50st", "exchange.silence_s=6", "exchange.timeout_s=120", "loss.label_smoothing=0"]


class Soak:
    """One job and its faults. `problems` is what is not as promised."""

    def __init__(self, lab: Lab, folder: Path, asked: argparse.Namespace) -> None:
        self._lab, self._folder, self._asked, self.mode = lab, folder, asked, MODES[asked.mode]
        self.steps = round(STEPS_A_MINUTE * asked.minutes) + STEPS_MORE
        self.problems: list[str] = []
        self.told: list[dict[str, object]] = []
        self.by_minute: dict[str, list[tuple[float, float, float]]] = {}  # memory and descriptors

    def run(self) -> list[str]:
        """The whole of it. Returns what it found, line by line."""
        before = {one.pid for one in self._lab.processes("")}
        undisturbed = self._undisturbed()
        self._pace(0.2)
        restarts = ["--max-restarts", str(4 * self._asked.faults), "--min-workers", "1"]
        reach = ["--ssh", f"ssh -F {self._lab.ssh_config}", "--ips", "h2,h3,h4"]
        job = self._job("soak", [*reach, *restarts])
        growth = Growth(lambda: self._watched(job))
        try:
            done = self._disturb(job)
            self._pace(0)
            self._finish(job, FINISH_S * self._asked.patience)
        finally:
            slopes, self.by_minute = growth.stop(), growth.by_minute()
            if not job.ended or job.alive():
                self.problems.append(f"still alive: {[' '.join(one.words)[:80] for one in job.alive()]}")
                job.kill()
        time.sleep(1)
        left = left_behind(self._lab, before)
        self.problems += [f"left behind: {one}" for one in left]
        self.problems += [f"grows: {slope}" for slope in slopes if slope.grows]
        return [
            f"{done} faults in {self._asked.minutes:g} minutes, {self.steps} steps, {self._resumes(job)} new groups",
            self._compare(job.run, undisturbed),
            *map(str, slopes),
            f"left behind: {len(left)}",
        ]

    def _watched(self, job: Job) -> dict[str, int]:
        """The launcher and the servers."""
        servers = {name: job.role(name) for name in (f"server-{rank}" for rank in range(self.mode.servers))}
        return {"launcher": job.pid, **{name: process.pid for name, process in servers.items() if process}}

    def _undisturbed(self) -> Path:
        self._pace(0)
        job = self._job("undisturbed", ["--launcher", "local"])
        self._finish(job, FINISH_S * self._asked.patience)
        return job.run

    def _job(self, name: str, options: list[str]) -> Job:
        loss = Path(measure.__file__).with_name("paced.py")
        own = [f"loss.name={loss}:paced", f"loss.options={{control: {self._folder}}}", f"train.length={self.steps}st"]
        run = self._folder / name
        words = ["launch", *options, *self.mode.launch, "--", "train", *TRAINING, *self.mode.words, *own]
        return Job(self._lab, "h1", [*words, "--out", str(run)], run, self._folder, {})

    def _disturb(self, job: Job) -> int:
        """One fault after the other, each after the job has got over the one before. Returns their number."""
        self._wait_for_step(job, 5, STARTS_S * self._asked.patience)
        draw = random.Random(self._asked.seed)
        roles = [f"trainer-{rank}" for rank in range(WORKERS)] + [f"server-{rank}" for rank in range(self.mode.servers)]
        scene = Scene(self._lab, job, draw, ["h2", "h3", "h4"], roles)
        began, length_s = time.monotonic(), 60.0 * self._asked.minutes
        events = plan(draw, self._asked.faults)
        for number, event in enumerate(events):
            left_s = length_s - (time.monotonic() - began)
            if left_s < 0 or job.ended:
                return number
            self._pace(min(3.0, 1.2 * left_s / max(20, self.steps - job.step - 20)))
            time.sleep(max(0.0, number * length_s / len(events) - (time.monotonic() - began)))
            at, step = time.monotonic(), job.step
            what = event(scene)
            self._pace(0.1)
            recovered = self._wait_for_step(job, step + 2, RECOVERS_S * self._asked.patience)
            self._tell(number, what, step, at, recovered)
            if not recovered:
                return number + 1
        return len(events)

    def _tell(self, number: int, what: str, step: int, at: float, recovered: bool) -> None:
        took = round(time.monotonic() - at, 1)
        self.told.append({"fault": number + 1, "what": what, "step": step, "going_on_s": took, "recovered": recovered})
        print(f"{number + 1:4d} {what}: at step {step}, two steps on after {took:.1f} s", file=sys.stderr, flush=True)

    def _wait_for_step(self, job: Job, step: int, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not job.ended:
            if job.step >= step:
                return True
            time.sleep(0.1)
        self.problems.append(
            f"no step {step} after {seconds:.0f} s: {job.own_words(time.monotonic() - seconds)[-600:]}"
        )
        return False

    def _finish(self, job: Job, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not job.ended and time.monotonic() < end:
            time.sleep(0.2)
        job.finish_reading()
        if job.launcher.poll() != 0:
            self.problems.append(f"{job.run.name} ended with {job.launcher.poll()}: {job.own_words(0)[-1500:]}")

    def _resumes(self, job: Job) -> int:
        return sum("restarting as a new group" in line.text for line in job.lines)

    def _compare(self, run: Path, undisturbed: Path) -> str:
        found, wanted = measure.accuracy(run), measure.accuracy(undisturbed)
        if found is None or wanted is None:
            self.problems.append("there is no accuracy to compare")
            return "not finished"
        said = (
            f"top-1 {100 * found:.2f} %, undisturbed {100 * wanted:.2f} %; {measure.steps_lost(run)} steps made again"
        )
        if self.mode.lockstep:
            wrong = measure.wrong_samples(run, self.mode, self.steps)[0]
            if wrong:
                self.problems.append(f"{wrong} samples lost or repeated")
            same = measure.weights(run) == measure.weights(undisturbed)
            if not same:
                apart = measure.distance(run, undisturbed)
                self.problems.append(f"the weights differ from the undisturbed run's by {apart:.1e}")
            return f"{said}; {wrong} samples lost or repeated; {'the same weights' if same else 'other weights'}"
        if abs(found - wanted) > TOLERANCE:
            self.problems.append(f"accuracy {found:.3f}, undisturbed {wanted:.3f}")
        return said

    def _pace(self, seconds: float) -> None:
        aside = self._folder / ".pace"
        aside.write_text(f"{seconds:g}")
        aside.replace(self._folder / "pace")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=MODES, default="sync")
    parser.add_argument("--patience", type=float, default=1.0, help="times as long may all take, on busy cores")
    parser.add_argument("--json", type=Path, help="write what happened there")
    asked = parser.parse_args()
    if Path(__file__).is_relative_to("/tmp"):
        sys.exit("this checkout is below /tmp, which hosts will have of their own: use another one")
    tempfile.tempdir = "/var/tmp"  # for the same reason
    try:
        with hosts_up(4) as lab, TemporaryDirectory(prefix="phalanx-soak-", ignore_cleanup_errors=True) as folder:
            own_folders(lab)
            soak = Soak(lab, Path(folder), asked)
            found = soak.run()
    except pytest.skip.Exception as missing:
        sys.exit(str(missing))
    print("\n".join(found))
    for problem in soak.problems:
        print(f"✗ {problem}")
    if asked.json:
        told = {"found": found, "problems": soak.problems, "by_minute": soak.by_minute, "faults": soak.told}
        asked.json.write_text(json.dumps(told, indent=1))
    return 1 if soak.problems else 0


if __name__ == "__main__":
    sys.exit(main())
