"""The rule by which wide integers and floats become pixels."""

import numpy as np
import numpy.typing as npt
import pytest

from phalanx.data.decode.ranges import OutOfRange, Scale, range_of, scale_of, whole_range


@pytest.mark.parametrize(
    ("dtype", "low", "high", "expected"),
    [
        ("uint8", 3, 90, Scale(0, 255)),
        ("bool", 0, 1, Scale(0, 1)),
        ("uint16", 0, 255, Scale(0, 255)),
        ("uint16", 0, 256, Scale(0, 65535)),
        ("int16", 0, 3000, Scale(0, 32767)),
        ("int64", 0, 255, Scale(0, 255)),
        ("int64", 0, 65535, Scale(0, 65535)),
        ("float32", 0, 1, Scale(0, 1)),
        ("float64", -1, 1, Scale(-1, 1)),
        ("float32", -0.2, 0.9, Scale(-1, 1)),
        ("float16", 0, 255, Scale(0, 255)),
        ("float32", -0.0001, 1.0001, Scale(0, 1)),
    ],
)
def test_the_rule(dtype: str, low: float, high: float, expected: Scale) -> None:
    assert scale_of(dtype, low, high) == expected


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("int16", -5, 5), ("int32", 0, 65536), ("float32", -2.1, 2.6), ("float32", 0, 256), ("float32", np.nan, np.nan)],
)
def test_what_it_does_not_cover_is_refused_with_the_range(dtype: str, low: float, high: float) -> None:
    with pytest.raises(OutOfRange, match=f"{high:,g}"):
        scale_of(dtype, low, high)


def test_every_16_bit_value_is_divided_by_257_and_rounded() -> None:
    values = np.arange(65536, dtype=np.uint16)
    expected = [(int(value) * 2 + 257) // 514 for value in values]
    np.testing.assert_array_equal(Scale(0, 65535).apply(values), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_bytes_stored_as_fractions_come_back_exactly(dtype: npt.DTypeLike) -> None:
    levels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(Scale(0, 1).apply((levels / 255).astype(dtype)), levels)
    np.testing.assert_array_equal(Scale(-1, 1).apply((levels / 127.5 - 1).astype(dtype)), levels)
    np.testing.assert_array_equal(Scale(0, 255).apply(levels.astype(dtype)), levels)


def test_a_later_image_outside_of_the_range_is_refused() -> None:
    with pytest.raises(OutOfRange, match="its values are 0 … 2, and those of the dataset 0 … 1"):
        Scale(0, 1).apply(np.array([0.0, 2.0], np.float32))
    with pytest.raises(OutOfRange):
        Scale(0, 1).apply(np.array([0.0, np.nan], np.float32))
    with pytest.raises(OutOfRange):
        Scale(0, 255).apply(np.array([300], np.uint16))


def test_bytes_are_passed_on_without_a_copy() -> None:
    pixels = np.arange(12, dtype=np.uint8)
    assert np.shares_memory(Scale(0, 255).apply(pixels), pixels)


def test_range_of_several_images() -> None:
    assert range_of([np.array([1, 2]), np.array([0.5, 7])]) == (0.5, 7)
    assert np.isnan(range_of([np.array([1.0]), np.array([np.nan])])).all()
    assert range_of([]) == (0, 0)
    assert scale_of("uint16", *whole_range("uint16")) == Scale(0, 65535)
