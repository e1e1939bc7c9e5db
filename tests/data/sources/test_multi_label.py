"""Several labels a sample: how sources, splits, orders and batches carry them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from phalanx.config.schema import DataConfig, RunConfig
from phalanx.data.augment.framing import Whole
from phalanx.data.order import Share, balanced_set_order, epoch_work, repeats_of
from phalanx.data.pipeline import Pipeline
from phalanx.data.sampling import Balanced
from phalanx.data.sources.arrays import array_source
from phalanx.data.sources.holdout import holdout_indices, split_holdout, with_classes
from phalanx.data.sources.labelled import Labels
from phalanx.data.sources.multi_label import judged_classes, labelled_as, with_more_classes
from phalanx.data.sources.open import open_data, open_split
from phalanx.errors import UserError
from tests.data.shard_files import pictures, write_tar


def drawn(count: int = 400, seed: int = 0) -> Labels:
    """Labels of which some are rare; some samples have none."""
    shares = np.array([0.5, 0.3, 0.1, 0.03, 0.01])
    return (np.random.default_rng(seed).random((count, len(shares))) < shares).astype(np.int64)


def source_of(labels: Labels, classes: str = "abcde") -> Any:
    images = np.arange(len(labels) * 12, dtype=np.uint8).reshape(-1, 2, 2, 3)
    return array_source("some", "some", images, labels, list(classes), image_size=2, channels=None)


def test_a_holdout_has_its_share_of_every_label() -> None:
    labels = drawn()
    held = holdout_indices(labels, 0.2)
    assert np.array_equal(held, holdout_indices(labels, 0.2))
    assert len(held) == pytest.approx(80, abs=6)
    counts, of_held = labels.sum(axis=0), labels[held].sum(axis=0)
    assert np.all(np.abs(of_held - 0.2 * counts) <= 2)
    assert np.all(of_held >= 1)
    none = labels.sum(axis=1) == 0
    assert none[held].sum() == pytest.approx(0.2 * none.sum(), abs=2)


def test_a_label_of_one_sample_stays_in_training() -> None:
    labels = np.zeros((40, 3), dtype=np.int64)
    labels[:, 0], labels[5, 1], labels[[8, 9], 2] = 1, 1, 1
    train, val, notes = split_holdout(source_of(labels, "abc"), 0.1, "here")
    assert (train.labels[:, 1].sum(), val.labels[:, 1].sum()) == (1, 0)
    assert (train.labels[:, 2].sum(), val.labels[:, 2].sum()) == (1, 1)
    assert any("1 classes have a single image" in note for note in notes)
    assert judged_classes(val, "it") == ["mAP is without 1 classes that no sample of it has: b"]
    with pytest.raises(UserError, match="no sample of it has a label"):
        judged_classes(source_of(np.zeros((3, 5), dtype=np.int64)), "it")


def test_columns_follow_the_names_of_classes() -> None:
    labels = drawn(20)
    labels[0, 4] = 1
    source, notes = with_classes(source_of(labels), list("xebdca"), "it")
    assert notes == []
    assert np.array_equal(source.labels, np.concatenate([np.zeros((20, 1), int), labels[:, [4, 1, 3, 2, 0]]], axis=1))
    few = source_of(labels[:, :2], "ab")
    assert np.array_equal(with_more_classes(few, list("abc")).labels, np.pad(labels[:, :2], ((0, 0), (0, 1))))
    with pytest.raises(UserError, match="1 classes that are not among"):
        with_classes(source_of(labels), list("abcdx"), "it")
    unused = labels.copy()
    unused[:, 4] = 0
    assert with_classes(source_of(unused), list("abcdx"), "it")[0].labels.shape == (20, 5)


def test_one_label_becomes_one_of_several_where_that_is_asked_for() -> None:
    numbers = source_of(np.array([2, 0, 1]), "abc")
    found, notes = labelled_as(DataConfig(multi_label=True), numbers, "it")
    assert found.labels.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert "one label" in notes[0]
    assert "1 labels a sample" in found.description
    with pytest.raises(UserError, match="several labels a sample") as error:
        labelled_as(DataConfig(), source_of(drawn(3)), "it")
    assert "data.multi_label=true" in error.value.remedy
    splits = open_data(DataConfig(source="digits", multi_label=True), threads=0)
    assert splits.train.labels.shape == (1442, 10)
    assert np.all(splits.val.labels.sum(axis=1) == 1)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="label_element chooses one"):
        DataConfig(multi_label=True, label_element=0)
    with pytest.raises(ValueError, match=r"loss\.name=cross_entropy is for one label"):
        RunConfig.model_validate({"data": {"multi_label": True}, "loss": {"name": "cross_entropy"}})


def test_a_balanced_epoch_draws_each_class_equally_often() -> None:
    labels = drawn()
    labels[np.argmax(labels[:, 4] == 0), 4] = 1
    order = balanced_set_order(3, 1, labels)
    assert np.array_equal(order, balanced_set_order(3, 1, labels))
    assert not np.array_equal(order, balanced_set_order(3, 2, labels))
    assert len(order) == len(labels) == len(set(order.tolist()))  # each repeat has a number of its own
    repeat, samples = repeats_of(order, len(labels))
    assert np.all(labels[samples].sum(axis=0) >= len(labels) // 6)  # five classes, and none
    assert (~labels[samples].any(axis=1)).sum() == pytest.approx(len(labels) / 6, abs=1)
    for sample in set(samples.tolist()):
        assert sorted(repeat[samples == sample].tolist()) == list(range((samples == sample).sum()))
    works = list(epoch_work(3, 1, len(labels), 32, False, Share(), 0, order))
    assert np.array_equal(np.concatenate([indices for work in works for _, indices in work.micro]), order)


def test_batches_have_a_row_of_labels_for_each_sample() -> None:
    labels = drawn(60)
    pipeline = Pipeline(source_of(labels), Whole(2), seed=0, batch=20, share=Share(0, 1, 2), sampler=Balanced(labels))
    batch = pipeline.prepare(next(pipeline.works(0, 0)))
    for micro in batch.micro:
        assert micro.labels.shape == (micro.count, 5)
        assert np.array_equal(micro.labels.numpy(), labels[micro.indices.numpy() % 60])
    empty = Pipeline(source_of(labels[:3]), Whole(2), seed=0, batch=3, share=Share(1, 2))
    assert empty.prepare(next(empty.works(0, 0))).micro[0].labels.shape == (0, 5)


CODE = """
import numpy as np
import torch


