"""Bars and lines about long work."""

import io

import pytest
from rich.console import Console

from phalanx.observe import progress as module
from phalanx.observe.progress import megabytes, progress


def told(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.0)
    console = Console(file=io.StringIO())
    with megabytes(console, "sending", 3_500_000) as advance:
        for _ in range(7):
            advance(500_000)
    assert told(console).splitlines() == [f"sending, MB: {done} of 3" for done in (1, 2, 3)]


@pytest.mark.parametrize(("after_s", "is_shown"), [(0.0, True), (3600.0, False)])
def test_a_bar_appears_for_work_that_takes_long(after_s: float, is_shown: bool) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, _environ={"TERM": "xterm"})
    with progress(console, "packed", 10, after_s=after_s) as advance:
        advance(10)
    assert ("10/10" in told(console)) is is_shown
    assert bool(told(console)) is is_shown
