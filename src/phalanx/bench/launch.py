"""`phalanx bench launch`: how launching grows with the number of hosts, over hosts that only pretend to be there.

Each host is a shell script in ssh's place: it takes as long as a login, then answers as an agent would. Measured is
the launcher itself: the time until all roles have run, and its memory.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from phalanx.launch.code import digest_here, version_here
from phalanx.launch.messages import PROTOCOL
from phalanx.observe.tables import print_table

COUNTS = (1, 10, 50, 100, 250, 500)
LOGIN_S = 1.0
_STUB = """\
#!/bin/sh
sleep {login_s}
echo '{hello}'
while read -r line; do
  case $line in
    *'"do":"ping"'*) echo '{{"say":"pong"}}' ;;
    *'"do":"prepare"'*) echo '{{"say":"ready","run":"/nowhere","shared":true}}' ;;
    *'"do":"listen"'*'"master"'*)
      echo '{{"say":"listening","places":{{"master":"10.0.0.1:1"}},"address":"10.0.0.1","iface":null}}' ;;
    *'"do":"listen"'*) echo '{{"say":"listening","places":{{}},"address":"10.0.0.1","iface":null}}' ;;
    *'"do":"start"'*)
      role=${{line#*'"role":"'}}; role=${{role%%'"'*}}
      echo '{{"say":"started","role":"'$role'","pid":1}}'; echo '{{"say":"exit","role":"'$role'","code":0}}' ;;
    *'"do":"end"'*) echo '{{"say":"ended"}}' ;;
    *'"do":"saved"'*) echo '{{"say":"saved","saved":[[],""]}}' ;;
    *'"do":"bye"'*) exit 0 ;;
  esac
done
"""


@dataclass(frozen=True)
class Launched:
    """One launch over so many hosts."""

    hosts: int
    seconds: float
    peak_mb: float


def measure(hosts: int, login_s: float = LOGIN_S) -> Launched:
    """Launch a job with a trainer on each of so many pretended hosts, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        stub = Path(folder) / "ssh"
        stub.write_text(_STUB.format(login_s=login_s, hello=json.dumps(_hello())), encoding="utf-8")
        stub.chmod(0o755)
        listed = Path(folder) / "hosts"
        listed.write_text("".join(f"node{number} slots=1\n" for number in range(hosts)), encoding="utf-8")
        argv = [sys.executable, "-m", "phalanx", "launch", "--ssh", str(stub), "-n", str(hosts), "-H", str(listed)]
        words = ["--", "train", "digits", f"train.batch_size={hosts}", "--out", str(Path(folder) / "run")]
        begin = time.perf_counter()
        process = subprocess.Popen([*argv, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"launching over {hosts} hosts failed: {said[-2000:]}")
        return Launched(hosts, time.perf_counter() - begin, usage.ru_maxrss / 1024)


def bench_launch(console: Console, counts: Sequence[int] = COUNTS, login_s: float = LOGIN_S) -> list[Launched]:
    """Measure and print; one after the other, so many hosts would take as many logins."""
    found = [measure(count, login_s) for count in counts]
    titles = ("hosts", "seconds", "logins one by one", "launcher MB")
    rows = [[str(one.hosts), f"{one.seconds:.2f}", f"{one.hosts * login_s:.0f}", f"{one.peak_mb:.0f}"] for one in found]
    print_table(console, titles, rows, numbers=titles)
    return found


def _hello() -> dict[str, object]:
    """What an agent with this very code says; the clock is left to be wrong."""
    return {
        "say": "hello",
        "protocol": PROTOCOL,
        "version": version_here(),
        "digest": digest_here(),
        "python": "",
        "executable": "",
        "hostname": "",
        "clock": time.time(),
        "pid": 1,
        "address": "10.0.0.1",
    }
