"""Damaged JPEGs: native code and Pillow refuse the same ones, and make the same pixels of the others."""

from pathlib import Path

import pytest

from tests.data.jpegs import native
from tests.fuzz.differences import cases_of, compare, difference
from tests.fuzz.samples import corpus, jpegs

pytestmark = [pytest.mark.numeric, pytest.mark.filterwarnings("ignore")]  # Pillow warns about what it skips


@pytest.mark.parametrize("file", corpus("jpeg"), ids=lambda file: file.stem)
def test_what_once_differed_is_the_same(file: Path) -> None:
    native()
    data = file.read_bytes()
    assert [report for case in cases_of(data, views=40) if (report := difference(data, case))] == []


def test_a_few_hundred_damaged_files_are_the_same() -> None:
    """`python -m tests.fuzz.differences --files 20000` compares more of them."""
    native()
    assert compare(400, 1, jpegs()) == {"the same": 400}
