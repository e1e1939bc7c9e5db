"""A process that has imported what training needs, and forks itself on request: python -m tests.warm.server SOCKET."""

import atexit
import gc
import importlib
import io
import json
import os
import platform
import runpy
import signal
import socket
import sys
import tempfile
import threading
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.warm.client import WarmProcess, install
from tests.warm.kernel import enter_namespaces, fork_sibling, show_as

# Nothing that starts threads when it is imported, as scikit-learn does.
_IMPORTED = (
    *("torch", "torch.distributed", "torch.nn.parallel", "timm", "zmq", "rich.progress", "typer", "yaml"),
    *("phalanx.cli.main", "phalanx.api.start", "phalanx.launch.launchers.local"),
    *("phalanx.roles.run", "phalanx.roles.trainer", "phalanx.roles.server", "phalanx.roles.evaluator"),
    *("phalanx.roles.data_server",),
)


def serve(connection: socket.socket) -> dict[str, Any]:
    """Fork at each request. Returns the request in the new process, whose streams are then its own."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        if not message:  # whom this process served is gone
            os._exit(0)
        if fork_sibling() == 0:
            request: dict[str, Any] = json.loads(message)
            if "host" in request:
                enter_host(request["host"], connection)
            enter(request, streams)
            if "host" not in request:
                connection.send(str(os.getpid()).encode())
            connection.close()
            return request
        for descriptor in streams:
            os.close(descriptor)


def enter_host(init: int, connection: socket.socket) -> None:
    """Go on as a process of the lab host whose first process this is; its parent, outside, ends with it."""
    enter_namespaces(init)
    child = os.fork()
    if child == 0:
        return
    connection.send(str(os.getpid()).encode())
    connection.close()
    os.waitpid(child, 0)
    os._exit(0)


def enter(request: dict[str, Any], streams: Sequence[int]) -> None:
    """What happens between fork and exec elsewhere."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in streams:
        os.close(descriptor)
    if request["new_session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.sched_setaffinity(0, request["cores"])
    signal.signal(signal.SIGINT, signal.default_int_handler)


def words_of(request: dict[str, Any]) -> list[str]:
    """The module or file, and its arguments."""
    return [word for number, word in enumerate(request["argv"]) if number > 2 or word not in ("-u", "-m")][1:]


def begin(request: dict[str, Any]) -> None:
    """What Python does at its start."""
    argv, environment = request["argv"], request["environment"]
    os.environ.clear()
    os.environ.update(environment)
    show_as(argv, environment)
    unbuffered = argv[1] == "-u" or bool(environment.get("PYTHONUNBUFFERED"))
    sys.orig_argv[:] = argv
    sys.argv[:] = words_of(request)
    script = sys.argv[0].endswith(".py")
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent) if script else request["cwd"]
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), sys.stdin.encoding, sys.stdin.errors)
    sys.stdout = _writer(1, sys.stdout, lines=os.isatty(1), unbuffered=unbuffered)
    sys.stderr = _writer(2, sys.stderr, lines=True, unbuffered=unbuffered)
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    sys.modules["numpy"].random.seed()
    tempfile.tempdir = None  # asked for once, when torch is imported
    platform._uname_cache = None  # type: ignore[attr-defined]  # the host's name is another one there
    if threads := environment.get("OMP_NUM_THREADS"):
        sys.modules["torch"].set_num_threads(int(threads))


def _writer(number: int, like: Any, *, lines: bool, unbuffered: bool) -> io.TextIOWrapper:
    raw = io.FileIO(number, "w", closefd=False)
    if unbuffered:
        return io.TextIOWrapper(raw, like.encoding, like.errors, "\n", write_through=True)
    return io.TextIOWrapper(io.BufferedWriter(raw), like.encoding, like.errors, "\n", line_buffering=lines)


def run_file(path: Path) -> None:
    """As `python FILE`. runpy would change sys.argv."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    exec(compile(path.read_bytes(), path, "exec"), vars(module))


def fork_own_server(started_with: dict[str, str]) -> socket.socket | None:
    """Give this process a server of its own, forked while it is as good as new. In that one, returns its connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() != 0:
        theirs.close()
        install(WarmProcess(ours, started_with))
        return None
    ours.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)
    return theirs


def main(given: socket.socket) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who were forked
    started_with = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for name in _IMPORTED:
        importlib.import_module(name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a library has started threads"
    gc.collect()
    gc.freeze()  # the collector of a fork would touch, and so copy, every page
    connection: socket.socket | None = given
    while connection is not None:
        request = serve(connection)
        connection = None if words_of(request)[0] == "phalanx.roles" else fork_own_server(started_with)
    begin(request)
    program = words_of(request)[0]
    try:
        if program.endswith(".py"):
            run_file(Path.cwd() / program)
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        raise  # Python ends by the signal
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        end(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        end(1)
    end(0)


def end(code: int) -> NoReturn:
    """As Python ends, but no object is freed: that would copy all memory, and libraries tell of what cannot be."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        sys.exit(code)  # Python has an exit code for that
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
