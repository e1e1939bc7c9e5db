"""Slurm's compressed host lists: `n[1-3,7],m0` is n1, n2, n3, n7 and m0."""

import re
from collections.abc import Iterator
from itertools import islice

from phalanx.errors import UserError

_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")  # up to a comma that is outside brackets
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
MOST_NODES = 1 << 17  # of a list: no cluster has more
_MOST_BRACKETS = 16  # of a name


def expand(nodelist: str) -> list[str]:
    """Every host of a list, in order. Leading zeros stay: n[08-10] is n08, n09, n10."""
    items = _ITEM.findall(nodelist)
    if not items or ",".join(items) != nodelist or any(item.count("[") > _MOST_BRACKETS for item in items):
        raise _unreadable(nodelist)
    names = [name for item in items for name in islice(_expand_item(item, nodelist), MOST_NODES + 1)]
    if len(names) > MOST_NODES:
        raise _unreadable(nodelist)
    return names


def _expand_item(item: str, nodelist: str) -> Iterator[str]:
    bracket = _BRACKET.search(item)
    if bracket is None:
        yield item
        return
    for number in _numbers(bracket.group(1), nodelist):
        for rest in _expand_item(item[bracket.end() :], nodelist) if item[bracket.end() :] else [""]:
            yield item[: bracket.start()] + number + rest


def _numbers(ranges: str, nodelist: str) -> Iterator[str]:
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise _unreadable(nodelist)
        first, last = found.group(1), found.group(2) or found.group(1)
        if int(last) < int(first):
            raise _unreadable(nodelist)
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def counts(text: str) -> list[int]:
    """Slurm's compressed counts per node: `2(x3),1` is 2, 2, 2 and 1."""
    found = [re.fullmatch(r"(\d{1,9})(?:\(x(\d{1,9})\))?", part) for part in text.split(",")]
    if not all(found) or sum(int(part.group(2) or 1) for part in found if part) > MOST_NODES:
        raise UserError(
            f"{_shown(text)} is not a list of tasks per node",
            why="Slurm writes such a list as 2(x3),1",
            remedy="start the job with srun, or unset the SLURM_ variables",
        )
    return [int(part.group(1)) for part in found if part for _ in range(int(part.group(2) or 1))]


def _unreadable(nodelist: str) -> UserError:
    return UserError(
        f"{_shown(nodelist)} is not a list of hosts",
        why="Slurm writes such a list as n[1-3,7],m0",
        remedy="start the job with srun, or set MASTER_ADDR to the first host",
    )


def _shown(text: str) -> str:
    return repr(text if len(text) < 200 else text[:200] + " …")
