"""Hugging Face datasets on disk, as save_to_disk lays them out; the Arrow files are written by pyarrow."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.config.schema import DataConfig
from phalanx.data.sources.open import open_data
from phalanx.data.sources.shards.huggingface import is_huggingface, open_huggingface
from phalanx.data.sources.shards.shard_source import ShardSource
from phalanx.errors import UserError
from tests.data.samples import FixedViews, assert_helpful
from tests.data.shard_files import pictures, wanted

needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
FEATURES = {
    "image": {"_type": "Image"},
    "label": {"names": ["ape", "cat", "dog"], "_type": "ClassLabel"},
    "note": {"dtype": "string", "_type": "Value"},
}
Row = dict[str, Any]


def rows(count: int) -> list[Row]:
    return [
        {"image": {"bytes": image, "path": f"{i}.jpg"}, "label": label, "note": f"number {i}"}
        for i, (image, label) in enumerate(pictures(count))
    ]


def write_arrow(
    path: Path, content: list[Row], *, batch: int = 3, compression: str | None = None, **columns: Any
) -> Path:
    import pyarrow as pa

    types = {
        "image": pa.struct({"bytes": pa.binary(), "path": pa.string()}),
        "label": pa.int64(),
        "note": pa.string(),
        **columns,
    }
    schema = pa.schema({name: types[name] for name in content[0]})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(path, schema, options=options) as writer:
        for start in range(0, len(content), batch):
            writer.write_batch(pa.RecordBatch.from_pylist(content[start : start + batch], schema=schema))
    return path


def save(folder: Path, *files: list[Row], features: dict[str, Any] = FEATURES, **arrow: Any) -> Path:
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-{len(files):05d}.arrow" for i in range(len(files))]
    for name, content in zip(names, files, strict=True):
        write_arrow(folder / name, content, **arrow)
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": name} for name in names], "_split": None})
    )
    return folder


def opened(folder: Path, **settings: Any) -> ShardSource:
    source = open_huggingface(folder, "train", wanted(**settings))
    assert isinstance(source, ShardSource)
    return source


def refused(folder: Path, **settings: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(folder, **settings)
    return caught.value


@needs_pyarrow
def test_a_saved_dataset(tmp_path: Path) -> None:
    content = rows(8)
    folder = save(tmp_path / "d", content[:5], content[5:])
    assert is_huggingface(folder)
    source = opened(folder)
    assert [source.encoded(i) for i in range(8)] == [row["image"]["bytes"] for row in content]
    assert (source.classes, source.labels.tolist()) == (["ape", "cat", "dog"], [row["label"] for row in content])
    assert source.name(5).startswith(f"{folder / 'data-00001-of-00002.arrow'} #0 (offset ")
    read = source.read(np.arange(8), FixedViews(8), 0, replace_bad=False)
    assert (len(read.images), read.bad) == (8, [])


@needs_pyarrow
def test_splits(tmp_path: Path) -> None:
    save(tmp_path / "d" / "train", rows(6))
    save(tmp_path / "d" / "test", rows(3))
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    splits = open_data(DataConfig(source=str(tmp_path / "d")), threads=0)
    assert (len(splits.train), len(splits.val), splits.val.classes) == (6, 3, ["ape", "cat", "dog"])
    columns = "columns: image = image (JPEG), label = label (3 names); also in the table: note"
    assert splits.notes == [columns, f"validation: {tmp_path / 'd' / 'test'} (there is no val beside it)"]
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["test"]}')
    assert_helpful(refused(tmp_path / "d"), "no split called train", "test")


@needs_pyarrow
def test_the_cache_of_load_dataset(tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    for i in range(2):
        write_arrow(tmp_path / f"pets-train-{i:05d}-of-00002.arrow", rows(4))
    write_arrow(tmp_path / "pets-validation.arrow", rows(3))
    splits = open_data(DataConfig(source=str(tmp_path)), threads=0)
    assert (len(splits.train), len(splits.val)) == (8, 3)


@needs_pyarrow
def test_images_by_path_and_rows_without(tmp_path: Path) -> None:
    content = rows(4)
    (tmp_path / "far.jpg").write_bytes(b"far away")
    content[1]["image"] = {"bytes": None, "path": str(tmp_path / "far.jpg")}
    content[2]["image"] = None
    content[3]["image"] = {"bytes": None, "path": str(tmp_path / "gone.jpg")}
    source = opened(save(tmp_path / "d", content))
    assert len(source) == 3
    assert source.encoded(1) == b"far away"
    read = source.read(np.array([2]), FixedViews(8), 0, replace_bad=False)
    assert "No such file" in read.bad[0][1]
    assert "1 rows without an image are left out" in source.notes[0]


@needs_pyarrow
def test_columns_of_other_names_and_types(tmp_path: Path) -> None:
    import pyarrow as pa

    content = [{"img": row["image"]["bytes"], "fine": row["label"], "coarse": "x"} for row in rows(3)]
    features = {
        "img": {"dtype": "binary", "_type": "Value"},
        "fine": {"names": ["a", "b", "c"], "_type": "ClassLabel"},
        "coarse": {"names": ["x"], "_type": "ClassLabel"},
    }
    columns = {"img": pa.large_binary(), "fine": pa.int32(), "coarse": pa.string()}
    folder = save(tmp_path / "d", content, features=features, **columns)
    assert_helpful(refused(folder), "which column", "is the label", "fine, coarse", "data.label_field")
    source = opened(folder, label_field="fine")
    assert (source.encoded(2), source.classes) == (content[2]["img"], ["a", "b", "c"])
    assert_helpful(refused(folder, label_field="none"), "no column 'none'", "fine (int32), coarse (string)")
    assert_helpful(refused(folder, label_field="fine", label_element=1), "1 values")
    assert_helpful(refused(folder, label_field="fine", image_field="coarse"), "are not there", "'x' is not a file")
    assert_helpful(refused(folder, label_field="coarse", image_field="fine"), "of the type int32")


@needs_pyarrow
def test_labels_that_are_none(tmp_path: Path) -> None:
    content = rows(3)
    content[2]["label"] = -1
    assert_helpful(refused(save(tmp_path / "a", content)), "row 2 of", "-1 is not between")
    content[2]["label"] = None
    assert_helpful(refused(save(tmp_path / "b", content)), "row 2 of", "neither a number nor a name")
    content[2]["label"] = 3
    assert_helpful(refused(save(tmp_path / "c", content)), "has the label 3", "names 3")


@needs_pyarrow
def test_what_cannot_be_read(tmp_path: Path) -> None:
    folder = save(tmp_path / "a", rows(5), batch=1)
    file = folder / "data-00000-of-00001.arrow"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert_helpful(refused(folder), "data-00000-of-00001.arrow is damaged at offset", "not an Arrow file")
    assert len(opened(folder, salvage=True)) == 2
    file.unlink()
    assert_helpful(refused(folder), "state.json", "data-00000-of-00001.arrow")
    (folder / "state.json").write_text('{"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}')
    assert_helpful(refused(folder), "selection", "flatten_indices")
    (folder / "state.json").write_text("[")
    assert_helpful(refused(folder), "state.json", "not JSON")


@needs_pyarrow
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "d"
    if not folder.exists():
        save(folder, rows(4), batch=2)
        shutil.copy(folder / "data-00000-of-00001.arrow", tmp_path / "whole")
    content = bytearray((tmp_path / "whole").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    length = data.draw(st.just(len(content)) | st.integers(0, len(content)))
    (folder / "data-00000-of-00001.arrow").write_bytes(content[:length])
    shutil.rmtree(folder / ".phalanx", ignore_errors=True)
    try:
        source = opened(folder)
    except UserError as error:
        assert_helpful(error, str(folder))
    else:
        read = source.read(np.arange(len(source)), FixedViews(8), 0, replace_bad=False)
        assert len(read.images) + len(read.bad) == len(source)


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # what Python does for a package that is not there
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    (tmp_path / "data.arrow").write_bytes(b"anything")
    assert_helpful(refused(tmp_path), "pyarrow is not installed", "pip install 'phalanx[huggingface]'")
