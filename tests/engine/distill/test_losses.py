"""Each loss of distillation against its formula, written out in numpy and float64."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from phalanx.config.schema import DistillConfig
from phalanx.data.augment.mixing import Targets
from phalanx.engine.distill import losses
from phalanx.engine.distill.objective import answer_loss, of_labelled

Array = npt.NDArray[np.float64]
N, CLASSES = 6, 5
STUDENT, TEACHER = (torch.randn(N, CLASSES, generator=torch.Generator().manual_seed(seed)) * 2 for seed in (1, 2))
LABELS = torch.tensor([0, 4, 2, 2, 1, 3])


def softmax(logits: Tensor, temperature: float = 1.0) -> Array:
    powers = np.exp(logits.double().numpy() / temperature)
    return np.asarray(powers / powers.sum(1, keepdims=True))


def divergence(p: Array, q: Array) -> Array:
    return np.asarray((p * np.log(p / q)).sum(1))


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_kl_is_hintons(temperature: float) -> None:
    wanted = temperature**2 * divergence(softmax(TEACHER, temperature), softmax(STUDENT, temperature)).mean()
    assert losses.kl(STUDENT, TEACHER, temperature).item() == pytest.approx(wanted, rel=1e-5)


def test_kl_has_the_gradient_of_cross_entropy_with_the_teachers_answer() -> None:
    logits = STUDENT.clone().requires_grad_()
    losses.kl(logits, TEACHER, 1.0).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, (STUDENT.softmax(1) - TEACHER.softmax(1)) / N)


def test_js_is_symmetric_and_bounded() -> None:
    p, q = softmax(TEACHER), softmax(STUDENT)
    wanted = (divergence(p, (p + q) / 2) / 2 + divergence(q, (p + q) / 2) / 2).mean()
    assert losses.js(STUDENT, TEACHER, 1.0).item() == pytest.approx(wanted, rel=1e-5)
    assert losses.js(TEACHER, STUDENT, 1.0).item() == pytest.approx(wanted, rel=1e-5)
    sure = torch.tensor([[100.0, 0.0], [100.0, 0.0]])
    assert losses.js(sure, sure.flip(1), 1.0).item() == pytest.approx(math.log(2))


def test_dist_is_one_minus_pearsons_correlations() -> None:
    mine, theirs = softmax(STUDENT, 2), softmax(TEACHER, 2)
    between = np.mean([1 - np.corrcoef(mine[i], theirs[i])[0, 1] for i in range(N)])
    within = np.mean([1 - np.corrcoef(mine[:, c], theirs[:, c])[0, 1] for c in range(CLASSES)])
    assert losses.dist(STUDENT, TEACHER, 2.0).item() == pytest.approx(4 * (between + within), rel=1e-4)


def test_dkd_is_its_two_parts() -> None:
    t = 3.0
    mine, theirs = softmax(STUDENT, t), softmax(TEACHER, t)
    rows = np.arange(N)
    pairs = [np.stack([p[rows, LABELS], 1 - p[rows, LABELS]], 1) for p in (theirs, mine)]
    rest = [np.stack([np.delete(p[i], LABELS[i]) for i in rows]) for p in (theirs, mine)]
    rest = [p / p.sum(1, keepdims=True) for p in rest]
    wanted = t**2 * (1.5 * divergence(*pairs).mean() + 8 * divergence(*rest).mean())
    assert losses.dkd(STUDENT, TEACHER, LABELS, t, 1.5, 8.0).item() == pytest.approx(wanted, rel=1e-4)


def test_dkd_weighted_by_the_teachers_doubt_is_kl() -> None:
    """KL = target part + (1 - p of the right class) · other part, for each sample."""
    doubt = 1 - softmax(TEACHER[:1])[0, 0]
    one = losses.dkd(STUDENT[:1], TEACHER[:1], LABELS[:1], 1.0, 1.0, float(doubt))
    torch.testing.assert_close(one, losses.kl(STUDENT[:1], TEACHER[:1], 1.0), rtol=1e-4, atol=1e-6)


def test_features_of_other_sizes_are_averaged_to_the_smaller() -> None:
    maps = torch.arange(16.0).view(1, 1, 4, 4)
    small = torch.tensor([[2.5, 4.5], [10.5, 12.5]]).view(1, 1, 2, 2)
    assert losses.feature(maps, small).item() == 0
    assert losses.feature(small, maps + 2).item() == 4


@pytest.mark.parametrize("name", ["kl", "js", "dist", "dkd"])
def test_a_student_that_equals_its_teacher_has_no_loss(name: str) -> None:
    config = DistillConfig(teachers=["runs/t"], loss=name)
    assert answer_loss(config, TEACHER, TEACHER, Targets(LABELS)).item() == pytest.approx(0, abs=1e-4)
    assert answer_loss(config, STUDENT, TEACHER, Targets(LABELS)).item() > 0.05


def test_dkd_of_mixed_images_counts_both_labels_by_their_share() -> None:
    config = DistillConfig(teachers=["runs/t"], loss="dkd")
    one, other = (losses.dkd(STUDENT, TEACHER, labels, 4.0, 1.0, 8.0) for labels in (LABELS, LABELS.flip(0)))
    mixed = answer_loss(config, STUDENT, TEACHER, Targets(LABELS, LABELS.flip(0), 0.3))
    torch.testing.assert_close(mixed, 0.3 * one + 0.7 * other)


def test_dkd_of_a_sample_without_a_label_takes_the_teachers_answer() -> None:
    config = DistillConfig(teachers=["runs/t"], loss="dkd")
    unlabelled = answer_loss(config, STUDENT, TEACHER, Targets(torch.full((N,), -1)))
    torch.testing.assert_close(unlabelled, answer_loss(config, STUDENT, TEACHER, Targets(TEACHER.argmax(1))))


def test_the_labels_loss_counts_labelled_samples_however_a_step_is_cut() -> None:
    labels = torch.tensor([0, -1, 2, -1, 1, -1])
    loss = torch.nn.functional.cross_entropy
    whole = of_labelled(loss, 0.5, STUDENT, labels)
    torch.testing.assert_close(whole, loss(STUDENT[::2], labels[::2]))
    parts = [
        of_labelled(loss, 0.5, STUDENT[rows], labels[rows]) * len(labels[rows]) / N
        for rows in (slice(0, 3), slice(3, 6))
    ]
    torch.testing.assert_close(whole, sum(parts))
    assert of_labelled(loss, 0.5, STUDENT, labels.clamp(max=-1)).item() == 0
