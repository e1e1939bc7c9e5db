"""Packing archives and arrays: the packed data has their pixels, and a changed source is noticed."""

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.errors import UserError
from tests.data.pack.packs import pack_folder, parts_of
from tests.data.samples import FixedViews, assert_helpful, noise
from tests.data.sources.archives.test_zip import pictures, write_zip


def write_npz(path: Path) -> Path:
    arrays: dict[str, Any] = {}
    for seed, split in enumerate(("train", "val")):
        arrays[f"{split}_images"] = (noise(12, 9, 10, 3, seed=seed) / 255).astype(np.float32)
        arrays[f"{split}_labels"] = np.arange(12)[:, None] % 3
    np.savez(path, **arrays)
    return path


def write_archive(path: Path) -> Path:
    return write_zip(path, pictures("train/ape", "train/cat", "val/ape", "val/cat").items(), zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize("form", ["wds", "raw"])
@pytest.mark.parametrize(("name", "write"), [("x.npz", write_npz), ("x.zip", write_archive)])
def test_packed_as_it_is(tmp_path: Path, form: str, name: str, write: object) -> None:
    assert callable(write)
    source = write(tmp_path / name)
    pack_folder(source, tmp_path / "packed", form)
    for part, split in parts_of(source).items():
        other = parts_of(tmp_path / "packed")[part]
        assert (other.classes, other.labels.tolist()) == (split.classes, split.labels.tolist())
        if part == "train":
            assert (other.mean, other.std, other.extent) == (split.mean, split.std, split.extent)
        one, two = (each.read(np.arange(len(split)), FixedViews(8), 0, replace_bad=False) for each in (split, other))
        np.testing.assert_array_equal(one.images, two.images)


@pytest.mark.parametrize(("name", "write"), [("x.npz", write_npz), ("x.zip", write_archive)])
def test_a_changed_source_is_noticed(tmp_path: Path, name: str, write: object) -> None:
    assert callable(write)
    source = write(tmp_path / name)
    pack_folder(source, tmp_path / "packed")
    pack_folder(source, tmp_path / "packed")
    os.utime(source, ns=(1, 1))
    with pytest.raises(UserError) as error:
        pack_folder(source, tmp_path / "packed")
    assert_helpful(error.value, "other data")
