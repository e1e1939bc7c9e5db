import io

import pytest
from rich.console import Console

from phalanx.commands import checks
from phalanx.commands.checks import CHECKS, Check, Missing
from phalanx.commands.doctor import examine


def examined() -> tuple[int, list[str]]:
    said = io.StringIO()
    return examine(Console(file=said)), said.getvalue().splitlines()


def test_every_part_is_tried_and_what_is_required_works_here() -> None:
    code, lines = examined()
    found = {line.split(": ")[1]: line.split(": ")[0] for line in lines if line.split(": ")[0] in _STATUSES}
    assert set(found) == {check.name for check in CHECKS}
    assert all(found[check.name] == "ok" for check in CHECKS if check.required)
    assert found["gloo"] == "ok"
    assert code == 0
    for name in ("phalanx", "python", "torch", "timm", "CPU", "memory", "precision", "threads"):
        assert any(line.startswith(f"{name}: ") for line in lines), name


_STATUSES = ("ok", "missing", "failed")


def _absent() -> str:
    raise Missing("pip install it")


def _broken() -> str:
    raise RuntimeError("out of order\nwith details")


@pytest.mark.parametrize(
    ("attempt", "required", "code", "line"),
    [
        (_absent, False, 0, "missing: part: pip install it"),
        (_broken, False, 0, "failed: part: RuntimeError: out of order"),
        (_broken, True, 1, "failed: part, required: RuntimeError: out of order"),
    ],
)
def test_only_what_is_required_decides_about_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, attempt: object, required: bool, code: int, line: str
) -> None:
    monkeypatch.setattr(checks, "CHECKS", (Check("part", attempt, required),))  # type: ignore[arg-type]
    said = examined()
    assert said[0] == code
    assert line in said[1]


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "mine")
    gloo = next(check for check in CHECKS if check.name == "gloo")
    assert gloo.finding().status == "ok"
    assert os.environ["GLOO_SOCKET_IFNAME"] == "mine"
