import numpy as np

from phalanx.observe.confusion import Answers, ClassResult, Confusion

# cat is right twice, once a dog and twice a bird; dog is always a cat; there is no bird
ANSWERS = Answers(["cat", "dog", "bird"], np.array([0, 0, 0, 0, 0, 1, 1]), np.array([0, 2, 2, 1, 0, 0, 0]))


def test_confusions_are_counted_the_most_frequent_first() -> None:
    assert ANSWERS.confusions() == [Confusion(0, 2, 2), Confusion(1, 0, 2), Confusion(0, 1, 1)]


def test_every_class_has_its_result_also_one_without_samples() -> None:
    cat, dog, bird = ANSWERS.by_class()
    assert cat == ClassResult("cat", 5, 2, "bird", 2)
    assert cat.top1 == 0.4
    assert dog == ClassResult("dog", 2, 0, "cat", 2)
    assert bird == ClassResult("bird", 0, 0, None, 0)
    assert bird.top1 is None


def test_neighbouring_classes_may_share_a_cell() -> None:
    assert ANSWERS.matrix().tolist() == [[2, 1, 2], [2, 0, 0], [0, 0, 0]]
    assert ANSWERS.matrix(group=2).tolist() == [[5, 2], [0, 0]]


def test_nothing_wrong_is_no_confusion() -> None:
    right = Answers(["a", "b"], np.array([0, 1]), np.array([0, 1]))
    assert right.confusions() == []
    assert [one.times for one in right.by_class()] == [0, 0]
