"""All the user's code that a configuration names: files that travel with the job, and installed modules."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.custom.code import CodeFile, digest_of, is_installed, module_path, read_with_imports
from phalanx.custom.installed import FOLDER, merged
from phalanx.custom.load import no_such_module
from phalanx.custom.reference import parse, parse_strictly


@dataclass(frozen=True)
class Collected:
    """`names` says how each reference is written from now on: `code/nets.py:TinyNet` for `nets.py:TinyNet`."""

    files: tuple[CodeFile, ...]
    packages: dict[str, str]  # installed module → SHA-256 of its file
    names: dict[str, str]


def collect(references: Iterable[str]) -> Collected:
    """Read what references name, without importing it."""
    files: list[CodeFile] = []
    packages: dict[str, str] = {}
    names: dict[str, str] = {}
    for text in references:
        found = parse_strictly(text)
        path = Path(found.place) if found.is_file else module_path(found.place)
        if path is None:
            raise no_such_module(found)
        if not found.is_file and is_installed(path):
            packages[found.place] = digest_of(path)
            continue
        read = read_with_imports(path)
        files += read
        names[text] = f"{FOLDER}/{read[0].name}:{found.name}"
    return Collected(tuple(merged(files)), packages, names)


def original(value: Any, origins: Mapping[str, str]) -> Any:
    """A setting's value with references to the run's copy replaced by the files that it was made from."""
    if isinstance(value, list):
        return [original(inner, origins) for inner in value]
    if isinstance(value, dict):
        return {name: original(inner, origins) for name, inner in value.items()}
    found = parse(value) if isinstance(value, str) else None
    if found is None or not found.place.startswith(f"{FOLDER}/"):
        return value
    origin = origins.get(found.place.removeprefix(f"{FOLDER}/"))
    return f"{origin}:{found.name}" if origin else value
