"""Several labels a sample in the formats that can have them: vectors or lists, and what their refusals name."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.sources.open import open_split
from phalanx.data.sources.shards.classes import BadLabel
from phalanx.data.sources.shards.index import Fit, IndexBuilder, Label, LabelSet, read_index
from phalanx.data.sources.shards.label_sets import number_set, vector_set, written_set
from phalanx.data.sources.stamp import Stamp
from phalanx.errors import UserError
from tests.data.shard_files import example, pictures, rec_image, tf_record, write_tar

SETS = [[0, 2], [], [1], [0, 1, 2]]
NAMES = ["ape", "cat", "dog"]
HOT = [[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]
IMAGES = [image for image, _ in pictures(4)]


def opened(path: Path, classes: list[str], **settings: Any) -> Any:
    config = DataConfig(source=str(path), **{"multi_label": True, **settings})
    return open_split(str(path), config, classes, threads=0)


def refusal(path: Path, **settings: Any) -> UserError:
    with pytest.raises(UserError) as error:
        opened(path, NAMES, **settings)
    return error.value


def write_json(path: Path, values: Sequence[Any], key: str | None = "labels") -> Path:
    members = []
    for number, (image, value) in enumerate(zip(IMAGES, values, strict=True)):
        content = value if key is None else {key: value}
        members += [(f"{number}.jpg", image), (f"{number}.json", json.dumps(content).encode())]
    return write_tar(path, members)


def write_cls(path: Path, texts: Sequence[str]) -> Path:
    samples = enumerate(zip(IMAGES, texts, strict=True))
    return write_tar(
        path, [one for i, (image, text) in samples for one in ((f"{i}.jpg", image), (f"{i}.cls", text.encode()))]
    )


@pytest.mark.parametrize(("key", "values"), [("labels", SETS), ("label", HOT), (None, SETS), ("classes", SETS)])
def test_webdataset_has_lists_and_vectors_in_its_json(tmp_path: Path, key: str | None, values: list[list[int]]) -> None:
    source = opened(write_json(tmp_path / "a.tar", values, key), ["0", "1", "2"])
    assert source.labels.tolist() == HOT
    form = "vectors of zeros and ones for 3 classes" if values is HOT else "lists of classes"
    assert any(form in note for note in source.notes)


def test_webdataset_has_names_and_other_texts(tmp_path: Path) -> None:
    names = [[NAMES[number] for number in numbers] for numbers in SETS]
    for number, path in enumerate(
        [
            write_json(tmp_path / "names.tar", names),
            write_cls(tmp_path / "lines.tar", ["\n".join(each) for each in names]),
            write_cls(tmp_path / "commas.tar", [", ".join(each) for each in names]),
            write_cls(tmp_path / "numbers.tar", [" ".join(map(str, each)) for each in SETS]),
        ]
    ):
        source = opened(path, NAMES if number < 3 else ["0", "1", "2"])
        assert source.labels.tolist() == HOT, path


def test_webdataset_refuses_several_where_nothing_says_so(tmp_path: Path) -> None:
    for path in (
        write_json(tmp_path / "lists.tar", [[0, 2], [1, 2], [1, 0], [0, 1]], "label"),
        write_json(tmp_path / "names.tar", [["ape", "dog"]] * 4, "label"),
        write_cls(tmp_path / "numbers.tar", ["0 2"] * 4),
        write_cls(tmp_path / "lines.tar", ["ape\ndog"] * 4),
    ):
        assert "data.multi_label=true" in refusal(path, multi_label=False).remedy
    assert "data.multi_label=true" in refusal(write_json(tmp_path / "key.tar", SETS), multi_label=False).why


def write_examples(path: Path, values: Sequence[Any]) -> Path:
    records = [example({"image": image, "label": value}) for image, value in zip(IMAGES, values, strict=True)]
    path.write_bytes(b"".join(map(tf_record, records)))
    return path


def test_tfrecord_has_lists_vectors_and_texts(tmp_path: Path) -> None:
    texts = [[NAMES[number].encode() for number in numbers] for numbers in SETS]
    assert opened(write_examples(tmp_path / "l.tfrecord", SETS), ["0", "1", "2"]).labels.tolist() == HOT
    assert opened(write_examples(tmp_path / "v.tfrecord", HOT), ["0", "1", "2"]).labels.tolist() == HOT
    floats = [[float(value) for value in row] for row in HOT]
    assert opened(write_examples(tmp_path / "f.tfrecord", floats), ["0", "1", "2"]).labels.tolist() == HOT
    assert opened(write_examples(tmp_path / "t.tfrecord", texts), NAMES).labels.tolist() == HOT
    error = refusal(write_examples(tmp_path / "n.tfrecord", [[b"ape", b"dog"]] * 4), multi_label=False)
    assert "2 labels (ape, dog)" in error.why
    for path in (tmp_path / "n.tfrecord", write_examples(tmp_path / "i.tfrecord", [[3, 5]] * 4)):
        assert "data.multi_label=true" in refusal(path, multi_label=False).remedy


def write_vectors(path: Path, values: Sequence[float | Sequence[float]]) -> Path:
    path.write_bytes(b"".join(rec_image(image, value) for image, value in zip(IMAGES, values, strict=True)))
    return path


def test_recordio_has_vectors(tmp_path: Path) -> None:
    assert opened(write_vectors(tmp_path / "v.rec", HOT), ["0", "1", "2"]).labels.tolist() == HOT
    two = write_vectors(tmp_path / "two.rec", [[0, 1]] * 4)  # in this format that is no list
    assert opened(two, ["0", "1"]).labels.tolist() == [[0, 1]] * 4
    one = opened(write_vectors(tmp_path / "one.rec", [0.0, 2.0, 1.0, 1.0]), ["0", "1", "2"])
    assert one.labels.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0]]
    error = refusal(write_vectors(tmp_path / "l.rec", [[2.0, 7.0]] * 4))
    assert "2 values (2, 7)" in error.why
    assert "zeros and ones" in error.why
    assert "data.multi_label=true" in refusal(tmp_path / "v.rec", multi_label=False).remedy


@pytest.mark.parametrize("kind", ["Sequence", "List", "old"])
def test_hugging_face_has_columns_of_lists(tmp_path: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    inner = {"names": NAMES, "_type": "ClassLabel"}
    feature: Any = [inner] if kind == "old" else {"feature": inner, "_type": kind}
    tags = [["x"], [], [], ["y"]]
    rows = [
        {"image": {"bytes": image, "path": None}, "tags": numbers, "about": text}
        for image, numbers, text in zip(IMAGES, SETS, tags, strict=True)
    ]
    schema = pa.schema(
        {
            "image": pa.struct({"bytes": pa.binary(), "path": pa.string()}),
            "tags": pa.list_(pa.int64()),
            "about": pa.list_(pa.string()),
        }
    )
    with pa.ipc.new_stream(tmp_path / "data.arrow", schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
    features = {"image": {"_type": "Image"}, "tags": feature, "about": {"_type": "List", "feature": {"_type": "Value"}}}
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": features}))
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    assert opened(tmp_path, NAMES).labels.tolist() == HOT
    texts = opened(tmp_path, ["x", "y"], label_field="about")
    assert texts.labels.tolist() == [[1, 0], [0, 0], [0, 0], [0, 1]]
    assert "data.multi_label=true" in refusal(tmp_path, multi_label=False).remedy


def test_what_lists_can_mean(tmp_path: Path) -> None:
    """Zeros and ones are a vector where all are equally long; elsewhere they are classes."""
    pairs = opened(write_json(tmp_path / "a.tar", [[0, 1], [1], [0], [2, 0]]), ["0", "1", "2"])
    assert pairs.labels.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0], [1, 0, 1]]
    two = opened(write_json(tmp_path / "b.tar", [[0, 1], [1, 0], [1, 0], [0, 1]]), ["0", "1"])
    assert two.labels.tolist() == [[0, 1], [1, 0], [1, 0], [0, 1]]
    assert "nothing tells which" in refusal(write_json(tmp_path / "c.tar", [[0, 1]] * 4)).why
    mixed = refusal(write_json(tmp_path / "d.tar", [[0, 0, 1], [1], [0], [2]]))
    assert "lists of classes and vectors of 3" in mixed.what
    assert (
        "vectors of 3 and vectors of 4"
        in refusal(write_json(tmp_path / "e.tar", [[0, 0, 1], [0, 0, 0, 1], [0, 0, 0], [1, 1, 1]])).what
    )
    assert "3 twice" in refusal(write_json(tmp_path / "f.tar", [[3, 3], [1], [0], [2]])).why
    assert "numbers and names" in refusal(write_json(tmp_path / "g.tar", [[3], ["ape"], [0], [2]])).what


def test_a_label_of_a_record() -> None:
    assert number_set([2, 7]) == LabelSet((Label(2), Label(7)))
    assert number_set([0, 1, 1]) == LabelSet((Label(1), Label(2)), 3)
    assert number_set([1, 0]) == LabelSet((Label(0),), 2, sure=False)
    assert number_set([0, 1], are_classes=True) == LabelSet((Label(0), Label(1)))
    assert number_set([4, 6], ["ape", "dog"]) == LabelSet((Label(4, "ape"), Label(6, "dog")))
    assert written_set(" \n") == LabelSet(())
    assert written_set("big cat; dog") == LabelSet((Label(None, "big cat"), Label(None, "dog")))
    for values in ([-1, 0, 1], [0.5, 1]):
        with pytest.raises(BadLabel):
            number_set(values)
        with pytest.raises(BadLabel, match="a vector of zeros and ones"):
            vector_set(values)


def test_an_index_keeps_them() -> None:
    builder = IndexBuilder()
    labels: list[Label | LabelSet] = [
        LabelSet((Label(3), Label(None, "cat"))),
        LabelSet((), 4, sure=False),
        Label(5),
        LabelSet(()),
    ]
    for number, label in enumerate(labels):
        builder.add(number, 1, label)
    fit = Fit("reader", (Stamp(10, 1),))
    again = read_index(builder.index().to_bytes(fit), fit)
    assert again is not None
    assert again.table == labels
