"""`phalanx train`: from a resolved configuration to a finished run. Reads top to bottom."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from rich.console import Console
from rich.text import Text
from torch import Tensor, nn

from phalanx import cpu
from phalanx.config.batch import samples_per_step
from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.data.augment.framing import eval_framing
from phalanx.data.augment.mixing import to_input
from phalanx.data.base import Source
from phalanx.data.order import Share
from phalanx.data.service.client import Service
from phalanx.data.sources.bad_images import BadImages
from phalanx.data.sources.open import open_data
from phalanx.data.training import training_pipeline
from phalanx.engine.agreement import refuse_other_data, refuse_other_settings
from phalanx.engine.algorithms import agree_on_algorithms
from phalanx.engine.boundary import Boundary
from phalanx.engine.inputs import Inputs, Sizes
from phalanx.engine.loop import StepPlan, make_plan
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.sizes import describe_sizes, plan_sizes, refuse_unseen_sizes
from phalanx.engine.state import Ema, LossScale, TrainState
from phalanx.engine.step import Engine, LossNotFinite
from phalanx.engine.trainer import Trainer
from phalanx.engine.views import views_of
from phalanx.engine.weights import initialize_from, restore
from phalanx.errors import EXIT_REFORM, EXIT_USER, UserError
from phalanx.exchange.base import LostWorker
from phalanx.exchange.make import make_exchange
from phalanx.exchange.rendezvous import Rendezvous, make_rendezvous
from phalanx.machine.job_settings import JobSettings, MachineReport, choose_for_job, refuse_unable, report_machine
from phalanx.machine.settings import Settings, settings_for
from phalanx.models.build import build_model
from phalanx.models.fast import FastNet
from phalanx.net.key import key_of, read_key
from phalanx.observe.display import PlainDisplay, make_display
from phalanx.observe.lines import LogFile
from phalanx.observe.outcome import print_outcome, save_curves
from phalanx.observe.start_up import describe_start, is_verbose
from phalanx.optim.schedule import Schedule, make_schedule, scaled_rate
from phalanx.roles.console import claim, may_speak
from phalanx.roles.request import Request
from phalanx.roles.result import Result
from phalanx.runs import checkpoint
from phalanx.runs import events as ev
from phalanx.runs.evaluations import EvaluatorResults, evaluations
from phalanx.runs.events import EVENTS_FILE, EventFile, Observer, Sink, read_events
from phalanx.runs.folder import RUNS, RunFolder, create_run
from phalanx.runs.summary import write_summary
from phalanx.signals import StopRequest

FIRST_IMAGES = 5000  # that a model may look at before it learns


def train_as(request: Request, console: Console, role: Role, log: Console | None = None) -> Result:
    """Be one of the job's trainers. `log` gets what the console shows, as plain lines."""
    try:
        return _run(request, [console, *([log] if log else [])], role)
    except LostWorker as error:
        if not role.elastic:
            raise
        console.print(Text(f"{error.what}; there was nothing new to save"), soft_wrap=True)
        return Result(EXIT_REFORM, role.run)


