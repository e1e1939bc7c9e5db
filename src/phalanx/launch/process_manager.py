"""Processes of one host: starts roles, forwards their output, and ends them with every process that they started."""

import asyncio
import codecs
import os
import platform
import secrets
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.launch.messages import CHUNK_BYTES, GRACE_S, Message
from phalanx.machine.ending import take_ending
from phalanx.machine.memory import MemoryGroup, OomCounts, memory_group, oom_counts
from phalanx.machine.process_state import hindrance
from phalanx.machine.processes import MARK, readable_pipe, signal_group, signal_marked

_DRAIN_S = 1.0  # for the last output of a role, if its child processes still hold its pipes open


@dataclass
class ManagedProcess:
    """The process of a role."""

    name: str
    process: Process
    mark: str
    lifeline: int  # our end of its standard input
    ending: Path | None  # where it leaves why it failed
    group: MemoryGroup | None
    oom_before: OomCounts
    killed: bool = False  # by us
    watching: "asyncio.Task[None] | None" = field(default=None, repr=False)


class ProcessManager:
    """Sends events about its processes: started, output, exit."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._token = secrets.token_hex(8)
        self._running: dict[str, ManagedProcess] = {}

    async def start(
        self,
        name: str,
        argv: Sequence[str],
        variables: Mapping[str, str],
        cwd: str | None,
        *,
        terminal: bool,
        ending: Path | None = None,
    ) -> None:
        """Start a role in a session of its own. With `terminal` it writes to our terminal directly.

        Its standard input is a lifeline: when this process dies, even by SIGKILL, the pipe ends and the role too.
        """
        mark = f"{self._token}/{name}/"  # marks are compared by prefix: the slash tells trainer-1 from trainer-10
        pipes = {} if terminal else {stream: await readable_pipe() for stream in ("out", "err")}
        lifeline, held = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=lifeline,
                stdout=pipes["out"][1] if pipes else None,
                stderr=pipes["err"][1] if pipes else None,
                env={**os.environ, **variables, "PHALANX_LIFELINE": "stdin", MARK: mark},
                cwd=cwd,
                start_new_session=True,  # Ctrl-C reaches the launcher only, which forwards it once
            )
        except OSError as error:
            os.close(held)
            self._send({"event": "exit", "role": name, "code": 127, "why": f"{argv[0]}: {error.strerror or error}"})
            return
        finally:
            for descriptor in (lifeline, *(write_end for _, write_end in pipes.values())):
                os.close(descriptor)
        group = memory_group(process.pid)
        managed = ManagedProcess(name, process, mark, held, ending, group, oom_counts(group))
        self._running[name] = managed
        self._send({"event": "started", "role": name, "pid": process.pid})
        readers = {stream: reader for stream, (reader, _) in pipes.items()}
        managed.watching = asyncio.create_task(self._watch(managed, readers))

    def signal(self, names: Sequence[str], number: int) -> None:
        for name in names:
            if name in self._running:
                self._running[name].killed |= number == signal.SIGKILL
                signal_group(self._running[name].process.pid, number)

    def hindrances(self) -> dict[str, str]:
        """What keeps roles from running: stopped, swapped out, waiting for a device. Takes a moment."""
        found = {name: hindrance(managed.process.pid) for name, managed in list(self._running.items())}
        return {name: text for name, text in found.items() if text}

    async def end(self, names: Sequence[str] | None = None, grace_s: float = GRACE_S) -> None:
        """SIGTERM, wait, SIGKILL. None of these roles (default: all) is alive when this returns."""
        ending = [self._running[name] for name in list(self._running) if names is None or name in names]
        for managed in ending:
            signal_group(managed.process.pid, signal.SIGTERM)
        watching = [managed.watching for managed in ending if managed.watching is not None]
        if watching:
            _, late = await asyncio.wait(watching, timeout=grace_s)
            if late:
                for managed in ending:
                    if not managed.watching or not managed.watching.done():
                        managed.killed = True
                        signal_marked(managed.mark)
                        signal_group(managed.process.pid, signal.SIGKILL)
                await asyncio.wait(watching)
        if names is None:
            while signal_marked(f"{self._token}/"):
                await asyncio.sleep(0.02)

    async def _watch(self, managed: ManagedProcess, streams: Mapping[str, asyncio.StreamReader]) -> None:
        process = managed.process
        forwarding = [
            asyncio.create_task(self._forward(managed.name, stream, reader)) for stream, reader in streams.items()
        ]
        code = await process.wait()
        os.close(managed.lifeline)
        signal_group(process.pid, signal.SIGKILL)  # children in its group
        while signal_marked(managed.mark):  # children that left its group
            await asyncio.sleep(0.02)
        if forwarding:
            _, late = await asyncio.wait(forwarding, timeout=_DRAIN_S)
            for task in late:
                task.cancel()
        if self._running.get(managed.name) is managed:
            del self._running[managed.name]
        self._send({"event": "exit", "role": managed.name, "code": code, **_about_end(managed, code)})

    async def _forward(self, name: str, stream: str, reader: asyncio.StreamReader) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        while chunk := await reader.read(CHUNK_BYTES):
            text = decode(chunk)
            if text:
                self._send({"event": "output", "role": name, "stream": stream, "text": text})

    async def run_shell(self, command: str, cwd: str | None) -> tuple[int, str]:
        """Run a shell command of the user to its end. Returns its exit code and its output."""
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", command),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env={**os.environ, MARK: f"{self._token}/setup"},
            cwd=cwd,
            start_new_session=True,
        )
        printed, _ = await process.communicate()
        return process.returncode or 0, printed.decode(errors="replace")


def _about_end(managed: ManagedProcess, code: int) -> Message:
    """What is known about the end of a process: what it left, and whether the kernel killed it for want of memory."""
    left = take_ending(managed.ending) if managed.ending is not None else {}
    about: Message = {"ending": left} if left else {}
    if code == -signal.SIGKILL and not managed.killed:
        kills = oom_counts(managed.group).kills_since(managed.oom_before)
        limit = managed.group.limit_mb() if managed.group is not None else None
        limited = f", memory limit {limit:,.0f} MB" if limit is not None else ""
        if kills:
            about["why"] = f"the kernel's OOM killer ran on {platform.node()} ({kills}{limited})"
    return about
