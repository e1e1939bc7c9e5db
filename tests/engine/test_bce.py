"""BCE against torch's and timm's, and its weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from timm.loss.binary_cross_entropy import BinaryCrossEntropy
from torch.nn import functional as F

from phalanx.config.schema import LossConfig
from phalanx.data.augment.mixing import Targets
from phalanx.engine.class_weights import class_weights
from phalanx.engine.loss import counted, loss_notes, make_loss, plain_loss, training_loss

LOGITS = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
NUMBERS = torch.tensor([0, 1, 2, 3, 4, 0])
SETS = torch.tensor(
    [[0, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 0, 0, 0]]
)


def test_several_labels_have_bce_without_being_asked() -> None:
    loss = make_loss(LossConfig(), multi_label=True)
    expected = F.binary_cross_entropy_with_logits(LOGITS, SETS.float())
    torch.testing.assert_close(training_loss(LOGITS, Targets(SETS), loss), expected)
    torch.testing.assert_close(plain_loss(LOGITS, SETS), expected)
    assert "BCE" in loss_notes(LossConfig(), multi_label=True)[0]
    assert loss_notes(LossConfig()) == []


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_one_label_has_timms(smoothing: float) -> None:
    loss = make_loss(LossConfig(name="bce", label_smoothing=smoothing))
    torch.testing.assert_close(loss(LOGITS, NUMBERS), BinaryCrossEntropy(smoothing=smoothing)(LOGITS, NUMBERS))
    assert torch.equal(plain_loss(LOGITS, NUMBERS), F.cross_entropy(LOGITS, NUMBERS))  # as every run reports


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_mixed_labels_have_the_loss_of_soft_ones(smoothing: float) -> None:
    weights = torch.tensor([1.0, 2, 3, 4, 5])
    loss = make_loss(LossConfig(label_smoothing=smoothing), weights, multi_label=True)
    soft = (0.3 * SETS + 0.7 * SETS.flip(0)) * (1 - smoothing) + smoothing / 2
    expected = F.binary_cross_entropy_with_logits(LOGITS, soft, pos_weight=weights)
    torch.testing.assert_close(training_loss(LOGITS, Targets(SETS, SETS.flip(0), 0.3), loss), expected)


def test_balanced_weights_are_negatives_over_positives() -> None:
    labels = np.concatenate([SETS.numpy(), np.zeros((6, 5), dtype=np.int64)])
    config = LossConfig(class_weights="balanced")
    weights = class_weights(config, labels, 5)
    assert weights is not None
    assert weights.tolist() == pytest.approx([10 / 2, 9 / 3, 9 / 3, 11 / 1, 10 / 2])
    labels[:, 0], labels[:, 1] = 0, 1  # nothing to balance
    weights = class_weights(config, labels, 5)
    assert weights is not None
    assert weights.tolist()[:2] == [1, 1]
    one_label = class_weights(LossConfig(name="bce", class_weights="balanced"), NUMBERS.numpy(), 5)
    assert one_label is not None
    assert one_label.tolist() == [2, 5, 5, 5, 5]
    given = class_weights(LossConfig(class_weights=[1, 2, 3, 4, 5]), labels, 5)
    assert given is not None
    assert given.tolist() == [1, 2, 3, 4, 5]


def test_labels_are_counted_over_samples_and_classes() -> None:
    predicted = LOGITS > 0
    hits = int((predicted & (SETS > 0)).sum())
    assert counted(LOGITS, SETS, 1).tolist() == [0, 0, hits, int(predicted.sum() + SETS.sum())]
    assert counted(LOGITS, NUMBERS, 5).tolist()[1:] == [6, 0, 0]


def test_a_users_loss_gets_floats(tmp_path: Path) -> None:
    (tmp_path / "label_losses.py").write_text(
        "import torch.nn.functional as F\n\n"
        "def each(logits, labels):\n    return F.binary_cross_entropy_with_logits(logits, labels, reduction='none')\n\n"
        "def of_sample(logits, labels):\n    return each(logits, labels).mean(1)\n"
    )
    for name in ("each", "of_sample"):
        loss = make_loss(LossConfig(name=f"{tmp_path}/label_losses.py:{name}"), multi_label=True)
        torch.testing.assert_close(loss(LOGITS, SETS), plain_loss(LOGITS, SETS))
