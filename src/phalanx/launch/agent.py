"""The agent: one small process on each host of a job. It runs the supervisor's requests there.

It reads requests from its standard input and writes events to its standard output, over ssh, srun, qrsh or a pipe. When
the input ends, or no request arrives for a while (a cut network, a closed laptop), it ends its roles and itself.
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
from phalanx.launch.messages import (
    LAUNCHER_SILENCE_S,
    LINE_BYTES,
    ORPHAN_GRACE_S,
    PING_S,
    PROTOCOL,
    Message,
    decode,
    encode,
)
from phalanx.launch.process_manager import ProcessManager
from phalanx.launch.run_files import marker, read_chunk, refuse_taken, saved_checkpoint, verify_step, write_chunk
from phalanx.machine.ending import ENDING
from phalanx.machine.processes import adopting_orphans, run_loop
from phalanx.machine.system import SystemMeter
from phalanx.net.code import digest_here, version_here
from phalanx.net.listeners import JOB_FOLDER
from phalanx.runs.checkpoint import FOLDER
from phalanx.runs.rewind import put_aside_after

_SLOW = ("prepare", "verify", "end", "inspect", "set aside", "read", "write")  # also what waits for a disk
RECORD = "job.json"  # in the run folder on the launching host


class Agent:
    """Runs requests and sends events: in a process of its own, or inside a local launcher."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._processes = ProcessManager(send)
        self._cwd: str | None = None
        self._run: Path | None = None
        self._folder: Path | None = None
        self._ports: dict[str, socket.socket] = {}
        self._groups = 0
        self._variables: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._meter = SystemMeter()

    def hello(self) -> None:
        """Send this host's version, code digest, clock and address, for the supervisor's checks."""
        connection = os.environ.get("SSH_CONNECTION", "").split()
        self._send(
            {
                "event": "hello",
                "protocol": PROTOCOL,
                "version": version_here(),
                "digest": digest_here(),
                "python": platform.python_version(),
                "executable": sys.executable,
                "hostname": socket.gethostname(),
                "clock": time.time(),
                "pid": os.getpid(),
                "address": connection[2] if len(connection) == 4 else None,
            }
        )

    async def handle(self, message: Message) -> None:
        """Run a request. Slow ones run in the background, so that the agent still answers pings."""
        work = self._handle(message)
        if message.get("request") in _SLOW:
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            await work

    async def _handle(self, message: Message) -> None:
        """Errors that a user can fix become events. They never end the agent."""
        try:
            match message.get("request"):
                case "ping":
                    self._send({"event": "pong", "system": self._meter.read_host()})
                case "prepare":
                    await self._prepare(message)
                case "listen":
                    self._listen(
                        message["names"], message["files"], message["peers"], message["iface"], message["ports"]
                    )
                case "start":
                    await self._start(message)
                case "inspect":
                    self._send({"event": "inspected", "roles": await asyncio.to_thread(self._processes.hindrances)})
                case "signal":
                    self._processes.signal(message["roles"], message["signal"])
                case "end":
                    await self.end(message["grace_s"], message["roles"])
                    self._send({"event": "ended"})
                case "checkpoint":
                    self._send({"event": "checkpoint", "saved": saved_checkpoint(self._run_here(), message["step"])})
                case "verify":
                    await asyncio.to_thread(verify_step, self._run_here(), message["step"])
                    self._send({"event": "verified"})
                case "set aside":
                    await asyncio.to_thread(
                        put_aside_after, self._run_here() / FOLDER, message["after"], message["when"]
                    )
                    self._send({"event": "set aside"})
                case "marker":
                    exists = marker(self._run_here(), message["name"], message["action"])
                    self._send({"event": "marker", "exists": exists})
                case "read":
                    chunk = await asyncio.to_thread(read_chunk, self._run_here(), message["path"], message["offset"])
                    self._send({"event": "chunk", "path": message["path"], "offset": message["offset"], "bytes": chunk})
                case "write":
                    await asyncio.to_thread(
                        write_chunk, self._run_here(), message["path"], message["offset"], message["bytes"]
                    )
                    self._send({"event": "written"})
        except UserError as error:
            self._send({"event": "error", "what": error.what, "why": error.why, "remedy": error.remedy})
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError) as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            remedy = "check that the launcher and this host have the same version"
            what = f"the request {str(message.get('request'))[:80]} cannot be used"
            self._send({"event": "error", "what": what, "why": why, "remedy": remedy})
        except OSError as error:
            why = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
            remedy = "free disk space or fix the permissions there, or choose another folder with --out"
            self._send({"event": "error", "what": f"{message['request']} failed", "why": why, "remedy": remedy})
        except Exception as error:  # no thread, no memory: in a task it would be lost, and the launcher would wait
            why = f"{type(error).__name__}: {str(error)[:200]}"
            remedy = "check that this host has memory left, and that its limits of processes and memory are not reached"
            self._send({"event": "error", "what": f"{message['request']} failed", "why": why, "remedy": remedy})

    async def end(self, grace_s: float, roles: Sequence[str] | None = None) -> None:
        """End these roles; by default all roles, and clean up."""
        await self._processes.end(roles, grace_s)
        if roles is None:
            for held in self._ports.values():
                held.close()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    async def _prepare(self, message: Message) -> None:
        """Make the folders, and run the user's set-up command."""
        self._run = Path(message["run"])
        if message["cwd"] is not None:  # the launching shell's folder, if this host has it
            self._cwd = str(Path(message["cwd"] if Path(message["cwd"]).is_dir() else ".").absolute())
            self._run = self._cwd / self._run
        shared = marker(self._run, message["marker"], "check")
        if message["new_run"] and not shared:
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
        self._send({"event": "ready", "run": str(self._run), "shared": shared})

    def _listen(
        self, names: list[str], files: list[str], peers: list[str], interface: str | None, ports: list[int] | None
    ) -> None:
        """Choose addresses for this host's roles: files, TCP ports, or if the job has one host Unix sockets."""
        assert self._folder is not None
        address, found = own_address(peers, interface)
        named = [name for name in names if name in files]
        unix = [name for name in names if not peers and not ports and name not in named]
        tcp = [name for name in names if name not in (*named, *unix)]
        for held in self._ports.values():
            held.close()
        sockets = hold_ports(address, len(tcp), (ports[0], ports[1]) if ports else None)
        self._ports = dict(zip(tcp, sockets, strict=True))
        addresses = {name: f"ipc://{self._folder}/{name}" for name in unix}
        self._groups += 1  # a new group needs a new store
        addresses |= dict.fromkeys(named, f"file://{self._folder}/store-{self._groups}")
        for name, held in self._ports.items():
            endpoint = join_address(address, held.getsockname()[1])
            addresses[name] = endpoint if name == "master" else f"tcp://{endpoint}"
        self._send({"event": "listening", "addresses": addresses, "iface": found})

    async def _start(self, message: Message) -> None:
        for name in message["release_ports"]:  # held until now, so that no other program took them
            if name in self._ports:
                self._ports.pop(name).close()
        assert self._folder is not None  # only its owner can open it: inputs contain the job's key
        path = self._folder / f"{message['role']}.json"
        path.write_text(json.dumps(message["input"]), encoding="utf-8")
        ending = path.with_suffix(ENDING)
        ending.unlink(missing_ok=True)
        local = {"python": sys.executable, "input": str(path)}
        argv = [word if isinstance(word, str) else local[word["local"]] for word in message["argv"]]
        variables = {**self._variables, **message["environment"], JOB_FOLDER: str(self._folder)}
        await self._processes.start(
            message["role"], argv, variables, self._cwd, terminal=message["terminal"], ending=ending
        )

    def _run_here(self) -> Path:
        assert self._run is not None
        return self._run


