"""`phalanx top`: the live view of a job that runs elsewhere, from the folder of its run."""

import contextlib
import os
import select
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.board.places import MARKS, runs_below
from phalanx.commands.remote_folder import mirror_of
from phalanx.config.text import read_json
from phalanx.errors import UserError
from phalanx.observe.eval_table import EvalTable
from phalanx.observe.history import History
from phalanx.observe.job_view import JobView
from phalanx.observe.live import LiveLines, is_ascii, is_live
from phalanx.observe.run_view import under_way, view_of_run
from phalanx.observe.tables import print_line
from phalanx.observe.view_lines import plain_lines, view_lines
from phalanx.runs.evaluations import evaluations
from phalanx.runs.events import Eval
from phalanx.runs.folder import RUNS
from phalanx.signals import StopRequest

_LOOK_S = 0.5  # between looks at the run's files
_SHOWN_ROWS = 10  # evaluations of before that are printed first
_LEAVE = (b"q", b"Q", b"\x1b", b"")  # Escape; and the end of the input


def show_top(console: Console, run: str | None, *, once: bool = False, ssh: str = "ssh") -> None:
    """Show the view until the job ends, or `q` or Ctrl-C is pressed. With `once`, or without a terminal, print it."""
    with contextlib.ExitStack() as held:
        watched = _watched(run, ssh, held)
        view = watched.look()
        if once or not is_live(console):
            for line in plain_lines(view, console.width, ascii_only=is_ascii(console)):
                print_line(console, line)
        else:
            _follow(console, watched, view)


@dataclass
class _Watched:
    """A run's folder, and what was read of it."""

    path: Path
    name: str = ""
    copied: bool = False
    problem: Callable[[], str] = str  # why a copy may be old
    shown: int = 0  # step of the last evaluation that was printed
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(self.path)

    def look(self) -> JobView:
        return view_of_run(self.path, self.history, name=self.name, copied=self.copied, problem=self.problem())

    def new_evaluations(self) -> list[Eval]:
        found = [one for one in evaluations(self.history.evaluations()) if one.step > self.shown]
        self.shown = max([self.shown, *(one.step for one in found)])
        return found


def _follow(console: Console, watched: _Watched, view: JobView) -> None:
    def draw(columns: int, rows: int) -> list[Text]:
        return view_lines(view, columns, rows, ascii_only=is_ascii(console))

    table = EvalTable(has_training=False)
    with StopRequest(quiet=True) as stop, _keys() as pressed, LiveLines(console, draw, keep=True):
        _print_rows(console, table, watched.new_evaluations()[-_SHOWN_ROWS:])
        while under_way(view) and not stop and not pressed(_LOOK_S):
            view = watched.look()
            _print_rows(console, table, watched.new_evaluations())


def _print_rows(console: Console, table: EvalTable, found: list[Eval]) -> None:
    for event in found:
        for row in table.rows(event, None, console.width):
            console.print(row, soft_wrap=True)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Gives a function that waits so many seconds and says whether q was pressed. The terminal is left as it was."""
    if not sys.stdin.isatty():

        def wait(seconds: float) -> bool:
            time.sleep(seconds)
            return False

        yield wait
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> bool:
        ready = select.select([descriptor], [], [], seconds)[0]
        return bool(ready) and os.read(descriptor, 100) in _LEAVE

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


# Which run


def _watched(run: str | None, ssh: str, held: contextlib.ExitStack) -> _Watched:
    """A folder, HOST:FOLDER, the name of a run or the number of a job below runs/, or the run that changed last."""
    if run is None:
        return _Watched(_newest_in(RUNS))
    for path in (Path(run).expanduser(), RUNS / run):
        if path.is_dir():
            return _Watched(_newest_in(path))
    copy = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-top-", ignore_cleanup_errors=True)))
    mirror = mirror_of(run, copy, ssh, "phalanx top")
    if mirror is None:
        return _Watched(_of_job(run))
    held.callback(mirror.end)
    mirror.follow()
    found = list(runs_below(copy))
    if len(found) != 1:
        names = ", ".join(str(path.relative_to(copy)) for path in found[:5])
        raise UserError(
            f"{mirror.shown} is not one run",
            why=f"it has {len(found)}: {names}" if found else "it has no events of a run",
            remedy="name a run's folder: HOST:FOLDER",
        )
    return _Watched(found[0], mirror.shown, copied=True, problem=lambda: mirror.problem)


def _newest_in(folder: Path) -> Path:
    """The run that a folder is, or the one in it whose files changed last."""
    found = list(runs_below(folder))
    if not found:
        raise UserError(
            f"there is no run in {folder}",
            why="none of its folders has events" if folder.is_dir() else f"{Path.cwd()} has no folder {folder}",
            remedy="name a run's folder; HOST:FOLDER is one on another host",
        )
    return max(found, key=_changed_at)


def _changed_at(run: Path) -> float:
    there = [run / name for name in MARKS]
    return max((path.stat().st_mtime for path in there if path.exists()), default=0.0)


def _of_job(number: str) -> Path:
    """The run of a job: by the id in job.json, or the scheduler's number in batch.json."""
    for run in runs_below(RUNS):
        for name, field_name in (("job.json", "id"), ("batch.json", "job")):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                if read_json((run / name).read_bytes()).get(field_name) == number:
                    return run
    raise UserError(
        f"there is no run or job {number}",
        why=f"it is no folder, and no job of a run in {RUNS}/",
        remedy="`phalanx runs` lists the runs here; HOST:FOLDER is one on another host",
    )
