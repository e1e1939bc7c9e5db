"""Parquet and Arrow files, written and read back by `datasets` and pandas; and by us, with the same result."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.base import Pixels
from phalanx.data.sources.formats import recognise
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.open import open_data, open_parts
from phalanx.data.sources.shards import unpack
from phalanx.errors import UserError
from tests.data.samples import FixedViews, assert_helpful, image_bytes, noise, write_images
from tests.data.shard_files import pictures

if importlib.util.find_spec("datasets") is None or importlib.util.find_spec("pandas") is None:
    pytest.skip("datasets and pandas are not installed", allow_module_level=True)

NAMES = ["ape", "cat", "dog"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "phalanx" / "unpacked"


def dataset(count: int, first: int = 0) -> Any:
    """A dataset of `datasets`, with images that differ."""
    import datasets

    samples = pictures(first + count)[first:]
    rows = {
        "image": [{"bytes": image, "path": f"{i}.jpg"} for i, (image, _) in enumerate(samples)],
        "label": [label for _, label in samples],
        "note": [f"number {i}" for i in range(count)],
    }
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES), "note": datasets.Value("string")}
    return datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))


def rows_of(made: Any) -> list[tuple[bytes, int]]:
    import datasets

    plain = made.cast_column("image", datasets.Image(decode=False))
    return [(row["image"]["bytes"], row["label"]) for row in plain]


def opened(path: Path | str, **settings: Any) -> Labelled:
    parts, _ = open_parts(DataConfig.model_validate({"source": str(path), **settings}), threads=0)
    return parts["train"]


def refused(path: Path | str, **settings: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(path, **settings)
    return caught.value


def stored(source: Labelled) -> list[tuple[bytes, int]]:
    return [(source.encoded(i), int(source.labels[i])) for i in range(len(source))]  # type: ignore[attr-defined]


def pixels(source: Labelled, size: int) -> Pixels:
    read = source.read(np.arange(len(source)), FixedViews(size), 0, replace_bad=False)
    assert read.bad == []
    return read.images


def test_the_layout_of_the_hub(tmp_path: Path) -> None:
    (tmp_path / "d" / "data").mkdir(parents=True)
    parts = [dataset(5), dataset(4, 5)]
    for number, part in enumerate(parts):
        part.to_parquet(tmp_path / "d" / "data" / f"train-{number:05d}-of-00002-0ee3f9b1a2c4d5e{number}.parquet")
    dataset(3, 9).to_parquet(tmp_path / "d" / "data" / "test-00000-of-00001-0ee3f9b1a2c4d5e6.parquet")
    assert recognise(str(tmp_path / "d"))[0] == "huggingface"
    splits = open_data(DataConfig(source=str(tmp_path / "d")), threads=2)
    train, val = splits.train, splits.val
    assert (train.classes, val.classes) == (NAMES, NAMES)
    assert stored(train) == rows_of(parts[0]) + rows_of(parts[1])
    assert stored(val) == rows_of(dataset(3, 9))
    assert "columns: image = image (JPEG), label = label (3 names); also in the table: note" in splits.notes
    copied = [note for note in splits.notes if "is Parquet and is read through a copy in" in note]
    assert len(copied) == 3
    (tmp_path / "d" / "data" / "train-00001-of-00002-0ee3f9b1a2c4d5e1.parquet").unlink()
    assert_helpful(refused(tmp_path / "d"), "1 of 2 files are missing", "train-00001-of-00002")


README = """---
license: mit
dataset_info:
  features:
  - name: img
    dtype: image
  - name: kind
    dtype:
      class_label:
        names:
          '0': ape
          '1': cat
          '10': cow
          '2': dog
          {rest}
configs:
- config_name: default
  data_files:
  - split: train
    path: tables/learn-*
  - split: validation
    path: tables/judge-*
