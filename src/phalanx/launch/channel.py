"""A channel to one host's agent: messages out, messages in, and word of its end. Remote looks local."""

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

_KEPT_LINES = 20


@dataclass(frozen=True)
class Loss:
    """The line to an agent is gone: the carrier's exit code, and the last that it printed."""

    code: int | None
    printed: tuple[str, ...] = ()


class Channel(Protocol):
    def send(self, message: Message) -> None: ...

    async def close(self) -> None:
        """Nothing more will be said. Returns when the other side is gone."""
        ...

    def cut(self) -> None:
        """Let go at once of an agent that does not answer."""
        ...


class ProcessChannel:
    """An agent at the far end of a command: ssh and its like."""

    def __init__(self, hear: Callable[[Message], None], lose: Callable[[Loss], None]) -> None:
        self._hear, self._lose = hear, lose
        self._printed: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process: Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self, argv: Sequence[str]) -> None:
        """Start the command. It has a session of its own: a Ctrl-C is not for it."""
        complaints, errors = await readable_pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *argv, stdin=PIPE, stdout=PIPE, stderr=errors, limit=LINE_BYTES, start_new_session=True
            )
        except OSError as error:
            self._lose(Loss(None, (f"{argv[0]}: {error.strerror or error}",)))
            return
        finally:
            os.close(errors)
        self._listening = asyncio.create_task(self._listen(self._process, complaints))

    def send(self, message: Message) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(encode(message))

    async def close(self) -> None:
        self._closing = True
        process = self._process
        if process is None or process.stdin is None:
            return
        self.send({"do": "bye"})
        process.stdin.close()
        if self._listening is not None:
            await self._listening

    def cut(self) -> None:
        self._closing = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _listen(self, process: Process, complaints: asyncio.StreamReader) -> None:
        assert process.stdout is not None
        complaining = asyncio.create_task(self._complaints(complaints))
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await process.stdout.readline():
                message = decode(line)
                if message is not None and "say" in message:
                    self._hear(message)
                else:
                    self._note(line)
        code = await process.wait()
        await asyncio.wait([complaining], timeout=1.0)  # something that it left running may hold its errors open
        complaining.cancel()
        if not self._closing:
            self._lose(Loss(code, tuple(self._printed)))

    async def _complaints(self, stream: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await stream.readline():
                self._note(line)

    def _note(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()
        if text:
            self._printed.append(text[:500])


class InProcessChannel:
    """The agent of this machine, inside this process: a local job needs no other."""

    def __init__(self, hear: Callable[[Message], None]) -> None:
        self._loop = asyncio.get_running_loop()

        def say(message: Message) -> None:
            self._loop.call_soon(hear, message)

        self._agent = Agent(say)
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._agent.hello()
        self._taking = asyncio.create_task(self._take())

    def send(self, message: Message) -> None:
        self._queue.put_nowait(message)

    async def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        self._taking.cancel()

    async def _take(self) -> None:
        while True:
            await self._agent.take(await self._queue.get())
