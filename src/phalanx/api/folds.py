"""Cross-validation: a run for each fold, one after the other, and one table at the end."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from phalanx.api.parts import ANYWHERE, is_done
from phalanx.config.flags import OWN
from phalanx.config.resolve import DEFAULT, Layer, nest, resolve
from phalanx.config.schema import RunConfig
from phalanx.custom.installed import FOLDER as CODE
from phalanx.errors import EXIT_USER, UserError
from phalanx.roles.request import Request, resume_request
from phalanx.roles.result import Result
from phalanx.runs import checkpoint
from phalanx.runs.code import write_code
from phalanx.runs.fold_paths import FOLDS_FILE, begun_folds, fold_path
from phalanx.runs.folder import RunFolder, create_run
from phalanx.runs.folds_file import write_folds

# (a fold's request; its folder if it has begun and saved nothing; the console)
StartFold = Callable[[Request, RunFolder | None, Console | None], Result]


def is_cross_validated(config: RunConfig) -> bool:
    """Whether the configuration asks for all folds, and not for one of them."""
    return config.data.folds is not None and config.data.fold is None


def refuse_folds(config: RunConfig, who: str) -> None:
    """Refuse all folds where one job is started."""
    if is_cross_validated(config):
        folds, workers = config.data.folds, config.exchange.workers
        raise UserError(
            f"{who} runs one fold at a time, and --folds {folds} asks for all",
            why="each fold is a run of its own; `phalanx train` runs them one after the other, on one machine",
            remedy=f"start a job for each fold: data.folds={folds} data.fold=1 --out RUN/fold-1, and so on; "
            "`phalanx train --resume RUN` then makes the table. "
            f"Or on this machine: phalanx train --workers {workers} --folds {folds}",
        )


def cross_validate(request: Request, start: StartFold, console: Console | None) -> Result:
    """Train each fold that is not done yet, in RUN/fold-1 and so on, then measure all of them together."""
    if request.config.data.multi_label:
        raise UserError(
            "--folds does not go together with data.multi_label",
            why="the table of a cross-validation is one of top-1 accuracies",
            remedy="run folds one by one, each judged by mAP: data.folds=5 data.fold=1, and so on",
        )
    folds, shown = _number_of_folds(request), console or Console()
    folder = request.resume or create_run(request.out, request.config.name)
    done = [number for number, path in begun_folds(folder.path).items() if is_done(path)]
    _refuse_changed(request, folder.path, done)
    _write_head(folder, request)
    try:
        for number in range(1, folds + 1):
            if number in done:
                _say(shown, f"fold {number} of {folds} is done")
                continue
            _say(shown, f"fold {number} of {folds}")
            result = start(*_fold_request(request, folder.path, number), console)
            if result.exit_code or not is_done(fold_path(folder.path, number)):
                _say(shown, f"fold {number} of {folds} is not done; to go on: phalanx train --resume {folder.path}")
                return Result(result.exit_code or EXIT_USER, folder.path)
    except UserError:
        if request.resume is None and not begun_folds(folder.path):
            _remove_head(folder)
        raise
    _summarise(folder.path, request, shown)
    return Result(0, folder.path)


def layer_of(folder: Path) -> tuple[Layer, RunFolder]:
    """(the settings of all folds, the folder with their code). Folds that were trained one by one have the same."""
    begun = begun_folds(folder)
    home = RunFolder(folder if (folder / FOLDS_FILE).is_file() else begun[min(begun)])
    layer = home.layer()
    layer.values["data"] = {**layer.values["data"], "fold": None}
    return layer, home


def _number_of_folds(request: Request) -> int:
    assert request.config.data.folds is not None
    return request.config.data.folds


def _say(console: Console, text: str) -> None:
    console.print(Text(text, style="bold"), soft_wrap=True)


def _write_head(folder: RunFolder, request: Request) -> None:
    """Write what a resume needs, before the first fold begins."""
    write_code(folder.path, request.code)
    folder.write_config(request.resolved)
    write_folds(folder.path, {**_about(request), "finished": False})


def _remove_head(folder: RunFolder) -> None:
    """Leave nothing where the first fold was refused."""
    folder.remove_config()
    (folder.path / FOLDS_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder.path / CODE, ignore_errors=True)
    for path in (fold_path(folder.path, 1), folder.path):
        with suppress(OSError):  # it is not empty, or not there
            path.rmdir()


def _about(request: Request) -> dict[str, Any]:
    config = request.config
    return {
        "command": request.command,
        "model": config.model.name,
        "data": config.data.source,
        "group": config.data.group or config.data.group_field,
        "num_folds": config.data.folds,
    }


def _fold_request(request: Request, folder: Path, number: int) -> tuple[Request, RunFolder | None]:
    """(the request of a fold; its folder if it has begun and saved nothing)."""
    path = fold_path(folder, number)
    if number in begun_folds(folder) and checkpoint.latest_path(path / checkpoint.FOLDER) is not None:
        return _resumed_fold(request, RunFolder(path)), None
    config = request.config
    changed: dict[str, Any] = {"data": config.data.model_copy(update={"fold": number})}
    if config.train.log_dir is not None:
        changed["train"] = config.train.model_copy(update={"log_dir": str(Path(config.train.log_dir, path.name))})
    resolved = request.resolved.with_config(config.model_copy(update=changed))
    return replace(request, resolved=resolved, out=path, resume=None), RunFolder(path) if path.exists() else None


def _resumed_fold(request: Request, fold: RunFolder) -> Request:
    """The request that goes on with a fold, with the settings that were given for that."""
    given = [Layer(origin, nest(key, value)) for key, value, origin in _given(request)]
    resumed = resume_request(fold.layer(), given, request.command, fold, None)
    config = resumed.config.model_copy(update={"code": request.config.code})
    return replace(resumed, resolved=resumed.resolved.with_config(config), code=request.code)


def _given(request: Request) -> list[tuple[str, Any, str]]:
    """The settings that were given to a cross-validation that is resumed."""
    before = (DEFAULT, request.resumed_from)
    return [row for row in request.resolved.rows() if row[2] not in before and not row[2].startswith(OWN)]


def _refuse_changed(request: Request, folder: Path, done: list[int]) -> None:
    """Refuse settings that would make the folds differ: one table cannot hold both."""
    if request.resume is None or not done:
        return
    before = {key: value for key, value, _ in resolve([layer_of(folder)[0]]).rows()}
    differing = [f"{key}={value}" for key, value, _ in _given(request) if value != before[key]]
    changed = [text for text in differing if not text.startswith(ANYWHERE)]
    if before["code.files"] != request.config.code.files:
        changed.append("--accept-code new")
    if changed:
        raise UserError(
            f"{', '.join(changed)} cannot change a cross-validation that has begun",
            why=f"{len(done)} of its folds {'are' if len(done) > 1 else 'is'} done without it, and folds are compared "
            "with one another",
            remedy="leave it out, or start a new cross-validation",
        )


def _summarise(folder: Path, request: Request, console: Console) -> None:
    """Measure all folds, write and print what they have found."""
    from phalanx.commands.folds import CrossResult, measure_fold, print_result, write_result

    numbers = range(1, _number_of_folds(request) + 1)
    result = CrossResult([measure_fold(console, number, fold_path(folder, number)) for number in numbers])
    write_result(folder, result, _about(request))
    print_result(console, folder, result)
