"""Runs one cell: starts the job, lets the fault happen, watches what follows, resumes what ended, and measures."""

import re
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.lab.hosts import Lab

from benchmarks.chaos import measure
from benchmarks.chaos.cell import USUAL_PACE_S, Cell
from benchmarks.chaos.expected import ENDS, GOES_ON, RESUMES, Expected, expected
from benchmarks.chaos.faults import SILENT_S, Fault
from benchmarks.chaos.job import Job
from benchmarks.chaos.modes import FAULT_AT, STEPS, Mode
from benchmarks.chaos.process_faults import FOR_EVER_S

HANGS_S = 60.0  # after the fault is over, or after silence should have been noticed: neither ended nor going on
FINISH_S = 90.0
RETURN_S = 25.0  # for a worker of async or ssp to come back
POLL_S = 0.1
TOLERANCE = 0.03  # of accuracy, where the weights are not the same bits: async, ssp, damaged data


@dataclass
class Measured:
    """A cell. Times are seconds from the fault, or from the start of the job where the fault was there before it."""

    fault: str
    mode: str
    restarts: int
    outcome: str = ""
    noticed_s: float | None = None
    settled_s: float | None = None  # ended or going on
    code: int | None = None
    steps_lost: int | None = None
    samples_wrong: int | None = None
    samples_away: int = 0  # of steps for which a worker of async or ssp was away
    accuracy: float | None = None
    not_validated: int = 0
    undisturbed: float | None = None
    weights: str = ""
    same_weights: bool | None = None
    said: str = ""
    named: str = ""
    deviations: tuple[str, ...] = ()
    took_s: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.fault} | {self.mode} | {self.restarts}"

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Terms:
    """Of all cells of a table. `patience` multiplies every bound: on busy cores a start takes a minute."""

    silence_s: float = 6.0
    patience: float = 1.0


def run_cell(
    lab: Lab, fault: Fault, mode: Mode, restarts: int, terms: Terms, undisturbed: Measured | None, keep: Path | None
) -> Measured:
    """One cell, bounded in time. Nothing of it is left on the hosts."""
    result, began = Measured(fault.name, mode.name, restarts), time.monotonic()
    with TemporaryDirectory(prefix="phalanx-chaos-", ignore_cleanup_errors=True) as folder:
        cell = Cell(lab, mode, restarts, Path(folder), terms.silence_s, terms.patience, fault.on_hosts, [*fault.words])
        Path(folder).chmod(0o755)
        try:
            _play(cell, fault, result, undisturbed)
        except AssertionError as error:
            result.outcome, result.said = "failed", str(error)[-2000:]
        finally:
            with suppress(AttributeError):
                cell.job.kill()
            cell.relief.close()
            if keep is not None:
                _keep_output(cell, keep)
            cell.cleanup.close()
    result.deviations = (*_deviations(result, expected(fault.name, mode, restarts)), *cell.problems)
    result.took_s = round(time.monotonic() - began, 1)
    return result


def _play(cell: Cell, fault: Fault, result: Measured, undisturbed: Measured | None) -> None:
    cell.pace(USUAL_PACE_S)
    fault.prepare(cell)
    cell.start()
    if not fault.at_start:
        cell.reach(FAULT_AT)
        cell.pace(_slow(fault, cell.mode, cell.patience))
    logs = {} if fault.at_start else cell.job.log_sizes()
    cell.began = cell.job.began if fault.at_start else time.monotonic()
    if not fault.at_start:
        fault.act(cell)
    job = cell.job
    if job.began > cell.began:  # the fault was between two jobs
        cell.began = job.began
    result.outcome = _watch(cell, fault, result, logs)
    cell.pace(0)
    if result.outcome == GOES_ON:
        _finish(cell, result)
    job.finish_reading()
    _take_words(cell, job, result, logs)
    if result.outcome == ENDS:
        _resume(cell, result)
    _measure(cell, result, undisturbed)


def _slow(fault: Fault, mode: Mode, patience: float) -> float:
    """A pace at which workers that do not wait for one another do not finish while they are watched."""
    if mode.lockstep:
        return 0.1
    watched = fault.watch_s + RETURN_S * patience + (fault.lasts_s if fault.lasts_s < FOR_EVER_S else 0.0)
    return max(0.1, watched / (STEPS - FAULT_AT - 15))


def _watch(cell: Cell, fault: Fault, result: Measured, logs: dict[str, int]) -> str:
    """Until the job has ended with all its processes, or goes on, or does neither."""
    watch_s = fault.watch_s if fault.watch_s < SILENT_S else max(fault.watch_s, cell.silence_s + 9)
    job, pace = cell.job, _slow(fault, cell.mode, cell.patience)
    patience = HANGS_S * cell.patience + cell.silence_s + (fault.lasts_s if fault.lasts_s < FOR_EVER_S else 0.0)
    while True:
        now = time.monotonic()
        if result.noticed_s is None and (job.said(cell.began) or job.logged(logs)) and not fault.at_start:
            result.noticed_s = round(now - cell.began, 1)
        if job.ended:
            if not job.alive():
                result.settled_s, result.code = round(now - cell.began, 1), job.launcher.returncode
                return GOES_ON if result.code == 0 and job.step >= STEPS else ENDS
        elif not cell.active() and now - cell.began > watch_s and _steps_come(cell, now, pace):
            late = now - cell.began > watch_s + RETURN_S * cell.patience
            if cell.mode.lockstep or late or measure.workers_joined(cell.run) == cell.mode.workers:
                result.settled_s = _going_on_since(job, cell.began, pace)
                return GOES_ON
        if now - cell.began > patience:
            result.settled_s = None
            return "hangs"
        time.sleep(POLL_S)


