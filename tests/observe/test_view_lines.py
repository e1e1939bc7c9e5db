"""The view of a job fits into its terminal, and can be read without colours."""

from dataclasses import replace

import pytest

from phalanx.observe.bars import PARTS, bar, parts_bar, sparkline
from phalanx.observe.job_facts import roles_of
from phalanx.observe.job_view import JobView, ScoreView, WorkerView, WorkView, workers_in
from phalanx.observe.slowness import Slowest
from phalanx.observe.view_lines import plain_lines, view_lines

TIMES = {"data": 0.01, "compute": 0.08, "exchange": 0.02, "update": 0.01, "waiting": 0.03}
VIEW = JobView(
    step=12_345,
    total_steps=112_590,
    epoch=10,
    batch=1086,
    batches=1251,
    epoch_left_s=345.0,
    left_s=41_234.0,
    taken_s=5000.0,
    training=ScoreView("top-1 45.12 %  top-5 70.30 %", [0.1, 0.3, 0.45], "loss 2.1234"),
    validation=ScoreView("top-1 44.12 %  top-5 69.30 %", [0.2, 0.44], "best 44.50 %"),
    samples_per_s=3210.4,
    times=TIMES,
    workers=[WorkerView(rank, "node1", 400.0, TIMES) for rank in range(2)],
    slowest=Slowest(1, 0.23, "compute"),
    others="server-0 running",
)


@pytest.mark.parametrize("columns", [30, 50, 80, 120, 300])
@pytest.mark.parametrize("workers", [1, 2, 40])
def test_nothing_is_wider_or_higher_than_the_terminal(columns: int, workers: int) -> None:
    crowd = [WorkerView(rank, f"node{rank}", 400.0, TIMES) for rank in range(workers)]
    for rows in (5, 15, 24):
        lines = view_lines(replace(VIEW, workers=crowd), columns, rows)
        assert len(lines) < rows
        assert max(line.cell_len for line in lines) < columns


def test_it_says_how_far_how_good_how_fast_and_who_is_slow() -> None:
    epoch, run, training, validation, speed, time, first, second, others = plain_lines(VIEW, 90)
    assert epoch.startswith("epoch 10/90 ")
    assert epoch.endswith("1,086/1,251      5:45 left")
    assert run.endswith("12,345/112,590  11:27:14 left, 1:23:20 so far")
    assert training.endswith("▁▅█             top-1 45.12 %  top-5 70.30 %  loss 2.1234")
    assert validation.endswith("best 44.50 %")
    assert speed == "speed       3,210 img/s  150 ms a step"
    assert time.endswith("█ compute 53 %  · waiting 20 %  ▒ exchange 13 %  ▚ data 7 %")
    assert first.endswith("400 img/s  waits 20 %")
    assert second.endswith("waits 20 %  slowest: +23 % compute")
    assert others == "others      server-0 running"


def test_a_narrow_terminal_keeps_what_matters() -> None:
    lines = plain_lines(VIEW, 50)
    assert "top-1 45.12 %  top-5 70.30 %" in lines[2]
    assert lines[5] == "time        █ compute 53 %  · waiting 20 %"
    assert lines[7].endswith("400 img/s  slowest")


def test_of_many_workers_the_lost_and_the_slow_ones_are_shown() -> None:
    crowd = [WorkerView(rank, "", 400.0, TIMES) for rank in range(40)]
    crowd[17] = replace(crowd[17], fate="killed (SIGKILL)")
    lines = plain_lines(replace(VIEW, workers=crowd, slowest=Slowest(31, 0.5, "data")), 80)
    shown = [line for line in lines if line.startswith("worker ")]
    assert "worker 17   killed (SIGKILL)" in shown
    assert any(line.startswith("worker 31 ") and "slowest" in line for line in shown)
    assert any("and 33 more workers" in line for line in lines)


def test_what_happens_between_steps_has_the_place_of_the_epoch() -> None:
    first, second, *_ = plain_lines(replace(VIEW, work=WorkView("validating", 50, 200, 3.0)), 80)
    assert first.startswith("validating ")
    assert first.endswith("50/200      0:03 left")
    assert second.startswith("run ")


def test_little_is_known_at_first() -> None:
    assert plain_lines(JobView(), 80) == []
    found = plain_lines(JobView(step=3, title="digits", state="waiting"), 80)
    assert found == ["digits", "state       waiting", "run         step 3"]


def test_ascii_alone() -> None:
    assert all(line.isascii() for line in plain_lines(VIEW, 80, ascii_only=True))


def test_a_run_of_another_host_cannot_control_the_terminal() -> None:
    title, _ = plain_lines(JobView(title="evil \x1b[2J", state="running"), 80)
    assert title == "evil �[2J"


def test_bars() -> None:
    assert bar(0.5, 10).plain == "━━━━━─────"
    assert bar(7.0, 4, ascii_only=True).plain == "####"
    assert parts_bar({"data": 0.25, "compute": 0.5}, 8).plain == "▚▚████  "
    assert len({part.character for part in PARTS.values()} | {part.ascii for part in PARTS.values()}) == 2 * len(PARTS)
    assert sparkline([], 4) == "    "
    assert sparkline([0.0, 0.5, 1.0, float("nan")], 4) == "▁▅█ "
    assert sparkline([2.0] * 3, 3, ascii_only=True) == "==="
    assert sparkline(list(range(1000)), 8) == "▁▂▃▄▅▆▇█"


def test_a_damaged_role_is_shown_without_what_cannot_be_read() -> None:
    damaged = {"roles": [{"name": "trainer-0", "times": "long", "step": "first", "samples_per_s": "many"}]}
    assert workers_in(roles_of(damaged, None)) == [WorkerView(0)]