class Tagged:
    thread_safe = True
    LABELS = {
        "matrix": np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]] * 5),
        "tensors": [torch.tensor([1.0, 0, 1]), torch.zeros(3), torch.tensor([0, 1, 0]), torch.ones(3)] * 5,
        "numbers": [[0, 2], [], [1], (2, 1, 0)] * 5,
        "names": [["ape", "dog"], [], ["cat"], {"ape", "cat", "dog"}] * 5,
        "both": [[0, 1]] * 20,
        "strange": [[0, 7], [], [1], [2]] * 5,
        "odd": [[0.5, 1], [], [1], [2]] * 5,
    }

    def __init__(self, kind, named=True):
        self.targets = self.LABELS[kind]
        if named:
            self.classes = ["ape", "cat", "dog"]

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return np.full((4, 4), index, dtype=np.uint8), self.targets[index]
"""


def tagged(tmp_path: Path, kind: str, **settings: Any) -> Any:
    (tmp_path / "tagged.py").write_text(CODE)
    settings = {"multi_label": True, "val_share": 0.2, **settings}
    options = {"kind": kind, **settings.pop("options", {})}
    config = DataConfig(source=f"{tmp_path}/tagged.py:Tagged", options=options, **settings)
    return open_split(config.source, config, ["ape", "cat", "dog"], threads=0)


@pytest.mark.parametrize("kind", ["matrix", "tensors", "numbers", "names"])
def test_a_users_dataset_has_vectors_or_lists(tmp_path: Path, kind: str) -> None:
    source = tagged(tmp_path, kind)
    assert source.labels.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]] * 5
    assert source.classes == ["ape", "cat", "dog"]
    how = "vectors of zeros and ones" if kind in ("matrix", "tensors") else "lists of classes"
    assert any(how in note for note in source.notes)


def test_what_a_users_dataset_cannot_mean_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="samples have several labels") as error:
        tagged(tmp_path, "matrix", multi_label=False)
    assert "data.multi_label=true" in error.value.remedy
    with pytest.raises(UserError, match="samples have several labels"):
        tagged(tmp_path, "numbers", multi_label=False)
    with pytest.raises(UserError, match=r"every label of .* is 0, 1"):
        tagged(tmp_path, "both")
    with pytest.raises(UserError, match="has the label 7"):
        tagged(tmp_path, "strange")
    with pytest.raises(UserError, match=r"sample 0 of .* cannot be used"):
        tagged(tmp_path, "odd")
    assert tagged(tmp_path, "numbers", options={"named": False}).labels.shape == (20, 3)


def test_a_split_may_lack_the_last_classes(tmp_path: Path) -> None:
    """Numbers only: what the training part has and validation lacks, and the other way round."""
    for part, sets in (("train", [[0], [1, 2], [0, 2], []]), ("val", [[3], [0, 1, 3], [1], [0]])):
        members = []
        for number, ((image, _), numbers) in enumerate(zip(pictures(4), sets, strict=True)):
            members += [(f"{number}.jpg", image), (f"{number}.json", f'{{"labels": {numbers}}}'.encode())]
        write_tar(tmp_path / f"{part}.tar", members)
    splits = open_data(DataConfig(source=str(tmp_path), multi_label=True), threads=0)
    assert splits.train.classes == ["0", "1", "2", "3"]
    assert splits.train.labels.tolist() == [[1, 0, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0]]
    assert splits.val.labels.tolist() == [[0, 0, 0, 1], [1, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0]]
    assert any("mAP is without 1 classes" in note for note in splits.notes)


def test_class_folders_have_one_label_of_several(tmp_path: Path) -> None:
    for name in ("ape", "cat"):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / name / f"{number}.png")
    splits = open_data(DataConfig(source=str(tmp_path), multi_label=True, val_share=0.25), threads=0)
    assert splits.train.labels.sum(axis=0).tolist() == [3, 3]
    assert splits.val.labels.sum(axis=0).tolist() == [1, 1]
