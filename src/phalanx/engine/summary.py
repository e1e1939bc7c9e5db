"""The first and the last thing a run prints, and summary.json."""

import platform
import resource
from typing import Any

from rich.console import Console
from rich.text import Text

from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.engine.state import TrainState
from phalanx.engine.trainer import Trainer
from phalanx.observe.lines import accuracies, named
from phalanx.observe.tables import print_rows
from phalanx.optim.schedule import scaled_rate
from phalanx.runs import events as ev
from phalanx.runs.folder import RunFolder, machine, versions

_OF_EVALUATION = ("top1", "topk", "loss", "step", "metrics")


def header_rows(start: ev.Start, config: RunConfig, folder: RunFolder, role: Role) -> dict[str, str]:
    """What was decided, each with its reason."""
    workers = role.world
    rate = scaled_rate(config.optim.lr, config.optim.lr_per, start.samples_per_step)
    share = config.schedule.start_share(config.micro_batches)
    rates = f"peak rate {rate:g}" + (f" (warm-up from {rate * share:g})" if share else "")
    least, more = divmod(start.samples_per_step, config.micro_batches)
    each, uneven = divmod(config.micro_batches, workers)
    parts = [f"{least} or {least + 1} a micro-batch" if more else f"{least} a micro-batch"]
    if uneven:
        parts += [f"{config.micro_batches}, shared by {workers} workers"]
    else:
        parts += [f"{each} accumulated"] if each > 1 else []
        parts += [f"{workers} workers"] if workers > 1 else []
    return {
        "run": str(folder.path) if role.rank == 0 or role.run else "made and named by trainer-0, see what it prints",
        **({"worker": f"{role.name} of {workers} on {platform.node()}"} if workers > 1 else {}),
        "model": f"{start.model}, {start.parameters:,} parameters",
        "data": f"{start.data}; {start.val_samples:,} for validation; {start.classes} classes",
        "length": f"{start.total_steps:,} steps, {start.steps_per_epoch:,} an epoch",
        "batch": f"{start.samples_per_step} samples a step = {' × '.join(parts)}",
        "optimizer": f"{config.optim.name}, {rates}, {config.schedule.kind}, seed {config.train.seed}",
        "updates": config.exchange.method,
        **start.decisions,
        **{f"note {number}": note for number, note in enumerate(start.notes, 1)},
    }


def write_summary(
    folder: RunFolder, state: TrainState, trainer: Trainer, command: str, start: ev.Start, finished: bool
) -> dict[str, Any]:
    """summary.json, and the curves beside it."""
    last, best, times = trainer.last_eval, state.best, trainer.run_times
    busy = max(1e-9, times.data_s + times.compute_s + times.exchange_s + times.update_s)
    summary = {
        "finished": finished,
        "best": vars(best) if best else None,
        "last": {name: getattr(last, name) for name in _OF_EVALUATION} if last else None,
        "k": trainer.engine.k,
        "epochs": state.step / trainer.plan.steps_per_epoch,
        "steps": state.step,
        "samples_per_s": times.samples_per_s * trainer.exchange.group.share.world,
        "shares": {
            "data": times.data_s / busy,
            "compute": times.compute_s / busy,
            "exchange": times.exchange_s / busy,
            "update": times.update_s / busy,
        },
        "workers": trainer.exchange.group.share.world,
        "slowest": trainer.slowness.sentence(),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "train_s": state.train_s,
        "wall_s": trainer.wall_s(state),
        "model": start.model,
        "parameters": start.parameters,
        "data": start.data,
        "decisions": start.decisions,
        "command": command,
        "versions": versions(),
        "machine": machine(),
    }
    folder.write_summary(summary)
    if trainer.config.train.curves:
        _draw_curves(folder)
    return summary


def _draw_curves(folder: RunFolder) -> None:
    from phalanx.observe.plots import NothingToDraw, draw_curves

    try:
        draw_curves([folder.path], *(folder.path / f"curves.{ending}" for ending in ("png", "svg")))
    except NothingToDraw:
        return  # stopped before there was anything to draw


def print_summary(console: Console, folder: RunFolder, summary: dict[str, Any], finished: bool) -> None:
    """The result, where everything is, and how to go on."""
    console.print(Text("done" if finished else "stopped", style="bold"))
    rows = {}
    for which in ("best", "last"):
        if found := summary[which]:
            measured = accuracies(found["top1"], found["topk"], summary["k"], between=", ")
            measured += named(found["metrics"], between=", ")
            rows[which] = f"{measured} at step {found['step']}"
    rows["trained"] = f"{summary['epochs']:.2f} epochs, {summary['steps']:,} steps in {summary['wall_s']:.1f} s"
    shares = summary["shares"]
    parts = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items() if share > 0.005)
    rows["speed"] = f"{summary['samples_per_s']:.1f} samples/s ({parts})"
    if summary["slowest"]:
        rows["workers"] = f"{summary['workers']}; {summary['slowest']}"
    path = folder.path
    present = [
        name
        for name in ("summary.json", "curves.png", "events.jsonl", "log.txt", "quarantine.tsv", "checkpoints/")
        if (path / name).exists()
    ]
    rows["folder"] = f"{path}: {', '.join(present)}"
    if finished:
        rows["next"] = f"phalanx eval {path}   phalanx predict {path} IMAGE…   phalanx plot {path}"
    else:
        rows["go on"] = f"phalanx train --resume {path}"
    print_rows(console, rows)