def _run(request: Request, consoles: Sequence[Console], role: Role) -> Result:
    started = time.perf_counter()
    if role.rank == 0:
        claim(sys.stdout)
    config = request.resolved.config
    if config.eval.evaluator and role.launcher != "phalanx":
        raise UserError(
            "nobody has started the evaluator",
            why=f"this process was started by {role.launcher}, and only phalanx's own launchers start one",
            remedy="leave --evaluator out: trainers then evaluate together; or use phalanx launch",
        )
    # From now on others know that this worker is there, and it says for whom it waits; data may take long to open.
    rendezvous = make_rendezvous(config.exchange, role)
    refuse_other_settings(rendezvous, config, role.rank)
    job_settings = settings_for_job(request, rendezvous, role)
    request = replace(request, resolved=request.resolved.with_machine(job_settings.machine))
    keeps_algorithms = config.machine.fast_path != "auto"  # of a resumed run; `auto` is to choose anew
    config = request.resolved.config
    settings = settings_for(job_settings, role.local_world, role.local_rank)
    settings.apply()
    torch.manual_seed(config.train.seed)
    threads = settings.threads if config.data.threads is None else config.data.threads
    splits = open_data(config.data, threads=threads)
    spec = ModelSpec.of(config, splits)
    refuse_other_data(rendezvous, spec, splits, role.rank)
    plan = make_plan(config, len(splits.train), samples_per_step(config))
    service = data_service(config, role, lambda text: observer.emit(ev.Note(state.step, text)))
    pipeline = training_pipeline(
        config,
        splits.train,
        batch=plan.samples_per_step,
        threads=threads,
        share=Share(role.rank, role.world, config.optim.accumulate, config.train.micro_batches),
        pin=settings.device.type == "cuda",
        remote=service,
    )
    sizes = plan_sizes(config.train.sizes, plan, spec.image_size)
    model = _model(config, spec, settings, sizes)
    if isinstance(model, FastNet):
        model.fit_whitening(_first_images(splits.train, spec, config).to(settings.device))
    state = TrainState(
        model,
        ema=Ema(model, config.optim.ema) if config.optim.ema is not None else None,
        loss_scale=LossScale() if settings.dtype == torch.float16 else None,
    )
    if request.init_from is not None:
        initialize_from(request.init_from, state, spec, new_head=config.model.new_head)
    exchange = make_exchange(config, model, _schedule(config, plan), role, settings, rendezvous)
    resumed = None
    if exchange.joined_step is not None:
        state.move_to(exchange.joined_step, plan.steps_per_epoch, plan.samples_per_step)
    elif request.resume is not None:
        resumed = restore(
            request.resume.checkpoints,
            state,
            exchange,
            spec,
            plan,
            at_step=request.at_step,
            evaluator=config.eval.evaluator,
        )
    if not keeps_algorithms:
        cpu.forget(model)
    algorithms = agree_on_algorithms(model, settings, rendezvous, role.rank, _shapes(config, spec, plan, sizes))
    folder = request.resume or _folder(request, role)
    if resumed is None and exchange.joined_step is None and role.rank == 0 and (folder.path / EVENTS_FILE).exists():
        # Started anew by an elastic launcher, all workers having been lost before the first checkpoint.
        resumed = ev.Resume(0, 0, "the beginning", ["nothing had been saved"])
    consoles[0].quiet = consoles[0].quiet or not may_speak(role)
    worker = role.rank if role.world > 1 else None
    display = make_display(consoles[0], worker)
    displays: list[Sink] = [display, *(PlainDisplay(log, worker) for log in consoles[1:])]
    observer = Observer(displays)
    evaluator, last_eval = None, None
    start = ev.Start(
        command=request.command,
        model=config.model.name,
        parameters=sum(p.numel() for p in model.parameters()),
        data=splits.train.description,
        train_samples=len(splits.train),
        val_samples=len(splits.val),
        classes=len(spec.classes),
        steps_per_epoch=plan.steps_per_epoch,
        total_steps=plan.total_steps,
        samples_per_step=plan.samples_per_step,
        decisions={
            **describe_sizes(sizes, plan, spec.image_size),
            **{name: str(decision) for name, decision in settings.decisions.items()},
        },
        notes=[*splits.notes, *job_settings.warnings, *algorithms.notes, *algorithms.warnings],
    )
    start_up = describe_start(
        start,
        config,
        role,
        folder=str(folder.path) if role.rank == 0 or role.run else "see the output of trainer-0",
        peak_lr=scaled_rate(config.optim.lr, config.optim.lr_per, plan.samples_per_step),
        notes=splits.notes,
        warnings=[*job_settings.warnings, *algorithms.warnings],
        log_notes=algorithms.notes,
    )
    for number, console in enumerate(consoles):  # the first may be a screen; the others are logs
        start_up.print_to(console, verbose=number > 0 or role.rank > 0 or is_verbose())
    if role.rank == 0:
        folder.write_config(request.resolved)
        log = LogFile(folder.path)
        log.text(start_up.text())
        observer.sinks = [EventFile(folder.path), log, *displays]
        if config.eval.evaluator:
            evaluator = EvaluatorResults(folder.path, Observer([log, *displays]).emit)
            known = [one for one in evaluations(read_events(folder.path)) if one.step <= state.step]
            last_eval = known[-1] if known else None
            evaluator.last_step = last_eval.step if last_eval else 0
    observer.emit(start)
    if resumed is not None:
        observer.emit(resumed)

    engine = Engine(
        settings,
        Inputs(settings, config.augment, spec.mean, spec.std, config.train.seed, sizes),
        config.loss.label_smoothing,
        config.eval.k(len(spec.classes)),
        config.train.seed,
        views_of(config.eval),
        config.train.monitor,
    )
    stop = StopRequest()
    trainer = Trainer(
        config=config,
        spec=spec,
        folder=folder,
        plan=plan,
        engine=engine,
        exchange=exchange,
        observer=observer,
        display=display,
        validation=splits.val,
        validation_framing=eval_framing(config.data, spec.image_size, splits.val),
        validation_bad=BadImages(splits.val, config.data.bad_images, config.data.bad_images_cap),
        stopping=lambda: bool(stop),
        started=started,
        served=service.report if service else None,
        evaluator=evaluator,
        last_eval=last_eval,
    )
    boundary = None
    if role.elastic and exchange.recovery is not None:
        boundary = Boundary(exchange.recovery)
    with stop:
        try:
            if boundary is not None and request.resume is None:
                trainer.save(state)  # so that there always is something to go on from
            finished = trainer.fit(state, pipeline, boundary)
        except LostWorker as error:
            saved = trainer.rescue(state, boundary) if boundary is not None else ""
            with contextlib.suppress(UserError):
                observer.emit(ev.Stop(state.step, f"{error.what}; {saved}" if saved else error.what))
            observer.close()
            if saved:
                return Result(EXIT_REFORM, folder.path)
            raise
        except UserError as error:
            with contextlib.suppress(UserError):  # what is wrong may be that nothing can be written
                observer.emit(ev.Stop(state.step, error.what))
            observer.close()
            if isinstance(error, LossNotFinite):
                raise _with_last_checkpoint(error, folder) from error
            raise
        finally:
            display.close()
        if finished:
            observer.emit(ev.End(state.step, trainer.wall_s(state)))
        else:
            observer.emit(ev.Stop(state.step, stop.received.name if stop.received else "another worker was stopped"))
        exchange.close()
        if role.rank == 0:
            if finished:
                trainer.await_evaluator(state)
            summary = trainer.summary(state, start, finished)
            write_summary(folder, summary)
            if config.train.curves:
                save_curves(folder)
            for console in consoles:
                print_outcome(console, folder, summary)
        else:
            for console in consoles:
                console.print(Text("done" if finished else "stopped"))
    observer.close()
    return Result(0 if finished else stop.exit_code or EXIT_USER, folder.path)


