"""How idle compute threads wait. Set before torch is imported, since OpenMP reads it once."""

import os
import sys
from typing import Literal

from phalanx.machine.cores import cores, is_limited

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
CHOSEN = "PHALANX_IDLE_THREADS"  # set where Phalanx chose, in this process or in its parent
_ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE", CHOSEN: "asleep"}
_ALERT = {"GOMP_SPINCOUNT": "30000", CHOSEN: "alert"}  # 0.3 ms, as libgomp estimates it


def let_idle_threads_sleep() -> None:
    """Let idle OpenMP threads sleep, unless the user's environment says how they wait.

    By default they spin. Where another process wants the cores (a worker, a data loader, another user), each barrier
    then costs a time slice: measured 3-15 times slower on two shared cores, see docs/log.md.
    """
    if _is_ours():  # the choice of a launcher does not hold for the processes that it starts
        os.environ.pop("GOMP_SPINCOUNT", None)
    if _is_ours() or not any(name in os.environ for name in VARIABLES):
        os.environ |= _ASLEEP


def let_idle_threads_spin_while_alone(threads: int | Literal["auto"]) -> None:
    """Let idle libgomp threads spin for a moment before they sleep, if `threads` equals the number of cores.

    For a process that later calls `watch_contention`, which stops the spinning while other processes want the cores.
    """
    here = cores()
    fits = sys.platform == "linux" and threads in ("auto", here) and here > 1
    if fits and not is_limited() and _is_ours() and "torch" not in sys.modules:
        os.environ |= _ALERT


def spins_while_alone() -> bool:
    """Whether idle threads of this process spin before they sleep."""
    return _is_ours() and os.environ[CHOSEN] == _ALERT[CHOSEN]


def environment_of_others() -> dict[str, str]:
    """The user's environment without our choice: for peers in benchmarks, and for other hosts."""
    ours = {*_ASLEEP, *_ALERT} if _is_ours() else {CHOSEN}
    return {name: value for name, value in os.environ.items() if name not in ours}


def idle_threads() -> tuple[str, str]:
    """How idle threads wait in this process, and why."""
    if spins_while_alone():
        return "spin, then sleep", "no spinning while other processes want the cores"
    given = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    if given == ["OMP_WAIT_POLICY=PASSIVE"]:
        return "sleep", "spinning slows down processes that share the cores"
    return (", ".join(given), "from the environment") if given else ("spin", "OpenMP's default")


def _is_ours() -> bool:
    """Whether the variables are as we set them, and not changed since by a job script or an administrator."""
    left = {"asleep": _ASLEEP, "alert": _ASLEEP | _ALERT}.get(os.environ.get(CHOSEN, ""), {})
    return bool(left) and all(os.environ.get(name) == left.get(name) for name in VARIABLES)
