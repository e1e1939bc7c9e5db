"""Faults of processes: killed, stopped, out of memory."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.chaos.cell import HIT, Cell

FOR_EVER_S = 3600.0
STANDS_STILL_S = 20.0  # a job of one process that is stopped for ever: nobody else can notice, so we continue it
_CGROUPS = Path("/sys/fs/cgroup")
_OOM_MB = 96
FILLS_S = 30.0


def kill_worker(cell: Cell) -> None:
    _kill(cell, cell.mode.hit)


def kill_server(cell: Cell) -> None:
    _kill(cell, "server-0")


def kill_data_server(cell: Cell) -> None:
    _kill(cell, "data-0")


def kill_launcher(cell: Cell) -> None:
    cell.job.signal(signal.SIGKILL)


def interrupt(cell: Cell) -> None:
    """Ctrl-C in the launching terminal."""
    cell.job.signal(signal.SIGINT)


def kill_agent(cell: Cell) -> None:
    agents = [one.pid for one in cell.job.alive() if one.host == HIT and one.words[-1] == "agent"]
    os.kill(agents[0], signal.SIGKILL)


def _kill(cell: Cell, name: str) -> None:
    os.kill(_pid(cell, name), signal.SIGKILL)


def _pid(cell: Cell, name: str) -> int:
    process = cell.job.role(name)
    assert process is not None, f"there is no {name}"
    return process.pid


def stop_worker(seconds: float, cell: Cell) -> None:
    if seconds == FOR_EVER_S and cell.mode.workers == 1:
        seconds = STANDS_STILL_S
    _stop(cell, cell.mode.hit, seconds)


def stop_server(seconds: float, cell: Cell) -> None:
    _stop(cell, "server-0", seconds)


def _stop(cell: Cell, name: str, seconds: float) -> None:
    pid = _pid(cell, name)
    os.kill(pid, signal.SIGSTOP)
    if seconds == FOR_EVER_S:
        return
    cell.lasts(seconds, lambda: Path(f"/proc/{pid}").exists())
    timer = threading.Timer(seconds, _continue, [pid])
    timer.daemon = True
    timer.start()
    cell.relief.callback(timer.cancel)


def _continue(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def out_of_memory(cell: Cell) -> None:
    """A memory cgroup of its own with a limit that the worker then exceeds: the kernel kills it."""
    pid = _pid(cell, cell.mode.hit)
    group = make_cgroup(f"phalanx-chaos-{os.getpid()}-{pid}", _OOM_MB << 20)
    cell.relief.callback(_remove, group)
    (group / "cgroup.procs").write_text(str(pid))
    cell.tell("memory", cell.mode.hit)
    gone = threading.Thread(target=_untell_when_gone, args=(cell, pid), daemon=True)
    gone.start()
    cell.lasts(FILLS_S, gone.is_alive)  # it takes some steps
    cell.relief.callback(gone.join)


def make_cgroup(name: str, limit: int) -> Path:
    """A memory cgroup, of version 1 or 2, whatever this machine has."""
    first = (_CGROUPS / "memory").is_dir()
    group = _CGROUPS / "memory" / name if first else _CGROUPS / name
    group.mkdir()
    (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))
    return group


def _remove(group: Path) -> None:
    for _ in range(50):
        try:
            group.rmdir()
        except OSError:  # its last process is still being taken apart
            time.sleep(0.1)
        else:
            return


def _untell_when_gone(cell: Cell, pid: int) -> None:
    """Whoever takes its place is not to run out of memory as well."""
    with suppress(OSError):  # then it is gone
        for _ in range(600):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                break
            time.sleep(0.05)
    cell.untell("memory")
