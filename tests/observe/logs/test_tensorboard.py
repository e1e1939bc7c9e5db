"""TensorBoard's event files, written here byte by byte from the formats' specifications."""

import struct
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c

from phalanx.errors import UserError
from phalanx.observe.curves import Log
from phalanx.observe.logs.read import read_log
from tests.observe.logs.test_text_logs import curve

BEGIN = 1.7e9  # seconds since 1970


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def nested(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def event(step: int, *values: bytes) -> bytes:
    time = varint(1 << 3 | 1) + struct.pack("<d", BEGIN + step)
    return time + varint(2 << 3) + varint(step) + nested(5, b"".join(nested(1, value) for value in values))


def simple(tag: str, number: float) -> bytes:
    return nested(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", number)


def tensor(tag: str, *numbers: float, raw: bool = False, double: bool = False) -> bytes:
    """A tensor as TensorFlow 2 writes it: elements as a list, or as raw bytes."""
    packed = np.array(numbers, "<f8" if double else "<f4").tobytes()
    field = 4 if raw else 6 if double else 5
    return nested(1, tag.encode()) + nested(8, varint(1 << 3) + varint(2 if double else 1) + nested(field, packed))


def record(data: bytes) -> bytes:
    def masked(part: bytes) -> bytes:
        crc = crc32c(part)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)

    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def write(path: Path, *events: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    version = varint(1 << 3 | 1) + struct.pack("<d", BEGIN) + nested(3, b"brain.Event:2")
    path.write_bytes(b"".join(map(record, (version, *events))))
    return path


def read(path: Path) -> Log:
    return read_log(path, "a")


def test_scalars_of_either_kind(tmp_path: Path) -> None:
    path = write(
        tmp_path / "events.out.tfevents.17.host",
        event(0, simple("train/loss", 2.5), simple("train/acc", 0.125), simple("lr", 0.5)),
        event(10, tensor("train/loss", 1.5), tensor("train/acc", 0.25, raw=True), tensor("lr", 0.25, double=True)),
        event(10, simple("val/acc", 0.5), tensor("histogram", 1, 2, 3), nested(1, b"text") + nested(4, b"image")),
        event(20, simple("train/loss", float("nan")), tensor("train/acc", 0.75, raw=True, double=True)),
    )
    for place in (path, tmp_path):
        log = read(place)
        assert curve(log, "train/loss", "step") == ([0, 10], [2.5, 1.5])
        assert curve(log, "train/top1", "step") == ([0, 10, 20], [12.5, 25.0, 75.0])
        assert curve(log, "train/lr", "time") == ([0, 10], [0.5, 0.25])
        assert curve(log, "val/top1", "step") == ([10], [50.0])
        assert curve(log, "val/top1", "epoch")[0] == []
        assert log.notes == []


def test_percent_and_errors(tmp_path: Path) -> None:
    log = read(write(tmp_path / "a.tfevents.1", event(1, simple("eval/top1", 76.5), simple("test-error-top5", 0.25))))
    assert curve(log, "val/top1", "step") == ([1], [76.5])
    assert curve(log, "val/top5", "step") == ([1], [75.0])


def test_keras_writes_a_folder_for_each_part_and_counts_epochs(tmp_path: Path) -> None:
    for part, accuracy in (("train", 0.5), ("validation", 0.25)):
        events = [event(epoch, tensor("epoch_accuracy", accuracy), tensor("epoch_loss", 2.0)) for epoch in (0, 1)]
        write(tmp_path / part / "events.out.tfevents.17.host.v2", *events)
    log = read(tmp_path)
    assert curve(log, "train/top1") == ([1, 2], [50.0, 50.0])
    assert curve(log, "val/top1") == ([1, 2], [25.0, 25.0])
    assert curve(log, "val/loss", "step")[0] == []


def test_several_runs_in_a_folder_are_refused(tmp_path: Path) -> None:
    for run in ("a/train", "a/validation", "b"):
        write(tmp_path / run / "events.out.tfevents.1", event(1, simple("loss", 1)))
    with pytest.raises(UserError, match="event files of 2 runs") as refusal:
        read(tmp_path)
    assert refusal.value.why == "they are in a, b"
    assert set(read(tmp_path / "a").series) == {"train/loss", "val/loss"}
    write(tmp_path / "events.out.tfevents.2", event(1, simple("lr", 1)))
    log = read(tmp_path)
    assert list(log.series) == ["train/lr"]
    assert log.notes == ["3 event files of folders below it are left out"]


@pytest.mark.parametrize("epochs", [(0.0, 0.5, 1.0, 1.5, 2.0), (0, 0, 1, 1, 2)])
def test_a_tag_that_counts_epochs(tmp_path: Path, epochs: tuple[float, ...]) -> None:
    """Hugging Face's Trainer logs parts of epochs, Lightning whole ones."""
    events = [event(50 * n, simple("epoch", epoch), simple("eval_loss", n)) for n, epoch in enumerate(epochs)]
    log = read(write(tmp_path / "a.tfevents.1", *events, event(250, simple("eval_loss", 5))))
    assert curve(log, "val/loss") == ([0, 0.5, 1, 1.5, 2, 2.5], [0, 1, 2, 3, 4, 5])


def test_damage_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfevents.1", *(event(step, simple("loss", step)) for step in range(4)))
    whole = path.read_bytes()
    size = len(record(event(3, simple("loss", 3))))
    path.write_bytes(whole[:-7])
    log = read(path)
    assert curve(log, "train/loss", "step")[0] == [0, 1, 2]
    cut = f"it is damaged or cut off after {len(whole) - size:,} bytes, and the rest is left out"
    assert log.notes == [f"a.tfevents.1: {cut}"]
    flipped = bytearray(whole)
    flipped[-size - 6] ^= 1  # in the data of the record before the last
    path.write_bytes(flipped)
    assert curve(read(path), "train/loss", "step")[0] == [0, 1, 3]
    assert read(path).notes == ["a.tfevents.1: 1 damaged record is left out"]


def test_a_file_without_scalars_has_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to draw"):
        read(write(tmp_path / "a.tfevents.1"))
