"""The evaluator: a process that measures each new checkpoint of a run while training goes on, and keeps the best.

Its memory are the run's files: which checkpoints are there, and which evaluations the events hold. So it may be killed
and started anew at any time. With an evaluator, trainers write checkpoints and this process alone removes them: one
that waits for its evaluation is never missing.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import Tensor, nn

from phalanx import cpu
from phalanx.config.batch import samples_per_step
from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.data.augment.framing import eval_framing
from phalanx.data.base import Batch
from phalanx.data.pipeline import evaluation_batches
from phalanx.data.sources.bad_images import BadImages
from phalanx.data.sources.open import Splits, open_data
from phalanx.engine.evaluate import Interrupted, evaluate
from phalanx.engine.inputs import Inputs
from phalanx.engine.loop import StepPlan, make_plan
from phalanx.engine.loss import PLAIN
from phalanx.engine.metrics import begin_metrics
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.state import ALGORITHMS
from phalanx.engine.step import Engine
from phalanx.engine.views import views_of
from phalanx.engine.weights import load_weights
from phalanx.errors import UserError
from phalanx.machine.job_settings import JOB_WIDE
from phalanx.machine.settings import Settings, choose
from phalanx.models.build import build_model
from phalanx.observe.display import make_display
from phalanx.roles.request import Request
from phalanx.runs import checkpoint
from phalanx.runs import events as ev
from phalanx.runs.evaluations import best_of, evaluations
from phalanx.runs.events import EVALUATOR_EVENTS_FILE, EVENTS_FILE, AppendedLines, EventFile, Observer, read_events
from phalanx.runs.folder import RunFolder
from phalanx.signals import StopRequest

_LOOK_S = 0.3  # between looks at the folder


def watch_run(request: Request, console: Console, role: Role) -> None:
    """Evaluate whatever checkpoints appear in the job's run, until the launcher ends this process."""
    assert role.run is not None
    config = request.resolved.config
    with StopRequest(quiet=True) as stop:  # being ended by the launcher is how it ends when all is well
        evaluator = make_evaluator(config, RunFolder(role.run), console, lambda: bool(stop), beside=role.beside)
        while not stop:
            if not evaluator.evaluate_next():
                time.sleep(_LOOK_S)


def make_evaluator(
    config: RunConfig, folder: RunFolder, console: Console, stopping: Callable[[], bool], *, beside: int = 0
) -> "Evaluator":
    """An evaluator for a run's own validation data, with the run's own settings; so many trainers share its host."""
    threads = config.data.threads
    splits = open_data(config.data, threads=_choose(config, {}, beside).threads if threads is None else threads)
    return Evaluator(
        config=config,
        folder=folder,
        splits=splits,
        spec=ModelSpec.of(config, splits),
        plan=make_plan(config, len(splits.train), samples_per_step(config)),
        observer=Observer([EventFile(folder.path, EVALUATOR_EVENTS_FILE), make_display(console)]),
        bad=BadImages(splits.val, config.data.bad_images, config.data.bad_images_cap),
        stopping=stopping,
        beside=beside,
    )


def _choose(config: RunConfig, job_settings: Mapping[str, Any], beside: int) -> Settings:
    """How to evaluate here: with what trainers have settled, and the cores that they leave."""
    gpus = config.machine.gpus
    where = {"gpus": None, "device": f"cuda:{gpus[0]}"} if gpus else {}
    machine = config.machine.model_copy(update={**job_settings, **where})
    return choose(machine, beside + 1)


@dataclass(frozen=True)
class _Judge:
    """A model to put weights into, and how it is evaluated."""

    job_settings: Mapping[str, Any]
    model: nn.Module
    engine: Engine


def _make_judge(config: RunConfig, spec: ModelSpec, job_settings: Mapping[str, Any], beside: int) -> _Judge:
    settings = _choose(config, job_settings, beside)
    settings.apply()
    model = build_model(
        config.model.model_copy(update={"pretrained": False}),  # weights are loaded anyway
        num_classes=len(spec.classes),
        channels=spec.channels,
        image_size=spec.image_size,
    )
    model.to(settings.device).to(memory_format=settings.memory_format)
    cpu.prepare(model, settings.fast_path, to_train=False)
    inputs = Inputs(settings, config.augment, spec.mean, spec.std, config.train.seed)
    k = config.eval.k(len(spec.classes))
    seed = config.train.seed
    return _Judge(job_settings, model, Engine(settings, inputs, PLAIN, k, seed, views=views_of(config.eval)))


