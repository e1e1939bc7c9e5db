"""The user's own code for a request: read once, when the job is started. A resumed run uses its copy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.config.schema import CodeConfig, RunConfig
from phalanx.custom.code import CodeFile
from phalanx.custom.collect import Collected, collect, original
from phalanx.custom.installed import FOLDER, merged
from phalanx.custom.reference import references, replaced
from phalanx.errors import UserError
from phalanx.roles.request import Request
from phalanx.runs.code import copy_in, first_difference, read_code

_ACCEPT = ("run", "new")  # --accept-code: the run's copy, or the user's files as they are now
_CHOICE = (
    "--accept-code run goes on with the run's copy, --accept-code new with your files as they are now; "
    "or start a new run"
)


def with_code(request: Request, accept: str | None = None) -> Request:
    """The request with the code that it names. `accept` chooses where files have changed since a resumed run began."""
    _refuse_misplaced(request, accept)
    config = request.config
    tree = config.model_dump(mode="json")
    copied = _of_the_copy(request, tree)
    if accept == "new":
        tree = replaced(tree, {text: str(original(text, config.code.origins)) for text in copied})
        copied = set()
    named = {text for texts in references(tree).values() for text in texts}
    if not named and not config.code.files:
        return request
    old = _copy_of(request, accept) if copied else []
    found = collect(sorted(named - copied))
    if request.resume is not None and accept != "new":
        _refuse_changed_packages(config.code, found)
    files = merged([*old, *(_with_first_origin(file, config.code) for file in found.files)])
    tree = replaced(tree, found.names)
    tree["code"] = {
        "files": {file.name: file.digest for file in files},
        "packages": found.packages,
        "origins": {file.name: file.origin for file in files},
    }
    resolved = request.resolved.with_config(RunConfig.model_validate(tree))
    return replace(request, resolved=resolved, code=tuple(files))


def _refuse_misplaced(request: Request, accept: str | None) -> None:
    if accept is not None and accept not in _ACCEPT:
        raise UserError(f"--accept-code cannot be {accept!r}", why="it chooses one of two", remedy=_CHOICE)
    if accept is not None and request.resume is None:
        raise UserError(
            "--accept-code does not go without --resume",
            why="it chooses between a run's copy of your code and your files",
            remedy="leave it out: a new run uses your files as they are",
        )


def _of_the_copy(request: Request, tree: dict[str, Any]) -> set[str]:
    """The references that a resumed run has had before, to files of its copy."""
    origins = request.resolved.origins
    return {
        text
        for key, texts in references(tree).items()
        for text in texts
        if request.resume is not None and origins.get(key) == request.resumed_from and text.startswith(f"{FOLDER}/")
    }


def _with_first_origin(file: CodeFile, code: CodeConfig) -> CodeFile:
    """A file of a copy, where a run's config.yaml is used as a recipe: it still is the user's file."""
    same = code.files.get(file.name) == file.digest and file.name in code.origins
    return replace(file, origin=code.origins[file.name]) if same else file


def _copy_of(request: Request, accept: str | None) -> list[CodeFile]:
    """The run's copy, if it is as it was and the user's files are the same; or as accepted."""
    assert request.resume is not None
    run, code = request.resume.path, request.config.code
    here = copy_in(run / FOLDER, code)
    missing = code.files.keys() - {file.name for file in here}
    if missing:
        raise UserError(
            f"{run / FOLDER / min(missing)} is missing",
            why="a run is resumed with its own copy of your code",
            remedy=f"restore it, or --accept-code new uses {code.origins.get(min(missing), 'your file')}",
        )
    if accept == "run":
        return here
    files = read_code(run, code)
    if files is None:
        name = next(file.name for file in here if file.digest != code.files[file.name])
        raise UserError(
            f"{run / FOLDER / name} has changed since the run used it",
            why="it is the run's copy of your code, so that the run can go on as it began",
            remedy=f"restore it (its SHA-256 was {code.files[name]}); or {_CHOICE}",
        )
    for file in files:
        _refuse_changed(file, run)
    return files


def _refuse_changed(file: CodeFile, run: Path) -> None:
    try:
        now = Path(file.origin).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return  # moved, or on another host: the copy is what counts
    if now != file.text:
        raise UserError(
            f"{file.origin} has changed since {run} was started",
            why=f"{first_difference(file.text, now)}; the run's copy is {run / FOLDER / file.name}",
            remedy=_CHOICE,
        )


def _refuse_changed_packages(code: CodeConfig, found: Collected) -> None:
    for module, digest in found.packages.items():
        if code.packages.get(module, digest) != digest:
            raise UserError(
                f"the installed module {module} has changed since the run was started",
                why=f"its SHA-256 was {code.packages[module][:12]}… and is {digest[:12]}…",
                remedy="install the version that the run was started with, or --accept-code new",
            )
