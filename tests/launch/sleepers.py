"""Jobs whose roles only sleep, to test launching without loading torch.

python sleepers.py role FILE                a role; see `role`
python sleepers.py launch RUN SSH_CONFIG HOSTS [WHAT]...
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

from rich.console import Console

from phalanx.config.role import role_from_data
from phalanx.launch.hosts import parse_hosts
from phalanx.launch.job import INPUT, PYTHON, Job
from phalanx.launch.messages import GRACE_S, Argument
from phalanx.launch.multi_host import supervise_over
from phalanx.launch.policy import Policy
from phalanx.launch.remote_shell import SshShell
from phalanx.roles.lifeline import hold_lifeline

ROLE: tuple[Argument, ...] = (PYTHON, str(Path(__file__).resolve()), "role", INPUT)


def sleepers(run: Path, policy: Policy, *what: str, workers: int = 2, servers: int = 0, evaluators: int = 0) -> Job:
    """A job of sleepers. After a restart as a new group, its roles get `again` and the number of workers instead."""
    return Job(
        run=run,
        request={"words": what},
        new_group_request=lambda world, config: {"words": ["again", str(world), "end"]},
        argv=ROLE,
        counts={"trainer": workers, "server": servers, "evaluator": evaluators},
        policy=policy,
        command="phalanx launch -n 2 -- train digits",
    )


def mine(job: str) -> list[int]:
    """Live processes of a job on this machine."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"PHALANX_JOB={job}\0".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def role(given: Path) -> None:
    """Print the role, start a process that leaves the process group, and sleep.

    `end`: trainers exit at once. `NAME=CODE`: that role exits with the code, or by the signal if it is negative, at its
    first start. `stubborn`: ignores SIGTERM. `slow`: an evaluator takes longer than its grace period to exit. Anything
    else is only printed.
    """
    data = json.loads(given.read_text())
    me, what = role_from_data(data["role"]), data["request"]["words"]
    name = me.name
    exits = dict(word.split("=", 1) for word in what if "=" in word)
    assert me.run is not None
    hold_lifeline()
    if "stubborn" in what:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        leave = _leave_slowly if "slow" in what and name.startswith("evaluator") else _leave
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, leave)
    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdin=subprocess.DEVNULL)
    sys.stdout.write(f"{name} of {me.world} says {' '.join(what)!r}\n")
    sys.stdout.flush()
    mark = me.run / f"{name}-was-here"
    if name in exits and not mark.exists():
        mark.touch()
        code = int(exits[name])
        if code < 0:
            os.kill(os.getpid(), -code)
        sys.exit(code)
    if "end" in what and name.startswith("trainer"):
        sys.exit(0)
    while True:
        time.sleep(1)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _leave_slowly(number: int, frame: FrameType | None) -> None:
    time.sleep(GRACE_S + 1)
    sys.exit(0)


def main() -> int:
    doing, *words = sys.argv[1:]
    if doing == "role":
        role(Path(words[0]))
        return 0
    run, config, hosts, *what = words
    Path(run).mkdir(parents=True, exist_ok=True)
    job = sleepers(Path(run), Policy(independent=False), *what, servers=1)
    if "resumed" in what:
        job = replace(job, resumes=True, cwd=str(Path.cwd()))
    shell = SshShell(("ssh", "-F", config))
    return supervise_over(job, parse_hosts(hosts.split(","), "test"), shell, Console(stderr=True, width=200))


if __name__ == "__main__":
    sys.exit(main())
