"""The agent: one small process on each host of a job, which does there what the conductor says.

It speaks on its standard input and output, whatever carries those: ssh, srun, qrsh, a pipe. When the input ends, or
nothing is heard for a while (a cut network, a closed laptop), it ends its roles and itself.
"""

import asyncio
import json
import os
import platform
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from phalanx.errors import UserError
from phalanx.launch.addresses import hold_ports, join_address, own_address
from phalanx.launch.code import digest_here, version_here
from phalanx.launch.messages import (
    LINE_BYTES,
    ORPHAN_GRACE_S,
    PROTOCOL,
    SILENCE_S,
    Message,
    decode,
    encode,
)
from phalanx.launch.process_manager import ProcessManager
from phalanx.launch.run_files import mark, read_piece, refuse_taken, saved_checkpoint, verify_step, write_piece
from phalanx.machine.processes import adopting_orphans, run_loop
from phalanx.runs.checkpoint import FOLDER
from phalanx.runs.rewind import put_aside_after

_AT_LENGTH = ("prepare", "verify", "end")
RECORD = "job.json"  # in the run's folder on the launching host


class Agent:
    """What the agent does, wherever it runs: the same in a process of its own and inside a local launcher."""

    def __init__(self, say: Callable[[Message], None]) -> None:
        self._say = say
        self._processes = ProcessManager(say)
        self._cwd: str | None = None
        self._run: Path | None = None
        self._folder: Path | None = None
        self._ports: dict[str, socket.socket] = {}
        self._variables: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def hello(self) -> None:
        """Who and where this is, for the conductor's checks."""
        reached = os.environ.get("SSH_CONNECTION", "").split()
        self._say(
            {
                "say": "hello",
                "protocol": PROTOCOL,
                "version": version_here(),
                "digest": digest_here(),
                "python": platform.python_version(),
                "executable": sys.executable,
                "hostname": socket.gethostname(),
                "clock": time.time(),
                "pid": os.getpid(),
                "address": reached[2] if len(reached) == 4 else None,
            }
        )

    async def take(self, message: Message) -> None:
        """Do what a message says. What takes long is left running, so that pings are answered meanwhile."""
        doing = self._do(message)
        if message["do"] in _AT_LENGTH:
            task = asyncio.create_task(doing)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            await doing

    async def _do(self, message: Message) -> None:
        """What a user can mend is reported, and never ends the agent."""
        try:
            match message["do"]:
                case "ping":
                    self._say({"say": "pong"})
                case "prepare":
                    await self._prepare(message)
                case "listen":
                    self._listen(message["names"], message["peers"], message["iface"], message["ports"])
                case "start":
                    await self._start(message)
                case "signal":
                    self._processes.signal(message["roles"], message["signal"])
                case "end":
                    await self.end(message["grace_s"], message["roles"])
                    self._say({"say": "ended"})
                case "saved":
                    self._say({"say": "saved", "saved": saved_checkpoint(self._run_here(), message["step"])})
                case "verify":
                    await asyncio.to_thread(verify_step, self._run_here(), message["step"])
                    self._say({"say": "verified"})
                case "put aside":
                    put_aside_after(self._run_here() / FOLDER, message["after"], message["when"])
                    self._say({"say": "put aside"})
                case "mark":
                    there = mark(self._run_here(), message["name"], message["how"])
                    self._say({"say": "marked", "there": there})
                case "get":
                    piece = read_piece(self._run_here(), message["path"], message["offset"])
                    self._say({"say": "piece", "bytes": piece})
                case "put":
                    write_piece(self._run_here(), message["path"], message["offset"], message["bytes"])
                    self._say({"say": "stored"})
        except UserError as error:
            self._say({"say": "trouble", "what": error.what, "why": error.why, "remedy": error.remedy})
        except OSError as error:
            why = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
            remedy = "make room or mend the permissions there, or choose another place with --out"
            self._say({"say": "trouble", "what": f"{message['do']} failed", "why": why, "remedy": remedy})

    async def end(self, grace_s: float, roles: Sequence[str] | None = None) -> None:
        """End these roles; by default all, and leave nothing behind."""
        await self._processes.end(roles, grace_s)
        if roles is None:
            for held in self._ports.values():
                held.close()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    async def _prepare(self, message: Message) -> None:
        """Folders, files that were sent along, and the user's set-up command."""
        self._run = Path(message["run"])
        if message["cwd"] is not None:  # where the launching shell is, if there is such a folder here
            self._cwd = str(Path(message["cwd"] if Path(message["cwd"]).is_dir() else ".").absolute())
            self._run = self._cwd / self._run
        shared = mark(self._run, message["mark"], "look")
        if message["fresh"] and not shared:
            refuse_taken(self._run)
        (self._run / "logs").mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="phalanx-"))
        self._variables = message["environment"]
        if message["setup"]:
            code, printed = await self._processes.run_shell(message["setup"], self._cwd)
            if code != 0:
                raise UserError(
                    f"--setup ended with code {code}",
                    why=" / ".join(printed.strip().splitlines()[-3:]) or "it printed nothing",
                    remedy="try the command by hand on that host",
                )
        self._say({"say": "ready", "run": str(self._run), "shared": shared})

    def _listen(self, names: Sequence[str], peers: list[str], interface: str | None, ports: list[int] | None) -> None:
        """Choose where roles of this host will listen: sockets in a folder where all are here, otherwise ports."""
        assert self._folder is not None
        address, found = own_address(peers, interface)
        inside = [name for name in names if not peers and not ports and name != "master"]
        outside = [name for name in names if name not in inside]
        for held in self._ports.values():
            held.close()
        sockets = hold_ports(address, len(outside), (ports[0], ports[1]) if ports else None)
        self._ports = dict(zip(outside, sockets, strict=True))
        places = {name: f"ipc://{self._folder}/{name}" for name in inside}
        for name, held in self._ports.items():
            place = join_address(address, held.getsockname()[1])
            places[name] = place if name == "master" else f"tcp://{place}"
        self._say({"say": "listening", "places": places, "address": address, "iface": found})

    async def _start(self, message: Message) -> None:
        for name in message["releases"]:  # held until now, so that nobody else took them
            if name in self._ports:
                self._ports.pop(name).close()
        assert self._folder is not None  # only its owner can open it: inputs have the job's key
        given = self._folder / f"{message['role']}.json"
        given.write_text(json.dumps(message["input"]), encoding="utf-8")
        own = {"python": sys.executable, "input": str(given)}
        argv = [word if isinstance(word, str) else own[word["own"]] for word in message["argv"]]
        variables = {**self._variables, **message["environment"]}
        await self._processes.start(message["role"], argv, variables, self._cwd, shown=message["shown"])

    def _run_here(self) -> Path:
        assert self._run is not None
        return self._run


