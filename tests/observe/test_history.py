"""What the board and `phalanx top` remember of long runs."""

from pathlib import Path

from phalanx.observe.history import History
from phalanx.runs.events import EVENTS_FILE
from tests.board.made_runs import make_run


def test_of_the_figures_of_each_step_the_latest_is_kept(tmp_path: Path) -> None:
    """A run of 100,000 steps has as many of them; 200 such runs would fill the memory."""
    history = History(make_run(tmp_path / "run", steps=300, figures=True))
    for steps in (False, True):
        history.refresh(steps=steps)
        assert history.latest["system"]["step"] == 300
        assert {one["kind"] for one in history.others} == {"start", "eval", "end"}
        assert len(history.last_steps) == 20
        assert history.last_step == 300
    assert len(history.columns["step"]) == 300
    assert not history.remarks


def test_what_a_resume_makes_void(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=20, finished=False, figures=True)
    history = History(run)
    history.refresh(steps=True)
    resume = '{"t": 1700000100.0, "kind": "resume", "step": 10, "saved_step": 10, "checkpoint": "", "warnings": []}'
    with (run / EVENTS_FILE).open("a") as file:
        file.write(resume + "\n")
    history.refresh(steps=True)
    assert history.last_step == 10
    assert history.latest == {}
    assert max(history.columns["step"]) == 10
