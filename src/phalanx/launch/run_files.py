"""Files of a run's folder on a host: what an agent, or the launching host itself, reads and writes there."""

import base64
import os
import socket
from pathlib import Path
from typing import NamedTuple

from phalanx.atomic import PART, sync
from phalanx.custom.installed import FOLDER as FOLDER_OF_CODE
from phalanx.errors import UserError
from phalanx.runs.checkpoint import FOLDER, MANIFEST, latest_path, path_of, verify
from phalanx.runs.events import EVALUATOR_EVENTS_FILE, EVENTS_FILE
from phalanx.runs.rewind import find_step

PIECE_BYTES = 1 << 20
CONFIG = "config.yaml"
CODE = FOLDER_OF_CODE  # the user's own code
NEEDED = (CONFIG, EVENTS_FILE, EVALUATOR_EVENTS_FILE)  # besides a checkpoint, to go on with a run
SMALL = (*NEEDED, "log.txt", "summary.json", "curves.png", "curves.svg", "quarantine.tsv")


def refuse_taken(run: Path) -> None:
    """A folder that holds a run is not to get another."""
    if (run / EVENTS_FILE).exists():
        raise UserError(
            f"{run} holds a run already",
            why="two runs in one folder could not be told apart",
            remedy="go on with --resume, or choose another --out",
        )


def mark(run: Path, name: str, how: str) -> bool:
    """Whether a folder has a mark; `make` puts one there, `drop` takes it away, `look` only looks.

    A name that nobody has looked for before is the one thing that a copy of a folder, or a cache of a shared disk,
    cannot have.
    """
    path = run / f".{name}"
    if how == "make":
        path.touch()
    if how == "drop":
        path.unlink(missing_ok=True)
    return path.exists()


class Saved(NamedTuple):
    """A checkpoint: its files, as names within the run's folder, and what its manifest says of their content."""

    files: list[str]
    manifest: str

    @property
    def step(self) -> str:
        """The folder that they are in, which names the step; empty where there is no checkpoint."""
        return self.files[0].rpartition("/")[0] if self.files else ""


def saved_checkpoint(run: Path, step: int | None) -> Saved:
    """The checkpoint of a step, or the newest; without files where there is none."""
    path = latest_path(run / FOLDER) if step is None else path_of(run / FOLDER, step)
    if path is None or not path.is_dir():
        return Saved([], "")
    manifest = path / MANIFEST
    files = sorted(f"{FOLDER}/{path.name}/{file.name}" for file in path.iterdir())
    return Saved(files, manifest.read_text(encoding="utf-8") if manifest.exists() else "")


def verify_step(run: Path, step: int) -> None:
    """Refuse to go on from a checkpoint that is not here, or not whole."""
    verify(find_step(run / FOLDER, step))


def read_piece(run: Path, name: str, offset: int) -> str | None:
    """A piece of a file, in base 64: empty at its end, None where there is no such file."""
    try:
        with (run / name).open("rb") as file:
            file.seek(offset)
            return base64.b64encode(file.read(PIECE_BYTES)).decode()
    except FileNotFoundError:
        return None


def write_piece(run: Path, name: str, offset: int, piece: str) -> None:
    """Take a piece of a file; the last one is empty and moves it into place. A file that has grown is replaced.

    A piece arrives with each message, so the unfinished file has a name that the next call finds, and not a random one
    as in `write_atomically`.
    """
    path = run / name
    part = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}{PART}")
    if offset == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(b"")
    content = base64.b64decode(piece)
    if content:
        with part.open("ab") as file:
            file.write(content)
    else:
        sync(part)
        part.rename(path)
