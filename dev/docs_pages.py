"""Pages of the documentation that are made from the code, so that no copy of a fact can grow old. mkdocs runs this."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from phalanx.cli.main import app
from phalanx.config.flags import FLAGS
from phalanx.config.recipes import CLAIM_PARTS, load_recipe, recipe_names
from phalanx.config.resolve import merge_layers, setting_keys
from phalanx.config.schema import RunConfig

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/phalanx-train/phalanx/blob/main"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages (mkdocs calls this when it has listed the folder)."""
    for place, text in pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def pages() -> dict[str, str]:
    """Every generated page by its place below docs/."""
    return {
        "reference/commands.md": commands_page(),
        "reference/recipes.md": recipes_page(),
        "reference/settings.md": settings_page(),
        "contributing.md": _from_root("CONTRIBUTING.md"),
        "changelog.md": _from_root("CHANGELOG.md"),
        "report-vulnerability.md": _from_root("SECURITY.md"),
    }


def _from_root(name: str) -> str:
    """A page that stands beside README.md. Its links are written as seen from there."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    text = re.sub(r"\]\((CHANGELOG|CONTRIBUTING)\.md", lambda found: found[0].lower(), text)
    return re.sub(r"\]\(((?:src|tests|examples|dev|\.ci)[/)][^)]*|README\.md)", rf"]({REPOSITORY}/\1", text)


# The command line


def commands_page() -> str:
    """Every command with its arguments and options, from the same text as `--help`."""
    lines = [
        "# Command line",
        "",
        "`phalanx COMMAND --help` prints the same. Options of `train` are short names of [settings](settings.md); any",
        "setting can also be given as `KEY=VALUE`.",
        "",
    ]
    for path, command in commands(typer.main.get_group(app), ("phalanx",)):
        lines += _command(path, command)
    return "\n".join(lines)


def commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is not hidden, below a group, with the words that call it."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    arguments = [param for param in command.params if not param.opts[0].startswith("-")]
    options = [param for param in command.params if param.opts[0].startswith("-") and not param.hidden]
    name = " ".join(path)
    words = [
        param.metavar or (param.name.upper() if param.required else f"[{param.name.upper()}]") for param in arguments
    ]
    yield f"## {name} {{ #{'-'.join(path[1:])} }}\n"
    yield f"{command.help}\n"
    yield f"    {' '.join([name, *words, *(['[OPTIONS]'] if options else [])])}\n"
    if arguments or options:
        yield "| argument or option | default | meaning |"
        yield "| --- | --- | --- |"
        for word, param in zip(words, arguments, strict=True):
            yield _row(_code(word), "", param.help)
        for param in options:
            yield _row(", ".join(map(_code, [*param.opts, *param.secondary_opts])), _default(param), param.help)
        yield ""


def _default(param: Any) -> str:
    if param.required:
        return "required"
    return "" if param.default in (None, False, "") else _code(str(param.default))


# Recipes


def recipes_page() -> str:
    """Every recipe with its claim and its settings."""
    lines = [
        "# Recipes",
        "",
        "A recipe is a YAML file of [settings](settings.md). It opens with its claim: the accuracy, what it costs, the",
        "machine on which that was measured, and the command that repeats it. `phalanx recipes NAME` prints defaults",
        "and where each value comes from. [Training](../guide/training.md#recipes) says how to write your own.",
        "",
    ]
    for name in recipe_names():
        recipe = load_recipe(name)
        lines += [f"## {name}\n", "| | |", "| --- | --- |"]
        lines += [
            _row(part, _code(said) if part == "command" else said)
            for part in CLAIM_PARTS
            if (said := recipe.claim.get(part))
        ]
        settings = merge_layers(recipe.layers)
        settings.pop("name", None)
        shown = [_yaml_line(section, values) for section, values in settings.items()]
        lines += ["", "```yaml", *recipe.comments, *shown, "```", ""]
    return "\n".join(lines)


def _yaml_line(section: str, values: Any) -> str:
    return f"{section}: {yaml.safe_dump(values, default_flow_style=True, sort_keys=False, width=1000).strip()}"


# Settings


def settings_page() -> str:
    """Every setting with its default and meaning, from the schema."""
    lines = [
        "# Settings",
        "",
        "Every setting of a run. Write one as `KEY=VALUE` after `phalanx train`, or in a recipe. Durations are written",
        "`90ep` (epochs), `5000st` (steps), `1000000ex` (samples) or `10%` (of the run).",
    ]
    flags = {key: f"--{flag.replace('_', '-')}" for flag, (key, _) in FLAGS.items()}
    defaults = RunConfig().model_dump(mode="json")
    section = None
    for key in setting_keys():
        head = key.rpartition(".")[0] or "run"
        if head != section:
            section = head
            lines += ["", f"## {section}", "", "| setting | default | flag | meaning |", "| --- | --- | --- | --- |"]
        value, field = _find(defaults, key)
        meaning = "; ".join(filter(None, (field.description, _choices(field.annotation))))
        lines.append(_row(_code(key), _code(json.dumps(value)), _code(flags.get(key, "")), meaning))
    return "\n".join([*lines, ""])


def _find(defaults: dict[str, Any], key: str) -> tuple[Any, Any]:
    """(default, field of the schema) of a dotted key."""
    model: Any = RunConfig
    value: Any = defaults
    for part in key.split("."):
        field = model.model_fields[part]
        value = value[part]
        model = field.annotation
    return value, field


def _choices(annotation: Any) -> str:
    """The words that a setting may be, if it is one of a few."""
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(_code(str(word)) for word in get_args(annotation))
    return next(filter(None, map(_choices, get_args(annotation))), "")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _row(*cells: str | None) -> str:
    return "| " + " | ".join(_outside_code((cell or "").replace("\n", " ")) for cell in cells) + " |"


def _outside_code(text: str) -> str:
    """Text with its pipes escaped, but those in code, where mkdocs would show the escape."""
    parts = text.split("`")
    return "`".join(part if number % 2 else part.replace("|", "\\|") for number, part in enumerate(parts))
