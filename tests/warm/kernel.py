"""What a forked process needs of Linux in order to look as if it had been started: its parent, its command line."""

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_MM, _PR_SET_MM_MAP, _PR_GET_TID_ADDRESS = 35, 14, 40
_SYS_CLONE3 = 435  # the same on every architecture
_CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
# Where /proc/PID/stat has the addresses of the memory map below, counted from the field after the name.
_STAT_FIELDS = {"start_code": 23, "end_code": 24, "start_stack": 25, "start_data": 42, "end_data": 43, "start_brk": 44}


class _MemoryMap(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("start_code", "end_code", "start_data", "end_data", "start_brk", "brk")),
        *((name, ctypes.c_uint64) for name in ("start_stack", "arg_start", "arg_end", "env_start", "env_end", "auxv")),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    )


def fork_sibling() -> int:
    """fork(), but the new process is a child of this process's parent, which can then signal it and wait for it.

    This process may have no other threads: libraries are not told of this fork, as they are of fork().
    """
    python, tid = ctypes.pythonapi, ctypes.c_void_p()  # pythonapi keeps the interpreter's lock during a call
    _check(ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_TID_ADDRESS, ctypes.byref(tid), 0, 0, 0))
    flags = _CLONE_PARENT | _CLONE_CHILD_CLEARTID | _CLONE_CHILD_SETTID  # the last two as the C library's fork has them
    arguments = (ctypes.c_uint64 * 8)(flags, 0, tid.value or 0)
    python.syscall.restype = ctypes.c_long
    python.PyOS_BeforeFork()
    pid = int(python.syscall(ctypes.c_long(_SYS_CLONE3), arguments, ctypes.c_size_t(ctypes.sizeof(arguments))))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    _check(pid)
    return pid


def show_as(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have /proc show this command line and environment for this process. The memory is kept for good."""
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    told = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    start = int(libc.malloc(len(words) + len(told) + 1))
    ctypes.memmove(start, words + told, len(words) + len(told))
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    shown = _MemoryMap(**{name: int(fields[at]) for name, at in _STAT_FIELDS.items()}, exe_fd=0xFFFFFFFF)
    shown.brk = libc.sbrk(ctypes.c_long(0))
    shown.arg_start, shown.arg_end = start, start + len(words)
    shown.env_start, shown.env_end = shown.arg_end, start + len(words) + len(told)
    size = ctypes.c_ulong(ctypes.sizeof(shown))
    _check(libc.prctl(_PR_SET_MM, ctypes.c_ulong(_PR_SET_MM_MAP), ctypes.byref(shown), size, ctypes.c_ulong(0)))


def enter_namespaces(pid: int) -> None:
    """Enter the namespaces of another process: this process at once, and its children also that of processes."""
    kinds = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in ("uts", "net", "pid", "mnt")]
    for kind in kinds:
        _check(ctypes.CDLL(None, use_errno=True).setns(kind, 0))
        os.close(kind)


def _check(result: int) -> None:
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
