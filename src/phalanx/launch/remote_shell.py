"""Carriers: what brings a command to a host and connects its standard input, output and errors to a process here."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from phalanx.launch.hosts import Host

# Run by the host's /bin/sh. All that differs from job to job comes as arguments, which no shell looks into.
# $1: the interpreter to try first, $2: the one to try else, or nothing; $3: the folder that was synced, or nothing;
# $4: where in it the package is, or nothing.
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
class Way:
    """By what a host was reached, and the command that shows a user how it is."""

    by: str
    check: str


HERE = Way("", "dmesg | tail")  # what ends processes of this machine unasked is a lack of memory


class RemoteShell(Protocol):
    """Turns a command for a host into a command for this machine with the same input, output and errors."""

    def command(self, host: Host, remote: Sequence[str]) -> list[str]: ...

    def way(self, host: Host) -> Way: ...


def deaf_to(signals: str, remote: Sequence[str]) -> list[str]:
    """A command that does not hear these signals, nor does what it starts, unless it asks for them anew.

    For batch systems that signal every process of a job: the launcher hears them too, and does what is to be done.
    """
    return ["/bin/sh", "-c", f'trap "" {signals}; exec "$@"', "sh", *remote]


class LocalShell:
    """This machine itself."""

    def command(self, host: Host, remote: Sequence[str]) -> list[str]:
        return list(remote)

    def way(self, host: Host) -> Way:
        return HERE


@dataclass(frozen=True)
class SshShell:
    """ssh, with the user's own configuration and keys. It asks nothing, and notices a dead connection in 8 s."""

    program: tuple[str, ...] = ("ssh",)

    def client(self, host: Host) -> list[str]:
        """ssh and its options, without the host: rsync takes it in this form."""
        options = {"BatchMode": "yes", "ConnectTimeout": 10, "ServerAliveInterval": 2, "ServerAliveCountMax": 3}
        options["ControlPath"] = "none"  # a connection of its own, which ends with its command
        port = ["-p", str(host.port)] if host.port else []
        return [*self.program, *(f"-o{name}={value}" for name, value in options.items()), *port]

    def command(self, host: Host, remote: Sequence[str]) -> list[str]:
        return [*self.client(host), "-T", host.target, "--", shlex.join(remote)]

    def way(self, host: Host) -> Way:
        port = ["-p", str(host.port)] if host.port else []
        return Way("ssh", shlex.join([*self.program, *port, host.target, "true"]))


@dataclass(frozen=True)
class Sync:
    """Sending the current directory to a folder on each host, without the folder of the run that is to begin."""

    source: Path
    folder: str
    run: Path | None = None

    def command(self, shell: SshShell, host: Host) -> list[str]:
        """rsync's command. Nothing is deleted there; what a checkout or a run makes again is not sent.

        Where the hosts share a disk, the folder may lie in the one that is sent: it is not sent into itself.
        """
        inside = [self._inside(Path.home() / self.folder), self._inside(self.run)]
        left_out = [".git", ".venv", "__pycache__", "/runs", *filter(None, inside)]
        target = f"[{host.name}]" if ":" in host.name else host.name
        who = f"{host.user}@" if host.user else ""
        return [
            *("rsync", "--archive", "--compress", "--protect-args", "--mkpath"),
            *(f"--exclude={pattern}" for pattern in left_out),
            f"--rsh={shlex.join(shell.client(host))}",
            f"{self.source}/",
            f"{who}{target}:{self.folder}/",
        ]

    def _inside(self, path: Path | None) -> str:
        """rsync's pattern for a folder in the one that is sent; empty for any other."""
        source = self.source.resolve()
        there = (source / path).resolve() if path is not None else source
        if there == source or not there.is_relative_to(source):
            return ""
        name = str(there.relative_to(source))
        return "/" + (re.sub(r"([\\*?\[])", r"\\\1", name) if re.search(r"[*?\[]", name) else name)

    @property
    def package(self) -> str:
        """Where in the folder the package lies, if it is a checkout of Phalanx."""
        return next((place for place in ("src", ".") if (self.source / place / "phalanx/__main__.py").is_file()), "")


def agent_command(python: str, fallback: str = "", synced: Sync | None = None) -> list[str]:
    """The one command that is run on a host, whatever the job."""
    folder, package = (synced.folder, synced.package) if synced else ("", "")
    return ["/bin/sh", "-c", _BOOTSTRAP, "phalanx", python, fallback, folder, package]
