"""tf.train.Example from its bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.data.sources.tf_example import (
    BadExample,
    Feature,
    bytes_of,
    features_of,
    find_features,
    kind_of,
    numbers_of,
)
from tests.data.shard_files import Values, example, field, varint

NAMES = ("image", "label", "no such")


def parsed(data: bytes) -> dict[str, list[bytes] | list[float]]:
    found = features_of(data, 0, len(data))
    return {name: bytes_of(data, feature) or numbers_of(data, feature) for name, feature in found.items()}


@pytest.mark.parametrize("packed", [True, False])
def test_lists_of_every_kind(packed: bool) -> None:
    values: dict[str, Values] = {
        "image": b"\xff\xd8" * 300,
        "words": [b"a", b"", b"bc"],
        "label": [0, 1, 127, 128, 2**40, -1],
        "score": [0.5, -2.0],
        "nothing": [],
    }
    data = example(values, packed=packed)
    found = parsed(data)
    assert found == {**values, "image": [values["image"]]}
    kinds = {name: kind_of(data, feature) for name, feature in features_of(data, 0, len(data)).items()}
    assert kinds == {"image": "bytes", "words": "bytes", "label": "integers", "score": "floats", "nothing": "bytes"}


def test_fields_that_are_not_known_are_passed_over() -> None:
    odd = (
        varint(9 << 3 | 0) + varint(5) + varint(8 << 3 | 1) + bytes(8) + varint(7 << 3 | 5) + bytes(4) + field(6, b"x")
    )
    data = odd + example({"image": b"i", "label": [3]}) + odd
    assert parsed(data) == {"image": [b"i"], "label": [3]}
    assert find_features(data, 0, len(data), NAMES)[2] is None


def test_only_the_part_that_is_named() -> None:
    data = example({"image": b"i", "label": [3]})
    around = b"\xff" * 7 + data + b"\xff" * 9
    image, label, missing = find_features(around, 7, 7 + len(data), NAMES)
    assert image is not None
    assert label is not None
    assert (bytes_of(around, image), numbers_of(around, label), missing) == ([b"i"], [3], None)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a\x05\x0a", "longer than its message"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "longer than its message"),
        (b"\x0a" + b"\xff" * 12, "does not end"),
        (b"\x0a", "ends within a number"),
        (b"\x0b\x00", "wire type 3"),
        (b"\x02\x00", "number 0"),
        (field(1, field(1, b"\x0a\x09key")), "longer than its message"),
        (b"\x09\x00", "longer than its message"),
    ],
)
def test_what_is_malformed(data: bytes, why: str) -> None:
    with pytest.raises(BadExample, match=why):
        features_of(data, 0, len(data))
    with pytest.raises(BadExample, match=why):
        find_features(data, 0, len(data), NAMES)


def test_lists_that_are_malformed() -> None:
    floats = field(2, field(1, b"\0\0\0"))
    with pytest.raises(BadExample, match="multiple of 4"):
        numbers_of(floats, Feature(0, len(floats)))
    integers = field(3, b"\x0a\x09\x01")
    with pytest.raises(BadExample, match="longer"):
        numbers_of(integers, Feature(0, len(integers)))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_native_and_python_agree_on_anything(data: st.DataObject) -> None:
    message = bytearray(example({"image": b"\x0a\x03abc", "label": [1, 300], "other": [0.5]}))
    for _ in range(data.draw(st.integers(0, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    given_bytes = bytes(message[: data.draw(st.integers(0, len(message)))]) + data.draw(st.binary(max_size=4))
    try:
        expected = features_of(given_bytes, 0, len(given_bytes))
    except BadExample:
        with pytest.raises(BadExample):
            find_features(given_bytes, 0, len(given_bytes), NAMES)
        return
    assert find_features(given_bytes, 0, len(given_bytes), NAMES) == [expected.get(name) for name in NAMES]
    for feature in expected.values():
        try:
            assert all(len(value) <= len(given_bytes) for value in bytes_of(given_bytes, feature))
            numbers_of(given_bytes, feature)
        except BadExample:
            pass