def _folder(request: Request, role: Role) -> RunFolder:
    """The launcher made the run's folder, or the first trainer does; the others write nothing of their own there."""
    if role.run is not None:
        return RunFolder(role.run)
    if role.rank == 0:
        return create_run(request.out, request.resolved.config.name)
    return RunFolder(request.out or RUNS)


def _model(config: RunConfig, spec: ModelSpec, settings: Settings, sizes: Sizes) -> nn.Module:
    model = build_model(
        config.model,
        num_classes=len(spec.classes),
        channels=spec.channels,
        image_size=spec.image_size,
    )
    model.to(settings.device).to(memory_format=settings.memory_format)
    refuse_unseen_sizes(model, sizes, config.model.name, spec.channels)
    if settings.compile:
        model.compile()
    cpu.prepare(model, settings.fast_path, to_train=True)
    return model


def settings_for_job(request: Request, rendezvous: Rendezvous, role: Role) -> JobSettings:
    """What all workers compute with, from what each has to say of its machine; the same on all of them."""
    config, origins = request.resolved.config.machine, request.resolved.origins
    mine = report_machine(config, role.rank)
    reports = [MachineReport.from_json(text) for text in rendezvous.gather("machine", mine.to_json())]
    kept = [key.removeprefix("machine.") for key, origin in origins.items() if origin == request.resumed_from]
    job_settings = choose_for_job(config, reports, kept)
    refuse_unable(job_settings, mine)  # who joins later is none of the reports
    return job_settings


def _shapes(config: RunConfig, spec: ModelSpec, plan: StepPlan, sizes: Sizes) -> list[tuple[int, int, int, int]]:
    """Of the micro-batches that training will see."""
    samples = -(-plan.samples_per_step // config.micro_batches)
    pixels = [*(size for _, size in sizes), spec.image_size]
    return [(samples, spec.channels, each, each) for each in pixels]


def _first_images(source: Source, spec: ModelSpec, config: RunConfig) -> Tensor:
    """Some of the training images as a model sees them, for one that looks at its data before it learns."""
    read = source.read(
        np.arange(min(FIRST_IMAGES, len(source))),
        eval_framing(config.data, spec.image_size, source),
        epoch=0,
        replace_bad=True,
    )
    return to_input(torch.from_numpy(read.images).permute(0, 3, 1, 2), spec.mean, spec.std)


def _schedule(config: RunConfig, plan: StepPlan) -> Schedule:
    peak = scaled_rate(config.optim.lr, config.optim.lr_per, plan.samples_per_step)
    return make_schedule(
        config.schedule,
        peak=peak,
        total=plan.total_steps,
        in_steps=plan.in_steps,
        micro_batches=config.micro_batches,
    )


def data_service(config: RunConfig, role: Role, tell: Callable[[str], None]) -> Service | None:
    """The data servers that make this trainer's batches: those of its job, and those that the user names."""
    if config.data.servers and not role.data:
        raise UserError(
            f"nobody has started the {config.data.servers} data servers",
            why=f"this process was started by {role.launcher}, and only phalanx's own launchers start them",
            remedy="start them with `phalanx serve-data`, and name them with --data-service",
        )
    servers = dict.fromkeys(role.data, role.key)
    given = config.data.service_key
    if config.data.service:
        servers |= dict.fromkeys(config.data.service, read_key(given) if given else role.key or key_of(os.environ))
    return Service(servers, config, name=role.name, tell=tell) if servers else None


def _with_last_checkpoint(error: LossNotFinite, folder: RunFolder) -> LossNotFinite:
    last = checkpoint.latest_path(folder.checkpoints)
    kept = f"; the last good checkpoint is {last}" if last else "; no checkpoint had been saved yet"
    return LossNotFinite(error.what, why=error.why + kept, remedy=error.remedy)
