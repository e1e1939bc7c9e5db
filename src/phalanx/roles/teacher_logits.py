"""Where a trainer gets its teachers' logits: its own process, teacher processes, or a cache before either."""

import os
from collections.abc import Callable

from phalanx.config.role import Role
from phalanx.config.schema import DistillConfig
from phalanx.data.pipeline import Pipeline
from phalanx.engine.distill.cache import CachedTeachers, open_cache
from phalanx.engine.distill.logits import LocalTeachers, LooksAhead, TeacherLogits
from phalanx.engine.distill.objective import Distilled
from phalanx.engine.distill.service.client import ServedTeachers
from phalanx.engine.distill.service.terms import terms_of_views
from phalanx.engine.inputs import Inputs
from phalanx.engine.loop import StepPlan
from phalanx.engine.objective import Objective
from phalanx.engine.step import Announce
from phalanx.errors import UserError
from phalanx.net.key import key_of, read_key
from phalanx.net.waiting import say
from phalanx.roles.agree import Agreed


def open_teacher_logits(
    agreed: Agreed, inputs: Inputs, pipeline: Pipeline, plan: StepPlan, tell: Callable[[str], None]
) -> TeacherLogits:
    """The source that the configuration asks for. `tell` gets news for the user while it trains."""
    config, role = agreed.config, agreed.role
    digests = [teacher.digest for teacher in agreed.teachers]
    logits: TeacherLogits = LocalTeachers(agreed.teachers)
    if config.distill.served:
        terms = terms_of_views(
            inputs, agreed.job_settings.machine, agreed.spec, config.distill, digests, f"trainer-{role.rank}"
        )
        logits = ServedTeachers(
            servers_of(config.distill, role),
            terms,
            name=role.name,
            notify=tell,
            timeout_s=config.distill.service_timeout_s,
            encrypt=config.exchange.encrypt,
        )
    if config.distill.cache is None:
        return logits
    epochs = -(-plan.total_steps // plan.steps_per_epoch)
    file = open_cache(config, pipeline, inputs, digests, epochs, say if role.rank == 0 else lambda text: None)
    return CachedTeachers(logits, file, config.distill.view_epochs)


def servers_of(config: DistillConfig, role: Role) -> dict[str, str]:
    """The key of each teacher process: those of the job, and those that the user names."""
    if config.servers and not role.teachers:
        raise UserError(
            f"nobody has started the {config.servers} teacher processes",
            why=f"this process was started by {role.launcher}, and only phalanx's own launchers start them",
            remedy="start them with `phalanx serve-teacher`, and name them with --teacher-service",
        )
    servers = dict.fromkeys(role.teachers, role.key)
    given = config.service_key
    if config.service:
        servers |= dict.fromkeys(config.service, read_key(given) if given else role.key or key_of(os.environ))
    return servers


def announcer_of(objective: Objective) -> Announce | None:
    """Who is to be told of batches before their step, if anybody is."""
    if isinstance(objective, Distilled) and isinstance(objective.teachers, LooksAhead):
        return objective.teachers.announce
    return None


def close_teachers(objective: Objective) -> None:
    if isinstance(objective, Distilled):
        objective.teachers.close()
