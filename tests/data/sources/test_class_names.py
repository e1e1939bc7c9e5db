"""Names of numbered classes: from data.class_names and from the files that lie beside data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.sources.class_names import Naming
from phalanx.data.sources.name_files import NoNames, read_names
from phalanx.data.sources.open import open_split
from phalanx.errors import UserError
from tests.data.samples import assert_helpful
from tests.data.sources.test_holdout import source_of
from tests.data.sources.test_idx import write_idx
from tests.data.sources.trees import classes, make_tree, opened, several

NAMES = ["tench", "great white shark", "hen 2"]


def listed(folder: Path, labels: str = "012") -> Path:
    """A list of numbered classes, two images each."""
    images = several("x", 2 * len(labels))
    make_tree(folder, *images)
    (folder / "all.lst").write_text("".join(f"{name} {labels[i // 2]}\n" for i, name in enumerate(images)))
    return folder / "all.lst"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.txt", "tench\ngreat white shark\nhen 2\n"),
        ("classes.txt", "# a comment\n0 tench\n1 great white shark\n2 hen 2\n"),
        ("class_names.txt", "0: tench\n1: great white shark\n2: hen 2\n"),
        ("LABELS.TXT", "2,hen 2\n1,great white shark\n0,tench\n"),
        ("classes.txt", "tench 0\ngreat white shark 1\nhen 2 2\n"),
        ("flowers102_label_list.txt", "0 tench\n1 great white shark\n2 hen 2\n"),
        ("class_to_idx.json", json.dumps({"hen 2": 2, "tench": 0, "great white shark": 1})),
        ("idx_to_class.json", json.dumps(dict(enumerate(NAMES)))),
        (
            "label_map.json",
            json.dumps([{"id": 1, "name": NAMES[1]}, {"id": 0, "name": NAMES[0]}, {"id": 2, "name": NAMES[2]}]),
        ),
        ("label_num_to_disease_map.json", json.dumps({"0": "tench", "2": "hen 2", "1": "great white shark"})),
        ("classes.json", json.dumps(NAMES)),
    ],
)
def test_files_beside_the_data(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    splits = opened(listed(tmp_path))
    assert splits.train.classes == splits.val.classes == NAMES
    assert f"class names: {tmp_path / name}, 0 is tench, and so on" in splits.notes
    told = opened(listed(tmp_path / "other"), class_names=tmp_path / name)
    assert told.train.classes == NAMES


def test_imagenets_index_gives_the_wnids(tmp_path: Path) -> None:
    """Its words are not unique, and class folders have wnids."""
    index = {"0": ["n02012849", "crane"], "1": ["n03126707", "crane"], "2": ["n01440764", "tench"]}
    (tmp_path / "imagenet_class_index.json").write_text(json.dumps(index))
    assert opened(listed(tmp_path)).train.classes == ["n02012849", "n03126707", "n01440764"]


def test_names_for_both_splits_of_any_format(tmp_path: Path) -> None:
    write_idx(tmp_path, packed=False)
    (tmp_path / "labels.txt").write_text("\n".join(f"garment {i}" for i in range(10)))
    splits = opened(tmp_path)
    assert splits.train.classes[7] == splits.val.classes[7] == "garment 7"
    assert np.array_equal(splits.train.labels, opened(tmp_path, class_names=[str(i) for i in range(10)]).train.labels)


@pytest.mark.parametrize("text", ["tench\nhen\n", "a\nb\nc\nd\n"])
def test_another_number_of_names_is_told_or_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.txt").write_text(text)
    splits = opened(listed(tmp_path))
    assert splits.train.classes == ["0", "1", "2"]
    assert f"{tmp_path / 'labels.txt'} names {text.count(chr(10))} classes and the data has 3" in splits.notes[0]


def test_the_users_names_have_to_reach_and_may_be_more(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        opened(listed(tmp_path), class_names=["a", "b"])
    assert_helpful(caught.value, "data.class_names names 2 classes, and the data has 3", "from 0 to 2")
    splits = opened(tmp_path / "all.lst", class_names=["a", "b", "c", "d"])
    assert splits.train.classes == ["a", "b", "c", "d"]
    assert "data.class_names names 4 classes, and labels of the data go up to 2" in splits.notes


def test_folders_called_by_numbers_are_named_by_their_number(tmp_path: Path) -> None:
    """As text 10 comes before 2: the user's names go by the number, and put the classes into that order."""
    make_tree(tmp_path, *classes("", map(str, range(12))))
    plain = opened(tmp_path)
    assert plain.train.classes[:4] == ["0", "1", "10", "11"]
    names = [f"class {i}" for i in range(12)]
    named = opened(tmp_path, class_names=names)
    assert named.train.classes == names
    for index, label in enumerate(named.train.labels.tolist()):
        assert Path(named.train.name(index)).parent.name == str(label)


