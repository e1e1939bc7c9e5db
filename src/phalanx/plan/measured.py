"""What was measured: in the JSON of `phalanx bench`, or in the events of a run. It replaces figures of the table."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from phalanx.config.resolve import resolve
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError
from phalanx.plan.devices import Above0, Entry
from phalanx.runs.events import EVENTS_FILE, Record, Step, read_events
from phalanx.runs.folder import RunFolder

Count = Annotated[int, Field(ge=1)]


class Row(Entry):
    """The speed of a job."""

    workers: Count
    method: str = "collective"
    servers: Count = 1
    mode: str = "sync"
    compress: str = "none"
    batch_size: Count
    images_per_s: Above0
    alone_images_per_s: Above0 | None = None  # of a worker at the same place that exchanges nothing


class Measurement(Entry):
    """What `bench train | comm | io | scaling --json` and a run's events say: one schema, any part may be absent."""

    model: str | None = None
    image_size: Count | None = None
    batch_size: Count | None = None
    images_per_s: Above0 | None = Field(None, description="of one worker that exchanges nothing")
    spread: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="of compute times: deviation over mean"
    )
    input_images_per_s: Above0 | None = None
    codecs: dict[str, tuple[Above0, Above0]] = Field({}, description="GB/s of float32: encode, decode")
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class MeasuredRun:
    """A run's measurement, its configuration, and the samples of its epochs."""

    found: Measurement
    config: RunConfig
    samples: int
    classes: int


def is_run(path: Path) -> bool:
    return (path / EVENTS_FILE).is_file()


def read_measurement(path: Path) -> Measurement:
    """From a run's folder, or a file that `phalanx bench … --json` wrote."""
    if path.is_dir():
        return read_run(path).found
    try:
        tree: Any = json.loads(path.read_bytes())
        return Measurement.model_validate(tree["measured"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        why = getattr(error, "strerror", None) or "it has no field `measured` of the known form"
        raise UserError(
            f"{path} has no measurement",
            why=why,
            remedy="give a run's folder, or a file of phalanx bench train, comm, io or scaling --json",
        ) from error


def read_run(path: Path) -> MeasuredRun:
    """Speed and spread of a run's workers, from its step events."""
    records = read_events(path)
    steps = [record for record in records if record["kind"] == Step.kind]
    begun = [record for record in records if record["kind"] == "start"]
    if len(steps) < 2 or not begun:
        raise UserError(
            f"{path} has too few step events to plan from",
            why=f"it has {len(steps)}, and the first is not counted",
            remedy="train some more steps, or lower train.log_every",
        )
    config = resolve([RunFolder(path).layer()]).config
    start, counted = begun[-1], steps[1:]
    workers = config.exchange.workers
    batch = max(1, round(start["samples_per_step"] / workers / config.optim.accumulate))
    ranks = [rank for step in counted for rank in (step["ranks"] or [step])]
    busy = statistics.median(rank["compute_s"] + rank["update_s"] for rank in ranks)
    row = Row(
        workers=workers,
        method=config.exchange.method if workers > 1 else "collective",
        servers=config.exchange.servers,
        mode=config.exchange.mode,
        compress=config.exchange.compress,
        batch_size=batch,
        images_per_s=start["samples_per_step"] / _step_s(steps),
    )
    found = Measurement(
        model=config.model.name,
        batch_size=batch,
        images_per_s=batch * config.optim.accumulate / busy,
        spread=min(0.5, _spread(counted, config.train.log_every)),
        rows=(row,),
    )
    return MeasuredRun(found, config, start.get("epoch_samples") or start["train_samples"], start["classes"])


def _step_s(steps: Sequence[Record]) -> float:
    """Seconds of a step, its parts added up: evaluations and checkpoints in between are no part of it."""
    whole = [sum(step[f"{part}_s"] for part in ("data", "compute", "exchange", "update")) for step in steps[1:]]
    return max(1e-6, float(statistics.median(whole)))


def _spread(steps: Sequence[Record], every: int) -> float:
    """Of single steps: events are means over `every` of them, so these vary by the root of it less."""
    times = [rank["compute_s"] for step in steps for rank in (step["ranks"] or [step])]
    middle = statistics.fmean(times)
    return statistics.pstdev(times) / middle * every**0.5 if middle > 0 and len(times) > 1 else 0.0
