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
        self._tables = {group.share.rank: self._empty()}  # by rank: this worker's, and those of lost ones

    def _empty(self) -> Tensor:
        """As many rows for each worker. The last column is 1 for samples that were read: bad images are left out."""
        return torch.zeros(math.ceil(len(self._source) / self._group.share.world), len(self._source.classes) + 1)

    def add(self, batch: Batch, logits: Tensor, rank: int) -> None:
        """The logits of a batch of a worker's part."""
        if not len(logits):
            return
        table = self._tables.setdefault(rank, self._empty())
        first = evaluation_part(len(self._source), self._group.share, rank)[0]
        rows = torch.cat([micro.indices for micro in batch.micro]) - int(first)
        table[rows, :-1] = logits.float().cpu()
        table[rows, -1] = 1.0

    def results(self) -> LabelResults | None:
        """The results over all workers: on rank 0, and nothing elsewhere. All workers call this."""
        share, count = self._group.share, len(self._source)
        gathered = self._group.gather(self._tables[share.rank])
        if not gathered:
            return None
        tables = [self._tables.get(rank, table) for rank, table in enumerate(gathered)]
        parts = [evaluation_part(count, share, rank) for rank in range(share.world)]
        whole = torch.cat([table[: len(part)].cpu() for table, part in zip(tables, parts, strict=True)]).numpy()
        read = whole[:, -1] > 0
        labels: np.ndarray[tuple[int, ...], np.dtype[np.int64]] = self._source.labels[read]
        return label_results(self._source.classes, labels, whole[read, :-1])
