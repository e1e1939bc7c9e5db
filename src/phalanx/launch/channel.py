"""Channels: send requests to one agent, receive its events, and learn when it is gone. Remote looks local."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from phalanx.launch.agent import Agent
from phalanx.launch.messages import LINE_BYTES, Message, decode, encode
from phalanx.machine.processes import readable_pipe

_LINES_SHOWN = 20


@dataclass(frozen=True)
class Disconnect:
    """The connection to an agent is gone: the exit code of ssh or its like, and the last lines that it printed."""

    code: int | None
    printed: tuple[str, ...] = ()


OnMessage = Callable[[Message], None]
OnDisconnect = Callable[[Disconnect], None]


class Channel(Protocol):
    def send(self, message: Message) -> None: ...

    async def close(self) -> None:
        """Tell the agent to end, and wait until it has."""
        ...

    def abort(self) -> None:
        """Drop the connection to an agent that does not answer."""
        ...


class ProcessChannel:
    """An agent at the other end of a command such as ssh."""

    def __init__(self, on_message: OnMessage, on_disconnect: OnDisconnect) -> None:
        self._on_message, self._on_disconnect = on_message, on_disconnect
        self._printed: deque[str] = deque(maxlen=_LINES_SHOWN)
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self, argv: Sequence[str]) -> None:
        """Start the command in its own session, so that a Ctrl-C does not reach it."""
        stderr, write_end = await readable_pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *argv, stdin=PIPE, stdout=PIPE, stderr=write_end, limit=LINE_BYTES, start_new_session=True
            )
        except OSError as error:
            self._on_disconnect(Disconnect(None, (f"{argv[0]}: {error.strerror or error}",)))
            return
        finally:
            os.close(write_end)
        self._reading = asyncio.create_task(self._read(self._process, stderr))

    def send(self, message: Message) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(encode(message))

    async def close(self) -> None:
        self._closing = True
        process = self._process
        if process is None or process.stdin is None:
            return
        self.send({"request": "bye"})
        process.stdin.close()
        if self._reading is not None:
            await self._reading

    def abort(self) -> None:
        self._closing = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _read(self, process: Process, stderr: asyncio.StreamReader) -> None:
        assert process.stdout is not None
        reading_errors = asyncio.create_task(self._read_errors(stderr))
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await process.stdout.readline():
                message = decode(line)
                if message is not None and "event" in message:
                    self._on_message(message)
                else:
                    self._remember(line)
        code = await process.wait()
        await asyncio.wait([reading_errors], timeout=1.0)  # a process that it left behind may hold stderr open
        reading_errors.cancel()
        if not self._closing:
            self._on_disconnect(Disconnect(code, tuple(self._printed)))

    async def _read_errors(self, stderr: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await stderr.readline():
                self._remember(line)

    def _remember(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()
        if text:
            self._printed.append(text[:500])


class InProcessChannel:
    """An agent inside the launcher, for jobs on this machine alone."""

    def __init__(self, on_message: OnMessage) -> None:
        self._loop = asyncio.get_running_loop()

        def send(message: Message) -> None:
            self._loop.call_soon(on_message, message)

        self._agent = Agent(send)
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._agent.hello()
        self._handling = asyncio.create_task(self._handle())

    def send(self, message: Message) -> None:
        self._queue.put_nowait(message)

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._handling.cancel()

    async def _handle(self) -> None:
        while True:
            await self._agent.handle(await self._queue.get())
