"""Remote shells: run a command on a host, with its standard input, output and errors connected to this process."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from phalanx.launch.hosts import Host

# Runs in the host's /bin/sh. What differs between jobs comes as arguments, which no shell expands.
# $1: the first interpreter to try, $2: the second, or empty; $3: the synced folder, or empty; $4: the package's path
# in it, or empty.
_BOOTSTRAP = """\
if [ -n "$3" ]; then
  cd "$3" || exit 66
  if [ -n "$4" ]; then PYTHONPATH="$PWD/$4${PYTHONPATH:+:$PYTHONPATH}"; export PYTHONPATH; fi
fi
for python in "$1" "$2"; do
  if [ -n "$python" ] && command -v "$python" >/dev/null 2>&1; then exec "$python" -m phalanx agent; fi
done
echo "no such interpreter: $1 $2" >&2
exit 127"""
NO_FOLDER, NO_PYTHON = 66, 127


@dataclass(frozen=True)
class HostCheck:
    """How the launcher connects to a host (`via`), and a command that shows a user the state of that host."""

    via: str
    command: str


LOCAL_CHECK = HostCheck("", "dmesg | tail")  # the usual reason for lost processes here is a lack of memory


class RemoteShell(Protocol):
    """Turns a command for a host into a local command with the same input, output and errors."""

    def command(self, host: Host, remote: Sequence[str]) -> list[str]: ...

    def check(self, host: Host) -> HostCheck: ...


def ignore_signals(signals: str, remote: Sequence[str]) -> list[str]:
    """A command that ignores these signals. Its child processes ignore them too, unless they install handlers.

    For batch systems that signal every process of a job: the launcher handles the signal for all of them.
    """
    return ["/bin/sh", "-c", f'trap "" {signals}; exec "$@"', "sh", *remote]


class LocalShell:
    """Runs commands on this machine."""

    def command(self, host: Host, remote: Sequence[str]) -> list[str]:
        return list(remote)

    def check(self, host: Host) -> HostCheck:
        return LOCAL_CHECK


@dataclass(frozen=True)
class SshShell:
    """ssh, with the user's own configuration and keys. It never prompts, and detects a dead connection in 8 s."""

    program: tuple[str, ...] = ("ssh",)

    def client(self, host: Host) -> list[str]:
        """ssh and its options, without the host, as rsync needs it."""
        options = {"BatchMode": "yes", "ConnectTimeout": 10, "ServerAliveInterval": 2, "ServerAliveCountMax": 3}
        options["ControlPath"] = "none"  # no shared connection: this one ends with its command
        port = ["-p", str(host.port)] if host.port else []
        return [*self.program, *(f"-o{name}={value}" for name, value in options.items()), *port]

    def command(self, host: Host, remote: Sequence[str]) -> list[str]:
        return [*self.client(host), "-T", host.target, "--", shlex.join(remote)]

    def check(self, host: Host) -> HostCheck:
        port = ["-p", str(host.port)] if host.port else []
        return HostCheck("ssh", shlex.join([*self.program, *port, host.target, "true"]))


@dataclass(frozen=True)
class Sync:
    """Copies the current directory to a folder on each host, without the new run's folder."""

    source: Path
    folder: str
    run: Path | None = None

    def command(self, shell: SshShell, host: Host) -> list[str]:
        """The rsync command. It deletes nothing there, and skips what a checkout or a run makes again.

        If the hosts share a disk, the target may be inside the source: then it is skipped too.
        """
        inside = [self._inside(Path.home() / self.folder), self._inside(self.run)]
        excluded = [".git", ".venv", "__pycache__", "/runs", *filter(None, inside)]
        target = f"[{host.name}]" if ":" in host.name else host.name
        who = f"{host.user}@" if host.user else ""
        return [
            *("rsync", "--archive", "--compress", "--protect-args", "--mkpath", "--info=progress2"),
            *(f"--exclude={pattern}" for pattern in excluded),
            f"--rsh={shlex.join(shell.client(host))}",
            f"{self.source}/",
            f"{who}{target}:{self.folder}/",
        ]

    def _inside(self, path: Path | None) -> str:
        """rsync's pattern for a folder inside the source; empty for any other."""
        source = self.source.resolve()
        target = (source / path).resolve() if path is not None else source
        if target == source or not target.is_relative_to(source):
            return ""
        name = str(target.relative_to(source))
        return "/" + (re.sub(r"([\\*?\[])", r"\\\1", name) if re.search(r"[*?\[]", name) else name)

    @property
    def package(self) -> str:
        """The package's path in the folder, if that is a checkout of Phalanx."""
        return next((path for path in ("src", ".") if (self.source / path / "phalanx/__main__.py").is_file()), "")


def agent_command(python: str, fallback: str = "", synced: Sync | None = None) -> list[str]:
    """The command that starts an agent, the same for all jobs."""
    folder, package = (synced.folder, synced.package) if synced else ("", "")
    return ["/bin/sh", "-c", _BOOTSTRAP, "phalanx", python, fallback, folder, package]
