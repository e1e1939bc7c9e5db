"""What an index keeps, and when it is not believed."""

from dataclasses import replace

import numpy as np
import pytest

from phalanx.data.sources.shards.index import Fit, Index, IndexBuilder, Label, read_index
from phalanx.data.sources.stamp import Stamp

FIT = Fit("reader setting=1", (Stamp(10_000, 17), Stamp(-1, 0)))


def small_index() -> Index:
    builder = IndexBuilder()
    builder.add(0, 100, Label(3, "cat"), 2)
    builder.add(104, 9_896, Label(None, "Größe"))
    builder.add(50, 1, Label(3, "cat"))
    builder.notes.append("one was left out")
    return builder.index()


def test_kept_and_read_again() -> None:
    index = small_index()
    again = read_index(index.to_bytes(FIT), FIT)
    assert again is not None
    assert (again.table, again.notes) == ([Label(3, "cat"), Label(None, "Größe")], ["one was left out"])
    assert again.offsets.tolist() == [0, 104, 50]
    assert again.lengths.tolist() == [100, 9_896, 1]
    assert again.labels.tolist() == [0, 1, 0]
    assert again.marks.tolist() == [2, 0, 0]
    assert again.in_file_order().offsets.tolist() == [0, 50, 104]


@pytest.mark.parametrize(
    "other",
    [
        replace(FIT, reader="reader setting=2"),
        replace(FIT, stamps=(Stamp(10_001, 17), Stamp(-1, 0))),
        replace(FIT, stamps=(Stamp(10_000, 18), Stamp(-1, 0))),
        replace(FIT, stamps=(Stamp(10_000, 17), Stamp(5, 9))),
        replace(FIT, stamps=FIT.stamps[:1]),
    ],
)
def test_of_another_file_or_setting(other: Fit) -> None:
    assert read_index(small_index().to_bytes(FIT), other) is None


def test_damage_is_noticed() -> None:
    data = small_index().to_bytes(FIT)
    for length in range(len(data)):
        assert read_index(data[:length], FIT) is None
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1
        assert read_index(bytes(flipped), FIT) is None, place
    assert read_index(data + b"\0", FIT) is None


@pytest.mark.parametrize(
    ("offset", "length", "label"),
    [(10_000, 1, 0), (2**63, 5, 0), (2**64 - 1, 1, 0), (0, 2**31, 0), (0, 1, 1), (0, 1, -1)],
)
def test_places_outside_of_the_file(offset: int, length: int, label: int) -> None:
    index = Index(
        np.array([offset], np.uint64),
        np.array([length], np.uint32),
        np.array([label], np.int32),
        np.zeros(1, np.uint16),
        [Label(0)],
    )
    assert read_index(index.to_bytes(FIT), FIT) is None


def test_a_million_samples_are_small() -> None:
    numbers = np.arange(1_000_000)
    index = Index(
        (numbers * 110_000).astype(np.uint64),
        np.full(1_000_000, 110_000, np.uint32),
        (numbers % 1000).astype(np.int32),
        np.zeros(1_000_000, np.uint16),
        [Label(number, f"n{number:08d}") for number in range(1000)],
    )
    in_memory = sum(column.nbytes for column in (index.offsets, index.lengths, index.labels, index.marks))
    written = index.to_bytes(Fit("reader", (Stamp(10**12, 0),)))
    assert in_memory < 20e6
    assert len(written) < 20e6
    assert read_index(written, Fit("reader", (Stamp(10**12, 0),))) is not None
