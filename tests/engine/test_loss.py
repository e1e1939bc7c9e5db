"""The loss against torch's own of soft targets, and counts of correct answers."""

import pytest
import torch
from torch.nn import functional as F

from phalanx.config.schema import LossConfig
from phalanx.data.augment.mixing import Targets
from phalanx.engine.loss import correct, make_loss, training_loss

LOGITS = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 4, 0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_plain_targets_have_torchs_cross_entropy(smoothing: float) -> None:
    found = training_loss(LOGITS, Targets(LABELS), make_loss(LossConfig(label_smoothing=smoothing)))
    assert torch.equal(found, F.cross_entropy(LOGITS, LABELS, label_smoothing=smoothing))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
def test_mixed_targets_have_the_cross_entropy_of_soft_ones(smoothing: float, lam: float) -> None:
    soft = lam * F.one_hot(LABELS, 5) + (1 - lam) * F.one_hot(LABELS.flip(0), 5)
    expected = F.cross_entropy(LOGITS, soft, label_smoothing=smoothing)
    found = training_loss(
        LOGITS, Targets(LABELS, LABELS.flip(0), lam), make_loss(LossConfig(label_smoothing=smoothing))
    )
    torch.testing.assert_close(found, expected)


def test_it_is_computed_in_float32_whatever_the_model() -> None:
    half = LOGITS.bfloat16()
    found = training_loss(half, Targets(LABELS), make_loss(LossConfig(label_smoothing=0.1)))
    assert found.dtype == torch.float32
    assert torch.equal(found, F.cross_entropy(half.float(), LABELS, label_smoothing=0.1))


def test_answers_are_counted_among_the_first_k() -> None:
    logits = torch.tensor([[3.0, 2, 1, 0], [3, 2, 1, 0], [3, 2, 1, 0], [3, 2, 1, 0]])
    labels = torch.tensor([0, 1, 2, 3])
    for k, among in ((1, 1), (2, 2), (3, 3), (4, 4), (9, 4)):  # no more than there are classes
        assert correct(logits, labels, k).tolist() == [1, among]


def test_class_weights_count_the_same_however_a_batch_is_divided() -> None:
    weights = torch.tensor([0.5, 1, 2, 3, 4])
    loss = make_loss(LossConfig(class_weights=weights.tolist()), weights)
    each = F.cross_entropy(LOGITS, LABELS, reduction="none") * weights[LABELS]
    torch.testing.assert_close(loss(LOGITS, LABELS), each.mean())
    parts = (2 * loss(LOGITS[:2], LABELS[:2]) + 4 * loss(LOGITS[2:], LABELS[2:])) / 6
    torch.testing.assert_close(parts, loss(LOGITS, LABELS))
