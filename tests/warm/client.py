"""Has subprocess ask a warm process for a fork, where that gives the same process."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RELAY = "tests.warm.relay"

# Read once, when Python or a library is loaded. A process that has other values of these starts afresh.
_READ_AT_START = (
    *("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "TZ", "PHALANX_CPU", "PHALANX_COLD"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ATEN_", "DNNL_", "ONEDNN_", "TORCH_", "PYTORCH_", "CUDA_"),
)
# Libraries set the first one in the process that imports them; it is about Intel's OpenMP, which torch does not use
# here. The second, which torchrun sets, can be followed later (tests/warm/server.py).
_NO_MATTER = frozenset({"KMP_DUPLICATE_LIB_OK", "OMP_NUM_THREADS"})
_ANSWER_S = 300.0
_start_afresh = subprocess.Popen._execute_child  # type: ignore[attr-defined]


class WarmProcess:
    """The other end of a server (tests/warm/server.py). `environment` is what it was started with."""

    def __init__(self, connection: socket.socket, environment: Mapping[str, str]) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._started_with = at_start(environment)
        connection.settimeout(_ANSWER_S)

    def fits(self, environment: Mapping[str, str]) -> bool:
        return at_start(environment) == self._started_with

    def fork(self, request: dict[str, Any], streams: Sequence[int]) -> int | None:
        """The new process's id, or None if the server is gone. No answer in time is an error."""
        with self._lock:
            try:
                socket.send_fds(self._connection, [json.dumps(request).encode()], streams)
                answer = self._connection.recv(64)
            except ConnectionError:
                return None
        return int(answer) if answer else None


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that must be the same."""
    names = (name for name in environment if name.startswith(_READ_AT_START))
    return {name: environment[name] for name in names if name not in _NO_MATTER}


def start_server(started_with: Mapping[str, str]) -> WarmProcess:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        # No threads of OpenBLAS: they would be missing after a fork.
        environment = {**started_with, "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.warm.server", str(theirs.fileno())]
        subprocess.Popen(command, env=environment, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    return WarmProcess(ours, started_with)


class _Hook:
    """Starts the server when the first process is to be forked."""

    def __init__(self, server: WarmProcess | None) -> None:
        self.server, self.owner = server, os.getpid()
        self.started_with = dict(os.environ)  # not what the first test that needs a server has changed

    def fork(self, request: dict[str, Any], streams: Sequence[int]) -> int | None:
        if os.getpid() != self.owner:  # a fork of this process, such as multiprocessing makes: it has no server
            return None
        if self.server is None:
            self.server = start_server(self.started_with)
        return self.server.fork(request, streams) if self.server.fits(request["environment"]) else None


_installed: _Hook | None = None


def started_with() -> dict[str, str]:
    """The environment when `install` was called."""
    return dict(os.environ) if _installed is None else _installed.started_with


def start_inside(init: int, folder: Path, log: int) -> int | None:
    """Start a relay (tests/warm/relay.py) on the host whose first process this is. None where processes start afresh.

    Returns the id of a child process that ends with the relay.
    """
    if _installed is None:
        return None
    request: dict[str, Any] = {"argv": [sys.executable, "-m", RELAY, str(folder)], "environment": started_with()}
    request |= {"cwd": str(ROOT), "new_session": True, "cores": sorted(os.sched_getaffinity(0)), "host": init}
    with open(os.devnull) as nothing:  # noqa: PTH123
        return _installed.fork(request, [nothing.fileno(), log, log])


def install(server: WarmProcess | None = None) -> None:
    """From now on, processes that this one starts are forked from a server where that gives the same process."""
    if sys.platform != "linux" or os.environ.get("PHALANX_COLD") == "1":
        return
    global _installed
    hook = _installed = _Hook(server)

    def execute_child(process: "subprocess.Popen[Any]", *given: Any) -> None:
        (args, executable, preexec_fn, close_fds, pass_fds, cwd, env, _, _, shell) = given[:10]
        pipes, (_, gid, gids, uid, umask, new_session, group) = given[10:16], given[16:]
        environment = os.environ if env is None else env
        plain = close_fds and not (executable or preexec_fn or pass_fds or shell or gid or gids or uid)
        if plain and umask < 0 and group < 0 and is_ours(args) and all(isinstance(name, str) for name in environment):
            words = [os.fspath(word) for word in args]
            folder = os.getcwd() if cwd is None else os.path.join(os.getcwd(), os.fspath(cwd))  # noqa: PTH118, PTH109
            request = {"argv": words, "environment": dict(environment), "cwd": folder, "new_session": new_session}
            request["cores"] = sorted(os.sched_getaffinity(0))
            streams = [end if end != -1 else number for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
            pid = hook.fork(request, streams) if os.path.isdir(folder) else None  # noqa: PTH112
            if pid is not None:
                process.pid, process._child_created = pid, True  # type: ignore[attr-defined]
                process._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
                return
        _start_afresh(process, *given)

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


def is_ours(args: Any) -> bool:
    """`python -m phalanx…`, `python FILE.py`, torchrun or the kernel of a notebook, by this interpreter."""
    if not isinstance(args, (list, tuple)) or args[0] != sys.executable:
        return False
    words = [os.fspath(word) for word in args[1:4] if word != "-u"]
    if words[:1] == ["-m"]:
        return words[1].split(".")[0] in ("phalanx", "torch", "ipykernel_launcher") or words[1] == RELAY
    return bool(words) and words[0].endswith(".py")
