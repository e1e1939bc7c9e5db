"""Files of a run folder, as an agent or the launching host reads and writes them."""

import base64
import os
import socket
from pathlib import Path
from typing import NamedTuple

from phalanx.atomic import PART, make_folder, sync, sync_names
from phalanx.config.text import read_json
from phalanx.custom.installed import FOLDER as FOLDER_OF_CODE
from phalanx.errors import UserError
from phalanx.runs.checkpoint import FOLDER, MANIFEST, latest_path, path_of, verify
from phalanx.runs.events import EVALUATOR_EVENTS_FILE, EVENTS_FILE
from phalanx.runs.rewind import find_step

CHUNK_BYTES = 1 << 20
CONFIG = "config.yaml"
CODE = FOLDER_OF_CODE  # the user's own code
NEEDED = (CONFIG, EVENTS_FILE, EVALUATOR_EVENTS_FILE)  # besides a checkpoint, to go on with a run
SMALL = (*NEEDED, "log.txt", "summary.json", "curves.png", "curves.svg", "quarantine.tsv")


def refuse_taken(run: Path) -> None:
    """Refuse a folder that holds a run already."""
    if (run / EVENTS_FILE).exists():
        raise UserError(
            f"{run} holds a run already",
            why="a folder holds one run",
            remedy="continue it with --resume, or choose another --out",
        )


def marker(run: Path, name: str, action: str) -> bool:
    """ "create", "remove" or "check" a marker file. Returns whether it exists.

    Two hosts share a disk if one sees the other's marker. Its name is new and random: neither a copy of the folder nor
    a cache of the shared disk can have it.
    """
    path = inside(run, f".{name}")
    if action == "create":
        path.touch()
    if action == "remove":
        path.unlink(missing_ok=True)
    return path.exists()


class Saved(NamedTuple):
    """A checkpoint: its files, relative to the run folder, and the text of its manifest."""

    files: list[str]
    manifest: str

    @property
    def step(self) -> str:
        """The folder of its files, which names the step; empty if there is no checkpoint."""
        return self.files[0].rpartition("/")[0] if self.files else ""

    @property
    def num_bytes(self) -> int:
        """As its manifest says; 0 where that is damaged."""
        try:
            return sum(int(file["bytes"]) for file in read_json(self.manifest).values())
        except (ValueError, TypeError, KeyError, AttributeError):
            return 0


def saved_checkpoint(run: Path, step: int | None) -> Saved:
    """The checkpoint of a step, or the newest; without files if there is none."""
    path = latest_path(run / FOLDER) if step is None else path_of(run / FOLDER, step)
    if path is None or not path.is_dir():
        return Saved([], "")
    manifest = path / MANIFEST
    files = sorted(f"{FOLDER}/{path.name}/{file.name}" for file in path.iterdir())
    return Saved(files, manifest.read_text(encoding="utf-8", errors="replace") if manifest.is_file() else "")


def verify_step(run: Path, step: int) -> None:
    """Refuse a checkpoint that is missing or damaged."""
    verify(find_step(run / FOLDER, step))


def inside(run: Path, name: str) -> Path:
    """The path of a file of the run that another host has named; refuses one outside of the run's folder."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or "\0" in name:
        raise UserError(
            f"another host named the file {name!r}",
            why="it is not inside of the run's folder",
            remedy="check that the hosts of the job run Phalanx, and nothing else answers in their place",
        )
    return run / name


def read_chunk(run: Path, name: str, offset: int) -> str | None:
    """A chunk of a file in base 64: empty at the end of the file, None if there is no such file."""
    try:
        with inside(run, name).open("rb") as file:
            file.seek(offset)
            return base64.b64encode(file.read(CHUNK_BYTES)).decode()
    except FileNotFoundError:
        return None


def write_chunk(run: Path, name: str, offset: int, chunk: str) -> None:
    """Write a chunk of a file. The last chunk is empty and moves the file into place.

    Each message has one chunk, so the unfinished file has a fixed name, unlike in `write_atomically`.
    """
    path = inside(run, name)
    part = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}{PART}")
    if offset == 0:
        make_folder(path.parent)
        part.write_bytes(b"")
    content = base64.b64decode(chunk)
    if content:
        with part.open("ab") as file:
            file.write(content)
    else:
        sync(part)
        part.rename(path)
        sync_names(path.parent)
