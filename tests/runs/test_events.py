import json
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.observe.lines import LogFile, sentence
from phalanx.runs import events as ev
from phalanx.runs.events import EventFile, Observer, read_events

EVAL = ev.Eval(step=10, epoch=1.0, loss=0.5, top1=0.9, topk=0.99, k=5, samples=100, seconds=1.0, best=True)


def step(number: int, loss: float = 1.0) -> ev.Step:
    return ev.Step(number, 1, number, 10, loss, 0.5, 0.9, 0.1, 100.0, 0.0, 0.1, 0.0, 0.01)


def test_events_are_json_lines_and_sentences(tmp_path: Path) -> None:
    observer = Observer([EventFile(tmp_path), LogFile(tmp_path)])
    observer.emit(step(10))
    observer.emit(EVAL)
    observer.close()
    records = read_events(tmp_path)
    assert [record["kind"] for record in records] == ["step", "eval"]
    assert records[1]["top1"] == 0.9
    log = (tmp_path / "log.txt").read_text()
    assert "loss 1.0000" in log
    assert "top-1 90.00 %" in log


def test_one_accuracy_is_not_said_twice() -> None:
    assert "top-1 90.00 % top-5 99.00 % loss" in (sentence(EVAL) or "")
    assert "top-1 90.00 % loss" in (sentence(replace(EVAL, topk=0.9, k=1)) or "")


def test_a_resume_makes_later_steps_void(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    for event in (step(10), step(20), step(30), ev.Resume(20, 20, "checkpoints/step-20", []), step(30, 2.0)):
        file.take(event)
    file.close()
    assert [r["step"] for r in read_events(tmp_path) if r["kind"] == "step"] == [10, 20, 30]
    assert read_events(tmp_path)[-1]["loss"] == 2.0
    assert len(read_events(tmp_path, superseded=True)) == 5


def test_a_line_cut_off_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.take(step(10))
    file.close()
    with (tmp_path / ev.EVENTS_FILE).open("a") as lines:
        lines.write('{"t": 1, "ki')
    assert len(read_events(tmp_path)) == 1
    again = EventFile(tmp_path)
    again.take(step(20))
    again.close()
    assert [record["step"] for record in read_events(tmp_path)] == [10, 20]


def test_a_garbled_line_is_named(tmp_path: Path) -> None:
    (tmp_path / ev.EVENTS_FILE).write_text("[]\n")
    with pytest.raises(UserError, match="line 1"):
        read_events(tmp_path)


def test_no_nan_reaches_the_file(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.take(step(1, float("nan")))
    file.close()
    assert json.loads((tmp_path / ev.EVENTS_FILE).read_text())["loss"] is None


def test_a_full_disk_is_explained() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full on this system")
    lines = ev.AppendedLines(full)
    with pytest.raises(UserError, match="cannot be written") as caught:
        lines.line("x")
    assert "space" in caught.value.why
    lines.close()


def test_every_event_and_field_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text()
    for kind in ev.Event.__subclasses__():
        assert f"`{kind.kind}`" in text
        for name in kind.__dataclass_fields__:
            assert f"`{name}`" in text, f"{kind.kind}.{name}"


def test_programs_only_events_have_no_sentence() -> None:
    assert sentence(ev.Checkpoint(1, "p", 0.1, 5)) is None
