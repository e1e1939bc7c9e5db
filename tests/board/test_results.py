"""Which evaluations of a run are shown."""

from pathlib import Path

from phalanx.board.places import Place
from phalanx.board.results import evaluation, evaluation_names
from tests.board.made_runs import add_evaluation


def test_an_evaluation_under_attack_is_no_confusion_matrix(tmp_path: Path) -> None:
    for name in ("eval", "eval-attack", "eval-attack-photos", "eval-attacked", "eval-photos"):
        add_evaluation(tmp_path, name)
    place = Place("key", "run", tmp_path)
    assert evaluation_names(place) == ["eval", "eval-attacked", "eval-photos"]
    assert evaluation(place, "eval-attack") is None
    assert evaluation(place, "eval-photos") is not None
