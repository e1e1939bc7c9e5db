"""Patterns that select parameters by name: `layer1`, `layer1.*`, `*.bias`."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from phalanx.errors import UserError, nearest


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern selects a parameter: by its name, or by the name of a module that contains it."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def factor_of(name: str, rates: Mapping[str, float]) -> float:
    """The factor of a parameter's learning rate. Where several patterns select it, the last one counts."""
    return next((factor for pattern, factor in reversed([*rates.items()]) if matches(pattern, name)), 1.0)


def refuse_unmatched(setting: str, patterns: Iterable[str], names: Iterable[str]) -> None:
    """Raise where a pattern selects no parameter: it is a typing error, or meant for another model."""
    known = list(names)
    modules = sorted({name.rsplit(".", depth)[0] for name in known for depth in range(name.count(".") + 1)})
    for pattern in patterns:
        if not any(matches(pattern, name) for name in known):
            raise UserError(
                f"{setting}: {pattern!r} selects no parameter of the model",
                why=f"the model has {len(known):,} parameters, such as {', '.join(known[:3])}",
                remedy=f"write a name or a pattern such as {modules[0]}.*; {nearest(pattern.strip('*.'), modules)}",
            )
