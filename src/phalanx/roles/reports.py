"""Where a trainer reports: its screen and log, and on rank 0 the run's events and log.txt."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from phalanx.config.role import Role
from phalanx.engine.adversarial import adversarial_notes
from phalanx.engine.distill.agree import describe
from phalanx.engine.distill.extras import own_parameters
from phalanx.engine.loss import loss_notes
from phalanx.engine.sizes import describe_sizes
from phalanx.observe.display import Display, PlainDisplay, make_display
from phalanx.observe.lines import LogFile
from phalanx.observe.start_up import BATCH, describe_start, is_verbose
from phalanx.optim.own import optimizer_notes
from phalanx.optim.schedule import scaled_rate
from phalanx.roles.agree import Agreed
from phalanx.roles.build import Training
from phalanx.roles.console import may_print
from phalanx.roles.data_notes import data_notes
from phalanx.roles.outside import open_outside
from phalanx.roles.request import Request
from phalanx.runs import events as ev
from phalanx.runs.code import write_code
from phalanx.runs.evaluations import EvaluatorResults, evaluations
from phalanx.runs.events import EVENTS_FILE, EventFile, Observer, Sink, read_events
from phalanx.runs.folder import RUNS, RunFolder, create_run


@dataclass
class Reports:
    """The consoles, the run's folder, and who hears of events."""

    consoles: Sequence[Console]
    folder: RunFolder
    display: Display
    observer: Observer
    start: ev.Start
    evaluator: EvaluatorResults | None = None  # of a separate evaluator; only on rank 0
    last_eval: ev.Eval | None = None


def open_reports(agreed: Agreed, training: Training, consoles: Sequence[Console]) -> Reports:
    """Print what is about to run. Rank 0 also opens the run's folder and writes config.yaml there."""
    request, config, role = agreed.request, agreed.config, agreed.role
    folder = request.resume or _folder(request, role)
    resumed = training.resumed
    fresh = resumed is None and training.exchange.joined_step is None
    if fresh and role.rank == 0 and (folder.path / EVENTS_FILE).exists():
        # An elastic launcher started the job again: all workers were lost before the first checkpoint.
        resumed = ev.Resume(0, 0, "the beginning", ["nothing had been saved"])
    consoles[0].quiet = consoles[0].quiet or not may_print(role)
    worker = role.rank if role.world > 1 else None
    display = make_display(consoles[0], worker, folder.path if worker is not None else None)
    displays: list[Sink] = [display, *(PlainDisplay(log, worker) for log in consoles[1:])]
    reports = Reports(consoles, folder, display, Observer(displays), start_event(agreed, training))
    start_up = describe_start(
        reports.start,
        config,
        role,
        folder=str(folder.path) if role.rank == 0 or role.run else "see the output of trainer-0",
        peak_lr=scaled_rate(config.optim.lr, config.optim.lr_per, training.plan.samples_per_step),
        notes=_notes(agreed, training),
        warnings=[*agreed.job_settings.warnings, *training.algorithms.warnings],
        log_notes=training.algorithms.notes,
    )
    for number, console in enumerate(consoles):  # the first may be a screen; the others are logs
        start_up.print_to(console, verbose=number > 0 or role.rank > 0 or is_verbose())
    if role.rank == 0:
        write_code(folder.path, request.code)
        folder.write_config(request.resolved)
        log = LogFile(folder.path)
        log.text(start_up.text())
        outside = open_outside(
            config, folder.path, lambda text: reports.observer.emit(ev.Note(training.state.step, text))
        )
        # Those outside come first: what they have to say when they are closed is still written down.
        reports.observer.sinks = [*outside, EventFile(folder.path), log, *displays]
        if config.eval.evaluator:
            _follow_evaluator(reports, Observer([*outside, log, *displays]), training.state.step)
    reports.observer.emit(reports.start)
    if resumed is not None:
        reports.observer.emit(resumed)
    return reports


def _follow_evaluator(reports: Reports, shown_by: Observer, step: int) -> None:
    path = reports.folder.path
    known = [one for one in evaluations(read_events(path)) if one.step <= step]
    reports.evaluator = EvaluatorResults(path, shown_by.emit)
    reports.last_eval = known[-1] if known else None
    reports.evaluator.last_step = reports.last_eval.step if reports.last_eval else 0


def start_event(agreed: Agreed, training: Training) -> ev.Start:
    """What is trained, on what, and every decision that was made for the user."""
    plan, splits, spec = training.plan, agreed.splits, agreed.spec
    algorithms = training.algorithms
    return ev.Start(
        command=agreed.request.command,
        model=agreed.config.model.name,
        parameters=own_parameters(training.state.model),
        data=splits.train.description,
        train_samples=len(splits.train),
        val_samples=len(splits.val),
        classes=len(spec.classes),
        steps_per_epoch=plan.steps_per_epoch,
        total_steps=plan.total_steps,
        samples_per_step=plan.samples_per_step,
        epoch_samples=training.pipeline.epoch_samples,
        decisions={
            **_smaller_batch(agreed, training),
            **describe_sizes(training.inputs.sizes, plan, spec.image_size),
            **{name: str(decision) for name, decision in agreed.settings.decisions.items()},
        },
        notes=[*_notes(agreed, training), *agreed.job_settings.warnings, *algorithms.notes, *algorithms.warnings],
    )


def _smaller_batch(agreed: Agreed, training: Training) -> dict[str, str]:
    """Why a step has fewer samples than were asked for."""
    batch, there = training.plan.samples_per_step, training.pipeline.epoch_samples
    if batch == agreed.asked_batch:
        return {}
    holder = "the data" if there == len(agreed.splits.train) else "an epoch"
    return {BATCH: f"{batch:,} samples a step ({holder} has {there:,}; {agreed.asked_batch:,} were asked)"}


def _notes(agreed: Agreed, training: Training) -> list[str]:
    config = agreed.config
    return [
        *agreed.splits.notes,
        *agreed.notes,
        *training.notes,
        *(describe(config.distill, agreed.teachers) if config.distill.on else []),
        *data_notes(agreed.request, len(agreed.splits.train), len(agreed.splits.val)),
        *loss_notes(config.loss, multi_label=agreed.spec.multi_label),
        *adversarial_notes(config.adversarial, workers=agreed.role.world),
        *optimizer_notes(config.optim),
    ]


def _folder(request: Request, role: Role) -> RunFolder:
    """The launcher made the run's folder, or the first trainer does; the others write nothing of their own there."""
    if role.run is not None:
        return RunFolder(role.run)
    if role.rank == 0:
        return create_run(request.out, request.resolved.config.name)
    return RunFolder(request.out or RUNS)
