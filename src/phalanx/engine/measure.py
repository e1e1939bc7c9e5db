"""One evaluation over all workers: loss, accuracy or mAP, and the user's own metrics."""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from torch import Tensor, nn

from phalanx.data.base import Batch, Source
from phalanx.engine.evaluate import evaluate
from phalanx.engine.label_scores import LabelScores
from phalanx.engine.metrics import MetricSums
from phalanx.engine.step import Engine
from phalanx.engine.totals import Totals
from phalanx.exchange.base import WorkerGroup
from phalanx.observe.label_results import LabelResults
from phalanx.runs import events as ev
from phalanx.runs.score import MAP, OF_LABELS, TOP1, score_of


@dataclass(frozen=True)
class Measured:
    """The numbers of an evaluation, the same on all workers."""

    totals: Totals
    metrics: dict[str, float]  # mAP and F1 where a sample may have several labels; then the user's own
    multi_label: bool
    labels: LabelResults | None = None  # of each class, where a sample may have several labels; on rank 0

    @property
    def metric(self) -> str:
        """The name of the number that this is judged by."""
        return MAP if self.multi_label else TOP1

    @property
    def top1(self) -> float | None:
        return None if self.multi_label else self.totals.top1

    @property
    def topk(self) -> float | None:
        return None if self.multi_label else self.totals.topk

    @property
    def score(self) -> float:
        return score_of(self.metric, self.top1, self.metrics)

    def event(self, step: int, epoch: float, k: int, seconds: float, *, best: bool) -> ev.Eval:
        return ev.Eval(
            step=step,
            epoch=epoch,
            loss=self.totals.loss,
            top1=self.top1,
            topk=self.topk,
            k=k,
            samples=self.totals.samples,
            seconds=seconds,
            best=best,
            metrics=self.metrics,
            metric=self.metric,
        )


def measure(
    model: nn.Module,
    batches: Generator[Batch],
    engine: Engine,
    source: Source,
    own: MetricSums,
    group: WorkerGroup,
    *,
    watch: Callable[[Batch, Tensor], None],
    stopping: Callable[[], bool] = bool,
    part_of: Callable[[int], Generator[Batch]] | None = None,
) -> Measured:
    """Evaluate on `source`, of which `batches` are this worker's part. All workers call this.

    Workers may be lost while the others go on. `part_of` gives a rank's part: the first worker evaluates those of lost
    ones.
    """
    scores = LabelScores(source, group) if source.labels.ndim == 2 else None

    mine = Totals()

    def add(part: Generator[Batch], rank: int) -> None:
        def seen(batch: Batch, logits: Tensor) -> None:
            if scores is not None:
                scores.add(batch, logits, rank)
            watch(batch, logits)

        mine.add(evaluate(model, part, engine, watch=seen, metrics=own, stopping=stopping))

    def numbers() -> list[float]:
        return [*mine.numbers(), *own.numbers()]

    me, world = group.share.rank, group.share.world
    add(batches, me)
    before = numbers()
    sums = group.sum([*before, *(float(rank == me) for rank in range(world))])
    sums, present = sums[:-world], sums[-world:]
    absent = [rank for rank in range(world) if not present[rank]]
    if absent and part_of is not None:  # all see the same, so all add once more
        for rank in absent if me == 0 else []:
            add(part_of(rank), rank)
        rest = group.sum([now - then for now, then in zip(numbers(), before, strict=True)])
        sums = [one + more for one, more in zip(sums, rest, strict=True)]
    counts = len(mine.numbers())
    totals, metrics = Totals.of(sums[:counts]), own.results(sums[counts:])
    if scores is None:
        return Measured(totals, metrics, multi_label=False)
    labels = scores.results()
    # The first worker has the logits of all; the others add zeros to its numbers.
    found = group.sum(list(labels.numbers().values()) if labels is not None else [0.0] * len(OF_LABELS))
    return Measured(totals, {**dict(zip(OF_LABELS, found, strict=True)), **metrics}, multi_label=True, labels=labels)
