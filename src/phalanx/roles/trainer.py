"""The trainer: a process that trains, alone or as one of several workers. Reads top to bottom."""

import contextlib
import sys
import time
from collections.abc import Callable, Generator

from rich.console import Console
from rich.text import Text
from torch import nn

from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.custom import user_code
from phalanx.data.augment.framing import eval_framing
from phalanx.data.base import Batch
from phalanx.data.pipeline import shuffled_batches
from phalanx.data.sources.bad_images import BadImages
from phalanx.engine.boundary import Boundary
from phalanx.engine.callbacks import CallbackRun, Callbacks, make_callbacks
from phalanx.engine.norm_statistics import compute_statistics
from phalanx.engine.patience import Patience
from phalanx.engine.step import Engine, LossNotFinite
from phalanx.engine.trainer import Trainer
from phalanx.engine.views import views_of
from phalanx.errors import EXIT_REFORM, EXIT_USER, UserError
from phalanx.exchange.base import Exchange, GivenUp, LostWorker, PlaceTaken
from phalanx.machine.crowding import Crowding
from phalanx.machine.ending import leave_ending
from phalanx.net.waiting import say
from phalanx.observe.display import Display
from phalanx.observe.outcome import print_outcome, save_curves
from phalanx.roles.agree import Agreed, agree
from phalanx.roles.build import Training, build_training
from phalanx.roles.console import claim
from phalanx.roles.objective import make_adversarial, make_guard
from phalanx.roles.out_of_memory import naming_out_of_memory
from phalanx.roles.outside import check_outside
from phalanx.roles.profile import fit, make_profiling
from phalanx.roles.reports import Reports, open_reports
from phalanx.roles.request import Request
from phalanx.roles.result import Result
from phalanx.roles.teacher_logits import announcer_of, close_teachers
from phalanx.runs import checkpoint
from phalanx.runs import events as ev
from phalanx.runs.folder import RunFolder
from phalanx.runs.lock import hold_run
from phalanx.runs.summary import write_summary
from phalanx.signals import StopRequest

SumOver = Callable[[list[float]], list[float]]


def train_as(request: Request, console: Console, role: Role, log: Console | None = None) -> Result:
    """Be one of the job's trainers. `log` gets what the console shows, as plain lines."""
    started = time.perf_counter()
    if role.rank == 0:
        claim(sys.stdout)
        check_outside(request.config)
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
    stop = StopRequest(tell=reports.display.tell)
    engine = _engine(agreed, training)
    callbacks = _callbacks(agreed, training, reports)
    trainer = _trainer(agreed, training, reports, engine, callbacks, stop, started)
    recovery = exchange.recovery if agreed.role.elastic else None
    boundary = Boundary(recovery) if recovery is not None else None
    alone = agreed.config.train.profile.alone
    profiling = make_profiling(agreed, training, reports, trainer)
    with stop:
        try:
            if boundary is not None and agreed.request.resume is None and not alone:
                trainer.save(state)  # so that there always is something to go on from
            with user_code(lambda: _after_correction(folder)), naming_out_of_memory(agreed.role, agreed.config):
                callbacks.call("on_start", state.step)
                finished = fit(trainer, training, boundary, profiling)
                asked = _agree_to_end(callbacks.agree, exchange)
                patience_ended = _agree_to_end(trainer.patience.agree, exchange)
                if (asked or patience_ended) and not finished and not stop.received:
                    finished = True
                    reason = callbacks.reason(state.step) if asked else trainer.patience.reason(state)
                    reports.observer.emit(ev.Note(state.step, reason))
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
            close_teachers(training.objective)
        if finished:
            reports.observer.emit(ev.End(state.step, trainer.wall_s(state)))
        else:
            other = "a parameter server" if exchange.stopping() else "another worker"
            reports.observer.emit(ev.Stop(state.step, stop.received.name if stop.received else f"{other} was stopped"))
            if exchange.leave_unfinished is not None:
                exchange.leave_unfinished()
        exchange.close()
        _summarise(agreed, training, reports, trainer, finished)
    reports.observer.close()
    return Result(0 if finished else stop.exit_code or agreed.role.unfinished_code or EXIT_USER, folder.path)


def _agree_to_end(agree: Callable[[SumOver], bool], exchange: Exchange) -> bool:
    """Whether any worker has asked for the end. One that was taken for lost has left already."""
    try:
        return agree(exchange.group.sum)
    except GivenUp:
        return False


def _engine(agreed: Agreed, training: Training) -> Engine:
    config, spec = agreed.config, agreed.spec
    guard = make_guard(config, training.state)
    return Engine(
        agreed.settings,
        training.inputs,
        make_adversarial(config, training.objective, training.state, spec, agreed.settings, guard),
        spec.k(config.eval),
        config.train.seed,
        views_of(config.eval),
        config.train.monitor,
        guard,
        announcer_of(training.objective),
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
        stopping=lambda: bool(stop) or training.exchange.stopping(),
        started=started,
        served=training.service.report if training.service else None,
        evaluator=reports.evaluator,
        last_eval=reports.last_eval,
        callbacks=callbacks,
        patience=_patience(config, training, agreed.role.rank),
        compute_statistics=_norm_statistics(agreed, training, engine, reports.display),
        crowding=Crowding(agreed.settings.threads, reports.folder.path)
        if agreed.settings.device.type == "cpu"
        else None,
    )


def _patience(config: RunConfig, training: Training, rank: int) -> Patience:
    asked = config.train.patience
    return Patience(None if asked is None else max(1, training.plan.in_steps(asked)), asked, rank)


def _norm_statistics(
    agreed: Agreed, training: Training, engine: Engine, display: Display
) -> Callable[[nn.Module], None]:
    """Computes the batch-norm statistics of averaged weights, over the training images framed as for validation."""
    config, source, group = agreed.config, agreed.splits.train, training.exchange.group

    def compute(model: nn.Module) -> None:
        batches = shuffled_batches(
            source,
            eval_framing(config.data, agreed.spec.image_size, source),
            max(2, training.plan.samples_per_step // config.micro_batches),
            group.share,
            seed=config.train.seed,
            prefetch=config.data.prefetch,
            pin=agreed.settings.gpu is not None,
        )
        compute_statistics(model, _shown(batches, len(source) // group.share.world, display), engine, group)

    return compute


def _shown(batches: Generator[Batch], samples: int, display: Display) -> Generator[Batch]:
    """The same batches; the display shows how many of this worker's samples are done."""
    done = 0
    with contextlib.closing(batches):
        for batch in batches:
            yield batch
            done += batch.total
            display.working("statistics", min(done, samples), samples)


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
    if finished and not agreed.config.train.profile.alone:
        trainer.await_evaluator(training.state)
    summary = trainer.summary(training.state, reports.start, finished)
    write_summary(reports.folder, summary)
    if agreed.config.train.curves:
        save_curves(reports.folder)
    if agreed.config.train.profile.alone:
        return  # nothing was trained that could be evaluated or resumed
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
