"""Start what a request asks for: in this process, or as several processes on this machine."""

from rich.console import Console

from phalanx.api.folds import cross_validate, is_cross_validated, refuse_folds
from phalanx.config.batch import samples_per_step
from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.data.sources.formats import recognise, refuse_unknown_format
from phalanx.launch.launchers.local import local_job, supervise_here
from phalanx.roles.request import Request
from phalanx.roles.result import Result
from phalanx.runs.folder import RunFolder, create_run
from phalanx.runs.rewind import find_step


def needs_processes(config: RunConfig) -> bool:
    """Whether a run on one machine takes more than this process."""
    helpers = config.data.servers or config.distill.servers or config.eval.evaluator
    return config.exchange.method != "local" or bool(helpers)


def check_early(request: Request) -> None:
    """Refuse what can be refused without torch, whose import takes seconds, and before a job is started."""
    config = request.config
    if request.resume is not None and request.at_step is not None:
        find_step(request.resume.checkpoints, request.at_step)
    samples_per_step(config)
    if not config.data.service:
        recognise(config.data.source, config.data.remote_options)


def refuse_early(config: RunConfig) -> None:
    """Refuse what is wrong on every host, before a job is sent to others: what the data's path holds is seen there."""
    samples_per_step(config)
    if not config.data.service:
        refuse_unknown_format(config.data.source)


def start(request: Request, role: Role | None = None, *, console: Console | None = None) -> Result:
    """Be the process that `role` says. Without a role, train here, with more processes if the request needs them."""
    if role is not None:
        refuse_folds(request.config, f"a process that {role.launcher} started")
        from phalanx.roles.run import run

        return run(request, role, console)
    check_early(request)
    if is_cross_validated(request.config):
        return cross_validate(request, _start_run, console)
    return _start_run(request, None, console)


def _start_run(request: Request, folder: RunFolder | None, console: Console | None) -> Result:
    """Train one run here. `folder` is its folder, where that exists and has no checkpoint."""
    if needs_processes(request.config):
        folder = folder or request.resume or create_run(request.out, request.config.name)
        return Result(supervise_here(local_job(folder.path, request), Console(stderr=True)), folder.path)
    from phalanx.roles.run import run

    return run(request, Role(run=folder.path if folder else None), console)
