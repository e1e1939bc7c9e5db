"""docs/migrate.md, made of the table."""

import textwrap
from collections.abc import Iterator

from phalanx.migrate.model_names import FAMILIES, SHORT_NAMES
from phalanx.migrate.table import Example, Group, Row, Scope, System, systems

HEAD = """\
# From your system to Phalanx

Flags, configuration keys and variables of five other systems, and what to write instead. Tests check each row:
they parse flags, resolve settings, read variables and run examples. `python -m phalanx.migrate > docs/migrate.md`
writes this page from the table in `src/phalanx/migrate/`.

You need not read it to begin. Type the command as you know it, and the error names the new flags:

    $ phalanx train --network resnet --num-layers 50 --gc-type 2bit
    error: there is no --network, --num-layers, --gc-type
      why: MXNet spells them so
      try: --model resnet model.options.num_layers=50 --compress 2bit (see docs/migrate.md)

Write settings (`optim.lr=0.1`) among the flags of `phalanx train`, or in a recipe. *Not needed* means that you can
leave it out; *not there* means that Phalanx has nothing like it.
"""
ON_TOP: dict[Scope, tuple[str, str]] = {
    "train": ("there", "`phalanx train`"),
    "launch": ("there", "`phalanx launch`"),
    "serve-data": ("there", "`phalanx serve-data`"),
    "keys": ("key", "setting or flag"),
    "variables": ("variable", "here"),
}


def document() -> str:
    """The whole page."""
    lines = [HEAD]
    lines += [f"- [{system.title}](#{_anchor(system.title)})" for system in systems()]
    lines += ["- [Names of networks](#names-of-networks)", ""]
    for system in systems():
        lines += _system(system)
    lines += _networks()
    return "\n".join(lines).rstrip() + "\n"


def _system(system: System) -> Iterator[str]:
    yield f"## {system.title}\n"
    yield textwrap.fill(system.words, 120, break_on_hyphens=False, break_long_words=False) + "\n"
    for example in system.examples:
        yield from _example(example)
    for group in system.groups:
        yield from _group(group)


def _example(example: Example) -> Iterator[str]:
    yield "```sh"
    yield from (f"# {line}" for line in example.old.splitlines())
    yield from example.new.splitlines()
    yield "```"
    yield f"\n{example.note[0].upper()}{example.note[1:]}.\n" if example.note else ""


def _group(group: Group) -> Iterator[str]:
    yield f"### {group.title}\n"
    there, here = ON_TOP[group.kind]
    yield f"| {there} | {here} | |"
    yield "| --- | --- | --- |"
    yield from (_row(row) for row in group.rows)
    yield ""


def _row(row: Row) -> str:
    old = ", ".join(f"`{name}`" for name in row.names)
    if row.example:
        old += f" `{row.example}`"
    if row.understood:
        return _cells(old, "understood as it is", row.note)
    if not row.new:
        return _cells(old, "not there" if row.lacking else "not needed", row.note)
    remarks = [row.note] if row.note else []
    remarks += [f"`{value}`: `{words}`" for value, words in row.values.items() if value != row.example]
    if row.behind:
        remarks.insert(0, "behind `--`")
    return _cells(old, f"`{row.translate(None)}`", "; ".join(remarks))


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _networks() -> Iterator[str]:
    yield "## Names of networks\n"
    short = ", ".join(f"`{name}`" for name in SHORT_NAMES)
    yield "`--model` takes the usual names of all five systems, whatever their capitals and dashes: `inception-bn`,"
    yield "`ResNet50_vd`, `SE_ResNeXt50_32x4d`, `MobileNetV3_large_x1_0`. `phalanx models` lists ours with"
    yield f"what they cost; {short} where a pattern fits them."
    yield "Of a family, `model.options.num_layers` chooses one:\n"
    yield "| family | layers, and the network here |"
    yield "| --- | --- |"
    for family, (known, usual) in FAMILIES.items():
        each = ", ".join(f"{depth}{' (default)' * (depth == usual)}: `{name}`" for depth, name in known.items())
        yield f"| `{family.replace('_', '-')}` | {each} |"


def _anchor(title: str) -> str:
    kept = "".join(sign for sign in title.lower() if sign.isalnum() or sign in " -_")
    return kept.replace(" ", "-")
