"""The file of logits: exact or in 16 bits, for one run only, and only rows that were written completely count."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from phalanx.engine.distill.cache_file import HEADER, ROWS, CacheFile, CacheShape, open_file
from phalanx.errors import UserError

EXACT = CacheShape(epochs=2, samples=20, teachers=2, classes=7, top_k=None)
SMALL = CacheShape(epochs=2, samples=20, teachers=2, classes=7, top_k=3)
SOME = np.array([4, 17, 0])


def opened(folder: Path, shape: CacheShape = EXACT, any_epochs: bool = False, **identity: object) -> CacheFile:
    return open_file(folder, shape, {"seed": 1, **identity}, any_epochs=any_epochs)


def logits(count: int = 3) -> torch.Tensor:
    return torch.randn(2, count, 7, generator=torch.Generator().manual_seed(3)) * 5


def test_all_logits_come_back_as_the_same_bits(tmp_path: Path) -> None:
    file, wanted = opened(tmp_path), logits()
    assert not file.read(1, SOME)[1].any()
    file.write(1, SOME, EXACT.pack(wanted))
    rows, known = opened(tmp_path).read(1, SOME)  # as another process does
    assert known.all()
    assert torch.equal(EXACT.unpack(rows), wanted)
    assert not file.read(0, SOME)[1].any(), "another epoch"
    assert file.read(1, np.arange(20))[1].sum() == 3
    assert (tmp_path / ROWS).stat().st_size == 2 * 20 * (4 + 2 * 7 * 4) == EXACT.num_bytes


def test_the_largest_logits_come_back_and_the_others_share_what_is_left(tmp_path: Path) -> None:
    file, wanted = opened(tmp_path, SMALL), logits()
    file.write(0, SOME, SMALL.pack(wanted))
    found = SMALL.unpack(file.read(0, SOME)[0])
    kept = wanted.topk(3, dim=2).indices
    assert torch.equal(found.gather(2, kept), wanted.gather(2, kept).half().float())
    assert torch.equal(found.argmax(2), wanted.argmax(2))
    torch.testing.assert_close(found.softmax(2).sum(2), torch.ones(2, 3))
    whole, parts = wanted.softmax(2).gather(2, kept), found.softmax(2).gather(2, kept)
    torch.testing.assert_close(parts, whole, atol=2e-3, rtol=0.02)


def test_a_row_that_was_not_written_completely_does_not_count(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write(0, SOME, EXACT.pack(logits()))
    file.close()
    content = bytearray((tmp_path / ROWS).read_bytes())
    content[17 * EXACT.row.itemsize + 20] ^= 1
    (tmp_path / ROWS).write_bytes(content)
    assert opened(tmp_path).read(0, SOME)[1].tolist() == [True, False, True]
    moved = content[4 * EXACT.row.itemsize : 5 * EXACT.row.itemsize]
    content[5 * EXACT.row.itemsize : 6 * EXACT.row.itemsize] = moved
    (tmp_path / ROWS).write_bytes(content)
    assert opened(tmp_path).read(0, np.array([4, 5]))[1].tolist() == [True, False], "a row of another sample"


def test_a_cache_of_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(UserError, match="seed differs") as error:
        opened(tmp_path, seed=2)
    assert "it has 1, and this run 2" in error.value.why
    with pytest.raises(UserError, match="kept of each differs"):
        opened(tmp_path, SMALL)
    longer = CacheShape(5, 20, 2, 7, None)
    with pytest.raises(UserError, match="epochs differs"):
        opened(tmp_path, longer)
    assert opened(tmp_path, longer, any_epochs=True).shape.epochs == 2, "a longer run uses what is there"


@pytest.mark.parametrize(("name", "content"), [(HEADER, b"{"), (HEADER, b"\xff"), (ROWS, b"short")])
def test_a_damaged_cache_is_an_error(tmp_path: Path, name: str, content: bytes) -> None:
    opened(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="cannot be used"):
        opened(tmp_path)


def test_a_disk_without_room_is_an_error_that_says_how_much_it_takes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be used") as error:
        opened(tmp_path, CacheShape(1 << 30, 1 << 20, 1, 1000, None))  # petabytes
    assert "it takes 4.51e+09 GB" in error.value.why
    assert "distill.cache_top_k" in error.value.remedy


def test_the_size_is_said_before_it_is_taken(tmp_path: Path) -> None:
    assert str(CacheShape(10, 50_000, 1, 10, None)).endswith("= 22 MB")
    assert "50,000 samples × 10 epochs × 10 logits × 4 bytes" in str(CacheShape(10, 50_000, 1, 1000, 10))
    assert json.loads((opened(tmp_path).folder / HEADER).read_text())["number of teachers"] == 2
