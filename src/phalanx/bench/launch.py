"""`phalanx bench launch`: launch time by number of hosts, over simulated hosts.

A shell script replaces ssh: it waits as long as a login takes, then answers like an agent. This measures the launcher
alone: the time until all roles have run, and its memory.
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

from phalanx.bench.until_stopped import until_stopped
from phalanx.launch.messages import PROTOCOL
from phalanx.net.code import digest_here, version_here
from phalanx.observe.progress import progress
from phalanx.observe.tables import print_line, print_table

COUNTS = (1, 10, 50, 100, 250, 500)
LOGIN_S = 1.0
_STUB = """\
#!/bin/sh
sleep {login_s}
echo '{hello}'
while read -r line; do
  case $line in
    *'"request":"ping"'*) echo '{{"event":"pong"}}' ;;
    *'"request":"prepare"'*) echo '{{"event":"ready","run":"/nowhere","shared":true}}' ;;
    *'"request":"listen"'*'"master"'*)
      echo '{{"event":"listening","addresses":{{"master":"10.0.0.1:1"}},"iface":null}}' ;;
    *'"request":"listen"'*) echo '{{"event":"listening","addresses":{{}},"iface":null}}' ;;
    *'"request":"start"'*)
      role=${{line#*'"role":"'}}; role=${{role%%'"'*}}
      echo '{{"event":"started","role":"'$role'","pid":1}}'; echo '{{"event":"exit","role":"'$role'","code":0}}' ;;
    *'"request":"end"'*) echo '{{"event":"ended"}}' ;;
    *'"request":"checkpoint"'*) echo '{{"event":"checkpoint","saved":[[],""]}}' ;;
    *'"request":"bye"'*) exit 0 ;;
  esac
done
"""


@dataclass(frozen=True)
class Launched:
    """The result of one launch."""

    hosts: int
    seconds: float
    peak_mb: float


def measure(hosts: int, login_s: float = LOGIN_S) -> Launched:
    """Launch a job with one trainer on each simulated host, in a separate process."""
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
    """Measure and print, with the time that logins one after the other would take."""
    found: list[Launched] = []
    with until_stopped(lambda: found) as stopped, progress(console, "launches", len(counts)) as advance:
        for count in counts:
            found.append(measure(count, login_s))
            advance(1)
    titles = ("hosts", "seconds", "logins one by one", "launcher MB")
    rows = [[str(one.hosts), f"{one.seconds:.2f}", f"{one.hosts * login_s:.0f}", f"{one.peak_mb:.0f}"] for one in found]
    print_table(console, titles, rows, numbers=titles)
    for note in stopped.notes:
        print_line(console, note)
    stopped.end()
    return found


def _hello() -> dict[str, object]:
    """The hello of an agent with this code. Its clock may be wrong."""
    return {
        "event": "hello",
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
