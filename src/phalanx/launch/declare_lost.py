"""`python -m phalanx.launch.declare_lost FILE RANK`: tells a job's parameter servers that a trainer is lost.

A process of its own, on a host that reaches the servers: the launcher may not, and does not load what that takes.
"""

import json
import sys
from pathlib import Path

from phalanx.config.role import role_from_data
from phalanx.exchange.pserver.servers import declare_lost

if __name__ == "__main__":
    data = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    declare_lost(role_from_data(data["role"]), int(sys.argv[2]))
