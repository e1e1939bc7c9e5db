"""The environments of peers: this one, or one that the user names."""

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from phalanx.bench import turns
from phalanx.errors import UserError, nearest

IMPORT_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Found:
    """Peers that can run, with their Pythons and versions; and those that are missing."""

    pythons: dict[str, str]
    versions: dict[str, str]
    absent: list[str]


def parse_environments(texts: Iterable[str]) -> dict[str, str]:
    """`NAME=PATH`, where the path is a Python or the folder of a virtual environment."""
    found = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not path:
            raise UserError(
                f"--peer-env {text!r} names no Python",
                why="it is written NAME=PATH",
                remedy="such as --peer-env tensorflow=/path/to/environment",
            )
        python = Path(path).expanduser()
        found[name] = str(python / "bin" / "python" if python.is_dir() else python)
    return found


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise UserError(f"{name!r} is not a known peer", why="unknown name", remedy=nearest(name, known))


def find_peers(modules: Mapping[str, Sequence[str]], wanted: Sequence[str] | None, given: Mapping[str, str]) -> Found:
    """Find the peers (None: all) whose modules are installed in their environments."""
    found = Found({}, {}, [])
    for name, needed in modules.items():
        if wanted is None or name in wanted or name in given:
            python = given.get(name, sys.executable)
            version = _version(python, needed)
            if version is None:
                found.absent.append(name)
            else:
                found.pythons[name], found.versions[name] = python, version
    return found


def peer_command(python: str, file: str, name: str, job: str) -> list[str]:
    """The command that runs a peer. The file's own folder must not be on the module path: it has an io.py."""
    return [python, "-P", str(Path(turns.__file__)), str(Path(file)), name, job]


def _version(python: str, modules: Sequence[str]) -> str | None:
    """The version of the first module, "" if unknown; None if a module is missing."""
    if python == sys.executable:
        if not all(find_spec(module.partition(".")[0]) and find_spec(module) for module in modules):
            return None
        try:
            return version(modules[0])
        except PackageNotFoundError:  # the package has another name
            return ""
    program = "; ".join(f"import {module}" for module in modules)
    program += f"; print(getattr({modules[0]}, '__version__', ''))"
    try:
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(
            f"{python} does not run",
            why=str(error),
            remedy="give a Python or a virtual environment's folder: --peer-env NAME=PATH",
        ) from error
    return (done.stdout.splitlines() or [""])[-1].strip() if done.returncode == 0 else None
