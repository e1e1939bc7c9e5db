"""What a run prints when it starts: six lines on the screen; everything else in log.txt, and with --verbose."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from phalanx.config.role import Environment, Role
from phalanx.config.schema import RunConfig
from phalanx.observe.tables import print_line, print_rows, print_text
from phalanx.runs.events import Start

BATCH = "batch"  # the decision that a step has fewer samples than were asked for
VERBOSE = "PHALANX_VERBOSE"  # in the environment, so that every process of a job inherits it


def is_verbose(environment: Environment = os.environ) -> bool:
    """Whether the screen shows all lines."""
    return environment.get(VERBOSE, "0") not in ("", "0")


@dataclass(frozen=True)
class StartUp:
    """The lines of a run's start, by name."""

    essentials: dict[str, str]  # the six
    details: dict[str, str]
    notes: Sequence[str]  # about the data
    warnings: Sequence[str]

    def print_to(self, console: Console, *, verbose: bool) -> None:
        """The six lines, notes and warnings; with `verbose` the details too."""
        print_rows(console, {**self.essentials, **(self.details if verbose else {})}, bold=("run",))
        _print_messages(console, "note", self.notes, "dim")
        _print_messages(console, "warning", self.warnings, "yellow")

    def text(self) -> str:
        """All lines, for log.txt."""
        rows = {**self.essentials, **self.details}
        lines = [f"{name}: {value}" for name, value in rows.items()]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def describe_start(
    start: Start,
    config: RunConfig,
    role: Role,
    *,
    folder: str,
    peak_lr: float,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
    log_notes: Sequence[str] = (),
) -> StartUp:
    """The lines about a run: `notes` and `warnings` are shown, `log_notes` are details."""
    decisions = start.decisions
    epochs = start.total_steps / start.steps_per_epoch
    essentials = {
        "run": f"{config.name}, {_count(epochs, 'epoch')} = {_count(start.total_steps, 'step')}",
        "data": f"{start.data}; {start.val_samples:,} for validation; {start.classes} classes",
        "model": f"{start.model}, {start.parameters:,} parameters",
        **_epoch(start, config),
        "batch": decisions.get(BATCH, f"{start.samples_per_step:,} samples a step")
        + _parts(start.samples_per_step, config, role.world),
        "device": f"{decisions['device']}, {decisions['precision']}",
        "folder": folder,
    }
    share = config.schedule.start_share(config.micro_batches)
    rates = f"peak rate {peak_lr:g}" + (f" (warm-up from {peak_lr * share:g})" if share else "")
    details = {
        "optimizer": f"{config.optim.name}, {rates}, {config.schedule.kind}, seed {config.train.seed}",
        "steps": f"{start.steps_per_epoch:,} an epoch",
        "updates": config.exchange.method,
        **({"worker": f"{role.name} of {role.world} on {platform.node()}"} if role.world > 1 else {}),
        **{name: decision for name, decision in decisions.items() if name not in ("device", BATCH)},
        **{f"note {number}": note for number, note in enumerate(log_notes, 1)},
    }
    return StartUp(essentials, details, notes, warnings)


def _epoch(start: Start, config: RunConfig) -> dict[str, str]:
    """How many samples an epoch has, where it is not each once."""
    if config.data.sampling == "shuffle":
        return {}
    there = start.epoch_samples or start.train_samples
    return {"epoch": f"{there:,} samples of {start.train_samples:,} images (data.sampling={config.data.sampling})"}


def _count(number: float, unit: str) -> str:
    written = f"{number:,}" if isinstance(number, int) else f"{number:.3g}"
    return f"{written} {unit}" + ("" if number == 1 else "s")


def _parts(samples: int, config: RunConfig, workers: int) -> str:
    """How a step's samples are divided: ` = 64 a micro-batch × 2 workers, collective updates`."""
    if config.micro_batches == workers == 1:
        return ""
    least, more = divmod(samples, config.micro_batches)
    each, uneven = divmod(config.micro_batches, workers)
    parts = [f"{least} or {least + 1} a micro-batch" if more else f"{least} a micro-batch"]
    if uneven:
        parts += [f"{config.micro_batches}, shared by {workers} workers"]
    else:
        parts += [f"{each} accumulated"] if each > 1 else []
        parts += [f"{workers} workers"] if workers > 1 else []
    return f" = {' × '.join(parts)}" + (f", {config.exchange.method} updates" if workers > 1 else "")


def _print_messages(console: Console, kind: str, messages: Sequence[str], style: str) -> None:
    for message in messages:
        if console.is_terminal:
            print_text(console, f"{kind}: {message}", style)
        else:
            print_line(console, f"{kind}: {message}")
