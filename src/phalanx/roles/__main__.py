"""`python -m phalanx.roles FILE`: one process of a job. FILE has its role and its request, from the agent."""

import json
import sys
from pathlib import Path

from phalanx.config.role import role_from_data
from phalanx.machine.ending import ENDING, leave_ending_at
from phalanx.roles.lifeline import hold_lifeline
from phalanx.roles.process import run_process
from phalanx.roles.request import Request


def main() -> int:
    given = Path(sys.argv[1])
    leave_ending_at(given.with_suffix(ENDING))
    data = json.loads(given.read_text(encoding="utf-8"))
    role = role_from_data(data["role"])
    hold_lifeline()
    assert role.run is not None
    from phalanx.roles.run import run

    return run(Request.from_data(data["request"], role.run), role).exit_code


if __name__ == "__main__":
    run_process(main)