def main() -> None:
    """The agent as a process. Nothing but messages goes to standard output: what else is printed goes to the errors."""
    spoken, heard = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with adopting_orphans():
        run_loop(_serve(heard, spoken))


async def _serve(heard: int, spoken: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(heard, "rb", 0))
    writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(spoken, "wb", 0))
    agent = Agent(lambda message: writing.write(encode(message)))
    agent.hello()
    await attend(agent, hear(reader.readline, agent))
    writing.close()


async def attend(agent: Agent, hearing: Coroutine[Any, Any, None]) -> None:
    """Until nothing more is to be heard, or a signal asks for the end; nothing of the agent's roles is alive then."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # a carrier may have said that the conductor sees to it
            loop.add_signal_handler(number, asked.set)
    listening = asyncio.create_task(hearing)
    stopped = asyncio.create_task(asked.wait())
    await asyncio.wait([listening, stopped], return_when=asyncio.FIRST_COMPLETED)
    listening.cancel()
    await agent.end(ORPHAN_GRACE_S)


async def hear(next_line: Callable[[], Awaitable[bytes]], agent: Agent) -> None:
    """Take messages until the conductor says goodbye, its end of the line closes, or nothing comes any more."""
    while True:
        try:
            line = await asyncio.wait_for(next_line(), SILENCE_S)
        except (TimeoutError, ConnectionError, ValueError):
            sys.stderr.write(f"phalanx agent: nothing heard for {SILENCE_S:g} s; ending\n")
            return
        message = decode(line)
        if not line or (message is not None and message.get("do") == "bye"):
            return
        if message is not None:
            await agent.take(message)
