"""Exact evaluation: every sample counts once, whatever the number of workers."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from phalanx.data.base import MicroBatch
from phalanx.data.mixing import Targets
from phalanx.engine.loss import classification_loss, correct
from phalanx.engine.step import Engine
from phalanx.engine.totals import Totals


class Interrupted(Exception):
    """Evaluation was asked to stop before its end; nothing of it counts."""


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    batches: Iterable[MicroBatch],
    engine: Engine,
    *,
    watch: Callable[[MicroBatch, Tensor], None] | None = None,
    stopping: Callable[[], bool] = bool,
) -> Totals:
    """Loss and accuracy over all batches. `watch` sees each batch with its logits; the loss is unsmoothed."""
    training = model.training
    model.eval()
    totals = Totals()
    try:
        for batch in batches:
            if stopping():
                raise Interrupted
            if batch.count == 0:
                continue
            images, labels = engine.inputs.plain(batch)
            with engine.settings.autocast():
                logits = model(images)
            hits1, hitsk = correct(logits, labels, engine.k).tolist()
            loss = float(classification_loss(logits, Targets(labels), 0.0))
            totals.add(Totals(batch.count, loss * batch.count, hits1, hitsk))
            if watch is not None:
                watch(batch, logits)
    finally:
        model.train(training)
    return totals
