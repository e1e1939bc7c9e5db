"""What was timed on this machine: files in the user's cache folder, so that all runs here choose alike."""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from phalanx.atomic import write_text_atomically
from phalanx.machine.cores import cpu_name
from phalanx.native.build import cache_folder
from phalanx.native.features import believed_level


def machine() -> str:
    """The machine that a choice is valid for."""
    level = believed_level()
    cpu = cpu_name() if level is None else f"{cpu_name()} as {level}"
    return f"{cpu}, {torch.get_num_threads()} threads, torch {torch.__version__}"


@contextlib.contextmanager
def timings(name: str) -> Iterator[dict[str, Any]]:
    """What is cached under this name; additions are saved. One process at a time: others wait, then find them."""
    try:
        path_of(name).parent.mkdir(parents=True, exist_ok=True)
        lock = path_of(name).with_suffix(".lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except (OSError, RuntimeError):  # no writable folder, no home, no locks: each process times for itself
        yield {}
        return
    with lock:
        cached = read_timings(name)
        before = dict(cached)
        yield cached
        if cached != before:
            with contextlib.suppress(OSError):  # a full disk costs the time again, and nothing else
                write_text_atomically(path_of(name), json.dumps(cached, indent=1))


def read_timings(name: str) -> dict[str, Any]:
    """What is cached under this name now; nothing where the file is missing or damaged."""
    with contextlib.suppress(OSError, RuntimeError, ValueError, TypeError):
        return dict(json.loads(path_of(name).read_text(encoding="utf-8")))
    return {}


def path_of(name: str) -> Path:
    """The file of a name."""
    return cache_folder().with_name(f"{name}.json")
