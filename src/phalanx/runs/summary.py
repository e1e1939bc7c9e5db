"""summary.json: what a run has reached, how fast it was, and what it ran on. Written when a run ends or stops."""

import json
import resource
from dataclasses import asdict, dataclass, field
from typing import Any

from phalanx.runs.folder import RunFolder, machine, versions, write_run_file


@dataclass(frozen=True)
class Summary:
    """The fields of summary.json, in its order. Accuracies and shares are in 0..1, times in seconds."""

    finished: bool
    best: dict[str, Any] | None  # top1, topk, step, epoch, metrics
    last: dict[str, Any] | None  # top1, topk, loss, step, metrics
    k: int  # of top-k; 1 where only top-1 was measured
    epochs: float
    steps: int
    samples_per_s: float  # of all workers
    shares: dict[str, float]  # of a step's time: data, compute, exchange, update
    workers: int
    slowest: str | None  # which worker was the slowest, and at what
    train_s: float
    wall_s: float
    model: str
    parameters: int
    data: str
    decisions: dict[str, str]  # setting → "value (reason)"
    command: str
    peak_memory_mib: int = field(default_factory=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    versions: dict[str, str] = field(default_factory=versions)
    machine: dict[str, Any] = field(default_factory=machine)


def write_summary(folder: RunFolder, summary: Summary) -> None:
    """Write summary.json into the run folder."""
    write_run_file(folder.summary, json.dumps(asdict(summary), indent=1, ensure_ascii=False) + "\n")
