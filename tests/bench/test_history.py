"""The history of benchmarks: a value that is worse than before is seen, and only where values can be compared."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.bench import history
from phalanx.bench.history import Entry
from phalanx.bench.show_history import series_of, show_history
from phalanx.errors import UserError


@pytest.fixture(autouse=True)
def _own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def remember(*values: float, subject: str = "resnet50", fewer: bool = False, host: str = "here") -> None:
    for value in values:
        entry = history.make_entry("train", {"images/s": value}, subject, ["images/s"] if fewer else [])
        history.append(replace(entry, machine={"host": host, "cpu": "one"}))


def shown(plot: Path | None = None) -> str:
    screen = io.StringIO()
    show_history(Console(file=screen, width=300), None, plot)
    return screen.getvalue()


def test_a_regression_is_seen(tmp_path: Path) -> None:
    remember(10.0, 10.4, 9.9, 10.1, 8.0)
    text = shown(tmp_path / "history.png")
    assert "worse: bench train, resnet50, images/s: -20 % against the median of the 4 before it, on here (one)" in text
    assert text.count("\tworse") == 1
    assert (tmp_path / "history.png").stat().st_size > 5000


@pytest.mark.parametrize("values", [(10.0, 12.0), (10.0, 9.7), (10.0, 8.0, 12.0, 9.0), (10.0,), (0.0, 1.0)])
def test_gains_and_noise_are_not(values: tuple[float, ...]) -> None:
    remember(*values)
    assert "worse: " not in shown()


def test_seconds_that_grow_are_worse() -> None:
    remember(10.0, 12.0, fewer=True)
    assert "worse: bench train, resnet50, images/s: +20 %" in shown()


def test_other_subjects_and_machines_are_not_compared() -> None:
    remember(10.0)
    remember(1.0, subject="resnet152")
    remember(1.0, host="there")
    assert "worse: " not in shown()
    assert len(series_of(history.entries())) == 3


def test_a_value_is_held_against_the_last_few() -> None:
    remember(100.0, *[10.0] * 5, 10.0)
    (series,) = series_of(history.entries())
    assert series.change(6) == 0.0
    assert series.is_worse(1)


def test_lines_of_older_versions_are_read() -> None:
    fields = history.make_entry("comm", {"a": 1.0}).as_dict()
    del fields["subject"], fields["fewer_is_better"]
    assert Entry(**fields).subject == ""


def test_a_picture_of_another_kind_is_refused(tmp_path: Path) -> None:
    remember(1.0)
    with pytest.raises(UserError, match="no known picture format"):
        show_history(Console(quiet=True), None, tmp_path / "history.jpg")
