"""Named parts of a step that a profiler sees. While none is on, a scope is one look at a variable."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class Recorder(Protocol):
    """What hears of scopes while it is on."""

    def scope(self, name: str) -> AbstractContextManager[Any]:
        """Around a part of a step, or a call of native code."""
        ...

    def layer(self, module: object) -> AbstractContextManager[Any]:
        """Around the work of a module that is computed without calling it."""
        ...


class _Listening:
    recorder: Recorder | None = None


_NOTHING = nullcontext()


def record_with(recorder: Recorder | None) -> None:
    """From now on this process's scopes go to the recorder; None: to nobody."""
    _Listening.recorder = recorder


def scope(name: str) -> AbstractContextManager[Any]:
    """Around a part of a step, or a call of native code."""
    recorder = _Listening.recorder
    return _NOTHING if recorder is None else recorder.scope(name)


def layer(module: object) -> AbstractContextManager[Any]:
    """Around the work of a module that is computed without calling it, such as a fused batch norm."""
    recorder = _Listening.recorder
    return _NOTHING if recorder is None else recorder.layer(module)
