"""Start a request from a user's own process: in it, or as a job of several processes beside it."""

import io
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from phalanx.api.cross_validation import CrossValidation
from phalanx.api.job import ChildJob, run_job
from phalanx.api.run import Run
from phalanx.api.start import check_early, needs_processes, start
from phalanx.errors import UserError
from phalanx.launch.env.roles import role_from_env
from phalanx.machine.openmp import let_idle_threads_sleep, let_idle_threads_spin_while_alone
from phalanx.machine.processes import MARK
from phalanx.native.features import hold_libraries_to_level
from phalanx.roles.request import Request
from phalanx.roles.result import Result
from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.fold_paths import is_cross_validation
from phalanx.runs.folder import create_run
from phalanx.signals import embedded

# A file with the user's own model is imported where the model is made.
_GUARD = 'in the file of your own model, write the call below `if __name__ == "__main__":`'
_training = threading.Lock()  # held while this process trains


def make_console(progress: bool | None) -> Console:
    """The console of this process; one that prints nothing where progress is not shown."""
    console = Console()
    shown = console.is_terminal or console.is_jupyter if progress is None else progress
    return console if shown else Console(file=io.StringIO(), quiet=True)


def train_request(request: Request, *, progress: bool | None = None) -> Run:
    """Train on this machine, and return the run."""
    refuse_rank()
    console = make_console(progress)
    if needs_processes(request.config):
        check_early(request)
        return run_in_job(request, None, console)
    result = train_here(request, console)
    assert result.folder is not None
    return ended(result.exit_code, result.folder)


def run_in_job(request: Request, options: dict[str, object] | None, console: Console) -> Run:
    """Run a job in processes of its own, with the launcher that `options` name. Leaves no empty folder behind."""
    folder = (request.resume or create_run(request.out, request.config.name)).path
    try:
        code = run_job(ChildJob(request, folder, options), console)
        return ended(code, folder)
    except (UserError, KeyboardInterrupt):
        if request.resume is None:
            with suppress(OSError):  # it is not empty
                (folder / "logs").rmdir()
            with suppress(OSError):
                folder.rmdir()
        raise


def ended(code: int, folder: Path) -> Run:
    """The run after its processes ended with `code`. A signal that ends programs takes effect now."""
    if code == 128 + signal.SIGTERM:
        os.kill(os.getpid(), signal.SIGTERM)
    if is_cross_validation(folder):
        return CrossValidation(folder)
    if code == 128 + signal.SIGINT and not (folder / EVENTS_FILE).exists():
        raise KeyboardInterrupt  # before the first step: there is no run yet
    return Run(folder)


def train_here(request: Request, console: Console) -> Result:
    """Train in this process, whose state of torch is restored afterwards."""
    if not _training.acquire(blocking=False):
        raise UserError(
            "this process is training already",
            why="the number of threads and the random state belong to the whole process",
            remedy=f"wait until that run has ended, or train in another process; {_GUARD}",
        )
    try:
        if "torch" not in sys.modules:  # OpenMP reads this once, when torch is loaded
            let_idle_threads_sleep()
            hold_libraries_to_level()
            let_idle_threads_spin_while_alone(request.config.machine.threads)
        check_early(request)
        from phalanx.api.torch_state import restored

        with restored(), embedded():
            return start(request, console=console)
    finally:
        _training.release()


def refuse_rank() -> None:
    """A script that torchrun or srun started several times would train as many runs; one of a job's own would, too."""
    if MARK in os.environ:
        raise UserError(
            "a process of a job cannot start another job",
            why="it imported a file that calls phalanx.train() or phalanx.launch()",
            remedy=_GUARD,
        )
    role = role_from_env()
    if role is not None and role.world > 1:
        raise UserError(
            f"this script runs as one of {role.world} processes of {role.launcher}",
            why="each of them would train a run of its own",
            remedy="start the script once, and say workers= or use phalanx.launch(hosts=); "
            f"or have {role.launcher} start `python -m phalanx train`",
        )