def test_names_by_the_folders_own_names(tmp_path: Path) -> None:
    """flowers102's cat_to_name.json counts folders from 1."""
    make_tree(tmp_path, *classes("train", ["1", "10", "21"]))
    (tmp_path / "cat_to_name.json").write_text(
        json.dumps({"21": "fire lily", "1": "primrose", "10": "thistle", "3": "x"})
    )
    assert opened(tmp_path / "train").train.classes == ["1", "10", "21"]
    splits = opened(tmp_path / "train", class_names=tmp_path / "cat_to_name.json")
    assert splits.train.classes == ["primrose", "thistle", "fire lily"]
    make_tree(tmp_path, *classes("train", ["5"]))
    with pytest.raises(UserError) as caught:
        opened(tmp_path / "train", class_names=tmp_path / "cat_to_name.json")
    assert_helpful(caught.value, "does not name the classes", "5", "21")


def test_the_user_orders_classes_by_name(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("", ["cat", "dog"]))
    splits = opened(tmp_path, class_names=["dog", "cat", "eel"])
    assert (splits.train.classes, splits.train.labels.tolist()) == (["dog", "cat", "eel"], [1, 0])
    with pytest.raises(UserError) as caught:
        opened(tmp_path, class_names=["dog", "eel"])
    assert_helpful(caught.value, "cat", "dog, eel")


def test_class_folders_keep_their_names(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("", ["cat", "dog"]))
    (tmp_path / "labels.txt").write_text("Katze\nHund\n")
    assert opened(tmp_path).train.classes == ["cat", "dog"]


@pytest.mark.parametrize("data", ["list", "idx"])
def test_a_model_is_evaluated_by_the_names_beside_other_data(tmp_path: Path, data: str) -> None:
    """The data numbers the classes in another order than the model."""
    names = [f"c{i}" for i in range(10)]
    (tmp_path / "labels.txt").write_text("\n".join(reversed(names)))
    source = write_idx(tmp_path, packed=False) if data == "idx" else listed(tmp_path, "0123456789")
    plain = open_split(str(source), DataConfig(), [str(i) for i in range(10)], threads=0)
    split = open_split(str(source), DataConfig(), names, threads=0)
    assert split.labels.tolist() == [9 - label for label in plain.labels.tolist()]


def test_names_of_several_labels_a_sample() -> None:
    source = source_of([0, 1], ["0", "1"])
    source.labels = np.array([[1, 0], [1, 1]])
    named = Naming(["b", "a", "c"], [1, 0]).of(source)
    assert named.labels.tolist() == [[0, 1, 0], [1, 1, 0]]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.txt", "", "empty"),
        ("a.txt", "cat\ncat\n", "'cat' is there 2 times"),
        ("a.txt", "x" * 300, "not a class name"),
        ("a.json", "{", "not JSON"),
        ("a.json", "{}", "neither"),
        ("a.json", '{"a": 0, "b": 0}', "same number"),
        ("a.json", '{"a": {"b": 1}}', "neither numbers nor names"),
        ("a.json", "[1, 2]", "something else"),
    ],
)
def test_files_that_name_no_classes(tmp_path: Path, name: str, content: str, why: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(NoNames, match=why):
        read_names(tmp_path / name)
    with pytest.raises(UserError) as caught:
        opened(listed(tmp_path), class_names=tmp_path / name)
    assert_helpful(caught.value, name, why)


@pytest.mark.parametrize("given", [Path("no/such.txt"), ["a", "a", "b"]])
def test_names_that_cannot_be_used(tmp_path: Path, given: Any) -> None:
    with pytest.raises(UserError) as caught:
        opened(listed(tmp_path), class_names=given)
    assert_helpful(caught.value, "data.class_names")
