"""Benchmarks of training methods: what is kept is only read, and tables have what is known so far."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.distill_cifar10 import RECORD, Bench
from benchmarks.kept_runs import finish, step_s, write_table
from benchmarks.large_minibatch import breaking_point, spread


def test_a_run_that_is_done_is_only_read(digits_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert finish(digits_run, ["no-such-recipe"]) == digits_run
    assert not capfd.readouterr().err
    assert 0 < step_s(digits_run) < 60


def test_a_table_is_markdown(tmp_path: Path) -> None:
    write_table(tmp_path / "table.md", ["a", "b"], [["1", "2"]])
    assert (tmp_path / "table.md").read_text() == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_half_of_the_labels_is_half_of_each_file_drawn_once(tmp_path: Path) -> None:
    source, runs = tmp_path / "source", tmp_path / "runs"
    source.mkdir()
    runs.mkdir()
    for number in range(1, 6):
        records = np.arange(10, dtype=np.uint8)[:, None].repeat(RECORD, 1) + 20 * number
        records.tofile(source / f"data_batch_{number}.bin")
    for name in ("test_batch.bin", "batches.meta.txt"):
        (source / name).write_bytes(b"x")
    bench = Bench(str(source), runs, 1, ["0"], [])
    half = Path(bench.methods()["half of the labels"][1])
    drawn = [np.fromfile(half / f"data_batch_{number}.bin", dtype=np.uint8)[::RECORD] for number in range(1, 6)]
    assert all(len(set(values.tolist())) == 5 for values in drawn)
    assert len({tuple((values - 20 * number).tolist()) for number, values in enumerate(drawn, 1)}) > 1
    assert bench.methods()["half of the labels, SSLD"][-1] == f"distill.unlabeled={source}"


def test_the_batch_that_breaks_is_the_first_that_is_clearly_worse() -> None:
    assert breaking_point({32: [0.10, 0.11], 64: [0.11, 0.11], 128: [0.2, 0.21], 256: []}) == 128
    assert breaking_point({32: [0.10, 0.11], 64: []}) == 64
    assert breaking_point({32: [0.10]}) is None
    assert spread([]) == "diverged"
    assert spread([0.1, 0.2]) == "15.00 ± 7.07 %"
