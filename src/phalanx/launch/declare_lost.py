"""`python -m phalanx.launch.declare_lost FILE RANK`: tells the parameter servers that a trainer is lost.

It runs on a host that can connect to the servers. The launcher may not be able to, and does not load torch.
"""

import json
import sys
from pathlib import Path

from phalanx.config.role import role_from_data
from phalanx.exchange.pserver.servers import declare_lost

if __name__ == "__main__":
    data = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    declare_lost(role_from_data(data["role"]), int(sys.argv[2]))
