"""The logits of all validation samples, gathered from all workers: mAP ranks samples, so no sums can give it."""

import math

import numpy as np
import torch
from torch import Tensor

from phalanx.data.base import Batch, Source
from phalanx.data.pipeline import evaluation_part
from phalanx.exchange.base import WorkerGroup
from phalanx.observe.label_results import LabelResults, label_results


class LabelScores:
    """One evaluation's logits of this worker's samples. The result does not depend on how samples are divided."""

    def __init__(self, source: Source, group: WorkerGroup) -> None:
        self._source, self._group = source, group
        self._mine = evaluation_part(len(source), group.share)
        # As many rows for each worker. The last column is 1 for samples that were read: bad images are left out.
        rows = math.ceil(len(source) / group.share.world)
        self._table = torch.zeros(rows, len(source.classes) + 1)

    def add(self, batch: Batch, logits: Tensor) -> None:
        """The logits of a batch."""
        if not len(logits):
            return
        rows = torch.cat([micro.indices for micro in batch.micro]) - int(self._mine[0])
        self._table[rows, :-1] = logits.float().cpu()
        self._table[rows, -1] = 1.0

    def results(self) -> LabelResults | None:
        """The results over all workers: on rank 0, and nothing elsewhere. All workers call this."""
        tables = self._group.gather(self._table)
        if not tables:
            return None
        share, count = self._group.share, len(self._source)
        parts = [evaluation_part(count, share, rank) for rank in range(share.world)]
        whole = torch.cat([table[: len(part)].cpu() for table, part in zip(tables, parts, strict=True)]).numpy()
        read = whole[:, -1] > 0
        labels: np.ndarray[tuple[int, ...], np.dtype[np.int64]] = self._source.labels[read]
        return label_results(self._source.classes, labels, whole[read, :-1])
