"""The user's own dataset: torch's, torchvision's and Hugging Face's ways, and what is refused."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from phalanx.config.schema import DataConfig
from phalanx.custom import user_code
from phalanx.data.augment.framing import PadCrop, eval_framing
from phalanx.data.base import Source
from phalanx.data.order import Share
from phalanx.data.pipeline import Pipeline, evaluation_batches
from phalanx.data.sources.open import Splits, open_data
from phalanx.errors import UserError

CODE = '''
import numpy as np
import torch
from PIL import Image

IMAGES = np.random.default_rng(1).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)


class Faces(torch.utils.data.Dataset):
    """Says in which form images are returned."""

    classes = ["ann", "bob", "cyd"]

    def __init__(self, split, form="pil", count=30):
        self.images = IMAGES[:count] if split == "train" else IMAGES[:6]
        self.targets = [i % 3 for i in range(len(self.images))]
        self.form = form

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.form == "pil":
            image = Image.fromarray(image)
        elif self.form == "tensor":
            image = torch.from_numpy(image).permute(2, 0, 1)
        elif self.form == "float":
            image = torch.from_numpy(image).permute(2, 0, 1) / 255
        elif self.form == "normalised":
            image = (torch.from_numpy(image).permute(2, 0, 1) / 255 - 0.5) / 0.25
        return image, self.targets[index]


def plain():
    """No splits, no labels apart, no classes, grey, of different sizes."""
    return [(np.full((8 + i % 2, 8), 9 * i, dtype=np.uint8), i % 2) for i in range(20)]


def by_flag(train):
    return Faces("train" if train else "val")


def dictionary():
    return {"train": Faces("train"), "test": Faces("val")}


def part():
    return torch.utils.data.Subset(Faces("train"), [0, 3, 6, 7, 10, 13])


def stream():
    return iter([])


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([])


class ClassLabel:
    names = ["no", "yes"]


class Rows:
    """As a dataset of Hugging Face's library."""

    features = {"id": None, "img": type("Image", (), {})(), "label": ClassLabel()}

    def __len__(self):
        return 12

    def __getitem__(self, key):
        if isinstance(key, str):
            return [i % 2 for i in range(12)]
        return {"id": key, "img": Image.fromarray(IMAGES[key]), "label": key % 2}


class Damaged(Faces):
    def __getitem__(self, index):
        if index == 4:
            raise OSError("the disk is on fire")
        return super().__getitem__(index)


class Mistaken(Faces):
    def __getitem__(self, index):
        return self.picture[index], 0


class OtherLabels(Faces):
    def __init__(self, split):
        super().__init__(split)
        self.targets = [i % 4 for i in range(len(self.images))]
'''


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "own_data.py"
    path.write_text(CODE)
    return path


def opened(code: Path, name: str, **settings: Any) -> Splits:
    return open_data(DataConfig(source=f"{code}:{name}", **settings), threads=2)


def images(source: Source) -> torch.Tensor:
    batches = evaluation_batches(source, eval_framing(DataConfig(), 8, source), 4)
    with closing(batches):
        return torch.cat([micro.images for batch in batches for micro in batch.micro])


def pictures() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)).permute(
        0, 3, 1, 2
    )


@pytest.mark.parametrize("form", ["pil", "numpy", "tensor", "float"])
def test_images_of_every_form_are_the_same(code: Path, form: str) -> None:
    splits = opened(code, "Faces", options={"form": form})
    assert (len(splits.train), len(splits.val)) == (30, 6)
    assert splits.train.classes == ["ann", "bob", "cyd"]
    assert splits.train.labels.tolist() == [i % 3 for i in range(30)]
    assert (splits.train.channels, splits.train.image_size) == (3, 8)
    assert torch.equal(images(splits.train), pictures())
    assert torch.equal(images(splits.val), pictures()[:6])
    assert any("thread_safe" in note for note in splits.notes)


def test_a_plain_list_is_enough(code: Path) -> None:
    splits = opened(code, "plain", val_share=0.2)
    assert (len(splits.train), len(splits.val)) == (16, 4)
    assert splits.train.classes == ["0", "1"]
    assert splits.train.channels == 1
    assert any("read once for their labels" in note for note in splits.notes)
    assert images(splits.train).shape == (16, 1, 8, 8)
    assert images(opened(code, "plain", val_share=0.2, channels=3).train).shape == (16, 3, 8, 8)


@pytest.mark.parametrize("name", ["by_flag", "dictionary"])
def test_splits_by_a_flag_or_a_dictionary(code: Path, name: str) -> None:
    splits = opened(code, name)
    assert (len(splits.train), len(splits.val)) == (30, 6)


def test_validation_by_another_reference(code: Path) -> None:
    splits = opened(code, "part", val=f"{code}:by_flag")
    assert (len(splits.train), len(splits.val)) == (6, 6)
    assert splits.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert splits.train.classes == ["ann", "bob", "cyd"]


def test_a_dataset_of_hugging_faces_library(code: Path) -> None:
    train = opened(code, "Rows").train
    assert train.classes == ["no", "yes"]
    assert len(train) == 10  # two are held out
    assert opened(code, "Rows", image_field="img", label_field="label").train.classes == ["no", "yes"]
    with pytest.raises(UserError, match="there is no field 'picture'"):
        opened(code, "Rows", image_field="picture")


def test_a_dataset_of_torchvision(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (9, 12), (40 * number, 0, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    config = DataConfig(source="torchvision.datasets:ImageFolder", options={"root": str(tmp_path / "photos")})
    splits = open_data(config, threads=2)
    assert splits.train.classes == ["cat", "dog"]
    assert (len(splits.train), len(splits.val)) == (6, 2)
    assert not any("thread_safe" in note for note in splits.notes)


def test_batches_are_the_same_on_any_number_of_workers_and_threads(code: Path) -> None:
    def batch(share: Share, threads: int) -> torch.Tensor:
        source = open_data(DataConfig(source=f"{code}:Faces"), threads=threads).train
        with closing(Pipeline(source, PadCrop(8, 2, seed=1), seed=1, batch=30, share=share).stream()) as batches:
            return next(batches).micro[0].images

    whole = batch(Share(), 0)
    for rank in range(3):
        assert torch.equal(batch(Share(rank, 3), 2), whole[10 * rank : 10 * rank + 10])


def test_what_cannot_be_read_is_a_bad_image(code: Path) -> None:
    train = opened(code, "Damaged").train
    framing = eval_framing(DataConfig(), 8, train)
    read = train.read(np.arange(8), framing, 0, replace_bad=True)
    assert read.indices.tolist() == [0, 1, 2, 3, 5, 5, 6, 7]
    assert read.bad == [(4, "the disk is on fire")]
    assert train.read(np.arange(8), framing, 0, replace_bad=False).indices.tolist() == [0, 1, 2, 3, 5, 6, 7]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("stream", {}, "iterable-only dataset"),
        ("Stream", {}, "iterable-only dataset"),
        ("Mistaken", {}, r"AttributeError in .*own_data.py, line \d+, in __getitem__"),
        ("Faces", {"form": "normalised"}, "Phalanx normalises them itself"),
        ("Faces", {"shape": 3}, "does not take shape"),
        ("OtherLabels", {}, "it has 3 classes"),
        ("Fasces", {}, "there is no Fasces"),
    ],
)
def test_what_is_wrong_with_it_is_said(code: Path, name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error, user_code():
        images(opened(code, name, options=options).train)
    assert re.search(message, f"{error.value.what}: {error.value.why}")
