"""The entry point of every process of a job: `run(request, role)`."""

from rich.console import Console

from phalanx.config.role import Role
from phalanx.custom import user_code
from phalanx.custom.installed import install
from phalanx.custom.reference import references
from phalanx.machine.openmp import let_idle_threads_spin_while_alone
from phalanx.roles.console import console_of
from phalanx.roles.request import Request
from phalanx.roles.result import Result
from phalanx.roles.role_log import keep_log, log_of


def run(request: Request, role: Role, console: Console | None = None) -> Result:
    """Run a trainer, parameter server, data server, teacher or evaluator to its end."""
    install(request.code)
    with user_code():
        return _run(request, role, console)


def _run(request: Request, role: Role, console: Console | None) -> Result:
    config = request.config
    log_at = log_of(role, config)
    log = keep_log(log_at, role) if log_at else None
    match role.kind:
        case "server":
            from phalanx.roles.server import serve

            named = references(config.model_dump(mode="json"))
            code = serve(role, config.exchange, code={text for texts in named.values() for text in texts})
            return Result(code, role.run)
        case "data":
            from phalanx.roles.data_server import serve_role

            serve_role(role, config)
            return Result(folder=role.run)
        case "teacher":
            from phalanx.roles.teacher import serve_role as serve_teachers

            serve_teachers(role, config)
            return Result(folder=role.run)
        case "evaluator":
            from phalanx.roles.evaluator import watch_run

            watch_run(request, console or Console(), role)
            return Result(folder=role.run)
        case _:
            if role.local_world == 1:
                let_idle_threads_spin_while_alone(config.machine.threads)
            from phalanx.roles.trainer import train_as

            return train_as(request, console or console_of(role), role, log)
