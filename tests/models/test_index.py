"""The index of models: as counted, complete, made once for another timm, and read without torch."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.migrate.model_names import SHORT_NAMES
from phalanx.models import index as indexes
from phalanx.models.build import LISTED
from phalanx.models.classic import CLASSICS
from phalanx.models.costs import count_cost
from phalanx.models.index import ModelIndex, cached_path, known_index, read_index, shipped_index, write_index
from phalanx.models.listing import list_models
from phalanx.models.make_index import index_installed

SAMPLE = ("resnet50", "vit_tiny_patch16_224", "efficientnet_b0", "convnext_atto", "xcit_nano_12_p8_384", "test_vit")
is_shipped_for = pytest.mark.skipif(
    version("timm") != shipped_index().timm, reason=f"the index is for timm {shipped_index().timm}"
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelIndex]:
    """A shipped index of an older timm: two models are new since, one has another image size, one is gone."""
    shipped = known_index() or index_installed(Console(file=io.StringIO()))
    theirs = dict(shipped.theirs)
    theirs["gone"] = theirs["resnet18"]
    for name in ("test_vit", "resnet18"):
        del theirs[name]
    wrong = theirs["lcnet_050"]
    theirs["lcnet_050"] = indexes.ModelCost(wrong.params, 17, 17)
    write_index(ModelIndex("0.1", shipped.ours, shipped.short, theirs), tmp_path / "shipped.json")
    monkeypatch.setattr(indexes, "SHIPPED", tmp_path / "shipped.json")
    shipped_index.cache_clear()
    yield shipped
    shipped_index.cache_clear()


def test_ours_are_complete_and_as_counted() -> None:
    """After a change of ours: `python -m phalanx.models.make_index`."""
    shipped = shipped_index()
    assert list(shipped.ours) == list(LISTED)
    assert list(shipped.short) == list(SHORT_NAMES)
    some = ("cifar_resnet20", "wrn16_8", *CLASSICS)  # deep ones take long to count
    assert {name: count_cost(name) for name in some} == {name: shipped.ours[name] for name in some}


@is_shipped_for
def test_timms_are_complete_and_as_counted() -> None:
    import timm

    theirs = shipped_index().theirs
    assert list(theirs) == timm.list_models()
    assert {name: count_cost(name) for name in SAMPLE} == {name: theirs[name] for name in SAMPLE}
    assert [name for name, cost in theirs.items() if not cost.params or not cost.macs] == []


@is_shipped_for
def test_a_listing_does_not_wait_for_torch(tmp_path: Path) -> None:
    program = """
import sys
sys.argv = ["phalanx", "models", "resnet*"]
try:
    from phalanx.cli.main import main
    main()
finally:
    sys.stderr.write(str(sorted({"torch", "timm", "torchvision"} & set(sys.modules))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stderr == "[]"
    assert "resnet50\t25.56\t4.09\t224" in done.stdout.splitlines()


def test_another_timm_is_indexed_once(older: ModelIndex) -> None:
    assert known_index() is None
    said = io.StringIO()
    made = index_installed(Console(file=said))
    assert made.theirs == older.theirs  # the two new ones and the one of another size were counted, the old one is gone
    assert (made.timm, list(made.theirs)) == (version("timm"), list(older.theirs))
    assert known_index() == made
    assert "test_vit" in list_models("test_*")


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"timm": "1", "ours": {"a": [1]}}', "\0"])
def test_a_damaged_cache_is_made_again(older: ModelIndex, damage: str) -> None:
    path = cached_path(version("timm"))
    path.parent.mkdir(parents=True)
    path.write_text(damage)
    assert known_index() is None


def test_a_cache_that_cannot_be_written_is_no_error(older: ModelIndex) -> None:
    path = cached_path(version("timm"))
    path.parent.parent.mkdir()
    path.parent.write_text("a file where the folder should be")
    assert "resnet18" in index_installed(Console(file=io.StringIO())).theirs


def test_an_index_is_a_line_per_model(tmp_path: Path) -> None:
    write_index(shipped_index(), tmp_path / "index.json")
    assert read_index(tmp_path / "index.json") == shipped_index()
    text = (tmp_path / "index.json").read_text()
    assert '  "cifar_resnet20": [269722, 40551040, 32],\n' in text
    assert json.loads(text)["timm"] == shipped_index().timm
