"""Runs turns of an endless iterator of batches or steps, on request. A separate program.

    PYTHON turns.py FILE NAME JOB

It runs in whichever environment a peer is installed in, so it imports nothing of Phalanx. `FILE` has a table `PEERS`:
name → (function that makes the iterator from `JOB`, which is JSON; modules that it needs). Requests and
replies are JSON lines; contender.py is the other side.
"""

import importlib.util
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def serve(batches: Iterator[int]) -> None:
    """Report the first batch; then run a turn for each request, and report its images.

    An iterator may report more in its `about`.
    """
    next(batches)
    send({"ready": True, **getattr(batches, "about", {})})
    for line in sys.stdin:
        turn = json.loads(line)
        taken(batches, turn["warm_up_s"])
        sum(itertools.islice(batches, turn["warm_up_batches"]))
        cpu = _cpu_s()
        images, seconds = taken(batches, turn["seconds"], turn["batches"])
        send({"images": images, "seconds": seconds, "cpu_s": _cpu_s() - cpu})


def taken(batches: Iterator[int], seconds: float, most: int | None = None) -> tuple[int, float]:
    """The images of this many seconds (or `most` batches), and the real duration."""
    begin, images, count = time.perf_counter(), 0, 0
    while time.perf_counter() - begin < seconds and (most is None or count < most):
        images += next(batches)
        count += 1
    return images, time.perf_counter() - begin


def send(message: dict[str, object]) -> None:
    sys.__stdout__.write(json.dumps(message) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def _cpu_s() -> float:
    """CPU seconds of this process and of those it has started, which a loader's workers are."""
    ticks = 0
    for pid in _family(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _family(int(child))


def _peers(file: str) -> Any:
    """The table of a file. Its folder is not on the path: files there have common names such as io.py."""
    spec = importlib.util.spec_from_file_location(f"{Path(file).stem}_of_bench", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.PEERS


def main() -> None:
    file, name, job = sys.argv[1:]
    sys.stdout = sys.stderr  # keep output of libraries away from our protocol
    try:
        serve(_peers(file)[name][0](json.loads(job)))
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        send({"failed": ": ".join([type(error).__name__, *lines[:1]])})
        raise


if __name__ == "__main__":
    main()
