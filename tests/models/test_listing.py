"""The list of models, their costs against published numbers, and a cache that may be missing, damaged or closed."""

import json
from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.models import costs as counting
from phalanx.models.cifar import LISTED
from phalanx.models.costs import count_cost
from phalanx.models.index import ModelCost
from phalanx.models.listing import cache_path, cost, costs, list_models


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_path()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that were counted and not found in the cache."""
    names: list[str] = []

    def watched(name: str, image_size: int | None) -> ModelCost:
        names.append(name)
        return count_cost(name, image_size)

    monkeypatch.setattr(counting, "count_cost", watched)
    return names


def test_ours_come_first_then_timm() -> None:
    names = list_models()
    assert names[: len(LISTED)] == list(LISTED)
    assert "resnet50" in names[len(LISTED) :]


def test_pattern_is_a_glob_or_a_part() -> None:
    assert list_models("wrn") == ["wrn16_8", "wrn28_10", "wrn40_4"]
    assert list_models("RESNET5[01]*q") == ["resnet51q"]
    assert {"cifar_resnet20", "resnet50", "seresnet50"} <= set(list_models("resnet"))
    assert list_models("no such model") == []


@pytest.mark.parametrize(
    ("name", "params", "macs", "image_size"),
    [
        ("resnet50", 25_557_032, 4.09e9, 224),
        ("resnet18", 11_689_512, 1.81e9, 224),
        ("vit_tiny_patch16_224", 5_717_416, 1.25e9, 224),
        ("cifar_resnet20", 269_722, 40.6e6, 32),
        ("wrn28_10", 36_479_194, 5.25e9, 32),
    ],
)
def test_costs_are_as_published(name: str, params: int, macs: float, image_size: int) -> None:
    found = count_cost(name)
    assert (found.params, found.image_size) == (params, image_size)
    assert found.macs == pytest.approx(macs, rel=0.005)


def test_cost_at_another_size() -> None:
    full, half = cost("resnet18"), cost("resnet18", 112)
    assert full.macs
    assert half.macs
    assert 3.5 < full.macs / half.macs < 4.5
    assert half.image_size == 112
    assert cost("vit_tiny_patch16_224", 32).macs  # its size is fixed when it is built


def test_what_cannot_be_counted_is_none(cache: Path) -> None:
    assert cost("vit_tiny_patch16_224", 8).macs is None
    assert cost("vit_tiny_patch16_224", 8).params
    assert json.loads(cache.read_text())["vit_tiny_patch16_224@8"]["macs"] is None


def test_unknown_name() -> None:
    with pytest.raises(UserError, match="resnet50"):
        cost("reznet50")
    with pytest.raises(UserError, match="6n"):
        cost("cifar_resnet21")


def test_the_size_of_the_design_comes_from_the_index(cache: Path, counted: list[str]) -> None:
    assert cost("cifar_resnet20").params == 269_722
    assert counted == []
    assert cost("cifar_resnet26") == count_cost("cifar_resnet26")  # 6n+2, and not listed
    assert counted == ["cifar_resnet26"]


def test_second_time_comes_from_the_cache(cache: Path, counted: list[str]) -> None:
    first = list(costs(["cifar_resnet20", "wrn16_8"], 24))
    assert list(costs(["cifar_resnet20", "wrn16_8"], 24)) == first
    assert counted == ["cifar_resnet20", "wrn16_8"]
    assert [path.name for path in cache.parent.iterdir()] == [cache.name], "nothing is left beside it"


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"cifar_resnet20@24": 3}', '{"cifar_resnet20@24": {"params": "x"}}', "\0"]
)
def test_damaged_cache_is_rebuilt(damage: str, cache: Path, counted: list[str]) -> None:
    expected = cost("cifar_resnet20", 24)
    cache.write_text(damage)
    assert cost("cifar_resnet20", 24) == expected
    assert cost("cifar_resnet20", 24) == expected
    assert len(counted) == 2


def test_cache_that_cannot_be_written_is_no_error(cache: Path) -> None:
    cache.parent.parent.mkdir()
    cache.parent.write_text("a file where the folder should be")
    assert cost("cifar_resnet20", 24).params == 269_722


def test_cache_folder_defaults_to_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_path().parent == tmp_path / ".cache" / "phalanx"
    assert cache_path().name.startswith("model-costs-timm-")
