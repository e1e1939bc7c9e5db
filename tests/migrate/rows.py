"""The rows of the table, for parametrized tests."""

from collections.abc import Iterator

from phalanx.migrate.table import Group, Row, Scope, systems


def groups() -> Iterator[tuple[str, Group]]:
    for system in systems():
        for group in system.groups:
            yield system.name, group


def rows(*kinds: Scope) -> list[tuple[str, Scope, Row]]:
    return [
        (name, group.kind, row) for name, group in groups() if not kinds or group.kind in kinds for row in group.rows
    ]


def label(value: object) -> str | None:
    return value.names[0] if isinstance(value, Row) else None
