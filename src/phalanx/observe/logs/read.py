"""Read the curves of a path: a run of ours, or another system's log, recognised by what is in it."""

from collections.abc import Mapping
from pathlib import Path

from phalanx.errors import UserError
from phalanx.observe.curves import Log, NothingToDraw, read_run
from phalanx.observe.logs.csv_files import KERAS, TIMM, csv_kind, read_csv
from phalanx.observe.logs.json_files import (
    JSON_LINES,
    TENSORPACK,
    is_json_lines,
    is_tensorpack,
    read_json_lines,
    read_tensorpack,
)
from phalanx.observe.logs.mxnet import MXNET
from phalanx.observe.logs.paddle import PADDLE
from phalanx.observe.logs.paddleclas import PADDLECLAS
from phalanx.observe.logs.rows import left_out
from phalanx.observe.logs.tensorboard import TENSORBOARD, event_files, is_event_file, read_tensorboard
from phalanx.observe.logs.text import TextFormat, parse
from phalanx.observe.logs.torch_examples import TORCH_EXAMPLES
from phalanx.runs.events import EVENTS_FILE

TEXT_FORMATS: tuple[TextFormat, ...] = (PADDLE, MXNET, PADDLECLAS, TORCH_EXAMPLES)
# what a folder is searched for, and what names a folder better than itself
FILES = ("stats.json", "summary.csv", "train.log", "log.txt", "training.log", "log.csv", "history.csv")
READ = (
    "a run folder of Phalanx",
    *(form.name for form in TEXT_FORMATS),
    TENSORPACK,
    KERAS,
    TIMM,
    JSON_LINES,
    TENSORBOARD,
)


def read_log(path: Path, label: str, tags: Mapping[str, str] | None = None) -> Log:
    """The curves of a path. `tags` says which name of a log's numbers a curve has: {"val/top1": "eval/acc"}."""
    if path.name == EVENTS_FILE and path.is_file():
        return read_run(path.parent, label)
    if (path / EVENTS_FILE).is_file():
        return read_run(path, label)
    if not path.exists():
        raise UserError(f"{path} does not exist", why="it is neither a folder nor a file", remedy="name a run or a log")
    log = _foreign(path, label, tags or {})
    if not any(series.values for series in log.series.values()):
        raise NothingToDraw(
            f"{path} has nothing to draw", why="; ".join(log.notes) or "no number is logged", remedy="name another log"
        )
    for curve, name in (tags or {}).items():
        if curve not in log.series:
            log.notes.append(f"it has no {name!r} for {curve}")
    return log


def _foreign(path: Path, label: str, tags: Mapping[str, str]) -> Log:
    if path.is_dir():
        for name in FILES:
            if (path / name).is_file():
                return _foreign(path / name, label, tags)
        if files := event_files(path):
            return read_tensorboard(files, path, label, tags)
        raise _unknown(path)
    if is_event_file(path):
        return read_tensorboard([path], path.parent, label, tags)
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UserError(
            f"{path} cannot be read", why=error.strerror or str(error), remedy="name another log"
        ) from error
    if is_tensorpack(text):
        return read_tensorpack(text, label, tags)
    if is_json_lines(text):
        return read_json_lines(text, label, tags)
    if csv_kind(text):
        return read_csv(text, label, tags)
    return _lines(path, text, label)


def _lines(path: Path, text: str, label: str) -> Log:
    """The format of which most lines can be read."""
    lines = text.splitlines()
    collected, read, damaged = max((parse(lines, form) for form in TEXT_FORMATS), key=lambda parsed: parsed[1])
    if not read:
        raise _unknown(path)
    log = collected.log(label)
    log.notes += [f"{note}, the first is line {damaged[0]:,}" for note in left_out(len(damaged), "line")]
    return log


def _unknown(path: Path) -> UserError:
    looked = "" if path.is_file() else f"it has no {EVENTS_FILE}, {', '.join(FILES)} or *.tfevents.* file; "
    return UserError(
        f"{path} is neither a run nor a log that can be read",
        why=f"{looked}what is read: {'; '.join(READ)}",
        remedy="name one of these",
    )
