"""The documentation names files, commands, flags and settings that exist. (./check builds the site strictly, too.)"""

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import phalanx
from phalanx import Run
from phalanx.cli.main import app
from phalanx.config.resolve import setting_keys
from tests.test_imports import LAYERS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "phalanx"
# log.md is history, and migrate.md is made from a table that has its own tests.
PAGES = sorted(
    [path for path in (ROOT / "docs").rglob("*.md") if path.name not in ("log.md", "migrate.md")]
    + [*(ROOT / "examples").rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
)
PHALANX = typer.main.get_group(app)
SECTIONS = {key.partition(".")[0] for key in setting_keys() if "." in key}
FILE_ENDINGS = (".json", ".safetensors", ".pt2", ".onnx", ".py", ".rec", ".txt", ".csv")
# Flags that pages mention and that are other programs' own.
FOREIGN = {"--nodelist", "--ntasks-per-node", "--editable", "--quiet"}


def pages() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def code(text: str) -> Iterator[str]:
    """Every line of a code block, with its continuation lines, and every code span."""
    fenced = False
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or (line.startswith("    ") and "`" not in line):
            yield line.partition(" # ")[0]
    yield from spans(text)


def spans(text: str) -> list[str]:
    """The code spans of a text, which may be broken over two lines. Fenced blocks have none."""
    text = re.sub(r"^[ \t]*```.*?^[ \t]*```[ \t]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


def test_code_is_found() -> None:
    text = "Say `phalanx train` or\n\n    phalanx eval RUN  # now\n\n```sh\nphalanx predict \\\n    RUN\n```\n"
    assert [part.split() for part in code(text) if "phalanx" in part] == [
        ["phalanx", "eval", "RUN"],
        ["phalanx", "predict", "RUN"],
        ["phalanx", "train"],
    ]


@pages()
def test_files_exist(page: Path) -> None:
    for span in spans(page.read_text(encoding="utf-8")):
        if is_source(span):
            assert (ROOT / span).exists() or (SOURCE / span).exists(), f"{span} is not there"


def is_source(span: str) -> bool:
    """Whether a code span looks like a path of this repository."""
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir()} - {"runs", "recipes"}
    if re.fullmatch(r"[\w.][\w./-]*/[\w.-]+\.(py|c|cpp|h|sh|yml|yaml)", span):
        return not span.startswith("./") and "NAME" not in span
    first, _, rest = span.partition("/")
    return bool(rest and span.endswith("/") and (first in packages or first in ("src", "tests", "dev", "examples")))


def test_source_paths_are_recognised() -> None:
    assert all(map(is_source, ("engine/loop.py", "tests/lab/hosts.py", "exchange/pserver/", "native/winograd.c")))
    assert not any(map(is_source, ("nets.py", "./nets.py", "train/", "runs/NAME-TIME", "eval/", "data.val")))


def test_names_are_where_the_guide_for_contributors_says() -> None:
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    found = re.findall(r"`(\w+)(?:\.\w+)?` in `([\w/]+\.py)`", text)
    assert len(found) > 5
    for name, path in found:
        assert name in (SOURCE / path).read_text(encoding="utf-8"), f"{name} is not in {path}"


def test_every_package_is_on_the_map() -> None:
    """CONTRIBUTING.md has one line for each package, in the order of the layers."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = [name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in spans(row)]
    named = [re.sub(r"(/|\.py)$", "", name) for name in listed if name != "src/phalanx/"]
    assert sorted(named) == sorted(name for layer in LAYERS for name in layer if name != "__main__")
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    assert [level[name] for name in named] == sorted(level[name] for name in named)


@pages()
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http") and not is_generated(page, target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def is_generated(page: Path, target: str) -> bool:
    """Pages that only the site has, made by dev/docs_pages.py."""
    place = (page.parent / target).resolve()
    return place.parent in (ROOT / "docs", ROOT / "docs" / "reference") and place.stem in (
        *("commands", "recipes", "settings"),
        *("contributing", "changelog", "report-vulnerability"),
    )


@pages()
def test_commands_and_flags_exist(page: Path) -> None:
    for text in code(page.read_text(encoding="utf-8")):
        for words in commands(text):
            check_command(words)


def commands(text: str) -> Iterator[list[str]]:
    """The words after each `phalanx` in a line of code, up to the next one or to what a shell would end it at."""
    for part in re.split(r"(?:(?<=\s)|^)(?:\./)?phalanx(?=\s|$)", text)[1:]:
        try:
            words = shlex.split(re.split(r"[;&|>]\s|[;&|>]$", part)[0])
        except ValueError:  # a quote that a placeholder left open
            words = part.split()
        yield [word.strip("[]") for word in words]


def check_command(words: list[str]) -> None:
    command: Any = PHALANX
    path = ["phalanx"]
    while hasattr(command, "commands") and words and re.fullmatch(r"[a-z][a-z0-9-]*", words[0]):
        assert words[0] in command.commands, f"there is no command {' '.join([*path, words[0]])}"
        path.append(words[0])
        command, words = command.commands[words[0]], words[1:]
    if words and path == ["phalanx", "launch"] and "--" in words:
        inner = words[words.index("--") + 1 :]
        words = words[: words.index("--")]
        check_command(inner)
    known = {"-h", "--help", *(name for param in command.params for name in (*param.opts, *param.secondary_opts))}
    for word in words:
        if re.match(r"--?[a-zA-Z]", word):
            assert word.partition("=")[0] in known, f"{' '.join(path)} has no {word}"
        elif is_setting(key := word.partition("=")[0]):
            check_setting(key)


@pytest.mark.parametrize(
    "text",
    ["phalanx tarin x", "phalanx train --epoch 3", "phalanx launch -n 2 -- train --epoch 3", "phalanx data see x"],
)
def test_a_wrong_command_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        check_command(next(commands(text)))


@pages()
def test_settings_and_flags_in_sentences_exist(page: Path) -> None:
    flags = all_flags(PHALANX)
    for span in spans(page.read_text(encoding="utf-8")):
        if re.match(r"--[a-z]", span):
            flag = re.split(r"[=\s]", span)[0]
            assert flag in flags | FOREIGN, f"no command has {flag}"
        elif is_setting(key := re.split(r"[=\s]", span)[0]):
            check_setting(key)


def all_flags(command: Any) -> set[str]:
    own = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return own.union({"--help"}, *(all_flags(inner) for inner in getattr(command, "commands", {}).values()))


def is_setting(key: str) -> bool:
    section, dot, rest = key.partition(".")
    return (
        bool(dot)
        and section in SECTIONS
        and re.fullmatch(r"[a-z_0-9.]+", rest) is not None
        and not key.endswith(FILE_ENDINGS)
    )


def check_setting(key: str) -> None:
    known = key in setting_keys() or any(
        key.startswith(f"{name}.") for name in setting_keys() if name.endswith(".options")
    )
    assert known, f"there is no setting {key}"


@pages()
def test_python_blocks_use_what_is_public(page: Path) -> None:
    for node in (node for block in python_blocks(page) for node in ast.walk(ast.parse(block))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "phalanx":
            assert node.attr in phalanx.__all__, f"phalanx.{node.attr} is not public"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "run":
            assert hasattr(Run, node.attr) or node.attr == "path" or page.stem == "your-own-code", f"run.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("phalanx.train", "phalanx.launch"):
            known = {*inspect.signature(phalanx.train).parameters, *inspect.signature(phalanx.launch).parameters}
            assert {str(given.arg) for given in node.keywords} <= known, ast.unparse(node)


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_every_public_name_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"heading: phalanx\.(\w+)", text)) == sorted(phalanx.__all__)


@pytest.mark.parametrize(("title", "most"), [("One batch", 12), ("One launch", 10)])
def test_tours_are_short(title: str, most: int) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition(f"## {title}")[2].partition("\n## ")[0]
    stops = re.findall(r"^(\d+)\. ", section, re.MULTILINE)
    assert stops == [str(number) for number in range(1, len(stops) + 1)]
    assert 0 < len(stops) <= most
