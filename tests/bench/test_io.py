"""`phalanx bench io` from end to end, on a few photographs and with one peer."""

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.bench.io import BOUND, OURS, PILLOW, IoPlan, bench_io
from phalanx.errors import UserError
from tests.data.jpegs import jpeg, native, photograph
from tests.data.samples import assert_helpful, image_bytes, write_images

QUICK = IoPlan(size=32, batch_size=8, threads=1, decode="fast", rounds=1, seconds=0.05, reads=24)


def write_photographs(folder: Path) -> Path:
    for number in range(6):
        place = folder / f"class {number % 2}" / f"{number}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        pixels = photograph(40, 60, seed=number)
        place.write_bytes(image_bytes(pixels) if number == 3 else jpeg(pixels))
    return folder


def test_everything_is_measured_told_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    data, result = write_photographs(tmp_path / "data"), tmp_path / "result.json"
    console = Console(file=io.StringIO(), width=200)
    wrapped = tmp_path / "python"
    wrapped.write_text(f'#!/bin/sh\nexport FROM_WRAPPER=1\nexec {sys.executable} "$@"\n')
    wrapped.chmod(0o755)
    bench_io(console, str(data), QUICK, [], {"torchvision": str(wrapped)}, markdown=None, json_file=result)
    told = json.loads(result.read_text())
    rows = {row[0]: row for row in told["tables"][0]["rows"]}
    assert set(rows) == {OURS, PILLOW, BOUND, "torchvision"}
    assert all(float(row[1].replace(",", "")) > 0 for row in rows.values())
    assert set(told["figures"]) == {"images/s", *(f"phalanx / {name}" for name in (PILLOW, BOUND, "torchvision"))}
    notes = " ".join(told["tables"][0]["notes"])
    assert "not JPEGs are left out" in notes
    stages = dict(told["tables"][1]["rows"])
    assert float(stages["decode, crop, resize, flip"]) > 0
    assert (tmp_path / "state" / "phalanx" / "bench.jsonl").exists()


def test_a_peer_that_is_not_known_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        bench_io(Console(), "digits", QUICK, ["torchvison"], {}, markdown=None, json_file=None)
    assert_helpful(caught.value, "torchvison", "torchvision")


def test_a_python_that_does_not_run_is_told(tmp_path: Path) -> None:
    data = write_photographs(tmp_path)
    with pytest.raises(UserError) as caught:
        bench_io(Console(quiet=True), str(data), QUICK, [], {"timm": "/no/python"}, markdown=None, json_file=None)
    assert_helpful(caught.value, "/no/python", "--peer-env")


def test_data_without_jpegs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        bench_io(
            Console(quiet=True),
            str(write_images(tmp_path / "png", {"a": 2, "b": 2})),
            QUICK,
            [],
            {},
            markdown=None,
            json_file=None,
        )
    assert_helpful(caught.value, "no JPEGs")


def test_decoded_data_has_no_peers() -> None:
    with pytest.raises(UserError) as caught:
        bench_io(Console(quiet=True), "digits", QUICK, ["timm"], {}, markdown=None, json_file=None)
    assert_helpful(caught.value, "decoded already")
