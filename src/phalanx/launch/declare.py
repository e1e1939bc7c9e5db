"""`python -m phalanx.launch.declare RANK`: tells a job's parameter servers that a trainer is lost.

A process of its own, on a host that reaches the servers: the launcher may not, and does not load what that takes.
"""

import sys

from phalanx.exchange.pserver.servers import declare_lost
from phalanx.launch.dialects import role_from

if __name__ == "__main__":
    role = role_from()
    assert role is not None
    declare_lost(role, int(sys.argv[1]))
