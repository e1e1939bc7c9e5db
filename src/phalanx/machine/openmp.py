"""How idle compute threads wait. Set before torch is imported, since OpenMP reads it once."""

import os
import sys
from typing import Literal

from phalanx.machine.cores import cores, is_limited

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
CHOSEN = "PHALANX_IDLE_THREADS"  # says that it was us who chose, here or in the process that started this one
_ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE", CHOSEN: "asleep"}
_ALERT = {"GOMP_SPINCOUNT": "30000", CHOSEN: "alert"}  # 0.3 ms by libgomp's own estimate


def let_idle_threads_sleep() -> None:
    """Have OpenMP's threads sleep when they wait, unless the user has said how they should.

    By default they spin, and where anything else wants the cores (another worker, a data loader, another user) each
    barrier then costs a time slice: measured 3-15 times slower on two shared cores, see docs/log.md.
    """
    if _is_ours():  # what a launcher has chosen for itself is no choice for what it starts
        os.environ.pop("GOMP_SPINCOUNT", None)
    if _is_ours() or not any(name in os.environ for name in VARIABLES):
        os.environ |= _ASLEEP


def let_idle_threads_spin_while_alone(threads: int | Literal["auto"]) -> None:
    """Have libgomp's threads spin for a moment before they sleep, where `threads` are as many as there are cores.

    For a process that goes on to call `company.look_out`, which has them sleep at once while others want the cores.
    """
    here = cores()
    fits = sys.platform == "linux" and threads in ("auto", here) and here > 1
    if fits and not is_limited() and _is_ours() and "torch" not in sys.modules:
        os.environ |= _ALERT


def spin_while_alone() -> bool:
    """Whether threads of this process do."""
    return _is_ours() and os.environ[CHOSEN] == _ALERT[CHOSEN]


def environment_of_others() -> dict[str, str]:
    """The environment as the user has it, for what must not gain or lose by our choice: peers, and other hosts."""
    ours = {*_ASLEEP, *_ALERT} if _is_ours() else {CHOSEN}
    return {name: value for name, value in os.environ.items() if name not in ours}


def waiting() -> tuple[str, str]:
    """How idle threads wait in this process, and why."""
    if spin_while_alone():
        return "spin for a moment, then sleep", "at once while others want the cores, whom spinning would hold up"
    given = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    if given == ["OMP_WAIT_POLICY=PASSIVE"]:
        return "asleep", "spinning would hold up whoever shares the cores"
    return (", ".join(given), "from the environment") if given else ("spinning", "OpenMP's default")


def _is_ours() -> bool:
    """Whether it is as we left it: what a job's script or a host's administrator has set since is theirs."""
    left = {"asleep": _ASLEEP, "alert": _ASLEEP | _ALERT}.get(os.environ.get(CHOSEN, ""), {})
    return bool(left) and all(os.environ.get(name) == left.get(name) for name in VARIABLES)
