"""Runs of a benchmark that are kept: trained, resumed where they were cut off, or only read when they are done."""

import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from phalanx.api.parts import is_done
from phalanx.runs.checkpoint import latest_path
from phalanx.runs.events import EVENTS_FILE, TIMES, read_events


def finish(run: Path, words: Sequence[str]) -> Path:
    """The folder of `phalanx train WORDS --out RUN`, when it is done. What it prints goes to standard error."""
    if is_done(run):
        return run
    if latest_path(run / "checkpoints") is not None:
        words = ["--resume", str(run)]
    else:
        (run / EVENTS_FILE).unlink(missing_ok=True)  # cut off before its first checkpoint: it starts anew
        words = [*words, "--out", str(run)]
    print(f"phalanx train {' '.join(words)}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "phalanx", "train", *words], check=True, stdout=sys.stderr)
    return run


def step_s(run: Path) -> float:
    """Seconds of a step: the median over the run's log intervals, of which the first one is left out."""
    steps = [one for one in read_events(run) if one["kind"] == "step"]
    return float(statistics.median(sum(one[f"{part}_s"] for part in TIMES) for one in steps[1:] or steps))


def write_table(out: Path, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print what is known so far as Markdown, and write it to a file."""
    lines = [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines), flush=True)
