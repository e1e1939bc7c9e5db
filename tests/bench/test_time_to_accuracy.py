"""`bench time-to-accuracy`: real runs on the digits, and what is told of seeds that never get there."""

import io
import json
import os
import signal
import threading
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.bench.history import entries
from phalanx.bench.time_to_accuracy import (
    Reached,
    bench_time_to_accuracy,
    make_figures,
    make_table,
    parse_seeds,
    parse_target,
    reached,
)
from phalanx.bench.training import Trained, TrainingFailed
from phalanx.errors import UserError
from tests.conftest import LEAN
from tests.data.samples import assert_helpful
from tests.waiting import until


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def test_a_seed_is_trained_timed_and_kept(tmp_path: Path) -> None:
    words = ["digits", "model.name=wrn10_1", "train.length=2st", *LEAN]
    screen = io.StringIO()
    bench_time_to_accuracy(
        Console(file=screen, width=200), words, "digits", 0.001, [0], markdown=None, json_file=tmp_path / "told.json"
    )
    told = json.loads((tmp_path / "told.json").read_text())
    first, mean = told["tables"][0]["rows"]
    assert (first[0], mean[0]) == ("seed 0", "mean")
    start_s, seconds, wall_s = float(first[5]), float(first[1]), float(first[6])
    assert 0 < start_s < seconds <= wall_s
    (folder,) = (tmp_path / "runs").iterdir()
    summary = json.loads((folder / "seed-0" / "summary.json").read_text())
    assert f"{100 * summary['last']['top1']:.2f} %" == first[3]
    (entry,) = entries()
    assert entry.fewer_is_better == ["mean s"]
    assert entry.figures["share of seeds that got there"] == 1.0
    assert entry.subject == f"{' '.join(words)} to 0.10 %"


def test_ctrl_c_tells_the_seeds_that_are_done(tmp_path: Path) -> None:
    def press() -> None:
        until(lambda: bool(list(tmp_path.glob("runs/*/seed-1"))))
        os.kill(os.getpid(), signal.SIGINT)

    words = ["digits", "model.name=wrn10_1", "train.length=2st", *LEAN]
    screen = io.StringIO()
    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        bench_time_to_accuracy(
            Console(file=screen, width=200), words, "digits", 0.001, [0, 1, 2], markdown=None, json_file=None
        )
    pressing.join()
    assert "\nseed 0\t" in screen.getvalue()
    assert "stopped by you after 1 of 3 seeds" in screen.getvalue()
    (entry,) = entries()
    assert entry.figures["share of seeds that got there"] == 1.0
    assert not list(tmp_path.glob("runs/*/seed-2"))


def test_a_recipe_that_cannot_be_trained_is_told() -> None:
    with pytest.raises(UserError) as caught:
        bench_time_to_accuracy(
            Console(quiet=True), ["digits", "--data", "nowhere"], "digits", 0.9, [0], markdown=None, json_file=None
        )
    assert_helpful(caught.value, "no seed of digits", "nowhere")


def evaluation(t: float, top1: float, epoch: float) -> dict[str, object]:
    return {"kind": "eval", "t": t, "top1": top1, "epoch": epoch}


def test_time_counts_from_the_start_of_the_process() -> None:
    records = [
        {"kind": "start", "t": 104.0},
        evaluation(110.0, 0.90, 1),
        evaluation(120.0, 0.94, 2),
        evaluation(130.0, 0.93, 3),
        {"kind": "end", "t": 131.0},
    ]
    trained = Trained(Path("nowhere"), 100.0, records, 0)
    assert reached(trained, 0.94) == Reached(4.0, 20.0, 2, 0.93, 0.94, 31.0)
    assert reached(trained, 0.941).reached_s is None
    with pytest.raises(TrainingFailed, match="no validation"):
        reached(Trained(Path("nowhere"), 100.0, records[:1], 0), 0.94)


def test_seeds_that_never_get_there_are_named() -> None:
    results = {
        0: Reached(4.0, 20.0, 2.0, 0.93, 0.94, 31.0),
        1: Reached(4.0, None, None, 0.92, 0.93, 31.0),
        2: Reached(4.0, 30.0, 3.0, 0.94, 0.94, 31.0),
        3: Reached(4.0, None, None, 0.91, 0.92, 31.0),
    }
    failed = {4: "error: it broke"}
    table = make_table("fast", 0.94, results, failed)
    assert [row[1] for row in table.rows] == ["20.0", "never", "30.0", "never", "25.0"]
    assert "seeds 1, 3 never reached 94.00 %; the mean is of the 2 that did" in table.notes
    assert "20.0 to 30.0 s, standard deviation 7.1 s" in table.notes
    assert "seed 4 failed: error: it broke" in table.notes
    assert make_figures(results, failed) == {
        "final top-1": pytest.approx(0.925),
        "share of seeds that got there": 0.4,
        "mean s": 25.0,
    }
    nobody = {1: results[1]}
    assert "seed 1 never reached 94.00 %" in make_table("fast", 0.94, nobody, {}).notes
    assert "mean s" not in make_figures(nobody, {})


@pytest.mark.parametrize(
    ("text", "share"), [("0.94", 0.94), ("94%", 0.94), ("94.3 %", 0.943), ("1", 1.0), ("100%", 1.0), (".5", 0.5)]
)
def test_a_target_is_a_share_or_percent_with_its_sign(text: str, share: float) -> None:
    assert parse_target(text) == share


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("94", "0.94 or 94%"),
        ("1.5", "0.015 or 1.5%"),
        ("0", "0.94 or 94%"),
        ("-1", ""),
        ("101%", ""),
        ("high", ""),
        ("nan", ""),
    ],
)
def test_other_targets_are_refused(text: str, remedy: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_target(text)
    assert_helpful(caught.value, f"--target {text}", remedy)


def test_seeds_are_a_number_or_a_list() -> None:
    assert [parse_seeds(text) for text in ("3", "1", "1, 2", "5,", "0,")] == [[0, 1, 2], [0], [1, 2], [5], [0]]
    for text in ("0", "", ",", "two", "1,1", "-1", "1;2"):
        with pytest.raises(UserError) as caught:
            parse_seeds(text)
        assert_helpful(caught.value, f"--seeds {text}", "0,1,2")
