"""The trainer: a process that trains, alone or as one of several workers. Reads top to bottom."""

import contextlib
import sys
import time

from rich.console import Console
from rich.text import Text

from phalanx.config.role import Role
from phalanx.custom import user_code
from phalanx.data.augment.framing import eval_framing
from phalanx.data.sources.bad_images import BadImages
from phalanx.engine.boundary import Boundary
from phalanx.engine.callbacks import CallbackRun, Callbacks, make_callbacks
from phalanx.engine.class_weights import class_weights
from phalanx.engine.inputs import Inputs
from phalanx.engine.loss import make_loss
from phalanx.engine.step import Engine, LossNotFinite
from phalanx.engine.trainer import Trainer
from phalanx.engine.views import views_of
from phalanx.errors import EXIT_REFORM, EXIT_USER, UserError
from phalanx.exchange.base import Exchange, GivenUp, LostWorker, PlaceTaken
from phalanx.machine.ending import leave_ending
from phalanx.net.waiting import say
from phalanx.observe.outcome import print_outcome, save_curves
from phalanx.roles.agree import Agreed, agree
from phalanx.roles.build import Training, build_training
from phalanx.roles.console import claim
from phalanx.roles.out_of_memory import naming_out_of_memory
from phalanx.roles.reports import Reports, open_reports
from phalanx.roles.request import Request
from phalanx.roles.result import Result
from phalanx.runs import checkpoint
from phalanx.runs import events as ev
from phalanx.runs.folder import RunFolder
from phalanx.runs.lock import hold_run
from phalanx.runs.summary import write_summary
from phalanx.signals import StopRequest


def train_as(request: Request, console: Console, role: Role, log: Console | None = None) -> Result:
    """Be one of the job's trainers. `log` gets what the console shows, as plain lines."""
    started = time.perf_counter()
    if role.rank == 0:
        claim(sys.stdout)
    known = request.resume.path if request.resume else role.run
    try:
        with naming_out_of_memory(role, request.config), contextlib.ExitStack() as held:
            if role.rank == 0 and known is not None:
                held.enter_context(hold_run(known))
            agreed = agree(request, role)
            training = build_training(agreed, lambda text: reports.observer.emit(ev.Note(training.state.step, text)))
            reports = open_reports(agreed, training, [console, *([log] if log else [])])
            if role.rank == 0 and known is None:
                held.enter_context(hold_run(reports.folder.path))
            return _train(agreed, training, reports, started)
    except PlaceTaken as error:
        say(f"{error.what}: {error.why}")
        return Result(0, role.run)  # a failure would have some launchers start this process again
    except LostWorker as error:
        if not role.elastic:
            raise
        leave_ending(error)
        console.print(Text(f"{error.what}; there was nothing new to save"), soft_wrap=True)
        return Result(EXIT_REFORM, role.run)


def _train(agreed: Agreed, training: Training, reports: Reports, started: float) -> Result:
    """The loop, and what follows when it ends, is stopped, or fails."""
    state, exchange, folder = training.state, training.exchange, reports.folder
    stop = StopRequest()
    engine = _engine(agreed, training)
    callbacks = _callbacks(agreed, training, reports)
    trainer = _trainer(agreed, training, reports, engine, callbacks, stop, started)
    recovery = exchange.recovery if agreed.role.elastic else None
    boundary = Boundary(recovery) if recovery is not None else None
    with stop:
        try:
            if boundary is not None and agreed.request.resume is None:
                trainer.save(state)  # so that there always is something to go on from
            with user_code(lambda: _after_correction(folder)), naming_out_of_memory(agreed.role, agreed.config):
                callbacks.call("on_start", state.step)
                finished = trainer.fit(state, training.pipeline, boundary)
                if _agree_to_end(callbacks, exchange) and not finished and not stop.received:
                    finished = True
                    reports.observer.emit(ev.Note(state.step, callbacks.reason(state.step)))
                callbacks.call("on_end", state.step)
        except LostWorker as error:
            saved = trainer.rescue(state, boundary) if boundary is not None else ""
            _report_stop(reports, state.step, f"{error.what}; {saved}" if saved else error.what)
            if saved:
                leave_ending(error)
                return Result(EXIT_REFORM, folder.path)
            raise
        except UserError as error:
            _report_stop(reports, state.step, error.what)
            if isinstance(error, LossNotFinite):
                raise _with_last_checkpoint(error, folder) from error
            raise
        finally:
            reports.display.close()
        if finished:
            reports.observer.emit(ev.End(state.step, trainer.wall_s(state)))
        else:
            cause = stop.received.name if stop.received else "another worker was stopped"
            reports.observer.emit(ev.Stop(state.step, cause))
        exchange.close()
        _summarise(agreed, training, reports, trainer, finished)
    reports.observer.close()
    return Result(0 if finished else stop.exit_code or EXIT_USER, folder.path)


