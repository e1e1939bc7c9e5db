"""The settings of `phalanx bench scaling`. Light imports, so that errors show at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from phalanx.bench.training import synthetic
from phalanx.errors import UserError

ScalingKind = Literal["weak", "strong"]
KINDS: tuple[ScalingKind, ...] = ("weak", "strong")
WARM_UP = 2  # steps that are not counted, and steps between events


@dataclass(frozen=True)
class ScalingPlan:
    """The settings of the benchmark."""

    workers: tuple[int, ...]  # counts, from 1 upwards
    method: str
    mode: str
    servers: int
    model: str
    batch_size: int
    size: int
    steps: int
    rounds: int
    launcher: str | None
    hostfile: Path | None
    compress: str = "none"
    kinds: tuple[ScalingKind, ...] = KINDS

    @property
    def how(self) -> str:
        how = f"pserver {self.mode}, servers: {self.servers}" if self.method == "pserver" else self.method
        return how if self.compress == "none" else f"{how}, {self.compress}"

    @property
    def subject(self) -> str:
        return f"{self.how}, {self.model} {self.size}² batch {self.batch_size}"

    def batch_of(self, kind: ScalingKind, workers: int) -> int:
        """Samples of each worker: constant in weak scaling, an equal part in strong scaling."""
        return self.batch_size if kind == "weak" else self.batch_size // workers

    def words(self, kind: ScalingKind, workers: int, *, independent: bool) -> list[str]:
        """The arguments of `train`."""
        together = 1 if independent else workers
        words = synthetic(
            self.model,
            self.size,
            self.batch_of(kind, workers),
            WARM_UP + self.steps,
            workers=together,
            log_every=WARM_UP,
        )
        words.append("machine.threads=1")
        if not independent:
            words += ["--update-method", self.method, "--workers", str(workers)]
            if self.method == "pserver":
                words += ["--servers", str(self.servers), "--mode", self.mode]
            if self.compress != "none" and workers > 1:
                words += ["--compress", self.compress]
        return words


def parse_workers(text: str) -> tuple[int, ...]:
    """`1,2,4`. One worker is always among them, since all others are compared with it."""
    parts = [part.strip() for part in text.split(",")]
    wrong = next((part for part in parts if not part.isdecimal() or int(part) < 1), None)
    if wrong is not None:
        raise UserError(
            f"--workers {text}: {wrong or 'nothing'} is no number of workers",
            why="it is a list of counts from 1 upwards, separated by commas",
            remedy="--workers 1,2,4",
        )
    return tuple(sorted({1, *map(int, parts)}))


def refuse_uneven(plan: ScalingPlan) -> None:
    """Strong scaling shares one batch among the workers, and batch norm needs two samples at least."""
    if "strong" not in plan.kinds:
        return
    most = max(plan.workers)
    for count in plan.workers:
        if plan.batch_size % count or plan.batch_size < 2 * count:
            whole = max(2, round(plan.batch_size / count)) * count
            raise UserError(
                f"a batch of {plan.batch_size} does not divide over {count} workers",
                why="strong scaling shares it evenly, two samples or more for each",
                remedy=f"--batch-size {whole}" if count == most else f"--batch-size {2 * most * count}",
            )
