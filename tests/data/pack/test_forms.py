"""TFRecord, Parquet and class folders, read by somebody else than our readers."""

import hashlib
import io
import json
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phalanx.data.pack.endings import ending_of, with_ending_of
from phalanx.data.pack.packing import SHARD_BYTES
from phalanx.data.pack.tfrecord import TfRecordShard, tf_image
from phalanx.data.sources.manifest import Form, Options, load_manifest
from phalanx.errors import UserError
from tests.data.pack.packs import COMMAND, FORMS, pack_folder, parts_of, shard_sums, write_dataset
from tests.data.samples import assert_helpful, image_bytes, smooth, write_images
from tests.data.shard_files import crc32c, example, masked, tf_record

JPEG, PNG = image_bytes(smooth(9, 7), "JPEG"), image_bytes(smooth(5, 4))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data"))


def source_files(dataset: Path, part: str) -> list[Path]:
    return sorted((dataset / part).glob("*/*"))


def refused(source: Path, folder: Path, form: str, **options: object) -> UserError:
    with pytest.raises(UserError) as caught:
        pack_folder(source, folder, form, **options)  # type: ignore[arg-type]
    return caught.value


def test_a_record_is_what_tensorflow_would_write(tmp_path: Path) -> None:
    shard = TfRecordShard(tmp_path / "train-00000-of-00001", ["ape", "cät"])
    shard.add(7, 1, tf_image(JPEG, "my.JPEG"))
    shard.add(300, 0, tf_image(PNG, None))
    (entry,) = shard.finish()
    records = [
        {
            "image/class/label": [1],
            "image/class/text": "cät".encode(),
            "image/encoded": JPEG,
            "image/filename": b"my.JPEG",
            "image/format": b"jpeg",
            "image/height": [9],
            "image/width": [7],
        },
        {
            "image/class/label": [0],
            "image/class/text": b"ape",
            "image/encoded": PNG,
            "image/filename": b"00000300.png",
            "image/format": b"png",
            "image/height": [5],
            "image/width": [4],
        },
    ]
    written = (tmp_path / "train-00000-of-00001.tfrecord").read_bytes()
    assert written == b"".join(tf_record(example(record)) for record in records)  # type: ignore[arg-type]
    assert entry.bytes == len(written)


def records_of(path: Path) -> list[bytes]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert data[at + 8 : at + 12] == masked(crc32c(data[at : at + 8]))
        found.append(data[at + 12 : at + 12 + length])
        assert data[at + 12 + length : at + 16 + length] == masked(crc32c(found[-1]))
        at += 16 + length
    return found


def test_tfrecord_holds_the_files_as_they_were(dataset: Path, tmp_path: Path) -> None:
    pack_folder(dataset, tmp_path / "p", "tfrecord", shards=2)
    assert (tmp_path / "p" / "labels.txt").read_text() == "0:ape\n1:cat 2\n2:dog\n"
    files = sorted((tmp_path / "p").glob("train-*.tfrecord"))
    assert [file.name for file in files] == [f"train-0000{i}-of-00002.tfrecord" for i in range(2)]
    records = [record for file in files for record in records_of(file)]
    for record, file in zip(records, source_files(dataset, "train"), strict=True):
        assert file.read_bytes() in record
        assert file.parent.name.encode() in record
    source = parts_of(tmp_path / "p")["train"]
    # A PNG and a WebP are not called .jpg any more.
    assert [source.name(i).rpartition(" ")[2] for i in range(5)] == ["0.png", "1.jpg", "2.jpg", "3.webp", "0.jpg"]
    assert source.name(0) == f"{files[0]} #0: 0.png"


