"""Before the first step: all workers learn from the same teachers, and a resumed run from those it had."""

import json
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from phalanx.config.schema import DistillConfig, RunConfig
from phalanx.engine.distill.teacher import Teacher
from phalanx.errors import UserError
from phalanx.exchange.rendezvous import Rendezvous


def refuse_other_teachers(
    rendezvous: Rendezvous, teachers: Sequence[Teacher], config: DistillConfig, rank: int
) -> None:
    """Refuse a worker whose teachers differ from the first worker's. All workers of a job with teachers call this."""
    pairs = zip(teachers, config.weights, strict=True)
    mine = [[teacher.name, teacher.digest, weight] for teacher, weight in pairs]
    gathered = [json.loads(text) for text in rendezvous.gather("teachers", json.dumps(mine))]
    for other, found in [*enumerate(gathered), (rank, mine)]:
        for one, two in zip(gathered[0], found, strict=False):
            if one[1:] != two[1:]:
                raise UserError(
                    f"the workers of this job have different teachers: {one[0]} of worker 0 is not {two[0]} of worker "
                    f"{other}",
                    why=f"the SHA-256 of their weights, or their shares: {one[1][:12]} ({one[2]:g}) and {two[1][:12]} "
                    f"({two[2]:g})",
                    remedy="copy the same teachers to all hosts, or use a shared disk",
                )
        if len(found) != len(gathered[0]):
            raise UserError(
                f"the workers of this job have different numbers of teachers: {len(gathered[0])} and {len(found)}",
                why="each computes a part of every step with them",
                remedy="start all of them with the same --teacher",
            )


def with_digests(config: RunConfig, teachers: Sequence[Teacher]) -> RunConfig:
    """The configuration with the digests of its teachers. A resumed run has some already: others are refused."""
    before, now = config.distill.digests, {teacher.name: teacher.digest for teacher in teachers}
    if before and sorted(before.values()) != sorted(now.values()):
        changed = [name for name, digest in now.items() if digest not in before.values()] or list(now)
        raise UserError(
            f"the teacher {changed[0]} is not the one that this run has learned from",
            why=f"its weights have SHA-256 {now[changed[0]][:12]}; the run began with "
            + ", ".join(f"{name} ({digest[:12]})" for name, digest in before.items()),
            remedy="restore it, or name where it is now with --teacher; or start a new run, from these weights if you "
            "like: --init-from",
        )
    return config.model_copy(update={"distill": config.distill.model_copy(update={"digests": now})})


def without_models(config: DistillConfig, teachers: Sequence[Teacher]) -> list[Teacher]:
    """The teachers as a trainer knows them while other processes run them: no weights are kept."""
    return [replace(teacher, model=nn.Identity()) for teacher in teachers] if config.served else [*teachers]


def describe(config: DistillConfig, teachers: Sequence[Teacher]) -> list[str]:
    """A line for each teacher, and what was done to match it."""
    how = f"{config.loss} T={config.degrees:g} alpha={config.share:g}"
    if config.loss == "feature":
        how = (
            f"feature {', '.join(f'{mine}→{theirs}' for mine, theirs in config.layers.items())} alpha={config.share:g}"
        )
    if config.loss == "mutual":
        return [f"a second student, {config.peer or 'the same model'}, learns beside the first: {how}"]
    lines = []
    for teacher, weight in zip(teachers, config.weights, strict=True):
        part = f", weight {weight:.3g}" if len(teachers) > 1 else ""
        lines += [f"teacher: {teacher.name}, {teacher.about}, {how}{part}", *teacher.notes]
    return lines
