"""The folder that a job packs into: one job at a time, and only a new folder or one of the same job."""

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phalanx.atomic import PART
from phalanx.data.pack.parquet import CARD
from phalanx.data.pack.parquet import FOLDER as DATA_FOLDER
from phalanx.data.pack.tfrecord import LABELS
from phalanx.data.sources.manifest import CLASSES, MANIFEST, Manifest, load_manifest
from phalanx.errors import UserError

SHARDS = r"(?:train|val)-\d{5,}(?:-of-\d{5,})?\.(?:tar|rec|idx|lst|raw|tfrecord|sha256)"
BESIDE = (MANIFEST, CLASSES, LABELS, CARD, DATA_FOLDER, "train", "val")
OURS = re.compile(rf"(?:{SHARDS}|{'|'.join(map(re.escape, BESIDE))})(?:{re.escape(PART)})?")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A lock on the folder: one job at a time. A process that dies releases it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"{folder} is being packed into by another process",
                why="two jobs that write the same files would damage them",
                remedy="wait for it to end, or choose another folder",
            ) from error
        except OSError:  # some network file systems cannot lock a folder
            pass
        yield
    finally:
        os.close(descriptor)


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder with other files: no data is overwritten or mixed with ours."""
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    started = MANIFEST in names
    foreign = [name for name in names if not (started and OURS.fullmatch(name))]
    if foreign:
        shown = ", ".join(foreign[:5]) + (f" … ({len(foreign):,} in all)" if len(foreign) > 5 else "")
        raise UserError(
            f"{folder} is not empty",
            why=f"it holds {shown}, which `phalanx data pack` did not write",
            remedy="choose a folder that is new or empty",
        )


def interrupted(folder: Path, wanted: Manifest) -> Manifest | None:
    """The manifest of the same job, interrupted; None in a new folder. Any other job is refused."""
    found = load_manifest(folder)
    if found is None:
        return None
    before, now = found.options.model_dump(), wanted.options.model_dump()
    changed = [f"{name} {_shown(before[name])}, now {_shown(now[name])}" for name in now if before[name] != now[name]]
    state = "finished" if found.finished else "started"
    if changed:
        raise UserError(
            f"{folder} holds a pack that was {state} with other options",
            why=f"it had {'; '.join(changed)}",
            remedy=f"go on with `{found.command}`, or pack into another folder",
        )
    if found.fingerprints != wanted.fingerprints or found.classes != wanted.classes:
        raise UserError(
            f"{folder} holds a pack that was {state} from other data",
            why=f"its source was {found.source}, and its samples, labels, sizes or times are not those of "
            f"{wanted.source} as it is now",
            remedy="pack into another folder, or remove this one first",
        )
    return found


def sweep(folder: Path) -> None:
    """Remove unfinished files of interrupted jobs."""
    for pattern in (f"*{PART}", f"{DATA_FOLDER}/*{PART}", f"train/*/.*{PART}", f"val/*/.*{PART}"):
        for entry in folder.glob(pattern):
            entry.unlink()


def unwritable(folder: Path, error: OSError) -> UserError:
    """The error for a full disk or missing permissions. Finished shards stay."""
    kept = 0
    with contextlib.suppress(UserError, OSError):
        found = load_manifest(folder)
        kept = 0 if found is None else sum(map(len, found.splits.values()))
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return UserError(
        f"the pack cannot be written to {folder}",
        why=(error.strerror or str(error)) + (f"; {kept} finished shards are kept" if kept else ""),
        remedy=("make room" if full else "fix the permissions, or choose another folder")
        + "; the same command goes on after the finished shards",
    )


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)
