"""`bench train` with real processes on a small network; its table on given numbers; who cannot take part is told."""

import io
import json
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.bench.contender import Contender, Turn
from phalanx.bench.environments import Found, find_peers, parse_environments
from phalanx.bench.history import entries
from phalanx.bench.train import (
    OTHER,
    OURS,
    Line,
    Measured,
    TrainBenchPlan,
    asked_precision,
    bench_train,
    make_figures,
    make_plan,
    make_table,
)
from phalanx.errors import UserError
from phalanx.native.features import SWITCH
from tests.data.samples import assert_helpful

QUICK = TrainBenchPlan(
    "test_resnet", batch_size=2, size=32, steps=1, rounds=1, turn_s=60.0, precision="fp32", threads=1
)
GIVEN = TrainBenchPlan("resnet50", batch_size=32, size=224, steps=4, rounds=3, turn_s=60.0, precision="fp32", threads=2)


@pytest.mark.usefixtures("own_cache")
def test_all_are_measured_told_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tensorflow = tmp_path / "environment"  # one that is found, and fails when it is to train
    (tensorflow / "bin").mkdir(parents=True)
    (tensorflow / "tensorflow.py").write_text("__version__ = '0.1'\n")
    python = tensorflow / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tensorflow} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    screen = io.StringIO()
    pythons = parse_environments([f"tensorflow={tensorflow}"])
    bench_train(
        Console(file=screen, width=200),
        QUICK,
        ["timm"],
        pythons,
        markdown=tmp_path / "train.md",
        json_file=tmp_path / "train.json",
    )
    told = json.loads((tmp_path / "train.json").read_text())
    rows = {row[0]: row for row in told["tables"][0]["rows"]}
    assert set(rows) == {OURS, "timm"}
    for row in rows.values():
        assert row[1] == "fp32"
        assert float(row[2]) > 0
        assert row[5].endswith(" %")
        assert float(row[6].replace(",", "")) > 100  # MB: torch alone takes more
        assert 0 < float(row[7]) < 300
    notes = "\n".join(told["tables"][0]["notes"])
    assert "GFLOP/s in fp32" in notes
    assert "another model" not in notes
    assert "tensorflow: ModuleNotFoundError" in notes  # it has no keras
    assert told["versions"]["tensorflow"] == "0.1"
    (entry,) = entries("train")
    assert entry.subject == QUICK.subject
    assert set(entry.figures) == {"images/s", "share of matmul rate", "phalanx / timm"}
    assert "again: phalanx" in screen.getvalue()


def test_both_precisions_are_measured_where_the_cpu_has_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "avx512-bf16")
    plan = make_plan("resnet50", 32, 224, steps=4, rounds=3, turn_s=60.0)
    assert plan.ours == (OURS, OTHER)
    assert asked_precision(OURS, plan, Measured()) == "auto"  # what a user gets
    for taken, other in (("bf16", "fp32"), ("fp32", "bf16")):
        assert asked_precision(OTHER, plan, Measured({OURS: Line(taken)})) == other
    given = make_plan("resnet50", 32, 224, steps=4, rounds=3, turn_s=60.0, precision="bf16")
    assert (given.ours, asked_precision(OURS, given, Measured())) == ((OURS,), "bf16")
    monkeypatch.setenv(SWITCH, "avx2")
    assert make_plan("resnet50", 32, 224, steps=4, rounds=3, turn_s=60.0).ours == (OURS,)


