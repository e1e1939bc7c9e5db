"""References to the user's code: what is one, what it loads, and what is said where it cannot be loaded."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.custom import blame, is_data_reference, is_reference, load, reference_of
from phalanx.custom.code import CodeFile, module_path, read_with_imports
from phalanx.custom.installed import install
from phalanx.custom.notebook import definition
from phalanx.custom.reference import DATA_FORMATS, anchored, references, replaced
from phalanx.data.sources.formats import FORMATS
from phalanx.errors import UserError


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    install([])


@pytest.mark.parametrize("text", ["nets.py:TinyNet", "./dir/nets.py:build", "/a b/nets.py:Net.make", "my.nets:build"])
def test_a_reference(text: str) -> None:
    assert is_reference(text)


@pytest.mark.parametrize(
    "text", ["resnet50", "C:nets", "hf-hub:timm/x", "nets.py", "nets.py:", "a b:c", "x:1", None, 3]
)
def test_no_reference(text: object) -> None:
    assert not is_reference(text)


def test_a_format_of_data_is_no_reference(tmp_path: Path) -> None:
    assert set(DATA_FORMATS) == set(FORMATS)
    assert not is_data_reference("rec:train.rec")
    assert is_data_reference("mydata.py:Faces")
    (tmp_path / "my.py:Faces").mkdir()
    assert not is_data_reference("my.py:Faces"), "an existing path is a path"


def test_a_file_is_loaded_with_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "project" / "blocks").mkdir(parents=True)
    (tmp_path / "project" / "nets.py").write_text(
        "import helpers\nfrom blocks.conv import WIDTH\nTWICE = helpers.f(WIDTH)\n"
    )
    (tmp_path / "project" / "helpers.py").write_text("def f(x):\n    return 2 * x\n")
    (tmp_path / "project" / "unused.py").write_text("raise OSError\n")
    (tmp_path / "project" / "blocks" / "__init__.py").write_text("")
    (tmp_path / "project" / "blocks" / "conv.py").write_text("WIDTH = 21\n")
    names = [file.name for file in read_with_imports(Path("project/nets.py"))]
    assert sorted(names) == ["blocks/__init__.py", "blocks/conv.py", "helpers.py", "nets.py"]
    assert names[0] == "nets.py"
    assert load("project/nets.py:TWICE") == 42
    assert "nets" in sys.modules


def test_texts_are_imported_and_not_the_files(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("WIDTH = 1\n")
    files = read_with_imports(Path("nets.py"))
    (tmp_path / "nets.py").write_text("WIDTH = 2\n")
    install([CodeFile.from_data(file.to_data()) for file in files])
    assert load("code/nets.py:WIDTH") == 1
    install(read_with_imports(Path("nets.py")))
    assert load("code/nets.py:WIDTH") == 2


def test_a_file_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "nets.py").write_text("from .blocks import WIDTH\n")
    (tmp_path / "pack" / "blocks.py").write_text("WIDTH = 7\n")
    assert load("pack/nets.py:WIDTH") == 7
    install([])
    assert load("pack.nets:WIDTH") == 7, "a package in this folder need not be installed"


def test_an_installed_module() -> None:
    assert load("json.decoder:JSONDecoder").__name__ == "JSONDecoder"
    path = module_path("torchvision.models.resnet")
    assert path is not None
    assert path.name == "resnet.py"


def refusal(reference: str) -> str:
    with pytest.raises(UserError) as caught:
        load(reference)
    assert caught.value.remedy
    return str(caught.value)


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("class TinyNet: pass\n\ndef build():\n    return 1 / 0\n")
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "raises.py").write_text("import nets\n\nnets.build()\n")
    (tmp_path / "needs.py").write_text("import no_such_thing\n")
    (tmp_path / "exits.py").write_text("raise SystemExit(0)\n")
    assert "there is no file" in refusal("missing.py:Net")
    assert "did you mean TinyNet?" in refusal("nets.py:TinyNett")
    assert "broken.py, line 2" in refusal("broken.py:f")
    assert "def f(:" in refusal("broken.py:f")
    assert "no Python module no.such" in refusal("no.such:thing")
    assert "no_such_thing" in refusal("needs.py:x")
    assert "__main__" in refusal("exits.py:x")
    told = refusal("raises.py:x")
    assert all(part in told for part in ("raises.py", "return 1 / 0", "ZeroDivisionError"))
    assert not any(part in told for part in ("phalanx/custom", "importlib")), "the user's lines alone"


def test_two_files_of_one_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "nets.py").write_text(f"X = {folder!r}\n")
    assert load("a/nets.py:X") == "a"
    assert "rename" in refusal("b/nets.py:X")


def test_blame_shows_the_users_lines(tmp_path: Path) -> None:
    (tmp_path / "loss.py").write_text("import json\n\ndef loss(text):\n    return json.loads(text)\n")
    loss = load("loss.py:loss")
    with pytest.raises(ValueError) as caught:
        loss("{")
    error = blame(caught.value)
    assert error is not None
    assert error.what == f"JSONDecodeError in {tmp_path / 'loss.py'}, line 4, in loss"
    assert "return json.loads(text)" in error.why
    assert "decoder.py" not in error.why
    with pytest.raises(ValueError) as caught:
        int("x")
    assert blame(caught.value) is None


def test_references_of_objects(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("class TinyNet:\n    pass\n")
    assert reference_of(load("nets.py:TinyNet")) == f"{tmp_path / 'nets.py'}:TinyNet"
    assert reference_of(subprocess.run) == "subprocess:run"
    assert reference_of(refusal) == f"{Path(__file__).resolve()}:refusal"
    for value in (lambda: None, load("nets.py:TinyNet")(), 3, "resnet18"):
        with pytest.raises(UserError):
            reference_of(value)


def test_the_reference_of_a_scripts_own_class(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from phalanx.custom import reference_of\nclass Net: pass\nprint(reference_of(Net))\n")
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == f"{script}:Net"


def test_a_definition_in_a_notebook() -> None:
    cells = [
        "import math\nimport json",
        "%matplotlib inline\nWIDTH = 3",
        "def helper(x):\n    return math.sqrt(x) * WIDTH",
        "class Net:\n    value = helper(4)",
        "print(Net)",
    ]
    text = definition(cells, "Net")
    assert "import math" in text
    assert "json" not in text
    space: dict[str, type] = {}
    exec(text, space)
    assert space["Net"].value == 6  # type: ignore[attr-defined]
    assert definition([*cells[2:], *cells[:2]], "Net") == text, "cells that were run in another order"
    with pytest.raises(UserError, match="not among"):
        definition(cells, "Other")


def test_references_of_settings() -> None:
    tree = {
        "model": {"name": "nets.py:Net", "options": {"x": "nets.py:No"}},
        "eval": {"metrics": ["m.py:a", {"name": "/abs/m.py:b"}]},
        "data": {"source": "rec:train.rec"},
        "optim": {"name": "sgd"},
    }
    assert references(tree) == {"model.name": ["nets.py:Net"], "eval.metrics": ["m.py:a", "/abs/m.py:b"]}
    seen = anchored(tree, Path("/recipes"))
    assert seen["model"] == {"name": "/recipes/nets.py:Net", "options": {"x": "nets.py:No"}}
    assert seen["eval"]["metrics"] == ["/recipes/m.py:a", {"name": "/abs/m.py:b"}]
    assert replaced(tree, {"nets.py:Net": "code/nets.py:Net"})["model"]["name"] == "code/nets.py:Net"
