"""Runs that are parts of something larger, the folds of a cross-validation or the runs of a sweep."""

from pathlib import Path

from phalanx.observe.results import read_results
from phalanx.runs.events import EVENTS_FILE

# Where a run is trained, and how much of a machine it uses, is no part of its result.
ANYWHERE = (
    *("exchange.", "machine.", "train.log", "distill.servers", "distill.service"),
    *("data.threads", "data.prefetch", "data.service", "data.servers"),
)


def is_done(run: Path) -> bool:
    """Whether a run has come to its end, by its events."""
    return (run / EVENTS_FILE).is_file() and read_results([run])[0].state == "finished"
