"""`bench threads` with a real training beside a busy process; its table on given numbers."""

import io
import json
import signal
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.bench.busy import BusyProcesses
from phalanx.bench.history import entries
from phalanx.bench.threads import AUTO, Results, ThreadsPlan, bench_threads, make_table, parse_loads, rate_of
from phalanx.errors import UserError
from phalanx.machine.process_state import read_state

PLAN = ThreadsPlan("mlp", batch_size=4, size=8, loads=(1,), turn_s=0.2, rounds=1, precision="fp32", choices=(AUTO,))


@pytest.mark.usefixtures("own_cache")
def test_a_training_is_measured_beside_a_busy_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    screen = io.StringIO()
    bench_threads(Console(file=screen, width=200), PLAN, markdown=None, json_file=tmp_path / "threads.json")
    (table,) = json.loads((tmp_path / "threads.json").read_text())["tables"]
    ((beside, threads, rate, _, ratio),) = table["rows"]
    assert (beside, threads, ratio) == ("1 busy processes", AUTO, "1.00")
    assert float(rate.replace(",", "")) > 0
    assert table["notes"][0].startswith("auto: 1 (")
    (entry,) = entries("threads")
    assert entry.subject == PLAN.subject


def test_busy_processes_end() -> None:
    with BusyProcesses(2) as busy:
        pids = [process.pid for process in busy._processes]
        assert all(read_state(pid).letter for pid in pids)
    assert not any(read_state(pid).letter for pid in pids)


def test_those_that_started_end_when_another_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def start_two(command: list[str], start_new_session: bool) -> subprocess.Popen[bytes]:
        if len(started) == 2:
            raise BlockingIOError("no more processes")
        started.append(start(command, start_new_session=start_new_session))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start_two)
    with pytest.raises(BlockingIOError), BusyProcesses(3):
        pass
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2


def test_rates_begin_with_the_load() -> None:
    records = [{"kind": "step", "t": at} for at in (1.0, 2.0, 3.0, 5.0, 7.0)]
    assert rate_of([{"kind": "start", "t": 0.0}, *records], 10, 3.5) == pytest.approx(5.0)
    assert rate_of(records, 10, 9.0) == pytest.approx(5.0)  # the last step is always one of them


def test_auto_is_compared_round_by_round() -> None:
    plan = ThreadsPlan("mlp", 4, 8, (0, 8), 1.0, 2, choices=(AUTO, "2"))
    rates = {(0, AUTO): [4.0, 9.0], (0, "2"): [4.0, 3.0], (8, AUTO): [3.0, 3.0], (8, "2"): [1.0, 1.0]}
    rows = make_table(plan, Results(rates, "1 (small)")).rows
    assert [(row[0], row[1], row[4]) for row in rows] == [
        ("alone", AUTO, "1.00"),
        ("alone", "2", "2.00"),
        ("8 busy processes", AUTO, "1.00"),
        ("8 busy processes", "2", "3.00"),
    ]


@pytest.mark.parametrize("text", ["", "eight", "-1", "1,,2", "100000"])
def test_a_load_is_a_number_of_processes(text: str) -> None:
    with pytest.raises(UserError, match="busy processes"):
        parse_loads(text)


def test_loads_are_measured_once() -> None:
    assert parse_loads("0,8,8") == (0, 8)
