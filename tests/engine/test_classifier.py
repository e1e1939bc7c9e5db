"""The rows of a saved classifier go to the classes of the same names."""

import pytest
import torch
from torch import nn

from phalanx.engine.classifier import Rows, fit_classifier, match_classes
from phalanx.errors import UserError
from tests.data.samples import assert_helpful

AS_NUMBERS = [str(number) for number in range(12)]
AS_TEXT = sorted(AS_NUMBERS)  # 0, 1, 10, 11, 2 …: the order of class folders
NAMES = [f"class {number}" for number in range(12)]


class Net(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body, self.fc = nn.Linear(3, 5), nn.Linear(5, classes)


def matched(saved: list[str], wanted: list[str], *, new_head: bool = False) -> Rows:
    return match_classes(saved, wanted, "runs/old", new_head=new_head)


def fitted(saved: list[str], wanted: list[str], *, new_head: bool = False) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    """(the saved classifier, a new one with its rows, the new one before)."""
    old, new = Net(len(saved)), Net(len(wanted))
    before = Net(len(wanted))
    before.load_state_dict(new.state_dict())
    tensors = {name: tensor.clone() for name, tensor in old.state_dict().items()}
    new.load_state_dict(fit_classifier(new, tensors, matched(saved, wanted, new_head=new_head), len(saved)))
    assert torch.equal(new.body.weight, old.body.weight)
    return old.fc, new.fc, before.fc


@pytest.mark.parametrize(("saved", "wanted"), [(AS_TEXT, AS_NUMBERS), (AS_NUMBERS, AS_TEXT), (NAMES, NAMES[::-1])])
def test_other_orders_are_matched_by_name(saved: list[str], wanted: list[str]) -> None:
    old, new, _ = fitted(saved, wanted)
    for row, name in enumerate(wanted):
        assert torch.equal(new.weight[row], old.weight[saved.index(name)])
        assert torch.equal(new.bias[row], old.bias[saved.index(name)])
    assert (
        "12 classes of runs/old are in another order: its classifier was matched by name" in matched(saved, wanted).note
    )


def test_the_same_classes_stay_in_place_and_need_no_words() -> None:
    rows = matched(NAMES, NAMES)
    assert (rows.in_place, rows.note) == (True, "")


@pytest.mark.parametrize(
    ("saved", "wanted", "said"),
    [
        (AS_NUMBERS, NAMES, "runs/old have no names, so the classifier was matched by number: 0 is class 0"),
        (AS_TEXT, NAMES, "runs/old have no names, so the classifier was matched by number: 0 is class 0"),
        (NAMES, AS_NUMBERS, "the data have no names, so the classifier was matched by number: class 0 is 0"),
        (NAMES, AS_TEXT, "the data have no names, so the classifier was matched by number: class 0 is 0"),
    ],
)
def test_without_names_on_one_side_numbers_match_and_that_is_told(
    saved: list[str], wanted: list[str], said: str
) -> None:
    old, new, _ = fitted(saved, wanted)
    for row, name in enumerate(wanted):
        number = int(name.removeprefix("class "))
        of = saved.index(str(number)) if saved != NAMES else number
        assert torch.equal(new.weight[row], old.weight[of])
    assert said in matched(saved, wanted).note


def test_other_names_are_refused_even_if_as_many() -> None:
    with pytest.raises(UserError) as caught:
        matched(["cat", "dog", "eel"], ["dog", "eel", "fox"])
    assert_helpful(caught.value, "2 of 3 names", "cat, dog, eel", "dog, eel, fox", "model.new_head=true", "class_names")
    with pytest.raises(UserError) as caught:
        matched(["cat", "dog"], ["cat", "dog", "eel"])
    assert_helpful(caught.value, "runs/old has 2 classes, the data has 3", "--init-from with model.new_head=true")


@pytest.mark.parametrize("wanted", [["dog", "fox", "cat"], ["fox", "cat"], ["ant", "cat", "dog", "eel", "fox"]])
def test_a_new_head_keeps_the_classes_with_the_same_names(wanted: list[str]) -> None:
    saved = ["cat", "dog", "eel"]
    old, new, before = fitted(saved, wanted, new_head=True)
    for row, name in enumerate(wanted):
        expected = old.weight[saved.index(name)] if name in saved else before.weight[row]
        assert torch.equal(new.weight[row], expected)
    kept = len(set(wanted) & set(saved))
    assert f"keeps {kept} classes of runs/old by name, and starts anew for {len(wanted) - kept}" in (
        matched(saved, wanted, new_head=True).note
    )


@pytest.mark.parametrize(
    ("saved", "wanted"), [(["cat", "dog"], ["a", "b"]), (AS_NUMBERS, NAMES), (list("0123"), list("012"))]
)
def test_a_new_head_is_fresh_where_no_name_is_known(saved: list[str], wanted: list[str]) -> None:
    _, new, before = fitted(saved, wanted, new_head=True)
    assert torch.equal(new.weight, before.weight)
    assert "starts anew" in matched(saved, wanted, new_head=True).note


def test_a_model_whose_classifier_is_not_known() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    rows = matched(["a", "b"], ["b", "a"])
    with pytest.raises(UserError) as caught:
        fit_classifier(model, dict(model.state_dict()), rows, 2)
    assert_helpful(caught.value, "classifier is not known", "default_cfg")
