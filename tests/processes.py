"""Processes for tests, forked from one that has imported what all of them need: starting one takes no seconds."""

import multiprocessing as mp
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

_context = mp.get_context("forkserver")
_imported: list[str] = []


def preload(*modules: str) -> None:
    """Have these modules imported before the first process is forked. Called where a test module is imported."""
    _imported.extend(name for name in modules if name not in _imported)
    _context.set_forkserver_preload(_imported)


def start(main: Callable[..., object], *arguments: Any) -> ForkServerProcess:
    process = _context.Process(target=main, args=arguments)
    process.start()
    return process
