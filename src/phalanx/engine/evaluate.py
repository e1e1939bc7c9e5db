"""Exact evaluation: every sample counts once, for any number of workers."""

from collections.abc import Callable, Generator
from contextlib import closing

import torch
from torch import Tensor, nn

from phalanx.data.base import Batch, MicroBatch
from phalanx.engine.loss import counted, plain_loss
from phalanx.engine.metrics import MetricSums
from phalanx.engine.step import Engine
from phalanx.engine.totals import Totals


class Interrupted(Exception):
    """A stop was requested during evaluation. The partial result is dropped."""


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    batches: Generator[Batch],
    engine: Engine,
    *,
    watch: Callable[[Batch, Tensor], None] | None = None,
    metrics: MetricSums | None = None,
    stopping: Callable[[], bool] = bool,
) -> Totals:
    """Loss and accuracy over all batches. `watch` sees each batch with its logits; the loss is `plain_loss`.

    `metrics` adds up the user's own sums.
    """
    training = model.training
    model.eval()
    totals = Totals()
    try:
        with closing(batches):
            for batch in batches:
                if stopping():
                    raise Interrupted
                logits = torch.cat([_answer(model, micro, engine, totals) for micro in batch.micro])
                if metrics is not None:
                    metrics.add(logits, torch.cat([micro.labels for micro in batch.micro]))
                if watch is not None:
                    watch(batch, logits)
    finally:
        model.train(training)
    return totals


def _answer(model: nn.Module, micro: MicroBatch, engine: Engine, totals: Totals) -> Tensor:
    images, labels = engine.inputs.plain(micro)
    with engine.settings.autocast():
        answers = [model(view) if weight == 1 else weight * model(view) for view, weight in engine.views.of(images)]
        logits = torch.stack(answers).sum(0) if len(answers) > 1 else answers[0]
    if micro.count:
        loss = plain_loss(logits.float(), labels).double()
        value, *counts = torch.stack([loss, *counted(logits, labels, engine.k).double()]).tolist()  # in one transfer
        totals.add(Totals.of([micro.count, value * micro.count, *counts]))
    return logits
