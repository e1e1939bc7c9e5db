"""Curves as numbers: of events, on each axis, smoothed, and of several seeds."""

import json
from pathlib import Path

import pytest

from phalanx.observe.curve_groups import Group, group_logs, line_of, named_places, recipe_of
from phalanx.observe.curves import Log, read_run, smoothed
from phalanx.observe.plot_options import PlotOptions
from phalanx.runs import events as ev
from phalanx.runs.events import EVENTS_FILE
from tests.observe.made_runs import make_run


def test_curves_follow_the_events(tmp_path: Path) -> None:
    log = read_run(make_run(tmp_path / "a"), "a")
    assert log.curve("val/top1", "epoch").x == [1, 2, 3]
    assert log.curve("val/top1", "step").x == [10, 20, 30]
    assert log.curve("val/top1", "step").y == pytest.approx([50, 75, 100 - 50 / 3])
    assert log.curve("val/top5", "step").y == [90, 90, 90]
    assert log.curve("val/recall", "step").y == [0.5, 0.5, 0.5]
    assert log.shown == ["recall"]
    times = log.curve("val/top1", "time").x
    assert times == sorted(times)


def test_training_accuracy_is_of_each_logged_step(tmp_path: Path) -> None:
    log = read_run(make_run(tmp_path / "a"), "a")
    assert log.curve("train/top1", "step").x == [5, 10, 15, 20, 25, 30]
    assert log.curve("train/top1", "step").y == [25, 50, 25, 50, 25, 50]


def test_the_rate_begins_at_step_0_and_ends_before_the_last_update(tmp_path: Path) -> None:
    log = read_run(make_run(tmp_path / "a", epochs=1), "a")
    assert tuple(log.curve("train/lr", "step")) == ([0, 4, 5, 9], [0.0, 0.4, 0.5, 0.9])
    assert log.curve("train/lr", "epoch").x == [0, 0.4, 0.5, 0.9]


def test_runs_of_earlier_versions_have_fewer_points_of_the_rate(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", epochs=1)
    records = [json.loads(line) for line in (run / EVENTS_FILE).read_text().splitlines()]
    for record in records:
        record.pop("lr_first", None)
    (run / EVENTS_FILE).write_text("".join(json.dumps(record) + "\n" for record in records))
    assert tuple(read_run(run, "a").curve("train/lr", "step")) == ([4, 9], [0.4, 0.9])


def test_an_event_has_the_rate_of_its_first_step(digits_run: Path) -> None:
    steps = [json.loads(line) for line in (digits_run / EVENTS_FILE).read_text().splitlines()]
    steps = [record for record in steps if record["kind"] == ev.Step.kind]
    assert all(record["lr_first"] is not None for record in steps)
    rates = read_run(digits_run, "a").curve("train/lr", "step")
    assert (rates.x[0], rates.y[0]) == (0, steps[0]["lr_first"])


def test_smoothing_is_without_bias() -> None:
    assert smoothed([3, 3, 3], 0.9) == pytest.approx([3, 3, 3])
    assert smoothed([0, 1], 0.5) == pytest.approx([0, 2 / 3])
    assert smoothed([1, 2, 3], 0) == [1, 2, 3]


def test_names_of_runs_and_logs(tmp_path: Path) -> None:
    (tmp_path / "lr=1").mkdir()
    words: list[str | Path] = [
        tmp_path / "x" / "run",
        tmp_path / "y" / "run",
        tmp_path / "a" / "summary.csv",
        f"mine={tmp_path}",
    ]
    places = named_places([*words, tmp_path / "b.log", tmp_path / "lr=1"])
    assert [place.label for place in places] == ["x/run", "y/run", "a", "mine", "b.log", "lr=1"]
    assert places[3].path == tmp_path


def seeds(tmp_path: Path, count: int) -> list[Path]:
    return [make_run(tmp_path / f"digits-s{n}", epochs=3, seed=n, gain=n) for n in range(count)]


def grouped(words: list[str | Path], how: str = "range") -> list[Group]:
    places = named_places(words)
    logs = [read_run(place.path, place.label) for place in places]
    for log, place in zip(logs, places, strict=True):
        log.recipe = recipe_of(place.path)
    return group_logs(logs, places, how)  # type: ignore[arg-type]


def test_runs_that_differ_in_their_seed_alone_are_a_group(tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", lr=0.5)
    groups = grouped([*seeds(tmp_path, 3), other])
    assert [(group.label, len(group.logs)) for group in groups] == [("digits, 3 seeds", 3), ("other", 1)]
    assert len(grouped([*seeds(tmp_path / "again", 3), other], "lines")) == 4


def test_equal_names_are_a_group(tmp_path: Path) -> None:
    one, other = make_run(tmp_path / "a"), make_run(tmp_path / "b", lr=0.5)
    groups = grouped([f"ours={one}", f"ours={other}", f"theirs={one}"])
    assert [(group.label, len(group.logs)) for group in groups] == [("ours, 2 runs", 2), ("theirs", 1)]


def test_a_run_without_its_settings_stands_alone(tmp_path: Path) -> None:
    runs = seeds(tmp_path, 2)
    for run in runs:
        (run / "config.yaml").unlink()
    assert len(grouped([*runs])) == 2


def made(label: str, points: list[tuple[float, float]]) -> Log:
    log = Log(label)
    for x, y in points:
        log.add("val/top1", y, epoch=x)
    return log


def test_mean_and_band_of_seeds() -> None:
    group = Group("g", [made("a", [(1, 10), (2, 20), (3, 30)]), made("b", [(1, 30), (2, 40)])])
    line = line_of(group, "val/top1", "epoch", PlotOptions())
    assert line is not None
    assert (line.curve.x, line.curve.y) == ([1, 2], [20, 30]), "as far as both go"
    assert (line.low, line.high) == ([10, 20], [30, 40])
    spread = line_of(group, "val/top1", "epoch", PlotOptions(seeds="std"))
    assert spread is not None
    assert spread.high == pytest.approx([20 + 200**0.5, 30 + 200**0.5])
    assert line_of(group, "val/loss", "epoch", PlotOptions()) is None


def test_only_training_is_smoothed() -> None:
    log = made("a", [(1, 0), (2, 100)])
    log.add("train/top1", 0, epoch=1)
    log.add("train/top1", 100, epoch=2)
    options = PlotOptions(smooth=0.5)
    validation = line_of(Group("g", [log]), "val/top1", "epoch", options)
    training = line_of(Group("g", [log]), "train/top1", "epoch", options)
    assert validation is not None
    assert training is not None
    assert validation.curve.y == [0, 100]
    assert training.curve.y == pytest.approx([0, 200 / 3])
    assert training.raw.y == [0, 100]
