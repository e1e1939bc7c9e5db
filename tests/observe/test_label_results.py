"""mAP and F1 against scikit-learn's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score

from phalanx.observe.label_results import average_precision, label_results

NAMES = list("abcde")


def drawn(seed: int, levels: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Labels and logits; with `levels`, few different logits, so that many are equal."""
    generator = np.random.default_rng(seed)
    labels = (generator.random((200, 5)) < [0.5, 0.3, 0.1, 0.02, 0.9]).astype(np.int64)
    labels[0] = 1  # every class has a positive
    logits = generator.normal(size=(200, 5)).astype(np.float32) + labels
    return labels, logits if levels is None else np.round(logits * levels).astype(np.float32) / levels


@pytest.mark.parametrize("levels", [None, 1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_they_are_scikit_learns(seed: int, levels: int | None) -> None:
    labels, logits = drawn(seed, levels)
    results = label_results(NAMES, labels, logits)
    numbers = results.numbers()
    assert numbers["mAP"] == pytest.approx(average_precision_score(labels, logits, average="macro"), rel=1e-12)
    each = average_precision_score(labels, logits, average=None)
    assert [one.average_precision for one in results.classes] == pytest.approx(each.tolist(), rel=1e-12)
    for average in ("micro", "macro"):
        expected = f1_score(labels, logits > 0, average=average, zero_division=0)
        assert numbers[f"f1_{average}"] == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.tuples(st.booleans(), st.integers(-2, 2)), min_size=1, max_size=30))
def test_average_precision_of_any_ties_is_scikit_learns(samples: list[tuple[bool, int]]) -> None:
    labels, scores = np.array([label for label, _ in samples]), np.array([score for _, score in samples], np.float32)
    labels[0] = True
    assert average_precision(labels, scores) == pytest.approx(average_precision_score(labels, scores), rel=1e-12)


def test_a_class_that_no_sample_has_is_left_out_of_the_means() -> None:
    labels, logits = drawn(0, None)
    labels[:, 3] = 0
    results = label_results(NAMES, labels, logits)
    assert (results.classes[3].average_precision, results.classes[3].f1, results.classes[3].recall) == (None,) * 3
    kept = [0, 1, 2, 4]
    expected = average_precision_score(labels[:, kept], logits[:, kept], average="macro")
    assert results.numbers()["mAP"] == pytest.approx(expected, rel=1e-12)
    assert math.isnan(label_results(["a"], labels[:, 3:4], logits[:, :1]).numbers()["mAP"])


def test_what_is_not_a_number_ranks_last() -> None:
    labels = np.array([True, False, True])
    assert average_precision(labels, np.array([np.nan, -5, 1], np.float32)) == pytest.approx((1 + 2 / 3) / 2)
