import numpy as np
import pytest

from phalanx.config.schema import LossConfig
from phalanx.engine.class_weights import class_weights
from phalanx.errors import UserError

LABELS = np.array([0] * 6 + [1] * 3 + [3])


def test_balanced_weights_are_one_on_average_over_the_data() -> None:
    weights = class_weights(LossConfig(class_weights="balanced"), LABELS, 4)
    assert weights is not None
    assert weights.numpy() == pytest.approx([10 / 18, 10 / 9, 0, 10 / 3])
    assert weights.numpy()[LABELS].mean() == pytest.approx(1)


def test_given_weights_are_one_for_each_class() -> None:
    assert class_weights(LossConfig(), LABELS, 4) is None
    weights = class_weights(LossConfig(class_weights=[1, 2, 3, 4]), LABELS, 4)
    assert weights is not None
    assert weights.tolist() == [1, 2, 3, 4]
    with pytest.raises(UserError, match="class_weights has 2 values"):
        class_weights(LossConfig(class_weights=[1, 2]), LABELS, 4)
