"""Processes of tests start warm: forked from one that has imported torch, which takes 2 s of a core each time.

`install()` lets subprocess and asyncio do so for every `python -m phalanx …`, in tests and in what they start. Such a
process is the child of who started it, and has its own command line, environment, streams, session and signals, as if
started afresh. Tests about the start itself use another form (`python -c`, `-X`), or set PHALANX_COLD=1, which starts
every process afresh.

On lab hosts `Lab.python` is such a start, too: of the launchers that tests run there, and by `--python` of the agents
that ssh starts, and so of all roles.
"""

from tests.warm.client import install, start_inside

__all__ = ["install", "start_inside"]
