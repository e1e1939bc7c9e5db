import io
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.commands.recipes import show_recipe
from phalanx.config.flags import flag_layers
from phalanx.config.recipes import CLAIM_PARTS, default_recipe, load_recipe, recipe_names
from phalanx.config.resolve import parse_override, resolve
from phalanx.errors import UserError


@pytest.mark.parametrize("name", recipe_names())
def test_built_in_recipes_resolve_and_open_with_their_claim(name: str) -> None:
    recipe = load_recipe(name)
    assert tuple(recipe.claim) == CLAIM_PARTS
    assert resolve(recipe.layers).config.name == name


def test_a_file_extends_a_built_in_and_a_neighbour(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("extends: digits\noptim: {lr: 0.5}\n")
    (tmp_path / "mine.yaml").write_text("extends: base.yaml\noptim: {momentum: 0.5}\n")
    resolved = resolve(load_recipe(str(tmp_path / "mine.yaml")).layers)
    assert (resolved.config.optim.lr, resolved.config.optim.momentum) == (0.5, 0.5)
    assert resolved.config.data.source == "digits"
    assert resolved.config.name == "mine"
    assert resolved.origins["optim.lr"] == str(tmp_path / "base.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("extends: nothing-like-it\n", "no recipe"),
        ("extends: mine.yaml\n", "extends itself"),
        ("extends: [a, b]\n", "must name one"),
        ("claim: great\n", "mapping"),
        ("a: [1\n", "not valid YAML"),
        ("- 1\n", "not a recipe"),
        ("optim: {lrate: 1}\n", "optim.lr"),
        ("optim: fast\n", "section"),
    ],
)
def test_broken_recipes_are_explained(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=expected) as caught:
        resolve(load_recipe(str(path)).layers)
    assert caught.value.remedy


def test_what_an_author_says_of_a_recipe_is_printed_with_it(tmp_path: Path) -> None:
    said = Console(file=io.StringIO(), width=60)
    show_recipe(said, "imagenet-resnet50")
    path = tmp_path / "mine.yaml"
    path.write_text("# [bold]mine\nextends: imagenet-resnet50\noptim: {lr: 0.2}  # not a line of its own\n")
    show_recipe(said, str(path))
    assert isinstance(said.file, io.StringIO)
    lines = said.file.getvalue().splitlines()
    settings = [number for number, line in enumerate(lines) if line.startswith("name=")]
    comments = [line for line in lines[: settings[0]] if line.startswith("# ")]
    told = ("lr_per", "warmup_start", "momentum", "weight_decay", "zero_init_last", "batch_size", "augment")
    for name in told:
        assert any(line.partition(":")[0].endswith(name) for line in comments), name
    assert lines[settings[1] - 1] == "# [bold]mine"


def test_missing_and_binary_files_are_explained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_recipe(str(tmp_path / "none.yaml"))
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        load_recipe(str(tmp_path / "binary.yaml"))


def test_data_without_a_recipe_is_not_taken_for_digits() -> None:
    assert default_recipe([]) == "digits"
    assert default_recipe(flag_layers({"lr": 0.1})) == "digits"
    assert default_recipe(flag_layers({"data": "photos/"})) == "images"
    assert default_recipe([parse_override("data.source=synthetic")]) == "synthetic"


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean digits"):
        load_recipe("digist")
