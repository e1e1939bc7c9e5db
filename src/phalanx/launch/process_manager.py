"""The keeper of one host's roles: starts them, passes on what they print, ends them and all that they started."""

import asyncio
import codecs
import os
import secrets
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from phalanx.launch.messages import CHUNK_BYTES, GRACE_S, Message
from phalanx.machine.processes import MARK, readable_pipe, signal_group, signal_marked

_DRAIN_S = 1.0  # for the last words of a role whose grandchildren still hold its output open


@dataclass
class ManagedProcess:
    """A role that was started."""

    name: str
    process: Process
    mark: str
    lifeline: int  # this process's end of its standard input
    watching: "asyncio.Task[None] | None" = field(default=None, repr=False)


class ProcessManager:
    """`say` takes what there is to report: started, out, exit."""

    def __init__(self, say: Callable[[Message], None]) -> None:
        self._say = say
        self._token = secrets.token_hex(8)
        self._kept: dict[str, ManagedProcess] = {}

    async def start(
        self, name: str, argv: Sequence[str], variables: Mapping[str, str], cwd: str | None, *, shown: bool
    ) -> None:
        """One process, the leader of a session of its own. With `shown` it writes to our own screen itself.

        Its standard input is a lifeline: when this process dies, however it dies, the pipe ends and the role with it.
        """
        mark = f"{self._token}/{name}/"  # a mark is known by how it begins: trainer-1 is not trainer-10
        pipes = {} if shown else {stream: await readable_pipe() for stream in ("out", "err")}
        lifeline, held = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=lifeline,
                stdout=pipes["out"][1] if pipes else None,
                stderr=pipes["err"][1] if pipes else None,
                env={**os.environ, **variables, "PHALANX_LIFELINE": "stdin", MARK: mark},
                cwd=cwd,
                start_new_session=True,  # a Ctrl-C reaches the launcher alone, which passes it on once
            )
        except OSError as error:
            os.close(held)
            self._say({"say": "exit", "role": name, "code": 127, "why": f"{argv[0]}: {error.strerror or error}"})
            return
        finally:
            for descriptor in (lifeline, *(writing for _, writing in pipes.values())):
                os.close(descriptor)
        kept = self._kept[name] = ManagedProcess(name, process, mark, held)
        self._say({"say": "started", "role": name, "pid": process.pid})
        readers = {stream: reader for stream, (reader, _) in pipes.items()}
        kept.watching = asyncio.create_task(self._watch(kept, readers))

    def signal(self, names: Sequence[str], number: int) -> None:
        for name in names:
            if name in self._kept:
                signal_group(self._kept[name].process.pid, number)

    async def end(self, names: Sequence[str] | None = None, grace_s: float = GRACE_S) -> None:
        """TERM, a grace, KILL: nothing of these roles (by default of all) is alive when this returns."""
        ending = [self._kept[name] for name in list(self._kept) if names is None or name in names]
        for kept in ending:
            signal_group(kept.process.pid, signal.SIGTERM)
        watching = [kept.watching for kept in ending if kept.watching is not None]
        if watching:
            _, late = await asyncio.wait(watching, timeout=grace_s)
            if late:
                for kept in ending:
                    if not kept.watching or not kept.watching.done():
                        signal_marked(kept.mark)
                        signal_group(kept.process.pid, signal.SIGKILL)
                await asyncio.wait(watching)
        if names is None:
            while signal_marked(f"{self._token}/"):
                await asyncio.sleep(0.02)

    async def _watch(self, kept: ManagedProcess, streams: Mapping[str, asyncio.StreamReader]) -> None:
        process = kept.process
        pumps = [asyncio.create_task(self._pump(kept.name, stream, reader)) for stream, reader in streams.items()]
        code = await process.wait()
        os.close(kept.lifeline)
        signal_group(process.pid, signal.SIGKILL)  # what it left in its group
        while signal_marked(kept.mark):  # and what left its group
            await asyncio.sleep(0.02)
        if pumps:
            _, late = await asyncio.wait(pumps, timeout=_DRAIN_S)
            for pump in late:
                pump.cancel()
        if self._kept.get(kept.name) is kept:
            del self._kept[kept.name]
        self._say({"say": "exit", "role": kept.name, "code": code})

    async def _pump(self, name: str, stream: str, reader: asyncio.StreamReader) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        while chunk := await reader.read(CHUNK_BYTES):
            text = decode(chunk)
            if text:
                self._say({"say": "out", "role": name, "stream": stream, "text": text})

    async def run_shell(self, command: str, cwd: str | None) -> tuple[int, str]:
        """A command of the user's for this host's shell, to its end: its exit code and what it printed."""
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
