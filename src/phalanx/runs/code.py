"""RUN/code: the copy of the user's own code that a run was trained with."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from phalanx.atomic import make_folder, write_text_atomically
from phalanx.config.schema import CodeConfig, RunConfig
from phalanx.custom.code import CodeFile
from phalanx.custom.installed import FOLDER, install
from phalanx.errors import UserError

_BEFORE = f"{FOLDER}-before-"  # what RUN/code was before a changed file was accepted: code-before-1


def write_code(run: Path, files: Sequence[CodeFile]) -> bool:
    """Write the copy. One that differs is kept beside it, for checkpoints that were trained with it. False: no code."""
    folder = run / FOLDER
    if not files or all(_text(folder / file.name) == file.text for file in files):
        return bool(files)
    try:
        if folder.exists():
            number = next(n for n in range(1, 10_000) if not (run / f"{_BEFORE}{n}").exists())
            folder.rename(run / f"{_BEFORE}{number}")
        for file in files:
            make_folder((folder / file.name).parent)
            write_text_atomically(folder / file.name, file.text)
    except OSError as error:
        raise UserError(
            f"the copy of your code cannot be written to {folder}",
            why=error.strerror or str(error),
            remedy="make room, or correct the permissions",
        ) from error
    return True


def read_code(run: Path, code: CodeConfig) -> list[CodeFile] | None:
    """The copy whose digests are those of `code`; None where there is none."""
    for folder in (run / FOLDER, *sorted(run.glob(f"{_BEFORE}*"))):
        files = copy_in(folder, code)
        if len(files) == len(code.files) and all(file.digest == code.files[file.name] for file in files):
            return files
    return None


def copy_in(folder: Path, code: CodeConfig) -> list[CodeFile]:
    """The files of a copy as they are now."""
    texts = {name: _text(folder / name) for name in code.files}
    return [CodeFile(name, text, code.origins.get(name, name)) for name, text in texts.items() if text is not None]


def install_code(run: Path, config: RunConfig) -> None:
    """Have this process import the code that a checkpoint in this run's folder was trained with."""
    files = read_code(run, config.code) if config.code.files else []
    if files is None:
        there = {file.name: file.digest for file in copy_in(run / FOLDER, config.code)}
        wrong = [name for name, digest in config.code.files.items() if there.get(name) != digest]
        raise UserError(
            f"{run / FOLDER / wrong[0]} is not what this checkpoint was trained with",
            why="it has changed since" if wrong[0] in there else "it is not there",
            remedy=f"restore it: its SHA-256 was {config.code.files[wrong[0]]}",
        )
    install(files)


def first_difference(before: str, after: str) -> str:
    """The first line in which two texts differ, as `line 12 is now: …`."""
    old, new = before.splitlines(), after.splitlines()
    for tag, start, _, new_start, new_stop in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "delete":
            return f"line {start + 1} is gone: {old[start].strip()}"
        if tag != "equal":
            return f"line {new_start + 1} is now: {new[new_start:new_stop][0].strip()}"
    return "only the ends of lines differ"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