def main() -> None:
    """Run the agent as a process. Only events go to standard output; other output goes to standard error."""
    output, requests = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with adopting_orphans():
        run_loop(_serve(requests, output))


async def _serve(requests: int, output: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(requests, "rb", 0))
    writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(output, "wb", 0))
    agent = Agent(lambda message: writer.write(encode(message)))
    agent.hello()
    await serve_until_end(agent, receive(reader.readline, agent, LAUNCHER_SILENCE_S))
    writer.close()


async def serve_until_end(agent: Agent, receiving: Coroutine[Any, Any, None]) -> None:
    """Serve until no more requests come, or a signal arrives. All roles of the agent have ended then."""
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored if the supervisor handles it, see `ignore_signals`
            loop.add_signal_handler(number, signalled.set)
    requests = asyncio.create_task(receiving)
    stopped = asyncio.create_task(signalled.wait())
    await asyncio.wait([requests, stopped], return_when=asyncio.FIRST_COMPLETED)
    requests.cancel()
    await agent.end(ORPHAN_GRACE_S)


async def receive(next_line: Callable[[], Awaitable[bytes]], agent: Agent, silence_s: float) -> None:
    """Handle requests until the supervisor sends "bye", closes the connection, or is silent for too long."""
    while True:
        try:
            line = await _within(next_line(), silence_s)
        except (TimeoutError, ConnectionError, ValueError):
            sys.stderr.write(f"phalanx agent: no message from the launcher for {silence_s:g} s; ending\n")
            return
        message = decode(line)
        if not line or (message is not None and message.get("request") == "bye"):
            return
        if message is not None:
            await agent.handle(message)


async def _within(reading: Awaitable[bytes], silence_s: float) -> bytes:
    """The line, if it comes in time. What this process itself stood still does not count: lines may wait."""
    line, silent_s = asyncio.ensure_future(reading), 0.0
    try:
        while silent_s < silence_s:
            looked = time.monotonic()
            await asyncio.wait([line], timeout=PING_S)
            if line.done():
                return line.result()
            silent_s += min(PING_S, time.monotonic() - looked)
        raise TimeoutError
    finally:
        line.cancel()
