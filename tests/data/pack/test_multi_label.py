"""Packed data with several labels a sample: the same labels and bytes from every format that can hold them."""

import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.pack.job import Order, refuse_unpackable
from phalanx.data.pack.packing import MULTI_LABEL
from phalanx.data.sources.manifest import Options
from phalanx.data.sources.open import open_data
from phalanx.errors import UserError
from tests.data.pack.packs import COMMAND, pack_folder, parts_of
from tests.data.shard_files import pictures, write_tar

NAMES = ["ape", "big cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay"]  # more than a byte of labels
SETS = {"train": [[0, 2], [], [1, 8], [0, 1, 2], [3], [4, 5, 6], [7], [8]], "val": [[0], [1, 7], []]}


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    """WebDataset archives with names in a .json."""
    folder = tmp_path / "tagged"
    folder.mkdir()
    for part, sets in SETS.items():
        members = []
        for number, ((image, _), numbers) in enumerate(zip(pictures(len(sets)), sets, strict=True)):
            names = [NAMES[each] for each in numbers]
            members += [(f"{number}.jpg", image), (f"{number}.json", json.dumps({"labels": names}).encode())]
        write_tar(folder / f"{part}.tar", members)
    return folder


def hot(part: str) -> list[list[int]]:
    return [[int(number in numbers) for number in range(len(NAMES))] for numbers in SETS[part]]


@pytest.mark.parametrize("form", MULTI_LABEL)
def test_labels_and_classes_come_back(tagged: Path, tmp_path: Path, form: str) -> None:
    settings: dict[str, Any] = {"multi_label": True}
    manifest = pack_folder(tagged, tmp_path / form, form, settings=settings, shards=2)
    assert manifest.multi_label
    parts = parts_of(tmp_path / form, **settings)
    for part, split in parts.items():
        assert split.classes == NAMES
        assert split.labels.tolist() == hot(part)
    again = pack_folder(tmp_path / form, tmp_path / "again", form, settings=settings, shards=2)
    assert [file.sha256 for file in again.files()] == [file.sha256 for file in manifest.files()]
    with pytest.raises(UserError) as error:
        open_data(DataConfig(source=str(tmp_path / form)), threads=0)
    assert "data.multi_label=true" in f"{error.value.why} {error.value.remedy}"


def test_other_readers_find_them(tagged: Path, tmp_path: Path) -> None:
    for form in ("wds", "rec"):
        pack_folder(tagged, tmp_path / form, form, settings={"multi_label": True})
    with tarfile.open(tmp_path / "wds" / "train-00000.tar") as tar:
        found = [json.load(tar.extractfile(each)) for each in tar if each.name.endswith(".json")]  # type: ignore[arg-type]
    assert found == [{"labels": numbers} for numbers in SETS["train"]]
    record = (tmp_path / "rec" / "train-00000.rec").read_bytes()
    count, _, identity, _ = struct.unpack_from("<IfQQ", record, 8)
    assert (count, identity) == (9, 0)
    assert np.frombuffer(record, "<f4", 9, 32).tolist() == hot("train")[0]
    first = (tmp_path / "rec" / "train-00000.lst").read_text().splitlines()[0].split("\t")
    assert [float(value) for value in first[1:-1]] == hot("train")[0]


def test_a_format_with_one_label_is_refused(tagged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.data.pack.job.MULTI_LABEL", ("wds",))  # as for class folders
    config = DataConfig(source=str(tagged), multi_label=True)
    order = Order(str(tagged), parts_of(tagged, multi_label=True), Options(form="rec"), config, COMMAND, (tagged,))
    with pytest.raises(UserError, match="several labels cannot be packed as rec"):
        refuse_unpackable(order)


def test_a_damaged_file_is_refused(tagged: Path, tmp_path: Path) -> None:
    pack_folder(tagged, tmp_path / "raw", "raw", settings={"multi_label": True})
    file = tmp_path / "raw" / "train-00000.raw"
    content = bytearray(file.read_bytes())
    content[-41] ^= 1  # the last byte of labels, before the trailer
    file.write_bytes(content)
    with pytest.raises(UserError, match="is damaged at offset"):
        parts_of(tmp_path / "raw", multi_label=True)