def _agree_to_end(callbacks: Callbacks, exchange: Exchange) -> bool:
    """Whether a callback of any worker has asked for the end. One that was taken for lost has left already."""
    try:
        return callbacks.agree(exchange.group.sum)
    except GivenUp:
        return False


def _engine(agreed: Agreed, training: Training) -> Engine:
    config, spec = agreed.config, agreed.spec
    weights = class_weights(config.loss, agreed.splits.train.labels, len(spec.classes))
    return Engine(
        agreed.settings,
        Inputs(agreed.settings, config.augment, spec.mean, spec.std, config.train.seed, training.sizes),
        make_loss(
            config.loss,
            None if weights is None else weights.to(agreed.settings.device),
            multi_label=spec.multi_label,
        ),
        spec.k(config.eval),
        config.train.seed,
        views_of(config.eval),
        config.train.monitor,
    )


def _callbacks(agreed: Agreed, training: Training, reports: Reports) -> Callbacks:
    """The user's callbacks, with the state that a resumed run has for them."""
    role, plan = agreed.role, training.plan
    seen = CallbackRun(
        *(reports.folder.path, agreed.config, agreed.spec.classes, training.state.model, role.rank, role.world),
        total_steps=plan.total_steps,
        steps_per_epoch=plan.steps_per_epoch,
    )
    callbacks = make_callbacks(agreed.config.callbacks, seen, reports.observer.emit)
    callbacks.load(training.state.callbacks)
    return callbacks


def _trainer(
    agreed: Agreed,
    training: Training,
    reports: Reports,
    engine: Engine,
    callbacks: Callbacks,
    stop: StopRequest,
    started: float,
) -> Trainer:
    config, validation = agreed.config, agreed.splits.val
    training.pipeline.bad.found_in = reports.folder.quarantine
    return Trainer(
        config=config,
        spec=agreed.spec,
        folder=reports.folder,
        plan=training.plan,
        engine=engine,
        exchange=training.exchange,
        observer=reports.observer,
        display=reports.display,
        validation=validation,
        validation_framing=eval_framing(config.data, agreed.spec.image_size, validation),
        validation_bad=BadImages.of(config.data, validation, found_in=reports.folder.quarantine),
        stopping=lambda: bool(stop),
        started=started,
        served=training.service.report if training.service else None,
        evaluator=reports.evaluator,
        last_eval=reports.last_eval,
        callbacks=callbacks,
    )


def _report_stop(reports: Reports, step: int, cause: str) -> None:
    with contextlib.suppress(UserError):  # what is wrong may be that nothing can be written
        reports.observer.emit(ev.Stop(step, cause))
    reports.observer.close()


def _summarise(agreed: Agreed, training: Training, reports: Reports, trainer: Trainer, finished: bool) -> None:
    """Rank 0 writes and prints the results; the others only say that they are done."""
    if agreed.role.rank > 0:
        for console in reports.consoles:
            console.print(Text("done" if finished else "stopped"))
        return
    if finished:
        trainer.await_evaluator(training.state)
    summary = trainer.summary(training.state, reports.start, finished)
    write_summary(reports.folder, summary)
    if agreed.config.train.curves:
        save_curves(reports.folder)
    for console in reports.consoles:
        print_outcome(console, reports.folder, summary)


def _after_correction(folder: RunFolder) -> str:
    """What to do when the user's own code has raised an error."""
    last = checkpoint.latest_path(folder.checkpoints)
    if last is None:
        return "correct it, and start the run again; nothing had been saved"
    return f"correct it, and go on from {last.name}: phalanx train --resume {folder.path} --accept-code new"


def _with_last_checkpoint(error: LossNotFinite, folder: RunFolder) -> LossNotFinite:
    last = checkpoint.latest_path(folder.checkpoints)
    kept = f"; the last good checkpoint is {last}" if last else "; no checkpoint had been saved yet"
    return LossNotFinite(error.what, why=error.why + kept, remedy=error.remedy)
