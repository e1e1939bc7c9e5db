"""`phalanx doctor`: versions, the machine, the settings chosen for it, and whether each part works."""

import os
import platform
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text

from phalanx import __version__
from phalanx.commands.checks import Finding, Missing, required_versions, run_checks
from phalanx.config.schema import MachineConfig
from phalanx.engine.step_cost import NAME, WORTH_TIMING
from phalanx.errors import EXIT_OURS
from phalanx.machine.cores import cores
from phalanx.machine.settings import WORTH_THREADS, Settings, choose
from phalanx.machine.timings import path_of, read_timings
from phalanx.native.features import SWITCH, believed_level, cpu_features
from phalanx.observe.tables import print_line, print_rows
from phalanx.runs.folder import machine

_STYLES = {"ok": "green", "missing": "yellow", "failed": "bold red"}


def examine(console: Console) -> int:
    """Print what a bug report should contain. Returns 1 if a required part is broken."""
    heading(console, "versions")
    print_rows(console, versions_here())
    heading(console, "machine")
    print_rows(console, _machine())
    heading(console, "settings chosen for it")
    settings = choose(MachineConfig())
    print_rows(console, {name: str(decision) for name, decision in settings.decisions.items()} | _by_model(settings))
    heading(console, "parts")
    trouble = False
    for finding in run_checks():
        _print_finding(console, finding)
        trouble = trouble or finding.is_trouble
    if trouble:
        console.print(Text("something that Phalanx requires does not work: see the lines above", style="bold"))
    return EXIT_OURS if trouble else 0


def _by_model(settings: Settings) -> dict[str, str]:
    """What a run chooses by its model, beyond what the machine says."""
    if settings.device.type != "cpu":
        return {}
    rows = {}
    if settings.dtype == torch.bfloat16:
        known = sum(isinstance(each, dict) for each in read_timings(NAME).values())
        rows["precision of a run"] = (
            f"a micro-batch of {WORTH_TIMING / 1e9:.0f} GFLOP or more is timed in bf16 and fp32, and the faster "
            f"is taken ({known} timed so far, in {path_of(NAME)})"
        )
    if settings.threads > 1:
        rows["threads of a run"] = f"1 where a micro-batch has less than {WORTH_THREADS / 1e9:.2g} GFLOP"
    return rows


def heading(console: Console, text: str) -> None:
    """Print the title of some rows."""
    console.print(Text(text, style="bold"))


def versions_here() -> dict[str, str]:
    """Versions of Phalanx, Python and what it requires."""
    try:
        required = required_versions()
    except Missing:  # the check of packages names it
        required = {}
    # torch also knows its CUDA version
    return {"phalanx": __version__, "python": sys.version.split()[0], **required, "torch": torch.__version__}


def _machine() -> dict[str, str]:
    here = machine()
    level = believed_level()
    present = ", ".join(cpu_features()) or "none of those that matter for training"
    rows = {
        "system": f"{here['system']}, {' '.join(platform.libc_ver())}".rstrip(", "),
        "CPU": here["cpu"],
        "cores": f"{cores()} of {os.cpu_count()} may be used",
        "instructions": present if level is None else f"{present} ({SWITCH}={level})",
        "memory": _memory(),
    }
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        rows[f"cuda:{number}"] = f"{about.name}, {about.total_memory / 1e9:.1f} GB"
    if torch.backends.mps.is_available():
        rows["mps"] = "Apple GPU"
    return rows


def _memory() -> str:
    """Total and free memory of the machine; and the container's limit, if that is less."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB"
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    total, free = (1024 * kilobytes.get(name, 0) for name in ("MemTotal", "MemAvailable"))
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no container, or one without a limit
        limit = total
    limited = f"; this container may use {limit / 1e9:.1f} GB" if limit < total else ""
    return f"{total / 1e9:.1f} GB, {free / 1e9:.1f} GB free{limited}"


def _print_finding(console: Console, finding: Finding) -> None:
    needed = ", required" if finding.is_trouble else ""
    if not console.is_terminal:
        print_line(console, f"{finding.status}: {finding.name}{needed}: {finding.detail}")
        return
    mark = Text(f"{finding.status:8}", style=_STYLES[finding.status])
    console.print(mark + Text(f"{finding.name}{needed}: {finding.detail}"), soft_wrap=True)
