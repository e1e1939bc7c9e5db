"""The limit of open files: raised where the system lets us, and no error where it does not."""

import resource

import pytest

from phalanx.machine.open_files import allow_many_files


def test_a_system_that_refuses_more_open_files_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(kind: int, limits: tuple[int, int]) -> None:  # as macOS does beyond kern.maxfilesperproc
        asked.append(limits)
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    allow_many_files()
    assert asked
