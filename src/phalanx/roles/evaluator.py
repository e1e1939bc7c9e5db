"""The evaluator: a process that evaluates each new checkpoint of a run during training, and marks the best.

Its state is in the run's files: the checkpoints, and the evaluations in the events. So it can be killed and restarted
at any time. With an evaluator, trainers write checkpoints and only this process removes them, so that none is removed
before its evaluation.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import Tensor, nn

from phalanx import cpu
from phalanx.config.batch import fit_batch, samples_per_step
from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.data.augment.framing import eval_framing
from phalanx.data.base import Batch
from phalanx.data.order import Share
from phalanx.data.pipeline import evaluation_batches
from phalanx.data.sources.bad_images import BadImages
from phalanx.data.sources.open import Splits, open_data
from phalanx.data.training import open_beside, training_sampler
from phalanx.engine.evaluate import Interrupted
from phalanx.engine.inputs import Inputs
from phalanx.engine.loop import StepPlan, make_plan
from phalanx.engine.loss import plain_loss
from phalanx.engine.measure import measure
from phalanx.engine.metrics import begin_metrics
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.objective import Supervised
from phalanx.engine.state import ALGORITHMS
from phalanx.engine.step import Engine
from phalanx.engine.views import views_of
from phalanx.engine.weights import load_weights, refuse_other_identity
from phalanx.errors import UserError
from phalanx.exchange.local import SingleWorker
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

_POLL_S = 0.3  # between looks at the folder


def watch_run(request: Request, console: Console, role: Role) -> None:
    """Evaluate new checkpoints of the run, until the launcher ends this process."""
    assert role.run is not None
    config = request.resolved.config
    with StopRequest(quiet=True) as stop:  # the launcher ends it by a signal
        evaluator = make_evaluator(
            config, RunFolder(role.run), console, lambda: bool(stop), local_trainers=role.local_trainers
        )
        while not stop:
            if not evaluator.evaluate_next():
                time.sleep(_POLL_S)


def make_evaluator(
    config: RunConfig, folder: RunFolder, console: Console, stopping: Callable[[], bool], *, local_trainers: int = 0
) -> "Evaluator":
    """An evaluator with the run's validation data and settings. `local_trainers` share its host."""
    threads = config.data.threads
    threads = _choose(config, {}, local_trainers).threads if threads is None else threads
    splits = open_data(config.data, threads=threads)
    unlabeled, _ = open_beside(config, splits, threads)
    epoch_samples = training_sampler(config, splits.train, unlabeled).epoch_samples
    config = fit_batch(config, epoch_samples)
    return Evaluator(
        config=config,
        folder=folder,
        splits=splits,
        spec=ModelSpec.of(config, splits),
        plan=make_plan(config, epoch_samples, samples_per_step(config)),
        observer=Observer([EventFile(folder.path, EVALUATOR_EVENTS_FILE), make_display(console)]),
        bad=BadImages.of(config.data, splits.val, found_in=folder.quarantine),
        stopping=stopping,
        local_trainers=local_trainers,
    )


def _choose(config: RunConfig, job_settings: Mapping[str, Any], local_trainers: int) -> Settings:
    """Settings for evaluation: the trainers' job-wide ones, and a share of this host's cores."""
    gpus = config.machine.gpus
    where = {"gpus": None, "device": f"cuda:{gpus[0]}"} if gpus else {}
    machine = config.machine.model_copy(update={**job_settings, **where})
    return choose(machine, local_trainers + 1)


@dataclass(frozen=True)
class _Model:
    """A model for the weights of checkpoints, and its evaluation settings."""

    job_settings: Mapping[str, Any]
    model: nn.Module
    engine: Engine


def _make_model(config: RunConfig, spec: ModelSpec, job_settings: Mapping[str, Any], local_trainers: int) -> _Model:
    settings = _choose(config, job_settings, local_trainers)
    settings.apply()
    model = build_model(
        config.model.model_copy(update={"pretrained": False}),  # weights are loaded later
        num_classes=len(spec.classes),
        channels=spec.channels,
        image_size=spec.image_size,
    )
    model.to(settings.device).to(memory_format=settings.memory_format)
    cpu.prepare(model, settings.fast_path, to_train=False)
    inputs = Inputs(settings, config.augment, spec.mean, spec.std, config.train.seed)
    k = spec.k(config.eval)
    seed = config.train.seed
    return _Model(job_settings, model, Engine(settings, inputs, Supervised(plain_loss), k, seed, views_of(config.eval)))


