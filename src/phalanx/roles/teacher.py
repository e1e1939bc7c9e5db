"""`phalanx serve-teacher`, and the teacher processes of a job: compute teachers' logits for trainers."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.config.role import Role
from phalanx.config.schema import DistillConfig, RunConfig
from phalanx.data.service.client import full_address
from phalanx.engine.distill.find import find_teacher
from phalanx.engine.distill.logits import LocalTeachers, TeacherLogits
from phalanx.engine.distill.service.serve import serve
from phalanx.engine.distill.service.terms import JoinTerms
from phalanx.engine.distill.teacher import load_teachers
from phalanx.errors import UserError
from phalanx.machine.settings import Settings, choose
from phalanx.net.key import key_for, key_of, own_key


def serve_teacher(
    console: Console, names: Sequence[str], bind: str, device: str, threads: int | None, key_file: Path | None
) -> None:
    """Serve until Ctrl-C. `names` are the teachers, in the order in which trainers name them."""
    address = full_address(bind)
    given = key_of(os.environ) if key_file is None else own_key(key_file)
    key = key_for([address], given)
    origin = str(key_file) if key_file else "from the environment" if given else "yours" if key else "none"
    origin += "" if given else ", so only your processes on this machine are served"
    console.print(Text(f"key: {origin}"), soft_wrap=True)
    _serve(DistillConfig(teachers=[*names]), device, threads, address, key, None, console, encrypt=False)


def serve_role(role: Role, config: RunConfig) -> None:
    """Run a teacher process of a job."""
    log = role.run / "logs" / f"{role.name}.jsonl" if role.run else None
    key, encrypt = key_for(role.teachers, role.key), config.exchange.encrypt == "on"
    address = role.teachers[role.rank]
    _serve(config.distill, config.machine.device, None, address, key, log, Console(), encrypt=encrypt)


def _serve(
    config: DistillConfig,
    device: str,
    threads: int | None,
    address: str,
    key: str,
    log: Path | None,
    console: Console,
    *,
    encrypt: bool,
) -> None:
    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    def load(terms: JoinTerms) -> tuple[Settings, TeacherLogits]:
        """In the thread that computes: the number of its threads is set there."""
        settled = terms.machine.model_copy(update={"device": device, **({"threads": threads} if threads else {})})
        settings = choose(settled)
        settings.apply()
        teachers = load_teachers(config.model_copy(update={"resize": terms.resize}), terms.spec, settings)
        loaded = tuple(teacher.digest for teacher in teachers)
        if loaded != terms.teachers:
            shown = [", ".join(each[:12] for each in digests) or "none" for digests in (terms.teachers, loaded)]
            raise UserError(
                "the teachers here are not those of the trainer",
                why=f"the SHA-256 of their weights is {shown[1]} here, and {shown[0]} there",
                remedy="serve the run that the trainer names with --teacher",
            )
        about = f"{settings.device}, {settings.decisions['precision'].value}, threads: {settings.threads}"
        say(f"{', '.join(teacher.name for teacher in teachers)}: {about}")
        return settings, LocalTeachers(teachers)

    for name in config.names:  # a wrong name is an error here, and not when a trainer has come
        find_teacher(name, [])
    serve(load, ", ".join(config.names), address, key, encrypt=encrypt, log=log, say=say)
