"""Binary cross-entropy: a yes or no for each class, whether samples have one label or several."""

import torch.nn.functional as F
from torch import Tensor


def bce(weights: Tensor | None, label_smoothing: float, logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over samples and classes. `weights` are those of each class's positives.

    Labels are class numbers, each class against all others; or zeros and ones (n, classes). Smoothing moves targets
    towards what is equally likely: one of all classes, as timm does it, or yes and no.
    """
    classes = logits.shape[1]
    targets = F.one_hot(labels, classes) if labels.ndim == 1 else labels
    unknown = 1 / classes if labels.ndim == 1 else 1 / 2
    smooth = targets.float() * (1 - label_smoothing) + label_smoothing * unknown
    return F.binary_cross_entropy_with_logits(logits, smooth, pos_weight=weights)