@pytest.mark.usefixtures("own_cache")
def test_ctrl_c_tells_what_is_known_by_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    python = tmp_path / "bin" / "python"  # of an environment where training brings the user to press Ctrl-C
    python.parent.mkdir()
    (tmp_path / "mxnet.py").write_text("__version__ = '0.1'\n")
    press = f'case "$*" in *train_peers*) kill -INT {os.getpid()}; exec sleep 60;; esac'
    python.write_text(f'#!/bin/sh\n{press}\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    screen = io.StringIO()
    pythons = parse_environments([f"mxnet={tmp_path}"])
    with pytest.raises(KeyboardInterrupt):
        bench_train(Console(file=screen, width=200), QUICK, ["mxnet"], pythons, markdown=None, json_file=None)
    assert "stopped by you after 1 of 2 turns" in screen.getvalue()
    assert f"\n{OURS}\tfp32\t" in screen.getvalue()


@pytest.fixture
def measured() -> Measured:
    return Measured(
        lines={
            OURS: Line("fp32", 10, {0: 4.0, 1: 8.0, 2: 6.0}, {0: 0.4, 1: 0.5, 2: 0.6}, 2 * 10**9, {0: 9, 1: 5, 2: 5}),
            "pytorch": Line(
                "fp32", 10, {0: 2.0, 1: 2.0, 2: 2.0}, {0: 0.2, 1: 0.2, 2: 0.2}, 3 * 10**9, {0: 4, 1: 4, 2: 5}
            ),
            "pytorch-tuned": Line("bf16", 11, {1: 0.5}, {1: 0.01}, 10**9, {1: 60}),
        },
        matmul={"fp32": {0: 1e11, 1: 1.2e11, 2: 1.1e11}, "bf16": {1: 2e9}},
        remarks={"pytorch-tuned": "measured in round 2 only", "mxnet": "ImportError: numpy.bool"},
    )


def test_ratios_are_taken_round_by_round(measured: Measured) -> None:
    found = Found({}, {"pytorch": "2.15", "pytorch-tuned": "2.15"}, ["paddle"])
    table = make_table(GIVEN, measured, found, 24.5e9, load=2.0)
    assert table.rows == [
        [OURS, "fp32", "6.00", "4.00 to 8.00", "1.00", "50 %", "2,000", "5.0"],
        ["pytorch", "fp32", "2.00", "2.00 to 2.00", "3.00", "20 %", "3,000", "4.0"],
        ["pytorch-tuned", "bf16", "0.50", "0.50 to 0.50", "16.00", "1 %", "1,000", "60.0"],
    ]
    notes = "\n".join(table.notes)
    assert "110 GFLOP/s in fp32, 2 GFLOP/s in bf16; training takes 24.5 GFLOP an image" in notes
    assert "pytorch-tuned has 11 parameters instead of 10" in notes
    assert "mxnet: ImportError: numpy.bool" in notes
    assert "not installed: paddle" in notes
    assert "load 2.0" in notes
    assert "emulates bf16" in notes
    figures = make_figures(measured)
    assert figures == {
        "images/s": 6.0,
        "share of matmul rate": 0.5,
        "phalanx / pytorch": 3.0,
        "phalanx / pytorch-tuned": 16.0,
    }


def test_work_that_cannot_be_counted_has_no_share(measured: Measured) -> None:
    measured.lines[OURS].shares.clear()
    table = make_table(GIVEN, measured, Found({}, {}, []), None, load=0.0)
    assert table.rows[0][5] == "-"
    assert "share of matmul rate" not in make_figures(measured)


def test_the_machines_own_rate_is_that_of_its_products() -> None:
    from phalanx.bench.matmul import matmul

    products = matmul({"threads": 1, "precision": "fp32"})
    assert next(products) % (2 * 256**3) == 0


@pytest.mark.parametrize(("wrong", "parts"), [("pytorh", ("pytorch",)), ("io", ("one of",))])
def test_a_peer_that_is_not_known_is_refused(wrong: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        bench_train(Console(quiet=True), QUICK, [wrong], {}, markdown=None, json_file=None)
    assert_helpful(caught.value, wrong, *parts)


def test_a_model_that_is_not_known_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        bench_train(
            Console(quiet=True),
            TrainBenchPlan("resnt50", 2, 32, 1, 1, 1.0, "fp32", 1),
            [],
            {},
            markdown=None,
            json_file=None,
        )
    assert_helpful(caught.value, "resnt50", "resnet50")


def test_a_precision_that_is_not_known_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        make_plan("resnet50", 2, 32, 1, 1, 1.0, "int8")
    assert_helpful(caught.value, "int8", "fp32")


def test_an_environment_without_a_path_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        parse_environments(["mxnet="])
    assert_helpful(caught.value, "mxnet", "NAME=PATH")


def test_peers_that_are_not_there_are_known() -> None:
    found = find_peers({"a": ("json",), "b": ("no_such_module",), "c": ("sys",)}, ["a", "b"], {})
    assert (set(found.pythons), found.absent) == ({"a"}, ["b"])


def test_a_turn_ends_after_its_batches() -> None:
    program = "import itertools\nfrom phalanx.bench.turns import serve\nserve(itertools.repeat(8))"
    with Contender("it", [sys.executable, "-c", program]) as it:
        it.wait_until_ready()
        assert it.take_turn(Turn(60.0, 3, warm_up_s=0.0, warm_up_batches=0)) == 24
