"""`phalanx selftest`: whether this machine's GPUs train as they should, in about two minutes, as a report to send.

Without a GPU the same checks run on the CPU: then they say little of the machine, and show that they work.
"""

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.text import Text

from phalanx.atomic import write_text_atomically
from phalanx.commands import selftest_checks as checks
from phalanx.commands.doctor import heading, versions_here
from phalanx.commands.doctor_gpu import gpu_rows
from phalanx.errors import EXIT_OURS, UserError
from phalanx.observe.tables import print_rows
from phalanx.runs.folder import machine

JSON_BELOW = "=== the same as JSON ==="
Status = Literal["ok", "failed", "left out"]
_STYLES: Mapping[Status, str] = {"ok": "green", "left out": "yellow", "failed": "bold red"}


@dataclass(frozen=True)
class Outcome:
    """What a check found: a sentence, and its numbers."""

    name: str
    status: Status
    text: str
    seconds: float
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        return f"{self.status}: {self.name}: {self.text}"


def selftest(console: Console, out: Path, device: str = "auto") -> int:
    """Run all checks and write the report. Returns 1 if one failed."""
    place = checks.choose_place(device)
    about = {**versions_here(), "machine": str(machine()["cpu"]), **gpu_rows()}
    heading(console, "machine")
    print_rows(console, about)
    where = "on " + str(place) if place.type == "cuda" else "on the CPU: no GPU is used, so this says nothing of one"
    heading(console, f"checks, {where}")
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="phalanx-selftest-") as folder:
        for name, check in checks.CHECKS.items():
            outcomes.append(_try(name, check, place, Path(folder)))
            shown = Text(outcomes[-1].line, style=_STYLES[outcomes[-1].status])
            console.print(shown if console.is_terminal else outcomes[-1].line, soft_wrap=True, highlight=False)
    _write(out, about, where, outcomes)
    console.print(Text(f"the report is in {out}: a text file with everything above, to read before you send it"))
    return EXIT_OURS if any(each.status == "failed" for each in outcomes) else 0


def _try(name: str, check: Callable[[torch.device, Path], checks.Found], place: torch.device, folder: Path) -> Outcome:
    begin = time.perf_counter()
    own = folder / name.replace(" ", "-")
    own.mkdir()
    try:
        text, numbers = check(place, own)
        status: Status = "ok"
    except checks.LeftOut as reason:
        text, numbers, status = str(reason), {}, "left out"
    except checks.Wrong as wrong:
        text, numbers, status = str(wrong), wrong.numbers, "failed"
    except Exception as error:  # a broken driver may raise anything, and the report is to have it
        text, numbers, status = f"{type(error).__name__}: {str(error).strip()[:500]}", {}, "failed"
    return Outcome(name, status, text, round(time.perf_counter() - begin, 2), numbers)


def _write(out: Path, about: dict[str, str], where: str, outcomes: list[Outcome]) -> None:
    lines = [f"phalanx selftest {where}", *(f"{name}: {value}" for name, value in about.items())]
    lines += [each.line for each in outcomes]
    data = {"where": where, "about": about, "checks": [vars(each) for each in outcomes]}
    try:
        write_text_atomically(out, "\n".join([*lines, "", JSON_BELOW, json.dumps(data, indent=1), ""]))
    except OSError as error:
        raise UserError(
            f"the report cannot be written to {out}",
            why=error.strerror or str(error),
            remedy="name another file: --out",
        ) from error
