"""Before the first step: all workers of a job meet, compare settings and data, and choose what all compute with."""

from dataclasses import dataclass, replace

import torch

from phalanx.config.batch import cut_to_fit, fit_batch, samples_per_step
from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.open import Splits, open_data
from phalanx.data.training import open_beside, training_sampler
from phalanx.engine.agreement import refuse_other_data, refuse_other_settings
from phalanx.engine.distill.agree import refuse_other_teachers, with_digests, without_models
from phalanx.engine.distill.teacher import Teacher, load_teachers
from phalanx.engine.micro_batch_memory import samples_that_fit
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.precision import settle_precision
from phalanx.engine.step_cost import count_work
from phalanx.errors import UserError
from phalanx.exchange.rendezvous import Rendezvous, make_rendezvous
from phalanx.machine.job_settings import JobSettings, MachineReport, choose_for_job, refuse_unable, report_machine
from phalanx.machine.settings import Settings, settings_for
from phalanx.roles.request import Request
from phalanx.runs.events import EVENTS_FILE, Start, read_events


@dataclass(frozen=True)
class Agreed:
    """What a trainer knows when all workers agree."""

    request: Request  # what was `auto` in it is chosen
    role: Role
    rendezvous: Rendezvous
    job_settings: JobSettings
    settings: Settings  # for this machine
    keeps_algorithms: bool  # of a resumed run; otherwise they are chosen again
    threads: int  # that read and decode
    splits: Splits
    spec: ModelSpec
    asked_batch: int  # samples of a step; more than an epoch has are made fewer
    teachers: list[Teacher]  # that this process runs
    unlabeled: Labelled | None  # images beside the training split
    notes: list[str]  # about them

    @property
    def config(self) -> RunConfig:
        return self.request.config


def agree(request: Request, role: Role) -> Agreed:
    """Meet the other workers; refuse settings and data that differ; choose settings; open the data."""
    config = request.config
    if config.eval.evaluator and role.launcher != "phalanx":
        raise UserError(
            "nobody has started the evaluator",
            why=f"this process was started by {role.launcher}, and only phalanx's own launchers start one",
            remedy="leave --evaluator out: trainers then evaluate together; or use phalanx launch",
        )
    # From here on the others see this worker, and it prints whom it waits for: opening the data may take long.
    rendezvous = make_rendezvous(config.exchange, role)
    refuse_other_settings(rendezvous, config, role.rank)
    job_settings = _settings_for_job(request, rendezvous, role)
    keeps_algorithms = config.machine.fast_path != "auto"
    request = replace(request, resolved=request.resolved.with_machine(job_settings.machine))
    config = request.config
    settings = settings_for(job_settings, role.local_world, role.local_rank)
    settings.apply()
    torch.manual_seed(config.train.seed)
    threads = settings.threads if config.data.threads is None else config.data.threads
    splits = open_data(config.data, threads=threads)
    spec = ModelSpec.of(config, splits)
    unlabeled, notes = open_beside(config, splits, threads)
    asked, epoch_samples = samples_per_step(config), training_sampler(config, splits.train, unlabeled).epoch_samples
    refuse_other_data(rendezvous, spec, splits, min(asked, epoch_samples), role.rank, len(unlabeled or ()))
    config = fit_batch(config, epoch_samples)
    job_settings, config = settle_precision(config, spec, job_settings, settings, rendezvous, role)
    settings = settings_for(job_settings, role.local_world, role.local_rank)
    if config.train.fit_memory:
        config, note = _cut_to_fit(config, spec, settings, rendezvous, role)
        notes = [*notes, note]
    teachers = load_teachers(config.distill, spec, settings)
    if teachers:
        refuse_other_teachers(rendezvous, teachers, config.distill, role.rank)
        config = with_digests(config, teachers)
        teachers = without_models(config.distill, teachers)
    if settings.device.type == "cpu":
        settings = _for_work(settings, count_work(config, spec).flops, request)
        settings.apply()
    request = replace(request, resolved=request.resolved.with_config(config))
    return Agreed(
        *(request, role, rendezvous, job_settings, settings, keeps_algorithms, threads, splits, spec, asked, teachers),
        unlabeled=unlabeled,
        notes=notes,
    )


def _for_work(settings: Settings, flops: float | None, request: Request) -> Settings:
    """The settings with the threads for a micro-batch. A run that began with one a core, of as many, keeps them."""
    fewer = settings.for_work(flops)
    if fewer is settings or request.resume is None or not (request.resume.path / EVENTS_FILE).exists():
        return fewer
    starts = [record for record in read_events(request.resume.path) if record["kind"] == Start.kind]
    began = starts[-1]["decisions"].get("threads") if starts else None
    return settings if began == str(settings.decisions["threads"]) else fewer


def _cut_to_fit(
    config: RunConfig, spec: ModelSpec, settings: Settings, rendezvous: Rendezvous, role: Role
) -> tuple[RunConfig, str]:
    """The configuration with micro-batches that fit into the memory of every worker, and a note for the user."""
    mine = samples_that_fit(config, spec, settings, role.local_world)
    fits = min(int(text) for text in rendezvous.gather("memory", str(mine)))
    cut = cut_to_fit(config, fits)
    each = -(-samples_per_step(cut) // cut.micro_batches)
    before = f", before {config.micro_batches}" if cut is not config else ""
    parts = f"{cut.micro_batches} micro-batches of {each}{before}"
    return cut, f"train.fit_memory: there is room for {fits:,} samples, so a step has {parts}"


def _settings_for_job(request: Request, rendezvous: Rendezvous, role: Role) -> JobSettings:
    """What all workers compute with, from what each has to say of its machine; the same on all of them."""
    config, origins = request.config.machine, request.resolved.origins
    mine = report_machine(config, role.rank)
    reports = [MachineReport.from_json(text) for text in rendezvous.gather("machine", mine.to_json())]
    kept = [key.removeprefix("machine.") for key, origin in origins.items() if origin == request.resumed_from]
    job_settings = choose_for_job(config, reports, kept)
    refuse_unable(job_settings, mine)  # who joins later is none of the reports
    return job_settings
