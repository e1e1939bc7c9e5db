"""Real hosts on one machine: network, hostname, process and mount namespaces, each with its own sshd.

    with hosts_up(4) as lab:
        lab.run("h1", ["hostname"]).stdout
        lab.cut("h2")

Hosts are called h1, h2 … at 10.77.0.1, 10.77.0.2 … on a bridge that nothing else is connected to: what is to reach them
runs on one of them. They share this machine's files, except for `lab.own`, which every host has to itself. Names that
the whole machine sees carry this process's id, so that several test sessions may have hosts at once.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from phalanx.machine.openmp import CHOSEN
from tests.waiting import until
from tests.warm.client import at_start, is_ours, start_inside, started_with
from tests.warm.relay import place
from tests.warm.stub import write_stub

_PREFIX = "phx"
_NUMBERS = count()
_TOOLS = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "rsync": "rsync",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
# The first process of a host. When this process goes, however it goes, its end of the pipe closes, the host's first
# process ends, and the kernel ends every other process of the host.
_INIT = """
set -e
hostname "$1"
mount --bind "$2/etc_hosts" /etc/hosts
mount -t tmpfs -o size=64m tmpfs "$2/own"
mkdir -p /run/sshd
"$3" -D -e -f "$2/sshd_config" </dev/null &
set +e
while :; do read -r -t 1 _; [ $? -le 128 ] && break; done
"""


def require_tools(tools: Mapping[str, str]) -> None:
    """Skip the test where a program is missing ({program: Debian package}), or fail where all are meant to be there."""
    missing = sorted({package for tool, package in tools.items() if find_tool(tool) is None})
    if missing:
        _unable(f"not installed: {' '.join(missing)}; on Debian: apt install {' '.join(missing)}")
    if os.geteuid() != 0:
        _unable("hosts made of namespaces need root")


def _unable(reason: str) -> None:
    if os.environ.get("PHALANX_TOOLS") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def find_tool(name: str) -> str | None:
    """A program, daemons in sbin included, which are not on everybody's path."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")


@dataclass(frozen=True)
class Process:
    """A live process of a host; the pid is the one that this machine knows it by."""

    host: str
    pid: int
    words: tuple[str, ...]


