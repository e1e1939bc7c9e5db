"""A Chrome trace of all workers, on the clock of the first: a process for each worker, a row for each thread."""

from collections.abc import Sequence
from typing import Any

from phalanx.engine.profile.clocks import ClockOffset

Data = dict[str, Any]


def chrome_trace(parts: Sequence[Data], clocks: Sequence[ClockOffset]) -> Data:
    """For chrome://tracing and Perfetto. Times are microseconds since the first profiled step began anywhere."""
    shifted = [part["spans"]["base_ns"] - round(clock.ahead * 1e9) for part, clock in zip(parts, clocks, strict=True)]
    first = min(shifted)
    events: list[Data] = []
    for part, base in zip(parts, shifted, strict=True):
        events += _rows(part)
        events += _spans(part, base - first)
    errors = {f"trainer-{part['rank']}": round(clock.error * 1e3, 3) for part, clock in zip(parts, clocks, strict=True)}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"clock_error_ms": errors}}


def _rows(part: Data) -> list[Data]:
    """What the worker and its threads are called."""
    rank, spans = part["rank"], part["spans"]
    named = [_named("process_name", rank, 0, f"trainer-{rank} on {part['host']}"), _sorted(rank)]
    rows = sorted({(row[4], row[3]) for row in spans["rows"]} - {(0, spans["thread"])})
    named.append(_named("thread_name", rank, _track(0, spans["thread"]), "training"))
    return named + [
        _named("thread_name", rank, _track(gpu, row), f"GPU stream {row}" if gpu else f"autograd {row}")
        for gpu, row in rows
    ]


def _spans(part: Data, base: int) -> list[Data]:
    names = part["spans"]["names"]
    return [
        {
            "name": names[name],
            "ph": "X",
            "ts": (base + start) / 1e3,
            "dur": length / 1e3,
            "pid": part["rank"],
            "tid": _track(gpu, row),
        }
        for name, start, length, row, gpu in part["spans"]["rows"]
    ]


def _track(gpu: int, row: int) -> int:
    return row + (1_000_000 if gpu else 0)  # streams and threads are both numbered from about 1


def _named(what: str, rank: int, row: int, name: str) -> Data:
    return {"name": what, "ph": "M", "pid": rank, "tid": row, "args": {"name": name}}


def _sorted(rank: int) -> Data:
    return {"name": "process_sort_index", "ph": "M", "pid": rank, "tid": 0, "args": {"sort_index": rank}}
