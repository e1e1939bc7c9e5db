"""Where the folds of a cross-validation are."""

from pathlib import Path

from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.fold_paths import begun_folds, fold_path


def test_folds_come_in_order_however_their_folder_lists_them(tmp_path: Path) -> None:
    for number in (2, 10, 1, 9):
        fold_path(tmp_path, number).mkdir()
        (fold_path(tmp_path, number) / EVENTS_FILE).touch()
    (tmp_path / "fold-mine").mkdir()
    (tmp_path / "fold-mine" / EVENTS_FILE).touch()
    assert list(begun_folds(tmp_path)) == [1, 2, 9, 10]
