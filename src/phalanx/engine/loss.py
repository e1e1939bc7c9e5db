"""Cross-entropy with label smoothing over plain or mixed targets, and top-1/top-k counts."""

import torch
import torch.nn.functional as F
from torch import Tensor

from phalanx.data.augment.mixing import Targets


def classification_loss(logits: Tensor, targets: Targets, label_smoothing: float) -> Tensor:
    """Mean loss of a micro-batch, in float32 whatever the precision of the model."""
    logits = logits.float()
    loss = F.cross_entropy(logits, targets.labels, label_smoothing=label_smoothing)
    if targets.other_labels is None:
        return loss
    other = F.cross_entropy(logits, targets.other_labels, label_smoothing=label_smoothing)
    return targets.lam * loss + (1 - targets.lam) * other


@torch.no_grad()
def correct(logits: Tensor, labels: Tensor, k: int) -> Tensor:
    """How many labels are the first answer, and how many among the first k: a tensor of two counts."""
    top = logits.topk(min(k, logits.shape[1]), dim=1).indices
    hits = top == labels[:, None]
    return torch.stack([hits[:, 0].sum(), hits.sum()])