@dataclass
class Evaluator:
    """Evaluates a run's checkpoints one after the other, the oldest first."""

    config: RunConfig
    folder: RunFolder
    splits: Splits
    spec: ModelSpec
    plan: StepPlan
    observer: Observer
    bad: BadImages
    stopping: Callable[[], bool]
    local_trainers: int = 0  # trainers on the same host
    _seen: tuple[tuple[str, int], ...] = ()  # the folder's checkpoints, and when each was written
    _damaged: set[tuple[str, int]] = field(default_factory=set)
    _model: _Model | None = None

    def evaluate_next(self) -> bool:
        """Evaluate the next checkpoint. False if there is none."""
        there = tuple((path.name, _written(path)) for path in checkpoint.steps_saved(self.folder.checkpoints))
        if there == self._seen or not (self.folder.path / EVENTS_FILE).is_file():
            return False
        known = evaluations(read_events(self.folder.path))
        done = {0, *(one.step for one in known)}  # step 0 is not evaluated
        waiting = [one for one in there if one not in self._damaged and checkpoint.step_of(Path(one[0])) not in done]
        if not waiting:
            self._keep_best(known)
            self._seen = there
            return False
        name, written = waiting[0]
        try:
            loaded = checkpoint.load(self.folder.checkpoints / name)
        except UserError as error:
            self._skip(name, written, error)
            return True
        prepared = self._model = self._model_for(loaded)  # an error here is this machine's, not the checkpoint's
        try:
            event = self._measure(prepared, loaded, known)
        except Interrupted:
            return False
        except UserError as error:
            self._skip(name, written, error)
            return True
        self._keep_best([*known, event])
        self.observer.emit(event)
        return True

    def _skip(self, name: str, written: int, error: UserError) -> None:
        if _written(self.folder.checkpoints / name) == written:  # not replaced meanwhile
            self._damaged.add((name, written))
            step = checkpoint.step_of(Path(name))
            self.observer.emit(ev.Note(step, f"{error.what}: {error.why}; skipped"))

    def _model_for(self, loaded: checkpoint.Loaded) -> _Model:
        """A checkpoint is evaluated with the precision and the algorithms that it was trained with."""
        machine = loaded.state["config"]["machine"]
        job_settings = {name: machine[name] for name in JOB_WIDE}
        if self._model is not None and self._model.job_settings == job_settings:
            return self._model
        return _make_model(self.config, self.spec, job_settings, self.local_trainers)

    def _measure(self, prepared: _Model, loaded: checkpoint.Loaded, known: list[ev.Eval]) -> ev.Eval:
        begin = time.perf_counter()
        refuse_other_identity(loaded, self.spec)
        load_weights(prepared.model, loaded.tensors.get("ema", loaded.tensors["model"]), str(loaded.path))
        training = loaded.state["training"]
        cpu.load(prepared.model, training.get(ALGORITHMS, {}))
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
            pin=prepared.engine.settings.gpu is not None,
        )
        own = begin_metrics(config.eval.metrics, self.spec.classes, multi_label=self.spec.multi_label)
        found = measure(
            prepared.model,
            batches,
            prepared.engine,
            self.splits.val,
            own,
            SingleWorker(Share()),
            watch=watch,
            stopping=self.stopping,
        )
        best = best_of(known)
        return found.event(
            step,
            step / self.plan.steps_per_epoch,
            prepared.engine.k,
            time.perf_counter() - begin,
            best=best is None or found.score > best.score,
        )

    def _note_bad(self, step: int, bad: list[tuple[str, str]]) -> None:
        lines = AppendedLines(self.folder.quarantine) if bad else None
        for name, reason in bad:
            assert lines is not None
            lines.line(f"{name}\t{reason}")
            self.observer.emit(ev.BadImage(step, name, reason))

    def _keep_best(self, known: list[ev.Eval]) -> None:
        """Mark the best before its event is written, then remove old evaluated checkpoints."""
        folder, keep = self.folder.checkpoints, self.config.checkpoint
        best = best_of(known)
        if best is not None and keep.keep_best and checkpoint.path_of(folder, best.step).is_dir():
            checkpoint.mark_best(folder, best.step, best.score, best.metric)
        evaluated = {one.step for one in known}
        checkpoint.prune(folder, keep.keep_last, lambda path: checkpoint.step_of(path) in evaluated)


def _written(path: Path) -> int:
    try:
        return (path / checkpoint.MANIFEST).stat().st_mtime_ns
    except OSError:  # it is being replaced
        return 0