---
# A dataset
"""


def test_splits_and_names_of_a_readme(tmp_path: Path) -> None:
    """Without metadata in the files, as pandas writes them; some row groups, compressed."""
    import pandas

    (tmp_path / "tables").mkdir()
    samples = pictures(7)
    frame = pandas.DataFrame({"img": [{"bytes": image} for image, _ in samples], "kind": [n for _, n in samples]})
    frame.to_parquet(tmp_path / "tables" / "learn-1.parquet", compression="zstd", row_group_size=2)
    frame[:2].to_parquet(tmp_path / "tables" / "judge-1.parquet")
    rest = "\n          ".join(f"'{i}': other {i}" for i in range(3, 10))
    (tmp_path / "README.md").write_text(README.format(rest=rest))
    parts, _ = open_parts(DataConfig(source=str(tmp_path)), threads=0)
    assert stored(parts["train"]) == samples
    assert stored(parts["val"]) == samples[:2]
    assert parts["train"].classes == [*NAMES, *(f"other {i}" for i in range(3, 10)), "cow"]


def test_several_configurations_are_not_guessed_about(tmp_path: Path) -> None:
    configs = ""
    for name in ("fine", "coarse"):
        (tmp_path / name).mkdir()
        dataset(3).to_parquet(tmp_path / name / "train-00000-of-00001.parquet")
        configs += f"- config_name: {name}\n  data_files:\n  - split: train\n    path: {name}/train-*\n"
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    assert_helpful(refused(tmp_path), "2 datasets: fine, coarse", "README")
    assert len(opened(tmp_path / "fine")) == 3


def test_the_layout_of_converted_branches(tmp_path: Path) -> None:
    """refs/convert/parquet of the hub: default/train/0000.parquet."""
    for split, count in (("train", 4), ("test", 2)):
        (tmp_path / "default" / split).mkdir(parents=True)
        dataset(count).to_parquet(tmp_path / "default" / split / "0000.parquet")
    parts, _ = open_parts(DataConfig(source=str(tmp_path)), threads=0)
    assert [len(part) for part in parts.values()] == [4, 2]


def write_feather(path: Path) -> None:
    table(dataset(9)).to_feather(path)


def table(made: Any) -> Any:
    """As a table of pandas, with images as they are stored."""
    return made.with_format("arrow")[:].to_pandas()


def write_stream(path: Path, compression: str | None = None) -> None:
    import pyarrow as pa

    whole = dataset(9).with_format("arrow")[:]
    with pa.ipc.new_stream(path, whole.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(whole, max_chunksize=4)


def write_file(path: Path) -> None:
    import pyarrow as pa

    whole = dataset(9).with_format("arrow")[:]
    with pa.ipc.new_file(path, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=4)


@pytest.mark.parametrize(
    ("name", "write", "copied"),
    [
        ("a.parquet", lambda path: dataset(9).to_parquet(path), True),
        ("a.parquet", lambda path: table(dataset(9)).to_parquet(path, compression="gzip"), True),
        ("a.parquet", lambda path: table(dataset(9)).to_parquet(path, compression="snappy", row_group_size=2), True),
        ("a.feather", write_feather, True),
        ("a.arrow", write_stream, False),
        ("a.arrow", lambda path: write_stream(path, "zstd"), True),
        ("a.arrow", write_file, False),
        ("without_an_ending", write_file, False),
    ],
)
def test_one_file(tmp_path: Path, cache: Path, name: str, write: Callable[[Path], Any], copied: bool) -> None:
    write(tmp_path / name)
    source = opened(tmp_path / name)
    assert stored(source) == rows_of(dataset(9))
    assert any("through a copy" in note for note in source.notes) == copied
    assert cache.exists() == copied


def test_patterns_and_folders_of_arrow_files(tmp_path: Path) -> None:
    for number in range(3):
        write_stream(tmp_path / f"part-{number}.arrow")
    assert len(opened(tmp_path / "part-*.arrow")) == 27
    assert len(opened(tmp_path / "part-{0..1}.arrow")) == 18
    assert len(opened(tmp_path)) == 27


def arrays(dtype: Any, *shape: int) -> Any:
    return (noise(4, *shape) / 255 if np.dtype(dtype).kind == "f" else noise(4, *shape)).astype(dtype)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("shape", "kind", "words"),
    [
        ((8, 8, 3), "Array3D uint8", "lists of 8×8×3 uint8"),
        ((3, 8, 8), "Array3D float32", "lists of 8×8×3 channel by channel float32, values 0 … 1 scaled"),
        ((8, 8), "Array2D int64", "lists of 8×8×1 int64, values 0 … 255"),
        ((64,), "list int64", "lists of 8×8×1 int64"),
        ((192,), "list uint8", "lists of 8×8×3 uint8, channels last"),
        ((5, 7), "lists int32", "lists of 5×7×1 int32"),
    ],
)
def test_pixels_in_lists(tmp_path: Path, ending: str, shape: tuple[int, ...], kind: str, words: str) -> None:
    import datasets

    name, dtype = kind.split()
    values = arrays(dtype, *shape)
    features = {
        "Array3D": lambda: datasets.Array3D(shape, dtype),
        "Array2D": lambda: datasets.Array2D(shape, dtype),
        "list": lambda: datasets.List(datasets.Value(dtype)),
        "lists": lambda: datasets.List(datasets.List(datasets.Value(dtype))),
    }
    kinds = datasets.Features({"image": features[name](), "label": datasets.Value("int32")})
    made = datasets.Dataset.from_dict({"image": values.tolist(), "label": [0, 1, 1, 0]}, features=kinds)
    if ending == "parquet":
        made.to_parquet(tmp_path / "a.parquet")
    else:
        made.save_to_disk(tmp_path / "saved")
        next((tmp_path / "saved").glob("*.arrow")).rename(tmp_path / "a.arrow")
    source = opened(tmp_path / f"a.{ending}")
    expected = np.asarray(made.with_format("numpy")["image"][:]).reshape(4, *shape)
    expected = np.rint(expected * 255) if expected.dtype.kind == "f" else expected
    side = (8, 8) if len(shape) == 1 else shape[:2]
    expected = expected.transpose(0, 2, 3, 1) if shape[0] == 3 else expected.reshape(4, *side, -1)
    for index in range(4):
        np.testing.assert_array_equal(source.image(index), expected[index])  # type: ignore[attr-defined]
    assert words in source.notes[-1]
    assert (source.labels.tolist(), source.channels) == ([0, 1, 1, 0], expected.shape[-1])


def test_images_as_bytes_and_as_paths(tmp_path: Path) -> None:
    import pandas

    samples = pictures(4)
    (tmp_path / "photos").mkdir()
    for number, (image, _) in enumerate(samples):
        (tmp_path / "photos" / f"{number}.jpg").write_bytes(image)
    labels = [NAMES[label] for _, label in samples]
    raw = pandas.DataFrame({"jpg": [image for image, _ in samples], "class": labels})
    raw.to_parquet(tmp_path / "raw.parquet")
    paths = pandas.DataFrame({"file_name": [f"photos/{i}.jpg" for i in range(4)], "class": pandas.Categorical(labels)})
    paths.to_parquet(tmp_path / "paths.parquet")
    for name in ("raw", "paths"):
        source = opened(tmp_path / f"{name}.parquet")
        assert stored(source) == samples
        assert source.classes == NAMES
    paths.assign(file_name="gone/1.jpg").to_parquet(tmp_path / "gone.parquet")
    assert_helpful(refused(tmp_path / "gone.parquet"), "'file_name'", "'gone/1.jpg' is not a file")


def test_raw_bytes_and_one_hot_labels(tmp_path: Path) -> None:
    import pandas

    values, hot = noise(3, 28, 28), np.eye(4, dtype=np.int64)[[2, 0, 1]]
    frame = pandas.DataFrame({"image": [each.tobytes() for each in values], "label": hot.tolist()})
    frame.to_parquet(tmp_path / "a.parquet")
    source = opened(tmp_path / "a.parquet")
    np.testing.assert_array_equal(pixels(source, 28)[..., 0], values)
    assert (source.labels.tolist(), source.classes) == ([2, 0, 1], ["0", "1", "2", "3"])
    assert "image = image (raw 28×28×1 uint8), label = label (one-hot, 4 classes)" in source.notes[-1]


def test_what_is_refused_names_the_columns(tmp_path: Path) -> None:
    import pandas

    image = image_bytes(noise(8, 8, 3))
    frame = pandas.DataFrame({"left": [image], "right": [image], "verdict": [1]})
    frame.to_parquet(tmp_path / "a.parquet")
    assert_helpful(refused(tmp_path / "a.parquet"), "is the image", "left (binary), right", "data.image_field")
    assert_helpful(refused(tmp_path / "a.parquet", image_field="left"), "is the label", "verdict (int64)")
    source = opened(tmp_path / "a.parquet", image_field="left", label_field="verdict")
    assert stored(source) == [(image, 1)]
    frame.assign(label=1, image=b"text").to_parquet(tmp_path / "b.parquet")
    assert_helpful(refused(tmp_path / "b.parquet"), "'image'", "4 bytes are no compressed image", "data.image_shape")
    frame.assign(label=-1).to_parquet(tmp_path / "c.parquet")
    assert_helpful(refused(tmp_path / "c.parquet", image_field="left"), "row 0", "-1", "data.val")
    frame.assign(label=[[1, 2]]).to_parquet(tmp_path / "d.parquet")
    assert_helpful(refused(tmp_path / "d.parquet", image_field="left"), "row 0", "2 values (1, 2)")
    ragged = pandas.DataFrame({"image": [[1] * 64, [1] * 100], "label": [0, 0]})
    ragged.to_parquet(tmp_path / "e.parquet")
    assert_helpful(refused(tmp_path / "e.parquet"), "different lengths: 64 to 100")


def test_a_damaged_file_is_named(tmp_path: Path, cache: Path) -> None:
    dataset(9).to_parquet(tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
    assert_helpful(refused(tmp_path / "a.parquet"), "a.parquet is not a complete Parquet or Arrow file")
    middle = bytearray(whole)
    middle[5:60] = bytes(55)
    (tmp_path / "a.parquet").write_bytes(middle)
    assert_helpful(refused(tmp_path / "a.parquet"), "a.parquet")
    assert [entry.name for entry in cache.iterdir()] == ["lock"], "nothing half-written is left"
    (tmp_path / "a.parquet").write_bytes(b"")
    assert_helpful(refused(tmp_path / "a.parquet"), "a.parquet is empty")


def test_copied_once_and_again_when_it_changed(tmp_path: Path, cache: Path) -> None:
    dataset(4).to_parquet(tmp_path / "a.parquet")
    opened(tmp_path / "a.parquet")
    (copy,) = (entry for entry in cache.iterdir() if entry.name != "lock")
    written = copy.stat().st_mtime_ns
    opened(tmp_path / "a.parquet")
    assert copy.stat().st_mtime_ns == written
    opened(tmp_path / "a.parquet", label_field="note")
    assert len(list(cache.iterdir())) == 3, "another copy for other columns"
    dataset(6).to_parquet(tmp_path / "a.parquet")
    assert len(opened(tmp_path / "a.parquet")) == 6
    assert len(list(cache.iterdir())) == 2, "those of the old file are gone"


def test_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset(4).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(unpack, "RESERVE", 1 << 60)
    assert_helpful(refused(tmp_path / "a.parquet"), "no space to unpack", "a.parquet", "XDG_CACHE_HOME")


def test_processes_that_start_together(tmp_path: Path) -> None:
    dataset(30).to_parquet(tmp_path / "a.parquet")
    code = (
        "from pathlib import Path; from phalanx.data.sources.shards.tables import readable_tables;"
        f"print(readable_tables([Path({str(tmp_path / 'a.parquet')!r})], ['image', 'label'])[0].data)"
    )
    jobs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (job.communicate()[0].strip() for job in jobs)
    assert first == second
    assert len(opened(tmp_path / "a.parquet")) == 30


def test_a_table_beside_class_folders_is_not_the_data(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"ape": 2, "cat": 2})
    dataset(3).to_parquet(tmp_path / "metadata.parquet")
    assert recognise(str(tmp_path))[0] == "folder"