def _steps_come(cell: Cell, now: float, pace: float) -> bool:
    times = [line.at for line in cell.job.lines if line.step is not None and line.at > cell.began]
    recent = [at for at in times if at > now - 3 * pace - 1.5]
    return len(recent) >= 2 and len(times) >= 4


def _going_on_since(job: Job, began: float, pace: float) -> float:
    """The end of the longest pause between steps; 0 where there was none worth the name."""
    times = [line.at for line in job.lines if line.step is not None]
    times = [began, *(at for at in times if at > began)]
    gap, end = max(((after - before, after) for before, after in pairwise(times)), default=(0, 0))
    return round(end - began, 1) if gap > pace + 1.0 else 0.0


def _finish(cell: Cell, result: Measured) -> None:
    """It goes on: to the end?"""
    job, end = cell.job, time.monotonic() + FINISH_S * cell.patience
    while not job.ended or job.alive():
        if time.monotonic() > end:
            result.outcome = "goes on, and then hangs"
            return
        time.sleep(POLL_S)
    result.code = job.launcher.returncode
    if result.code:  # the fault took its time
        result.outcome, result.settled_s = ENDS, round(time.monotonic() - cell.began, 1)


def _take_words(cell: Cell, job: Job, result: Measured, logs: dict[str, int]) -> None:
    """What was said about it, and the line that names what it should name."""
    rule = expected(result.fault, cell.mode, result.restarts)
    lines = [*(line.text for line in job.said(cell.began)), *job.logged(logs)]
    result.said = job.own_words(cell.began)[:4000]
    missing = [name for name in rule.names if not any(re.search(name, line) for line in lines)]
    if missing:
        result.named = f"does not name {' and '.join(missing)}"
    elif rule.names:  # the line that names most
        result.named = max(lines, key=lambda line: sum(bool(re.search(name, line)) for name in rule.names))
    if any("Traceback" in line for line in lines):
        result.named = "a traceback; " + result.named


def _resume(cell: Cell, result: Measured) -> None:
    """After relief, the command that the message gave."""
    cell.relief.close()
    cell.relief = type(cell.relief)()
    if not list(cell.run.glob("checkpoints/step-*")):
        return
    cell.resume()
    _finish_resumed(cell.job, result, cell.patience)


def _finish_resumed(job: Job, result: Measured, patience: float) -> None:
    end = time.monotonic() + FINISH_S * patience
    while not job.ended or job.alive():
        if time.monotonic() > end:
            result.outcome = "ends; its resume hangs"
            return
        time.sleep(POLL_S)
    job.finish_reading()
    if job.launcher.returncode == 0:
        result.outcome = RESUMES
    else:
        result.outcome, result.said = "ends; its resume fails", job.own_words(0)


def _measure(cell: Cell, result: Measured, undisturbed: Measured | None) -> None:
    if not (cell.run / "events.jsonl").exists():
        return
    result.steps_lost = measure.steps_lost(cell.run)
    result.accuracy = measure.accuracy(cell.run)
    result.not_validated = measure.not_validated(cell.run)
    total = measure.final_step(cell.run)
    result.samples_wrong, result.samples_away = measure.wrong_samples(cell.run, cell.mode, total)
    if result.accuracy is not None:
        result.weights = measure.weights(cell.run)
    if undisturbed is not None:
        result.undisturbed = undisturbed.accuracy
        result.same_weights = result.weights == undisturbed.weights if cell.mode.lockstep else None


def _deviations(result: Measured, rule: Expected) -> list[str]:
    """What is not as promised."""
    found = []
    if result.outcome != rule.outcome:
        found.append(f"{result.outcome}, expected: {rule.outcome}")
    if result.named.startswith(("does not name", "a traceback")):
        found.append(result.named)
    if result.samples_wrong:
        found.append(f"{result.samples_wrong} samples lost or repeated")
    if result.not_validated > 3:  # damaged images are left out
        found.append(f"the last validation left out {result.not_validated} images")
    apart = abs((result.accuracy or 0.0) - (result.undisturbed or 0.0))
    if None not in (result.accuracy, result.undisturbed) and apart > TOLERANCE:
        found.append(f"accuracy {result.accuracy:.3f}, undisturbed {result.undisturbed:.3f}")
    return found


def _keep_output(cell: Cell, keep: Path) -> None:
    """For those who want to know why: what the launcher and the roles printed."""
    keep.mkdir(parents=True, exist_ok=True)
    with suppress(AttributeError, OSError, AssertionError):
        text = "\n".join(f"{line.at - cell.job.began:8.2f} {line.text}" for line in cell.job.lines)
        for log in sorted(cell.run.glob("logs/*.log")):
            text += f"\n\n== {log.name}\n{log.read_text(errors='replace')}"
        (keep / "output.txt").write_text(text)
