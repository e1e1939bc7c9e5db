import io
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.commands.models import show_models
from phalanx.errors import UserError


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


def shown(pattern: str | None, size: int | None = None, *, terminal: bool = False) -> list[str]:
    said = io.StringIO()
    show_models(Console(file=said, force_terminal=terminal, width=100), pattern, size)
    return said.getvalue().splitlines()


def test_a_pattern_lists_names_with_costs() -> None:
    lines = shown("resnet18")
    cells = dict(line.split("\t", 1) for line in lines)
    assert cells["model"] == "parameters, M\tGMACs\timage size"
    assert cells["resnet18"] == "11.69\t1.81\t224"
    assert "cifar_resnet18" in cells


def test_a_glob_fits_whole_names_and_costs_follow_the_size() -> None:
    small, large = shown("resnet18", 32), shown("resnet1[8]", 64)
    assert [line.split("\t")[0] for line in large] == ["model", "resnet18"]
    macs = [float(line.split("\t")[2]) for lines in (small, large) for line in lines if line.startswith("resnet18\t")]
    assert macs[1] == pytest.approx(4 * macs[0], rel=0.1)


def test_without_a_pattern_ours_are_listed_and_timms_counted() -> None:
    lines = shown(None)
    assert any(line.startswith("cifar_resnet20\t0.27\t") for line in lines)
    assert any(line.startswith("resnet*\t") for line in lines)
    assert len(lines) < 250


def test_a_person_sees_columns_and_how_to_go_on() -> None:
    text = "\n".join(shown(None, terminal=True))
    assert "\t" not in text
    assert "phalanx models 'resnet*'" in text


def test_a_pattern_that_fits_nothing_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="resnet50"):
        shown("resnett50*")
