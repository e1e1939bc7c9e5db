"""What a student minimises to become like its teacher. Pure functions of logits (n, classes), in float32.

Each is the mean over samples. Those of softened answers are multiplied by T², so that their gradients keep their size
at any temperature T.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

TINY = 1e-8


def kl(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL(teacher ‖ student) of softened answers (Hinton et al., 2015)."""
    mine, theirs = (F.log_softmax(logits / temperature, dim=1) for logits in (student, teacher))
    return _kl(theirs, mine).mean() * temperature**2


def js(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Jensen-Shannon divergence, which is symmetric and at most ln 2 (SSLD: Cui et al., 2021)."""
    mine, theirs = (F.log_softmax(logits / temperature, dim=1) for logits in (student, teacher))
    middle = torch.logaddexp(mine, theirs) - math.log(2.0)
    return (_kl(theirs, middle) + _kl(mine, middle)).mean() / 2 * temperature**2


def dist(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """1 - Pearson's correlation, over the classes of each sample plus over the samples of each class (Huang, 2022).

    The second one compares the samples of a micro-batch with each other, so it depends on how a step is cut.
    """
    mine, theirs = (F.softmax(logits / temperature, dim=1) for logits in (student, teacher))
    between = 1 - _correlation(mine, theirs, dim=1).mean()
    within = 1 - _correlation(mine, theirs, dim=0).mean()
    return (between + within) * temperature**2


def dkd(student: Tensor, teacher: Tensor, labels: Tensor, temperature: float, target: float, others: float) -> Tensor:
    """Decoupled distillation (Zhao et al., 2022): the right class against the rest, and the rest among themselves.

    KL is the first plus the second weighted by the teacher's doubt; here each has a weight of its own.
    """
    mine, theirs = (F.log_softmax(logits / temperature, dim=1) for logits in (student, teacher))
    right = F.one_hot(labels, mine.shape[1]).bool()
    rest = [log[~right].view(len(log), -1) for log in (mine, theirs)]
    # log of (probability of the right class, probability of all others together)
    pairs = [torch.stack([log[right], wrong.logsumexp(1)], 1) for log, wrong in zip((mine, theirs), rest, strict=True)]
    of_target = _kl(pairs[1], pairs[0]).mean()
    of_others = _kl(*(F.log_softmax(wrong, dim=1) for wrong in reversed(rest))).mean()
    return (target * of_target + others * of_others) * temperature**2


def feature(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared difference of two layers' outputs (FitNets: Romero et al., 2015).

    Where maps (n, channels, height, width) differ in size, the larger one is averaged to the smaller.
    """
    student, teacher = student.float(), teacher.float()
    if student.ndim == 4 and student.shape[2:] != teacher.shape[2:]:
        size = (min(student.shape[2], teacher.shape[2]), min(student.shape[3], teacher.shape[3]))
        student, teacher = (F.adaptive_avg_pool2d(maps, size) for maps in (student, teacher))
    return F.mse_loss(student, teacher)


def _kl(of: Tensor, to: Tensor) -> Tensor:
    """KL(of ‖ to) of each sample, from logarithms of probabilities."""
    return (of.exp() * (of - to)).sum(1)


def _correlation(one: Tensor, other: Tensor, dim: int) -> Tensor:
    one, other = (values - values.mean(dim, keepdim=True) for values in (one, other))
    return F.cosine_similarity(one, other, dim=dim, eps=TINY)
