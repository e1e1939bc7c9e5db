"""`phalanx train`: from a resolved configuration to a finished run. Reads top to bottom."""

import contextlib
import time

import torch
from rich.console import Console
from rich.text import Text
from torch import nn

from phalanx import checkpoint
from phalanx.config.schema import RunConfig
from phalanx.data.framing import eval_framing, train_framing
from phalanx.data.open import Splits, open_data
from phalanx.data.order import Share
from phalanx.data.pipeline import BadImages, Pipeline
from phalanx.data.pixels import pixel_ops
from phalanx.engine.inputs import Inputs
from phalanx.engine.loop import Plan, make_plan, samples_per_step, train
from phalanx.engine.settings import Settings, choose
from phalanx.engine.state import Ema, LossScale, TrainState
from phalanx.engine.step import Engine, LossNotFinite
from phalanx.errors import EXIT_USER, UserError
from phalanx.exchange.make import make_exchange
from phalanx.identity import Identity
from phalanx.launch.role import Role
from phalanx.models.build import build_model
from phalanx.observe import events as ev
from phalanx.observe.display import make_display
from phalanx.observe.events import EventFile, Observer
from phalanx.observe.lines import LogFile
from phalanx.observe.tables import print_rows
from phalanx.optim.schedule import Schedule, make_schedule, scaled_rate
from phalanx.request import Request
from phalanx.run import RUNS, RunFolder, create_run
from phalanx.signals import StopRequest
from phalanx.summary import header_rows, print_summary, write_summary
from phalanx.trainer import Trainer
from phalanx.weights import initialize_from, restore


def run(request: Request, console: Console, role: Role | None = None) -> int:
    """Train as one of the job's trainers, and return the process's exit code."""
    started = time.perf_counter()
    role = role or Role()
    config = request.resolved.config
    settings = choose(config.machine, role.local_world)
    settings.apply()
    torch.manual_seed(config.train.seed)
    threads = settings.threads if config.data.threads is None else config.data.threads
    splits = open_data(config.data, threads=threads)
    identity = Identity.of(config, splits)
    plan = make_plan(config, len(splits.train), samples_per_step(config, role.world))
    pipeline = _pipeline(config, splits, identity, role, plan, threads, pin=settings.device.type == "cuda")
    model = _model(config, identity, settings)
    state = TrainState(
        model,
        ema=Ema(model, config.optim.ema) if config.optim.ema is not None else None,
        loss_scale=LossScale() if settings.dtype == torch.float16 else None,
    )
    if request.init_from is not None:
        initialize_from(request.init_from, state, identity, new_head=config.model.new_head)
    exchange = make_exchange(config, model, _schedule(config, plan), role, settings)
    resumed = None
    if exchange.joined_step is not None:
        state.move_to(exchange.joined_step, plan.steps_per_epoch, plan.samples_per_step)
    elif request.resume is not None:
        resumed = restore(request.resume.checkpoints, state, exchange, identity, plan)
    folder = request.resume or _folder(request, role)
    display = make_display(console)
    observer = Observer([display])
    start = ev.Start(
        command=request.command,
        model=config.model.name,
        parameters=sum(p.numel() for p in model.parameters()),
        data=splits.train.description,
        train_samples=len(splits.train),
        val_samples=len(splits.val),
        classes=len(identity.classes),
        steps_per_epoch=plan.steps_per_epoch,
        total_steps=plan.total_steps,
        samples_per_step=plan.samples_per_step,
        decisions={name: str(decision) for name, decision in settings.decisions.items()},
        notes=splits.notes,
    )
    rows = header_rows(start, config, folder, role.world)
    console.print(Text(f"phalanx train · {config.name}", style="bold"))
    print_rows(console, rows)
    if role.rank == 0:
        folder.write_config(request.resolved)
        log = LogFile(folder.path)
        log.text("\n".join(f"{name}: {value}" for name, value in rows.items()))
        observer.sinks = [EventFile(folder.path), log, display]
    observer.emit(start)
    if resumed is not None:
        observer.emit(resumed)

    engine = Engine(
        settings,
        Inputs(settings, config.augment, identity.mean, identity.std, config.train.seed),
        config.loss.label_smoothing,
        min(config.eval.top_k, len(identity.classes)),
        config.train.seed,
        config.train.monitor,
    )
    stop = StopRequest()
    trainer = Trainer(
        config=config,
        identity=identity,
        folder=folder,
        plan=plan,
        engine=engine,
        exchange=exchange,
        observer=observer,
        display=display,
        validation=splits.val,
        validation_framing=eval_framing(config.data, identity.image_size, splits.val),
        validation_bad=BadImages(splits.val, config.data.bad_images, config.data.bad_images_cap),
        stopping=lambda: bool(stop),
        started=started,
    )
    with stop:
        try:
            finished = train(state, pipeline, exchange, engine, plan, trainer, trainer.stopping)
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
            summary = write_summary(folder, state, trainer, request.command, start, finished)
            print_summary(console, folder, summary, finished)
    observer.close()
    return 0 if finished else stop.exit_code or EXIT_USER


def _folder(request: Request, role: Role) -> RunFolder:
    """The launcher made the run's folder, or the first trainer does; the others write nothing of their own there."""
    if role.run is not None:
        return RunFolder(role.run)
    if role.rank == 0:
        return create_run(request.out, request.resolved.config.name)
    return RunFolder(request.out or RUNS)


def _model(config: RunConfig, identity: Identity, settings: Settings) -> nn.Module:
    model = build_model(
        config.model,
        num_classes=len(identity.classes),
        channels=identity.channels,
        image_size=identity.image_size,
    )
    model.to(settings.device).to(memory_format=settings.memory_format)
    if settings.compile:
        model.compile()
    return model


def _schedule(config: RunConfig, plan: Plan) -> Schedule:
    peak = scaled_rate(config.optim.lr, config.optim.lr_per, plan.samples_per_step)
    return make_schedule(config.schedule, peak=peak, total=plan.total_steps, in_steps=plan.in_steps)


def _pipeline(
    config: RunConfig, splits: Splits, identity: Identity, role: Role, plan: Plan, threads: int, pin: bool
) -> Pipeline:
    return Pipeline(
        splits.train,
        train_framing(config.augment, config.data, identity.image_size, config.train.seed, splits.train),
        seed=config.train.seed,
        batch=plan.samples_per_step,
        share=Share(role.rank, role.world, config.optim.accumulate),
        drop_last=config.data.drop_last,
        pixels=pixel_ops(config.augment, config.train.seed),
        threads=threads,
        prefetch=config.data.prefetch,
        bad=BadImages(splits.train, config.data.bad_images, config.data.bad_images_cap),
        pin=pin,
    )


def _with_last_checkpoint(error: LossNotFinite, folder: RunFolder) -> LossNotFinite:
    last = checkpoint.latest_path(folder.checkpoints)
    kept = f"; the last good checkpoint is {last}" if last else "; no checkpoint had been saved yet"
    return LossNotFinite(error.what, why=error.why + kept, remedy=error.remedy)