@dataclass
class Evaluator:
    """One run's checkpoints, evaluated one after the other, the oldest first."""

    config: RunConfig
    folder: RunFolder
    splits: Splits
    spec: ModelSpec
    plan: StepPlan
    observer: Observer
    bad: BadImages
    stopping: Callable[[], bool]
    beside: int = 0  # trainers on the same host
    _seen: tuple[tuple[str, int], ...] = ()  # the folder's checkpoints, and when each was written
    _damaged: set[tuple[str, int]] = field(default_factory=set)
    _judge: _Judge | None = None

    def evaluate_next(self) -> bool:
        """Evaluate a checkpoint that is not evaluated yet. False where there is none."""
        there = tuple((path.name, _written(path)) for path in checkpoint.steps_saved(self.folder.checkpoints))
        if there == self._seen or not (self.folder.path / EVENTS_FILE).is_file():
            return False
        known = evaluations(read_events(self.folder.path))
        done = {0, *(one.step for one in known)}  # nobody asks what a model knows before it has learnt
        waiting = [one for one in there if one not in self._damaged and checkpoint.step_of(Path(one[0])) not in done]
        if not waiting:
            self._keep_best(known)
            self._seen = there
            return False
        name, written = waiting[0]
        try:
            loaded = checkpoint.load(self.folder.checkpoints / name)
        except UserError as error:
            self._pass_over(name, written, error)
            return True
        judge = self._judge = self._judge_for(loaded)  # where it cannot be had, this machine is at fault
        try:
            event = self._measure(judge, loaded, known)
        except Interrupted:
            return False
        except UserError as error:
            self._pass_over(name, written, error)
            return True
        self._keep_best([*known, event])
        self.observer.emit(event)
        return True

    def _pass_over(self, name: str, written: int, error: UserError) -> None:
        if _written(self.folder.checkpoints / name) == written:  # and not replaced while it was read
            self._damaged.add((name, written))
            step = checkpoint.step_of(Path(name))
            self.observer.emit(ev.Note(step, f"{error.what}: {error.why}; it is not evaluated"))

    def _judge_for(self, loaded: checkpoint.Loaded) -> _Judge:
        """A checkpoint is evaluated with the precision and the algorithms that it was trained with."""
        machine = loaded.state["config"]["machine"]
        job_settings = {name: machine[name] for name in JOB_WIDE}
        if self._judge is not None and self._judge.job_settings == job_settings:
            return self._judge
        return _make_judge(self.config, self.spec, job_settings, self.beside)

    def _measure(self, judge: _Judge, loaded: checkpoint.Loaded, known: list[ev.Eval]) -> ev.Eval:
        begin = time.perf_counter()
        load_weights(judge.model, loaded.tensors.get("ema", loaded.tensors["model"]), str(loaded.path))
        training = loaded.state["training"]
        cpu.load(judge.model, training.get(ALGORITHMS, {}))
        step = int(training["step"])

        def watch(batch: Batch, logits: Tensor) -> None:
            self._note_bad(step, batch.bad)

        config = self.config
        batches = evaluation_batches(
            self.splits.val,
            eval_framing(config.data, self.spec.image_size, self.splits.val),
            config.eval.batch_size or self.plan.samples_per_step // config.micro_batches,
            prefetch=config.data.prefetch,
            bad=self.bad,
        )
        own = begin_metrics(config.eval.metrics, self.spec.classes)
        totals = evaluate(judge.model, batches, judge.engine, watch=watch, metrics=own, stopping=self.stopping)
        best = best_of(known)
        return ev.Eval(
            step=step,
            epoch=step / self.plan.steps_per_epoch,
            loss=totals.loss,
            top1=totals.top1,
            topk=totals.topk,
            k=judge.engine.k,
            samples=totals.samples,
            seconds=time.perf_counter() - begin,
            best=best is None or totals.top1 > best.top1,
            metrics=own.results(own.numbers()),
        )

    def _note_bad(self, step: int, bad: list[tuple[str, str]]) -> None:
        lines = AppendedLines(self.folder.quarantine) if bad else None
        for name, reason in bad:
            assert lines is not None
            lines.line(f"{name}\t{reason}")
            self.observer.emit(ev.BadImage(step, name, reason))

    def _keep_best(self, known: list[ev.Eval]) -> None:
        """Mark the best before its event is written, then remove what is neither new nor best nor still to be done."""
        folder, keep = self.folder.checkpoints, self.config.checkpoint
        best = best_of(known)
        if best is not None and keep.keep_best and checkpoint.path_of(folder, best.step).is_dir():
            checkpoint.mark_best(folder, best.step, best.top1)
        evaluated = {one.step for one in known}
        checkpoint.prune(folder, keep.keep_last, lambda path: checkpoint.step_of(path) in evaluated)


def _written(path: Path) -> int:
    try:
        return (path / checkpoint.MANIFEST).stat().st_mtime_ns
    except OSError:  # it is being replaced
        return 0