@pytest.mark.parametrize("form", ["tfrecord", "folder"])
def test_a_split_without_the_first_class(form: str, tmp_path: Path) -> None:
    """TF-Slim counts from 1: without more, labels that are never 0 would be shifted."""
    write_images(tmp_path / "d" / "train", {"a": 1, "b": 2, "c": 2})
    write_images(tmp_path / "d" / "val", {"b": 1, "c": 1})
    pack_folder(tmp_path / "d", tmp_path / "p", form)
    assert {part: split.labels.tolist() for part, split in parts_of(tmp_path / "p").items()} == {
        "train": [0, 1, 1, 2, 2],
        "val": [1, 2],
    }
    pack_folder(tmp_path / "d", tmp_path / "v", form, split="val")
    (alone,) = parts_of(tmp_path / "v").values()
    assert (alone.classes, alone.labels.tolist()) == (["a", "b", "c"], [1, 2])
    if form == "tfrecord":  # the same without the manifest, for those who copy the files
        (alone,) = parts_of(str(tmp_path / "v" / "val-*.tfrecord")).values()
        assert (alone.classes, alone.labels.tolist()) == (["a", "b", "c"], [1, 2])


def test_a_broken_image_has_no_size_to_write(dataset: Path, tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "d")
    (source / "train" / "dog" / "1.jpg").write_bytes(b"broken")
    manifest = pack_folder(source, tmp_path / "p", "tfrecord")
    (left,) = manifest.splits["train"][0].left_out
    assert (left.index, left.reason) == (9, "it is not an image of a known format")


