"""One cell of the table: a job, a fault, and what follows. `Cell` is what faults see of it."""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.hosts import Lab
from tests.waiting import until

from benchmarks.chaos.job import Job
from benchmarks.chaos.modes import FAULT_AT, Mode, training

MACHINE, LAUNCHER, OTHER, HIT = "h1", "h1", "h2", "h3"  # the only host of a job on one machine; those of other jobs
START_S = 120.0  # from Enter to the step of the fault, on busy cores
USUAL_PACE_S = 0.03


@dataclass
class Cell:
    """What faults see: the job, where it runs, and `relief`, which undoes what they did."""

    lab: Lab
    mode: Mode
    restarts: int
    folder: Path
    silence_s: float
    patience: float = 1.0
    on_hosts: bool = False
    words: list[str] = field(default_factory=list)  # further settings of the run
    options: list[str] = field(default_factory=list)  # further options of the launcher
    env: dict[str, str] = field(default_factory=dict)
    out: Path | None = None  # the run folder, as the job's hosts see it
    relief: ExitStack = field(default_factory=ExitStack)
    cleanup: ExitStack = field(default_factory=ExitStack)  # when all is measured
    problems: list[str] = field(default_factory=list)  # what faults themselves found wrong
    began: float = 0.0  # when the fault happened
    active: Callable[[], bool] = lambda: False  # whether it still is at work, so that the job may stand still

    @property
    def run(self) -> Path:
        """The run folder, as this process sees it."""
        given = self.out or self.folder / "run"
        return self.lab.root(MACHINE) / str(given).lstrip("/")

    def start(self) -> None:
        self._start(
            [
                *self._head(),
                "--",
                "train",
                *training(self.mode, self.folder, self.silence_s),
                *self.words,
                "--out",
                str(self.out or self.folder / "run"),
            ]
        )

    def resume(self) -> None:
        """As the job's last message says, or as somebody would who has read none."""
        given = self.job.resume_command()
        self._start(given or [*self._head(), "--", "train", "--resume", str(self.out or self.folder / "run")])

    def _start(self, words: list[str]) -> None:
        self.job = Job(self.lab, MACHINE if not self.on_hosts else LAUNCHER, words, self.run, self.folder, self.env)

    def _head(self) -> list[str]:
        hosts = f"{HIT},{OTHER}" if self.mode.workers == 1 else f"{OTHER},{HIT}"
        reach = ["--ssh", f"ssh -F {self.lab.ssh_config}", "--ips", hosts] if self.on_hosts else ["--launcher", "local"]
        # Without restarts means: as a job is that says nothing. async and ssp jobs restart lost workers by default.
        given = bool(self.restarts) or not self.mode.lockstep
        restarts = ["--max-restarts", str(self.restarts)] if given else []
        return ["launch", *reach, *self.mode.launch, *restarts, *self.options]

    def reach(self, step: int = FAULT_AT) -> None:
        """Wait until the job has made so many steps."""

        def there() -> bool:
            assert not self.job.ended, "the job ended before the fault: " + self.job.own_words(0)
            return self.job.step >= step

        until(there, timeout_s=START_S * self.patience, why=lambda: "\n".join(line.text for line in self.job.lines))

    def pace(self, seconds: float) -> None:
        """How long a step takes at least."""
        self.tell("pace", f"{seconds:g}")

    def tell(self, name: str, text: str) -> None:
        """Write a file that the job's loss reads."""
        aside = self.folder / f".{name}"
        aside.write_text(text)
        aside.replace(self.folder / name)

    def untell(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def lasts(self, seconds: float, still: Callable[[], bool] = lambda: True) -> None:
        """The fault is at work for so long from now on, or until `still` does not hold any more."""
        end = time.monotonic() + seconds
        self.active = lambda: time.monotonic() < end and still()

    def run_aside(self, host: str, module: str, *words: str) -> None:
        """Run a module of this package on a host until the cell ends."""
        argv = [sys.executable, "-m", f"benchmarks.chaos.{module}", *words]
        started = self.lab.start(host, argv, cwd=Path(__file__).parents[2])
        assert started.stdout is not None
        self.relief.callback(started.wait)
        self.relief.callback(started.kill)
        inner = self.lab.inner(started)
        self.relief.callback(self.lab.run, host, ["kill", "-9", inside(inner)], check=False)
        first = started.stdout.readline()
        assert first.endswith("\n"), f"{module} did not start"  # or it is at work
        assert not first.startswith("Traceback"), f"{module} failed: {started.stdout.read()}"


def inside(pid: int) -> str:
    """A process's id as its own host knows it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:"))