@dataclass
class Lab:
    """Hosts that are up. `prefix` makes names unique on this machine, `folder` holds their keys and settings."""

    prefix: str
    folder: Path
    names: list[str]
    _booted: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _relays: dict[str, int] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        """The interpreter on every host, for `launch --python`: it has torch imported already, see tests/warm."""
        return self.folder / "python"

    @property
    def ssh_config(self) -> Path:
        """For `ssh -F`: reaches every host from every host."""
        return self.folder / "ssh_config"

    @property
    def launch(self) -> list[str]:
        """`phalanx launch` to these hosts, with processes that start warm."""
        reached = ["--ssh", f"ssh -F {self.ssh_config}", "--python", str(self.python)]
        return [sys.executable, "-m", "phalanx", "launch", *reached]

    @property
    def own(self) -> Path:
        """A folder that every host has to itself: empty at first, and not seen by other hosts."""
        return self.folder / "own"

    def root(self, host: str) -> Path:
        """The host's files as this machine sees them, those in `own` included."""
        return Path(f"/proc/{self._init(host)}/root")

    def own_of(self, host: str) -> Path:
        """What a host has in `own`, as this machine sees it."""
        return self.root(host) / str(self.own).lstrip("/")

    def address(self, host: str) -> str:
        return f"10.77.0.{self._number(host)}"

    def network(self, host: str) -> str:
        """The name of its network namespace, for `ip -n`."""
        return f"{self.prefix}-{host}"

    def command(self, host: str, argv: Sequence[str], cwd: Path | None = None) -> list[str]:
        """The command that runs `argv` on a host."""
        if is_ours(argv):
            argv = [str(self.python), *argv[1:]]
        inside = ["env", "-C", str(cwd or self.folder), *argv]
        return ["nsenter", "-t", str(self._init(host)), "-m", "-u", "-n", "-p", *inside]

    def run(
        self,
        host: str,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 300.0,
        check: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on a host to its end. Output is text; with `check` its failure is the test's failure."""
        done = subprocess.run(
            self.command(host, argv, cwd),
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert not check or done.returncode == 0, f"{argv} on {host}: {done.stdout}{done.stderr}"
        return done

    def start(
        self, host: str, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start a command on a host; its output, errors included, is a pipe. Signals go to `inner(process)`."""
        return subprocess.Popen(
            self.command(host, argv, cwd),
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def inner(self, process: "subprocess.Popen[str]") -> int:
        """The command that `start` started: nsenter stands before it, since a process namespace takes a fork."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until(lambda: bool(children.read_text().split()))
        return int(children.read_text().split()[0])

    def processes(self, marker: str) -> list[Process]:
        """Live processes on any host with `marker` in their environment or command line."""
        live = [name for name in self._booted if self._alive(name)]
        homes = {Path(f"/proc/{self._init(name)}/ns/pid").stat().st_ino: name for name in live}
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                home = homes.get((entry / "ns/pid").stat().st_ino)
                words = (entry / "cmdline").read_bytes()
                told = (entry / "environ").read_bytes()
            except OSError:  # it has ended meanwhile
                continue
            if home is not None and words and marker.encode() in words + b"\0" + told:
                found.append(Process(home, int(entry.name), tuple(words.decode(errors="replace").split("\0")[:-1])))
        return found

    def cut(self, host: str) -> None:
        """Its link goes down: nothing arrives, and nobody is told."""
        _call("ip", "-n", f"{self.prefix}-sw", "link", "set", f"e{self._number(host)}", "down")

    def mend(self, host: str) -> None:
        _call("ip", "-n", f"{self.prefix}-sw", "link", "set", f"e{self._number(host)}", "up")

    def crash(self, host: str) -> None:
        """The host dies: link down, every process killed."""
        self.cut(host)
        os.kill(self._init(host), signal.SIGKILL)
        self._booted[host].wait()
        self._forget_relay(host)

    def boot(self, host: str) -> None:
        """Start it, for the first time or after a crash. Returns when its sshd answers."""
        if host in self._booted:
            self.mend(host)
        sshd = find_tool("sshd") or "sshd"
        outside = ["ip", "netns", "exec", self.network(host)]
        outside += ["unshare", "-u", "-p", "-m", "--mount-proc", "--fork", "--kill-child=KILL"]
        with (self.folder / f"{host}.log").open("ab") as log:
            self._booted[host] = subprocess.Popen(
                [*outside, "bash", "-c", _INIT, "init", host, str(self.folder), sshd],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
            relay = start_inside(self._init(host), self.folder, log.fileno())
        if relay is not None:
            self._relays[host] = relay
            until(place(self.folder, host).exists, why=lambda: (self.folder / f"{host}.log").read_text())
        until(lambda: self._answers(host), why=lambda: (self.folder / f"{host}.log").read_text())

    def _forget_relay(self, host: str) -> None:
        """It has ended with its host."""
        place(self.folder, host).unlink(missing_ok=True)
        if host in self._relays:
            os.waitpid(self._relays.pop(host), 0)

    def shut_down(self) -> None:
        for host, process in self._booted.items():
            if self._alive(host):
                os.kill(self._init(host), signal.SIGKILL)
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
            self._forget_relay(host)
        for name in [*self.names, "sw"]:
            subprocess.run(["ip", "netns", "del", f"{self.prefix}-{name}"], capture_output=True)

    def _number(self, host: str) -> int:
        return self.names.index(host) + 1

    def _alive(self, host: str) -> bool:
        return self._booted[host].poll() is None

    def _init(self, host: str) -> int:
        outer = self._booted[host].pid
        assert self._booted[host].poll() is None, f"{host} is down: {(self.folder / f'{host}.log').read_text()}"
        children = Path(f"/proc/{outer}/task/{outer}/children")
        until(lambda: bool(children.read_text().split()))
        return int(children.read_text().split()[0])

    def _answers(self, host: str) -> bool:
        knock = f"exec 3<>/dev/tcp/{self.address(host)}/22"
        tried = ["ip", "netns", "exec", self.network(host), "bash", "-c", knock]
        return subprocess.run(tried, capture_output=True).returncode == 0


@contextmanager
def hosts_up(num_hosts: int = 4) -> Iterator[Lab]:
    """Hosts for as long as this is entered. Skips the test where they cannot be had."""
    require_tools(_TOOLS)
    _sweep()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="phalanx-lab-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        prefix = f"{_PREFIX}{os.getpid()}x{next(_NUMBERS)}"
        lab = Lab(prefix, folder, [f"h{number}" for number in range(1, num_hosts + 1)])
        stack.callback(lab.shut_down)
        _write_settings(lab)
        write_stub(folder)
        _connect(lab)
        for host in lab.names:
            lab.boot(host)
        yield lab


def _write_settings(lab: Lab) -> None:
    folder = lab.folder
    lab.own.mkdir()
    for key in ("id", "hostkey"):
        _call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
    shutil.copy(folder / "id.pub", folder / "authorized_keys")
    server = {
        "Port": 22,
        "HostKey": folder / "hostkey",
        "AuthorizedKeysFile": folder / "authorized_keys",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "MaxStartups": "100:30:200",
        "ClientAliveInterval": 2,
        "ClientAliveCountMax": 3,
        "Subsystem": "sftp internal-sftp",
    }
    # As the tests have it: the code under test may be another than the installed one, and processes are to start warm.
    given = started_with()
    told = {**at_start(given), **{name: given[name] for name in [CHOSEN] if name in given}}
    if told:
        server["SetEnv"] = " ".join(f'{name}="{value}"' for name, value in told.items() if '"' not in value)
    client = {
        "User": "root",
        "IdentityFile": folder / "id",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": folder / "known_hosts",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "LogLevel": "ERROR",
        "ConnectTimeout": 5,
    }
    _lines(folder / "sshd_config", [f"{name} {value}" for name, value in server.items()])
    _lines(lab.ssh_config, ["Host *", *(f"  {name} {value}" for name, value in client.items())])
    public = " ".join((folder / "hostkey.pub").read_text().split()[:2])
    _lines(folder / "known_hosts", [f"{name},{lab.address(name)} {public}" for name in lab.names])
    # NAME.lab is the same host by a name whose key nobody knows.
    named = [f"{lab.address(name)} {name} {name}.lab" for name in lab.names]
    _lines(folder / "etc_hosts", ["127.0.0.1 localhost", *named])


def _lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


def _connect(lab: Lab) -> None:
    """A bridge in a namespace of its own, and a cable from it to every host."""
    switch = f"{lab.prefix}-sw"
    _call("ip", "netns", "add", switch)
    _call("ip", "-n", switch, "link", "set", "lo", "up")
    _call("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
    _call("ip", "-n", switch, "link", "set", "br0", "up")
    for number, host in enumerate(lab.names, start=1):
        network, port = lab.network(host), f"e{number}"
        _call("ip", "netns", "add", network)
        cable = ["type", "veth", "peer", "name", "eth0", "netns", network]
        _call("ip", "link", "add", port, "netns", switch, *cable)
        _call("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
        _call("ip", "-n", network, "addr", "add", f"{lab.address(host)}/24", "dev", "eth0")
        _call("ip", "-n", network, "link", "set", "lo", "up")
        _call("ip", "-n", network, "link", "set", "eth0", "up")


def _sweep() -> None:
    """Remove the networks of test sessions that were killed before they could."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for name in (line.split()[0] for line in listed.splitlines() if line.startswith(_PREFIX)):
        owner = name.removeprefix(_PREFIX).split("x")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _call(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
