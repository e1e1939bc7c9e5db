"""Held-out parts, and classes of one dataset under the numbers of another."""

import numpy as np
import pytest

from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.holdout import holdout_indices, split_holdout, with_classes
from phalanx.errors import UserError
from tests.data.samples import assert_helpful, noise


def source_of(labels: list[int], classes: list[str]) -> ArraySource:
    return array_source(
        "noise", "noise", noise(len(labels), 2, 2, 1), np.array(labels), classes, image_size=2, channels=None
    )


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.99])
def test_each_class_gives_its_share_and_keeps_one(share: float) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(4), [1, 2, 10, 1000]))
    chosen = holdout_indices(labels, share)
    counts = np.bincount(labels[chosen], minlength=4)
    assert counts[0] == 0
    assert counts[1] == 1
    assert counts[2] == min(9, max(1, round(10 * share)))
    assert counts[3] == min(999, round(1000 * share))
    np.testing.assert_array_equal(chosen, np.unique(chosen))
    np.testing.assert_array_equal(chosen, holdout_indices(labels, share))


def test_classes_without_samples_do_not_matter() -> None:
    assert len(holdout_indices(np.array([5, 5, 9, 9]), 0.5)) == 2


def test_the_parts_are_disjoint_and_whole() -> None:
    train, val, notes = split_holdout(source_of([0, 0, 0, 1, 1, 2], ["a", "b", "c"]), 0.1, "here")
    names = [part.name(i) for part in (train, val) for i in range(len(part))]
    assert sorted(names) == [f"noise #{i}" for i in range(6)]
    assert (len(train), len(val)) == (4, 2)
    assert notes[0] == (
        "validation: 2 of 6 images held out (33.3 %; data.val_share=0.1 and at least one of each class); "
        "here has no validation part"
    )
    assert "1 classes have a single image" in notes[1]


@pytest.mark.parametrize(
    ("each", "classes", "said"),
    [
        (5, 40, "40 of 200 images held out (20.0 %; data.val_share=0.1 and at least one of each class)"),
        (20, 10, "20 of 200 images held out (10.0 %; data.val_share=0.1)"),
        (14, 10, "10 of 140 images held out (7.1 %; data.val_share=0.1 in whole images of each class)"),
    ],
)
def test_the_note_says_what_was_really_held_out(each: int, classes: int, said: str) -> None:
    labels = np.repeat(np.arange(classes), each).tolist()
    _, val, notes = split_holdout(source_of(labels, [str(i) for i in range(classes)]), 0.1, "here")
    assert notes == [f"validation: {said}; here has no validation part"]
    assert len(val) == int(said.partition(" ")[0])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_shares_that_leave_nothing(share: float) -> None:
    with pytest.raises(UserError) as caught:
        split_holdout(source_of([0, 0], ["a"]), share, "here")
    assert_helpful(caught.value, "here", "data.val_share", "data.val")


def test_single_images_cannot_be_divided() -> None:
    with pytest.raises(UserError) as caught:
        split_holdout(source_of([0, 1], ["a", "b"]), 0.5, "here")
    assert_helpful(caught.value, "here", "data.val")


def test_labels_follow_the_names_of_the_classes() -> None:
    mapped, notes = with_classes(source_of([0, 1, 1], ["b", "d"]), ["a", "b", "c", "d"], "x")
    assert (mapped.labels.tolist(), mapped.classes, notes) == ([1, 3, 3], ["a", "b", "c", "d"], [])


@pytest.mark.parametrize(("own", "known"), [(["0", "1"], ["a", "b"]), (["a", "b"], ["0", "1"])])
def test_numbers_match_by_position_and_that_is_told(own: list[str], known: list[str]) -> None:
    mapped, notes = with_classes(source_of([0, 1], own), known, "x")
    assert mapped.labels.tolist() == [0, 1]
    assert "matched by number" in notes[0]


@pytest.mark.parametrize(("own", "known"), [(["a", "x"], ["a", "b"]), (["0", "1"], ["a", "b", "c"])])
def test_unknown_classes_are_named(own: list[str], known: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        with_classes(source_of([0, 1], own), known, "the data")
    assert_helpful(caught.value, "the data", own[1], "a, b")
