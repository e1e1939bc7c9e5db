"""`python -m phalanx.launch.declare_lost RANK`: tells a job's parameter servers that a trainer is lost.

A process of its own, on a host that reaches the servers: the launcher may not, and does not load what that takes.
"""

import sys

from phalanx.exchange.pserver.servers import declare_lost
from phalanx.launch.env.roles import role_from_env

if __name__ == "__main__":
    role = role_from_env()
    assert role is not None
    declare_lost(role, int(sys.argv[1]))
