"""How idle compute threads wait. Set before torch is imported, since OpenMP reads it once."""

import os

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_OURS = {"OMP_WAIT_POLICY": "PASSIVE"}
_chosen: list[str] = []  # whether it was us who chose


def let_idle_threads_sleep() -> None:
    """Have OpenMP's threads sleep when they wait, unless the user has said how they should.

    By default they spin, and where anything else wants the cores (another worker, a data loader, another user) each
    barrier then costs a time slice: measured 3-15 times slower on two shared cores, see docs/log.md.
    """
    if not any(name in os.environ for name in VARIABLES):
        os.environ |= _OURS
        _chosen.append("asleep")


def environment_of_others() -> dict[str, str]:
    """The environment as the user has it: a program of others that is measured must not gain or lose by our choice."""
    return {name: value for name, value in os.environ.items() if not (_chosen and name in _OURS)}


def waiting() -> tuple[str, str]:
    """How idle threads wait in this process, and why."""
    given = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    if given == ["OMP_WAIT_POLICY=PASSIVE"]:
        return "asleep", "spinning would hold up whoever shares the cores"
    return (", ".join(given), "from the environment") if given else ("spinning", "OpenMP's default")
