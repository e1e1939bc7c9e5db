"""`phalanx.load` and `phalanx.runs`: runs and cross-validations by their folders."""

from pathlib import Path

from phalanx.api.cross_validation import CrossValidation
from phalanx.api.flags import PathText
from phalanx.api.run import Run
from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.fold_paths import FOLDS_FILE, is_cross_validation
from phalanx.runs.folder import RUNS, find_run


def load(path: PathText) -> Run:
    """A run by its folder; the folder of a cross-validation gives a `phalanx.CrossValidation`.

    >>> phalanx.load("runs/digits").state
    'finished'
    """
    return CrossValidation(path) if is_cross_validation(Path(path)) else Run(find_run(Path(path)).path)


def runs(folder: PathText = RUNS) -> list[Run]:
    """All runs in a folder, the newest first. A cross-validation counts as one.

    >>> phalanx.runs()[0] == phalanx.load("runs/digits")
    True
    """
    found = [path for name in (EVENTS_FILE, FOLDS_FILE) for path in Path(folder).glob(f"*/{name}")]
    found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    return [(CrossValidation if path.name == FOLDS_FILE else Run)(path.parent) for path in found]
