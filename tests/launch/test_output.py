"""Logs are whole, lines are lines, and how far a trainer is can be read from what it says."""

from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.launch.output import RoleOutput, last_lines, last_progress, progress_in
from phalanx.observe.lines import LineSink, sentence
from phalanx.runs import events as ev
from phalanx.runs.events import EventFile

STEP = ev.Step(
    step=120, epoch=2, batch=3, batches=9, loss=0.5, top1=0.9, topk=0.99, lr=0.1, samples_per_s=812.25,
    data_s=0, compute_s=0, exchange_s=0, update_s=0, grad_norm=None, bytes_sent=0, bytes_received=0,
    ranks=[], details={},
)  # fmt: skip


def test_output_is_kept_to_the_byte_and_lines_line_by_line(tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    output = RoleOutput(tmp_path / "logs" / "trainer-0.log", lambda stream, line: lines.append((stream, line)))
    for stream, text in (("out", "one\ntw"), ("err", "bad\r\n"), ("out", "o\n\n"), ("out", "\udcff ende")):
        output.write(stream, text)
    output.close()
    assert lines == [("out", "one"), ("err", "bad"), ("out", "two"), ("out", ""), ("out", "\udcff ende")]
    assert output.path.read_bytes() == b"one\ntwbad\r\no\n\n\xff ende"
    assert last_lines(output.path, 1)[0].endswith("ende")
    assert last_lines(tmp_path / "none") == []


def test_a_line_that_never_ends_is_not_kept(tmp_path: Path) -> None:
    """A progress bar that is drawn over and over has no line ends; the launcher may run for weeks."""
    parts: list[str] = []
    output = RoleOutput(tmp_path / "trainer-0.log", lambda stream, line: parts.append(line))
    for _ in range(100):
        output.write("err", "\r" + 10_000 * "=")
    output.close()
    assert "".join(parts) == 100 * ("\r" + 10_000 * "=")
    assert max(map(len, parts)) < 1 << 17


RANKS = [
    {"data_s": 0.001, "compute_s": 0.25, "exchange_s": 0.05, "update_s": 0.002, "samples_per_s": 400.5},
    {"data_s": 0.125, "compute_s": 0.18, "exchange_s": 0.0, "update_s": 0.0, "samples_per_s": 411.75},
]


def times(rank: int) -> dict[str, float]:
    return {name: RANKS[rank][f"{name}_s"] for name in ("data", "compute", "exchange", "update")}


def test_progress_is_read_from_what_trainers_say_and_from_events(tmp_path: Path) -> None:
    assert progress_in(sentence(STEP) or "") == (120, 812.2, None)
    step = replace(STEP, ranks=RANKS)
    said: list[str] = []
    LineSink(said.append, worker=1).take(step)
    assert progress_in(f"trainer-1@h2 | {said[0]}") == (120, 411.8, times(1))
    alone = replace(STEP, data_s=0.5)  # async: no common step, and all figures are the worker's own
    LineSink(said.append, worker=1).take(alone)
    found = progress_in(said[1])
    assert found is not None
    assert (found.samples_per_s, (found.times or {})["data"]) == (812.2, 0.5)
    assert progress_in("step 3: parameter norm 4 gradient norm 5") is None
    assert last_progress(tmp_path) is None
    events = EventFile(tmp_path)
    events.take(STEP)
    events.take(ev.Note(121, "step 121: loss of words 3 samples/s"))
    events.close()
    assert last_progress(tmp_path) == (120, 812.25, dict.fromkeys(("data", "compute", "exchange", "update"), 0.0))
    events = EventFile(tmp_path)
    events.take(step)
    events.close()
    assert last_progress(tmp_path) == (120, 400.5, times(0))


def test_a_full_disk_is_reported_once() -> None:
    """What could not be written is still buffered: closing the log must not raise it again, as an OSError."""
    output = RoleOutput(Path("/dev/full"), lambda stream, line: None)
    with pytest.raises(UserError, match="/dev/full cannot be written"):
        output.write("out", "a line\n")
    output.close()
