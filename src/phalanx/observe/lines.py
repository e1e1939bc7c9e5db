"""Events as lines of text, for log.txt and for output that is no terminal."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phalanx.runs import events as ev
from phalanx.runs.events import AppendedLines, Event
from phalanx.runs.score import F1_MICRO, MAP, TOP1


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


NAMES = {TOP1: "top-1", MAP: "mAP", F1_MICRO: "F1"}  # as they are shown


def accuracies(
    top1: float | None,
    topk: float | None,
    k: int,
    between: str = " ",
    metrics: Mapping[str, float | None] | None = None,
) -> str:
    """The number that a run is judged by: top-1, with top-k unless k is 1; or mAP where samples have several labels."""
    if top1 is None:
        value = (metrics or {}).get(MAP)
        return f"mAP {percent(float('nan') if value is None else value)}"
    both = [f"top-1 {percent(top1)}", *([f"top-{k} {percent(topk)}"] if k > 1 and topk is not None else [])]
    return between.join(both)


def other_metrics(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Those that `accuracies` does not show."""
    return {name: value for name, value in metrics.items() if name != MAP}


def training_accuracy(event: ev.Step | ev.Epoch) -> str:
    """Top-1 and top-k of training, or F1 where samples have several labels."""
    if event.top1 is not None:
        return accuracies(event.top1, event.topk, event.k)
    return f"F1 {percent(event.metrics.get(F1_MICRO, 0.0))}"


def training_accuracies(record: Mapping[str, Any]) -> str:
    """The same of a step event as it was read."""
    if record["top1"] is not None:
        return accuracies(record["top1"], record["topk"], record.get("k", 1), between="  ")
    return f"F1 {percent(record.get('metrics', {}).get(F1_MICRO) or 0.0)}"


def checkpoint_line(event: ev.Checkpoint) -> str:
    """A checkpoint that was written."""
    return f"checkpoint of step {event.step:,}: {event.bytes / 1e6:.1f} MB in {event.seconds:.1f} s"


def named(numbers: Mapping[str, float | None], between: str = " ") -> str:
    """The user's own numbers, each with its name. One that is not finite comes as None from a file."""
    return "".join(f"{between}{name} {float('nan') if x is None else x:.5g}" for name, x in numbers.items())


def sentence(event: Event) -> str | None:
    """An event as text; None for events that only programs read."""
    match event:
        case ev.Resume():
            return "\n".join([*event.warnings, f"resumed at step {event.step} from {event.checkpoint}"])
        case ev.Step():
            return (
                f"epoch {event.epoch} batch {event.batch}/{event.batches} step {event.step}: loss {event.loss:.4f} "
                f"{training_accuracy(event)} lr {event.lr:.5g} {event.samples_per_s:.1f} samples/s"
            )
        case ev.DataService():
            return _data_service(event)
        case ev.Norms():
            total = {which: sum(v * v for v in norms.values()) ** 0.5 for which, norms in _norms(event).items()}
            return f"step {event.step}: parameter norm {total['parameters']:.5g} gradient norm {total['gradients']:.5g}"
        case ev.Epoch():
            return (
                f"epoch {event.epoch} done: training loss {event.loss:.4f} {training_accuracy(event)} "
                f"over {event.samples:,} samples"
            )
        case ev.Eval():
            mark = " (best so far)" if event.best else ""
            return (
                f"validation at step {event.step}: "
                f"{accuracies(event.top1, event.topk, event.k, metrics=event.metrics)} "
                f"loss {event.loss:.4f}{named(other_metrics(event.metrics))} on {event.samples:,} images "
                f"in {event.seconds:.1f} s{mark}"
            )
        case ev.BadImage():
            return f"bad image skipped: {event.name}: {event.reason}"
        case ev.Callback():
            return f"step {event.step}: {event.name}{named(event.values)}"
        case ev.Note():
            return event.text
        case ev.Stop():
            return f"stopped at step {event.step}: {event.reason}"
        case _:
            return None


def own_figures(event: ev.Step, rank: int) -> str:
    """What the step line of one of several workers adds: its speed, and its times in ms per step."""
    mine = event.ranks[rank] if event.ranks else asdict(event)
    times = ", ".join(f"{name} {1000 * mine[f'{name}_s']:.1f}" for name in ev.TIMES)
    return f"; this worker {mine['samples_per_s']:.1f}: {times} ms"


def _data_service(event: ev.DataService) -> str:
    there = [server for server in event.servers if server["joined"]]
    rate, queue = sum(each["samples_per_s"] for each in there), sum(each["queue"] for each in there)
    idle = sum(each["idle"] for each in there) / max(1, len(there))
    who = "workers wait for data" if event.trainers_wait else "data waits for workers"
    return (
        f"data: {rate:.0f} samples/s from {len(there)} of {len(event.servers)} servers, {queue} batches queued there, "
        f"servers idle {100 * idle:.0f} %, waiting {100 * event.wait_share:.0f} %: {who}"
    )


def _norms(event: ev.Norms) -> dict[str, dict[str, float]]:
    return {"parameters": event.parameters, "gradients": event.gradients}


class LineSink:
    """Writes events as lines of text; step lines include the speed and times of this `worker`."""

    def __init__(self, write: Callable[[str], None], worker: int | None = None) -> None:
        self._write, self._worker = write, worker

    def take(self, event: Event) -> None:
        text = sentence(event)
        if text is not None and self._worker is not None and isinstance(event, ev.Step):
            text += own_figures(event, self._worker)
        if text is not None:
            self._write(text)

    def close(self) -> None:
        """Nothing is open."""


class LogFile(LineSink):
    """log.txt of a run: lines with the time."""

    def __init__(self, run: Path) -> None:
        self._lines = AppendedLines(run / "log.txt")
        super().__init__(self.text)

    def text(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        for line in text.splitlines():
            self._lines.line(f"{stamp} {line}")

    def close(self) -> None:
        self._lines.close()
