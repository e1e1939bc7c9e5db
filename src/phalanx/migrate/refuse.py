"""An old spelling that is typed is refused with the new one, from the same table."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand

from phalanx.errors import UserError
from phalanx.migrate.table import Row, systems

# What both of the vendored and the separate click call a mistake in the command line.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class MigratingCommand(TyperCommand):
    """A command that knows how other systems spell its flags. Nothing of the table is read unless one is mistyped."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            own = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
            taking = {
                name for parameter in self.params if not getattr(parameter, "is_flag", True) for name in parameter.opts
            }
            explained = refusal(self.name or "", given, own, taking)
            if explained is None:
                raise
            raise explained from error


@dataclass(frozen=True)
class _Found:
    """An old spelling on a command line, its value, and the rows that know it, by system."""

    word: str
    value: str | None
    rows: dict[str, Row]
    behind: bool  # typed before --, but belongs to `train`


def refusal(command: str, words: Sequence[str], own: Collection[str], taking: Collection[str]) -> UserError | None:
    """The error for a command line with old spellings; None where there are none.

    `own` are the command's flags, `taking` those of them that take a value.
    """
    found = list(_old_spellings(command, words, own, taking))
    if not found:
        return None
    names = list(dict.fromkeys(system for one in found for system in one.rows))
    # Of several systems, the one that knows most of the line is the one that it comes from.
    most = max((sum(name in one.rows for one in found) for name in names), default=0)
    likely = [name for name in names if sum(name in one.rows for one in found) == most]
    spelled = ", ".join(dict.fromkeys(one.word for one in found))
    them = "it" if len({one.word for one in found}) == 1 else "them"
    verb = "spells" if len(likely) == 1 else "spell"
    why = f"{_and(likely)} {verb} {them} so" if likely else "words of a flag are joined by dashes"
    remedies, hints = _remedies(found, likely)
    return UserError(
        f"there is no {spelled}",
        why=why,
        remedy="; ".join([*remedies, *hints]) + " (see docs/migrate.md)" * bool(names),
    )


def _remedies(found: Sequence[_Found], likely: Sequence[str]) -> tuple[list[str], list[str]]:
    """What to write instead, in one line as far as it is sure; and what to leave out, and why."""
    write: list[str] = []
    behind: list[str] = []
    hints: list[str] = []
    for one in found:
        rows = [one.rows[name] for name in likely if name in one.rows] or list(one.rows.values())
        if not rows:
            write.append(_joined(one.word.replace("_", "-"), one.value))
            continue
        said = list(dict.fromkeys(row.translate(one.value) for row in rows if row.new))
        if said:
            (behind if one.behind or rows[0].behind else write).append(said[0])
        others = [*said[1:], *(_left_out(one.word, row) for row in rows if not row.new)]
        hints += [f"or {words}" if said else words for words in others]
    if behind:
        hints.insert(0, f"behind -- train: {' '.join(dict.fromkeys(behind))}")
    return ([" ".join(dict.fromkeys(write))] if write else []), list(dict.fromkeys(hints))


def _joined(word: str, value: str | None) -> str:
    return word if value is None else f"{word} {value}"


def _old_spellings(
    command: str, words: Sequence[str], own: Collection[str], taking: Collection[str]
) -> Iterator[_Found]:
    before = ""
    for position, whole in enumerate(words):
        if whole == "--":
            return
        word, equals, value = whole.partition("=")
        is_value = before in taking
        before = whole
        if is_value or not word.startswith("-") or word in own or word == "-":
            continue
        following = words[position + 1] if position + 1 < len(words) else "--"
        found = value if equals else None if following.startswith("-") else following
        rows = _rows(command, word)
        elsewhere = not rows and command == "launch"
        if elsewhere:
            rows = _rows("train", word)
        if rows or word.replace("_", "-") in own:
            yield _Found(word, found, rows, behind=bool(rows) and elsewhere)


def _rows(command: str, word: str) -> dict[str, Row]:
    """By system, the row that knows a flag of this command."""
    return {
        system.name: row
        for system in systems()
        for group in system.groups
        if group.kind == command
        for row in group.rows
        if word in row.names
    }


def setting_remedy(key: str, value: object) -> str:
    """What a setting of PaddleClas's files is here; empty where it is none of theirs."""
    from phalanx.migrate.paddleclas import key_row

    row = key_row(key)
    if row is None:
        return ""
    if row.new:
        return f"that is PaddleClas's; here: {row.translate(None if value is None else str(value))}"
    return f"that is PaddleClas's; {_left_out('it', row)}"


def _left_out(word: str, row: Row) -> str:
    return f"leave {word} out, {'there is nothing like it' if row.lacking else 'it is not needed'}: {row.note}"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