@pytest.mark.parametrize("form", [form for form in FORMS if form in ("tfrecord", "parquet")])
def test_the_number_of_shards_is_planned_by_size(
    dataset: Path, form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHARD_BYTES, form, 8_000)
    manifest = pack_folder(dataset, tmp_path / "p", form)
    total = sum(file.stat().st_size for file in source_files(dataset, "train"))
    assert len(manifest.splits["train"]) == manifest.planned["train"] == -(-total // 8_000) > 2
    # What was planned is kept, also where a resumed job would plan otherwise.
    before = shard_sums(tmp_path / "p")
    manifest.finished = False
    del manifest.splits["train"][1:], manifest.splits["val"][:]
    (tmp_path / "p" / "pack.json").write_text(manifest.model_dump_json())
    monkeypatch.setitem(SHARD_BYTES, form, 100)
    pack_folder(dataset, tmp_path / "p", form)
    assert shard_sums(tmp_path / "p") == before


def test_parquet_for_pyarrow(dataset: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pack_folder(dataset, tmp_path / "p", "parquet", shards=2)
    files = sorted((tmp_path / "p" / "data").glob("train-*.parquet"))
    rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
    names = sorted(path.name for path in (dataset / "train").iterdir())
    for row, file in zip(rows, source_files(dataset, "train"), strict=True):
        assert row["image"]["bytes"] == file.read_bytes()
        assert row["image"]["path"] == f"{file.stem}.{ending_of(file.read_bytes())}"
        assert names[row["label"]] == file.parent.name
    described = json.loads(parquet.read_schema(files[0]).metadata[b"huggingface"])
    assert described["info"]["features"]["label"] == {"names": names, "_type": "ClassLabel"}
    assert parquet.ParquetFile(files[0]).metadata.num_row_groups == 1


def test_parquet_for_hugging_face(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    pack_folder(dataset, tmp_path / "p", "parquet", shards=2)
    loaded = datasets.load_dataset(str(tmp_path / "p"), cache_dir=str(tmp_path / "cache"))
    assert {name: len(split) for name, split in loaded.items()} == {"train": 12, "validation": 5}
    for name, part in (("train", "train"), ("validation", "val")):
        features = loaded[name].features
        assert (type(features["image"]), features["label"].names) == (datasets.Image, ["ape", "cat 2", "dog"])
        for row, file in zip(loaded[name], source_files(dataset, part), strict=True):
            assert features["label"].int2str(row["label"]) == file.parent.name
            np.testing.assert_array_equal(np.asarray(row["image"]), np.asarray(Image.open(file)))
    files = {"train": str(tmp_path / "p" / "data" / "train-*.parquet")}
    alone = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))["train"]
    assert alone.features == loaded["train"].features


def test_parquet_without_pyarrow(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert_helpful(refused(dataset, tmp_path / "p", "parquet"), "pyarrow", "phalanx[huggingface]")
    assert not (tmp_path / "p").exists()


def test_class_folders(dataset: Path, tmp_path: Path) -> None:
    pack_folder(dataset, tmp_path / "p", "folder", shards=2)
    packed = sorted((tmp_path / "p" / "train").glob("*/*"))
    for ours, theirs in zip(packed, source_files(dataset, "train"), strict=True):
        assert ours.read_bytes() == theirs.read_bytes()
        assert (ours.parent.name, ours.stem) == (theirs.parent.name, theirs.stem)
        assert ours.suffix == f".{ending_of(theirs.read_bytes())}"
    for listing in ("train-00000.sha256", "train-00001.sha256", "val-00000.sha256"):
        subprocess.run(["sha256sum", "--check", "--quiet", "--strict", listing], cwd=tmp_path / "p", check=True)


def test_class_folders_for_torchvision(dataset: Path, tmp_path: Path) -> None:
    from torchvision.datasets import ImageFolder

    pack_folder(dataset, tmp_path / "p", "folder")
    seen = ImageFolder(str(tmp_path / "p" / "train"))
    assert seen.classes == ["ape", "cat 2", "dog"]
    assert [label for _, label in seen.samples] == [0] * 4 + [1] * 4 + [2] * 4


def test_folders_keep_the_order_and_the_classes_of_their_source(tmp_path: Path) -> None:
    """Folders are sorted by name; a list is not."""
    images = write_images(tmp_path / "images", {"zebra": 3, "ape": 3})
    lines = [f"{images}/{name}/{i}.png {name}\n" for i in range(3) for name in ("zebra", "ape")]
    (tmp_path / "train.txt").write_text("".join(lines))
    wanted = parts_of(tmp_path / "train.txt")["train"]
    pack_folder(tmp_path / "train.txt", tmp_path / "p", "folder")
    found = parts_of(tmp_path / "p")["train"]
    assert (found.classes, found.labels.tolist()) == (wanted.classes, wanted.labels.tolist())
    for index in range(6):
        assert Path(found.name(index)).read_bytes() == Path(wanted.name(index)).read_bytes()
    assert found.name(1) == str(tmp_path / "p" / "train" / "ape" / "0.png")


def test_names_of_files_that_are_not_unique(tmp_path: Path) -> None:
    folder = tmp_path / "d" / "a"
    names = ["x/1.png", "y/1.png", "A.png", "a.jpg", "1-00000003.png", "b.c.png", "back\\slash.png"]
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(image_bytes(np.full((4, 4, 3), 9 * i, np.uint8)))
    write_images(tmp_path / "d", {"b": 1})
    source = parts_of(tmp_path / "d")["train"]
    pack_folder(tmp_path / "d", tmp_path / "p", "folder")
    found = parts_of(tmp_path / "p")["train"]
    pairs = {Path(source.name(i)).relative_to(folder.parent).as_posix(): Path(found.name(i)).name for i in range(8)}
    for i in range(8):
        assert Path(found.name(i)).read_bytes() == Path(source.name(i)).read_bytes()
    numbers = {name: f"{i:08d}" for i, name in enumerate(pairs)}
    assert pairs["a/b.c.png"] == "b.c.png"
    assert pairs["a/x/1.png"] == f"1-{numbers['a/x/1.png']}.png"
    assert pairs["a/A.png"] == f"A-{numbers['a/A.png']}.png"
    assert pairs["a/a.jpg"] == f"a-{numbers['a/a.jpg']}.png"
    assert pairs["a/back\\slash.png"] == f"{numbers['a/back' + chr(92) + 'slash.png']}.png"
    assert pairs["b/0.png"] == "0.png"
    assert len({name.lower() for name in pairs.values()}) == 8
    pack_folder(tmp_path / "p", tmp_path / "again", "folder")
    assert shard_sums(tmp_path / "again") == shard_sums(tmp_path / "p")


def test_classes_that_cannot_be_folders(tmp_path: Path) -> None:
    image = tmp_path / "i.png"
    image.write_bytes(PNG)
    for name, reason in (("a/b", "slash"), (".hidden", "dot"), ("..", "dot"), ("é" * 130, "260 bytes")):
        (tmp_path / "l.tsv").write_text(f"0\t0\t{image}\n")
        (tmp_path / "list.txt").write_text(f"{image} other\n{image} {name}\n")
        assert_helpful(refused(tmp_path / "list.txt", tmp_path / "p", "folder"), "cannot be a folder", reason)
    assert not (tmp_path / "p").exists()
    # Both are there where case counts; where it does not, they would be one folder.
    (tmp_path / "list.txt").write_text(f"{image} Cat\n{image} cat\n")
    if (tmp_path / "I.PNG").exists():
        assert_helpful(refused(tmp_path / "list.txt", tmp_path / "p", "folder"), "'Cat' and 'cat'")
    else:
        pack_folder(tmp_path / "list.txt", tmp_path / "p", "folder")
        assert len(parts_of(tmp_path / "p")["train"]) == 2


def test_alike_classes_where_case_does_not_count(tmp_path: Path) -> None:
    from phalanx.data.pack.class_folders import refuse_alike

    refuse_alike(tmp_path, ["Cat", "cat"])
    (tmp_path / "PACK.JSON").write_text("as a file system that ignores case would show pack.json")
    refuse_alike(tmp_path, ["cat", "dog"])
    with pytest.raises(UserError) as caught:
        refuse_alike(tmp_path, ["Cat", "dog", "cat"])
    assert_helpful(caught.value, "'Cat' and 'cat'", str(tmp_path))


def test_images_that_were_lost_or_changed_in_class_folders(dataset: Path, tmp_path: Path) -> None:
    from rich.console import Console

    from phalanx.commands.data_verify import verify_data

    folder, said = tmp_path / "p", io.StringIO()
    pack_folder(dataset, folder, "folder", shards=3)
    whole = shard_sums(folder)
    lost, cut = folder / "train" / "dog" / "0.webp", folder / "train" / "ape" / "1.jpg"
    assert verify_data(Console(file=said, width=300), str(folder), [], None) == 0
    cut.write_bytes(cut.read_bytes()[:-9])
    assert verify_data(Console(file=said, width=300), str(folder), [], None) == 1
    assert f"{cut}\tit is not what was written" in said.getvalue()
    lost.rename(tmp_path / "lost.jpg")
    with pytest.raises(UserError) as caught:
        parts_of(folder)
    assert_helpful(caught.value, "1 images are missing", "dog/0.webp", COMMAND)
    kept = (folder / "train" / "cat 2" / "1.png").stat().st_ino
    pack_folder(dataset, folder, "folder", shards=3)
    assert shard_sums(folder) == whole
    assert (folder / "train" / "cat 2" / "1.png").stat().st_ino == kept, "only what is missing is packed"
    (folder / "train" / "ape" / "mine.jpg").write_bytes(JPEG)
    assert len(parts_of(folder)["train"]) == 12
    assert "1 files" in parts_of(folder)["train"].notes[0]
    (folder / "pack.json").unlink()
    assert len(parts_of(folder)["train"]) == 13


@pytest.mark.parametrize(
    ("form", "ending"), [("PPM", "ppm"), ("JPEG2000", "jp2"), ("AVIF", "avif"), ("TIFF", "tif"), ("GIF", "gif")]
)
def test_endings_by_content(form: str, ending: str) -> None:
    from PIL import features

    if form == "AVIF" and not features.check("avif"):
        pytest.skip("Pillow without AVIF")
    assert ending_of(image_bytes(smooth(16, 16), form)) == ending


def test_endings_of_grey_netpbm_and_of_names() -> None:
    assert ending_of(image_bytes(smooth(4, 4), "PPM", "L")) == "pgm"
    assert ending_of(image_bytes(smooth(8, 8), "PPM", "1")) == "pbm"
    assert with_ending_of("a", "JPEG", JPEG) == "a.JPEG"
    assert with_ending_of("a", "jpg", PNG) == "a.png"
    assert with_ending_of("a", "", PNG) == "a.png"


def test_old_manifests_are_still_read(dataset: Path, tmp_path: Path) -> None:
    pack_folder(dataset, tmp_path / "p")
    found = json.loads((tmp_path / "p" / "pack.json").read_text())
    del found["planned"]
    for shards in found["splits"].values():
        for shard in shards:
            del shard["image_bytes"]
    (tmp_path / "p" / "pack.json").write_text(json.dumps(found))
    manifest = load_manifest(tmp_path / "p")
    assert manifest is not None
    assert manifest.options == Options(form="wds")
    assert hashlib.sha256((tmp_path / "p" / "train-00000.tar").read_bytes()).hexdigest() == manifest.files()[0].sha256
