"""Files with class names: a name per line, `0 name` lines, and JSON maps in either direction."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.config.text import read_json

LONGEST_NAME = 200
LARGEST_FILE_BYTES = 20_000_000
_NUMBER_FIRST = re.compile(r"(\d+)\s*[\s:,=]\s*(\S.*)")
_NUMBER_LAST = re.compile(r"(.*\S)\s*[\s:,=]\s*(\d+)")


class NoNames(Exception):
    """A file that does not name classes, and why."""


@dataclass(frozen=True)
class NameFile:
    """The names in a file, by the number of the class, counted from 0; or by another key, such as a folder's name."""

    by_number: list[str] | None
    by_key: Mapping[str, str]


def read_names(path: Path) -> NameFile:
    """The class names in a file; NoNames if it is another kind of file."""
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise NoNames("it is too large for a list of names")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise NoNames(error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise NoNames("it is not UTF-8 text") from error
    found = _of_json(text) if path.suffix.lower() == ".json" else _of_lines(text)
    _refuse_odd(list(found.by_key.values()) if found.by_number is None else found.by_number)
    return found


def _of_lines(text: str) -> NameFile:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        raise NoNames("it is empty")
    for pattern, number, name in ((_NUMBER_FIRST, 1, 2), (_NUMBER_LAST, 2, 1)):
        pairs = [pattern.fullmatch(line) for line in lines]
        by_number = {pair[number]: pair[name] for pair in pairs if pair}
        # Otherwise a number is part of the name: `garment 1`, `garment 2`.
        if len(set(by_number.values())) == len(lines) and _counted(by_number) is not None:
            return _keyed(by_number)
    return NameFile(lines, {})


def _of_json(text: str) -> NameFile:
    try:
        found = read_json(text)
    except ValueError as error:
        raise NoNames(f"it is not JSON: {error}") from error
    if isinstance(found, list) and found:
        return _of_list(found)
    if not isinstance(found, dict) or not found:
        raise NoNames("it is neither a list nor a map of names")
    if all(isinstance(value, int) and not isinstance(value, bool) for value in found.values()):
        return _keyed({str(number): name for name, number in found.items()}, expected=len(found))
    values = {key: _name(value) for key, value in found.items()}
    if None in values.values():
        raise NoNames("its values are neither numbers nor names")
    return _keyed({key: str(value) for key, value in values.items()})


def _of_list(found: Sequence[Any]) -> NameFile:
    if all(isinstance(name, str) for name in found):
        return NameFile([str(name) for name in found], {})
    if all(isinstance(one, dict) and isinstance(one.get("name"), str) and "id" in one for one in found):
        return _keyed({str(one["id"]): one["name"] for one in found}, expected=len(found))
    raise NoNames("it lists something else than names")


def _name(value: Any) -> str | None:
    """A name; of ImageNet's [wnid, word] the first, as words are not unique and folders have wnids."""
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return str(value[0])
    return value if isinstance(value, str) else None


def _keyed(by_key: dict[str, str], expected: int | None = None) -> NameFile:
    if expected is not None and len(by_key) != expected:
        raise NoNames("two names have the same number")
    return NameFile(_counted(by_key), by_key)


def _counted(by_key: Mapping[str, str]) -> list[str] | None:
    """The names in order, where the keys are 0, 1, 2 and so on."""
    numbers = [str(number) for number in range(len(by_key))]
    return [by_key[number] for number in numbers] if by_key.keys() == set(numbers) else None


def _refuse_odd(names: Sequence[str]) -> None:
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise NoNames(f"{name[:LONGEST_NAME]!r} is there {times} times")
    odd = next((name for name in names if not name or len(name) > LONGEST_NAME or not name.isprintable()), None)
    if odd is not None:
        raise NoNames(f"{odd[:40]!r} is not a class name")
