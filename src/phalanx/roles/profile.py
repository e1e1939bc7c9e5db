"""The profile of a run: switched on by train.profile, written by the first worker."""

from importlib.metadata import version
from typing import Any

from phalanx.engine.boundary import Boundary
from phalanx.engine.profile.advice import advise
from phalanx.engine.profile.clocks import compare_clocks
from phalanx.engine.profile.hooks import ProfilingHooks
from phalanx.engine.profile.merge import gather_parts, merged
from phalanx.engine.profile.part import part_of
from phalanx.engine.profile.recorder import StepRecorder
from phalanx.engine.profile.spans import Recording
from phalanx.engine.profile.trace import chrome_trace
from phalanx.engine.trainer import Trainer
from phalanx.errors import UserError
from phalanx.machine.cores import cores
from phalanx.machine.job_settings import SET_BY_USER, report_machine
from phalanx.roles.agree import Agreed
from phalanx.roles.build import Training
from phalanx.roles.reports import Reports
from phalanx.runs import events as ev
from phalanx.runs.profile_file import PROFILE_FILE, TRACE_FILE, write_profile

Data = dict[str, Any]


def make_profiling(agreed: Agreed, training: Training, reports: Reports, trainer: Trainer) -> ProfilingHooks | None:
    """Hooks around the trainer's, if steps are to be profiled."""
    config, plan, group = agreed.config.train.profile, training.plan, training.exchange.group
    if not config.steps:
        return None
    left = plan.total_steps - training.state.step
    if config.start + config.steps > left:
        raise UserError(
            f"{config.start + config.steps} steps cannot be profiled: the run has {left}",
            why=f"train.profile.steps={config.steps} come after train.profile.start={config.start} that do not count",
            remedy="fewer of them, or a longer run: --epochs",
        )
    recorder = StepRecorder(training.state.model, agreed.settings.device)
    types = {name: type(module).__name__ for name, module in training.state.model.named_modules()}

    def conclude(recording: Recording) -> None:
        part = part_of(recording, types, agreed.role.rank)
        clocks = compare_clocks(group)
        parts = gather_parts(part, group)
        if agreed.role.rank == 0:
            profile = merged(_about(agreed, training, recording), parts, clocks, lockstep=group.lockstep)
            profile["advice"] = [one.to_data() for one in advise(profile)]
            write_profile(reports.folder.path, profile, chrome_trace(parts, [clocks[one["rank"]] for one in parts]))
            text = f"profiled steps {recording.steps[0].number} to {recording.steps[-1].number}: "
            where = reports.folder.path
            reports.observer.emit(ev.Note(training.state.step, f"{text}{where / PROFILE_FILE}, {where / TRACE_FILE}"))

    prefetch = agreed.config.data.prefetch
    return ProfilingHooks(trainer, recorder, config, conclude, prefetch=prefetch, at_once=group.lockstep)


def fit(trainer: Trainer, training: Training, boundary: Boundary | None, profiling: ProfilingHooks | None) -> bool:
    """Train to the end of the plan, or of the profile. False if a stop was requested before."""
    if profiling is None:
        return trainer.fit(training.state, training.pipeline, boundary)
    profiling.begin()
    try:
        finished = trainer.fit(training.state, training.pipeline, boundary, profiling)
        profiling.conclude()
    finally:
        profiling.close()
    return finished or profiling.ended_run


def _about(agreed: Agreed, training: Training, recording: Recording) -> Data:
    """What was profiled, and the settings that advice is about."""
    config, settings, plan = agreed.config, agreed.settings, training.plan
    micro_batches = config.micro_batches
    in_memory = config.data.source.partition(":")[0] in ("digits", "synthetic")
    wall = sum(step.wall for step in recording.steps) / len(recording.steps)
    return {
        "made_by": f"phalanx {version('phalanx')}, torch {version('torch')}",
        "command": agreed.request.command,
        "model": config.model.name,
        "first_step": recording.steps[0].number,
        "steps": len(recording.steps),
        "samples_per_step": plan.samples_per_step,
        "images_per_s": round(plan.samples_per_step / wall, 3),
        "decisions": {name: str(decision) for name, decision in settings.decisions.items()},
        "settings": {
            "method": config.exchange.method,
            "workers": agreed.role.world,
            "workers_here": agreed.role.local_world,
            "compress": config.exchange.compress,
            "accumulate": config.optim.accumulate,
            "batch_size": -(-plan.samples_per_step // micro_batches),
            "precision": config.machine.precision,
            # Where both were timed, the faster one is taken already.
            "bf16": "" if agreed.job_settings.both_precisions else report_machine(config.machine).bf16,
            "channels_last": settings.channels_last,
            "fast_path": settings.fast_path,
            "compile": settings.compile,
            "on_gpu": recording.on_gpu,
            "threads": settings.threads,
            "threads_set": settings.decisions["threads"].reason == SET_BY_USER,
            "cores": cores(),
            "data": "" if in_memory else config.data.source,
            "data_servers": len(agreed.role.data) + len(config.data.service),
            "log_every": config.train.log_every,
        },
    }
