"""tf.train.Example from its bytes."""

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.data.sources.shards.tf_example import BadExample, bytes_of, features_of, kind_of, numbers_of
from tests.data.shard_files import Values, example, field, varint
from tests.data.shard_files import crc32c as by_table


def parsed(data: bytes) -> dict[str, tuple[bytes, ...] | tuple[float, ...]]:
    found = features_of(data, 0, len(data))
    return {name: bytes_of(feature) or numbers_of(feature) for name, feature in found.items()}


@pytest.mark.parametrize("packed", [True, False])
def test_lists_of_every_kind(packed: bool) -> None:
    values: dict[str, Values] = {
        "image": b"\xff\xd8" * 300,
        "words": (b"a", b"", b"bc"),
        "label": (0, 1, 127, 128, 2**40, -1),
        "score": (0.5, -2.0),
        "no values": (),
    }
    data = example(values, packed=packed)
    assert parsed(data) == {**values, "image": (values["image"],)}
    kinds = {name: kind_of(feature) for name, feature in features_of(data, 0, len(data)).items()}
    assert kinds == {"image": "bytes", "words": "bytes", "label": "integers", "score": "floats", "no values": "bytes"}
    empty = field(1, field(1, field(1, b"empty") + field(2, b"")))
    assert kind_of(features_of(empty, 0, len(empty))["empty"]) == "nothing"


def test_fields_that_are_not_known_are_passed_over() -> None:
    odd = (
        varint(9 << 3 | 0) + varint(5) + varint(8 << 3 | 1) + bytes(8) + varint(7 << 3 | 5) + bytes(4) + field(6, b"x")
    )
    data = odd + example({"image": b"i", "label": [3]}) + odd
    assert parsed(data) == {"image": (b"i",), "label": (3,)}
    assert features_of(data, 0, len(data)).get("no such") is None


def test_only_the_part_that_is_named() -> None:
    data = example({"image": b"i", "label": [3]})
    around = b"\xff" * 7 + data + b"\xff" * 9
    found = features_of(around, 7, 7 + len(data))
    assert (bytes_of(found["image"]), numbers_of(found["label"])) == ((b"i",), (3,))


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05\x0a",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x0a" + b"\xff" * 12,
        b"\x0a",
        b"\x0b\x00",
        b"\x02\x00",
        field(1, field(1, b"\x0a\x09key")),
        b"\x09\x00",
        field(1, field(1, field(1, b"key") + field(2, field(2, field(1, b"\0\0\0"))))),
        field(1, field(1, field(1, b"key") + field(2, field(3, b"\x0a\x09\x01")))),
    ],
)
def test_what_is_malformed(data: bytes) -> None:
    with pytest.raises(BadExample):
        features_of(data, 0, len(data))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_bytes_are_features_or_refused(data: st.DataObject) -> None:
    message = bytearray(example({"image": b"\x0a\x03abc", "label": [1, 300], "other": [0.5]}))
    for _ in range(data.draw(st.integers(0, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(message[: data.draw(st.integers(0, len(message)))]) + data.draw(st.binary(max_size=4))
    try:
        found = features_of(damaged, 0, len(damaged))
    except BadExample:
        return
    for feature in found.values():
        assert all(len(value) <= len(damaged) for value in bytes_of(feature))
        assert len(numbers_of(feature)) <= len(damaged)


@pytest.mark.parametrize("size", [0, 8, 31, 1000, 33_000])
def test_the_checksum_library_is_the_one_of_tfrecord(size: int) -> None:
    data = bytes(number * 7 % 251 for number in range(size + 3))
    assert crc32c(memoryview(data)[3:]) == by_table(data[3:])
