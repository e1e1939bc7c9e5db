"""Where a cross-validation lies: a folder with a run for each fold, and what they have found together."""

from pathlib import Path

from phalanx.errors import UserError
from phalanx.runs.events import EVENTS_FILE

FOLDS_FILE = "folds.json"


def fold_path(folder: Path, number: int) -> Path:
    """The run of a fold, counted from 1."""
    return folder / f"fold-{number}"


def begun_folds(folder: Path) -> dict[int, Path]:
    """The folds of a cross-validation that have begun, by number, the first one first."""
    found = {path.parent.name.removeprefix("fold-"): path.parent for path in folder.glob(f"fold-*/{EVENTS_FILE}")}
    return {int(name): found[name] for name in sorted(filter(str.isdecimal, found), key=int)}


def is_cross_validation(folder: Path) -> bool:
    """Whether the folder holds the folds of a cross-validation, perhaps trained one by one on a cluster."""
    return (folder / FOLDS_FILE).is_file() or (not (folder / EVENTS_FILE).exists() and bool(begun_folds(folder)))


def run_files(runs: Path, name: str) -> list[Path]:
    """The files of that name in all runs below a folder, those of folds included."""
    return [*runs.glob(f"*/{name}"), *runs.glob(f"*/fold-*/{name}")]


def refuse_cross_validation(place: Path) -> None:
    """Refuse a cross-validation where one run is needed."""
    if is_cross_validation(place):
        raise UserError(
            f"{place} is a cross-validation, not one run",
            why="it has a model for each fold",
            remedy=f"name one of its folds, such as {fold_path(place, 1)}; all of them are {place}/fold-*",
        )
