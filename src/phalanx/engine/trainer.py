"""The trainer of one run: it drives the loop, and reports, evaluates and saves between the steps."""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from phalanx import cpu
from phalanx.config.schema import RunConfig
from phalanx.data.base import Batch, Framing, Source
from phalanx.data.pipeline import Pipeline, evaluation_batches, evaluation_part
from phalanx.data.sources.bad_images import BadImages
from phalanx.engine.boundary import Boundary
from phalanx.engine.callbacks import Callbacks
from phalanx.engine.distill.extras import NAME as EXTRAS
from phalanx.engine.distill.extras import extra_tensors, own_tensors
from phalanx.engine.loop import LoopHooks, StepPlan, train
from phalanx.engine.measure import measure
from phalanx.engine.metrics import begin_metrics
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.patience import Patience
from phalanx.engine.state import Best, TrainState
from phalanx.engine.step import Engine, Measurements, refuse_nonfinite
from phalanx.engine.times import Times, each_rank
from phalanx.engine.totals import Totals
from phalanx.exchange.base import Exchange
from phalanx.machine.crowding import Crowding
from phalanx.machine.system import SystemMeter
from phalanx.observe.display import Display, Tick
from phalanx.observe.slowness import Slowness
from phalanx.runs import checkpoint
from phalanx.runs import events as ev
from phalanx.runs.evaluations import EvaluatorResults
from phalanx.runs.events import AppendedLines, Observer
from phalanx.runs.folder import RunFolder
from phalanx.runs.score import F1_MICRO, TOP1
from phalanx.runs.summary import Summary

_OF_EVALUATION = ("top1", "topk", "loss", "step", "metrics", "metric")  # in summary.json
_POLL_S = 0.2  # between looks for the evaluator's last result


@dataclass
class Trainer:
    """One run with its folder. As with Lightning's Trainer, `fit` trains; the other methods are the loop's hooks."""

    config: RunConfig
    spec: ModelSpec
    folder: RunFolder
    plan: StepPlan
    engine: Engine
    exchange: Exchange
    observer: Observer
    display: Display
    validation: Source
    validation_framing: Framing
    validation_bad: BadImages
    stopping: Callable[[], bool]
    started: float
    served: Callable[[], list[dict[str, Any]]] | None = None  # statistics of the data servers, if there are any
    evaluator: EvaluatorResults | None = None  # of a separate evaluator; only on rank 0
    last_eval: ev.Eval | None = None
    times: Times = field(default_factory=Times)
    slowness: Slowness = field(default_factory=Slowness)
    run_times: Times = field(default_factory=Times)
    callbacks: Callbacks = field(default_factory=Callbacks)
    patience: Patience = field(default_factory=Patience)
    compute_statistics: Callable[[nn.Module], None] | None = None  # of batch norms, for averaged weights
    meter: SystemMeter = field(default_factory=SystemMeter)
    crowding: Crowding | None = None  # on a CPU

    def fit(
        self,
        state: TrainState,
        pipeline: Pipeline,
        boundary: Boundary | None = None,
        hooks: LoopHooks | None = None,
    ) -> bool:
        """Train to the end of the plan. False if a stop was requested before. `hooks` may be around this one's."""
        hooks = hooks or self
        return train(state, pipeline, self.exchange, self.engine, self.plan, hooks, self._stop_requested, boundary)

    def _stop_requested(self) -> bool:
        """By a signal, a callback or the end of patience. Workers out of lockstep agree when they evaluate."""
        wants = self.callbacks.wants_stop or self.patience.wants_stop
        agreed = self.callbacks.agreed or self.patience.agreed
        return self.stopping() or agreed or (self.exchange.group.lockstep and wants)

    def ends_early(self) -> bool:
        """Whether all workers know that validation no longer improves."""
        return self.patience.agreed

    def report(self, state: TrainState, batch: Batch, measurements: Measurements) -> None:
        """After a step: update the sums and the display, and emit the events that are due."""
        if not state.interval.samples:
            state.lr_first = measurements.lr
        state.interval.add(measurements.totals)
        state.epoch_totals.add(measurements.totals)
        if self.exchange.group.lockstep:  # otherwise it is this worker's share only
            state.note_used(batch)
        state.train_s += measurements.seconds
        self.times.add(measurements)
        self.run_times.add(measurements)
        self._bad_images(state, batch.bad)
        self.read_evaluator(state)
        number = self.plan.number_in_epoch(batch.start, state.step)
        if measurements.skipped:
            scale = state.loss_scale.scale if state.loss_scale else 0
            self.observer.emit(
                ev.Note(state.step, f"step {state.step}: fp16 overflow, no update; loss scale now {scale:g}")
            )
        if measurements.note:
            self.observer.emit(ev.Note(state.step, measurements.note))
        if self.crowding is not None and (text := self.crowding.look()):
            self.observer.emit(ev.Note(state.step, text))
        if measurements.norms is not None:
            norms = measurements.norms
            self.observer.emit(ev.Norms(state.step, norms.parameters, norms.gradients))
        self.display.tick(self._tick(state, batch.epoch + 1, number))
        if batch.last:  # before any exchange, which may find a worker lost: the sums of this epoch end here
            totals, state.epoch_totals = state.epoch_totals, Totals()
            means, k = totals.means(self.spec.multi_label), self.engine.k
            self.observer.emit(ev.Epoch(state.step, batch.epoch + 1, totals.loss, samples=totals.samples, k=k, **means))
        if state.step % self.config.train.log_every == 0 or state.step == self.plan.total_steps:
            self._step_event(state, batch.epoch + 1, number, measurements)
        self.callbacks.call("on_step", state.step, {**self._means(measurements.totals), "lr": measurements.lr})
        if batch.last:
            self.callbacks.call("on_epoch", state.step, self._means(totals))

    def _tick(self, state: TrainState, epoch: int, number: int) -> Tick:
        totals, times, several = state.epoch_totals, self.times, self.spec.multi_label
        return Tick(
            step=state.step,
            total_steps=self.plan.total_steps,
            epoch=epoch,
            batch=number,
            batches=self.plan.steps_per_epoch,
            loss=totals.loss,
            accuracy=totals.f1 if several else totals.top1,
            metric=F1_MICRO if several else TOP1,
            samples_per_s=times.samples_per_s * self.exchange.group.share.world,
            topk=None if several else totals.topk,
            k=self.engine.k,
            times=times.of_a_step,
        )

    def _means(self, totals: Totals) -> dict[str, float]:
        """The numbers of training for callbacks."""
        return {"loss": totals.loss, **_measured(**totals.means(self.spec.multi_label))}

    def _step_event(self, state: TrainState, epoch: int, number: int, measurements: Measurements) -> None:
        totals, times = state.interval, self.times
        ranks = each_rank(times, self.exchange.group)
        self.observer.emit(
            ev.Step(
                step=state.step,
                epoch=epoch,
                batch=number,
                batches=self.plan.steps_per_epoch,
                loss=totals.loss,
                **totals.means(self.spec.multi_label),
                lr=measurements.lr,
                samples_per_s=sum(rank["samples_per_s"] for rank in ranks) or times.samples_per_s,
                data_s=times.data_s / times.steps,
                compute_s=times.compute_s / times.steps,
                exchange_s=times.exchange_s / times.steps,
                update_s=times.update_s / times.steps,
                grad_norm=measurements.grad_norm,
                bytes_sent=times.bytes_sent / times.steps,
                bytes_received=times.bytes_received / times.steps,
                compression_ratio=self._compression_ratio(state, times),
                ranks=ranks,
                details=measurements.details,
                used=state.used,
                lr_first=state.lr_first,
                k=self.engine.k,
            )
        )
        self.slowness.add(ranks)
        if self.served is not None:
            self.observer.emit(ev.DataService(state.step, times.data_s / times.seconds, self.served()))
        self.observer.emit(ev.System(state.step, **vars(self.meter.read())))
        state.interval, state.used, self.times = Totals(), [], Times()

    def _compression_ratio(self, state: TrainState, times: Times) -> float | None:
        if self.config.exchange.compress == "none" or not times.bytes_sent:
            return None
        whole = sum(p.numel() * p.element_size() for p in state.model.parameters() if p.requires_grad)
        return whole * times.steps / times.bytes_sent

    def _bad_images(self, state: TrainState, bad: list[tuple[str, str]]) -> None:
        if not bad:
            return
        lines = AppendedLines(self.folder.quarantine)
        for name, reason in bad:
            lines.line(f"{name}\t{reason}")
            self.observer.emit(ev.BadImage(state.step, name, reason))
        lines.close()

    def evaluate(self, state: TrainState) -> bool:
        """Evaluate on the validation split; True if it is the best so far.

        A separate evaluator only needs a checkpoint, so the answer is then True.
        """
        if self.config.eval.evaluator:
            state.evaluated_step = state.step
            if not self.exchange.group.lockstep:  # otherwise they agree at the next step
                self.patience.agree(self.exchange.group.sum)
            return True
        begin = time.perf_counter()
        group = self.exchange.group
        self._sync_buffers(state)
        done, whole = 0, len(evaluation_part(len(self.validation), group.share))  # of this worker

        def watch(batch: Batch, logits: Tensor) -> None:
            nonlocal done
            done += batch.total
            self.display.working("validating", done, whole)
            self._bad_images(state, batch.bad)

        def part_of(rank: int) -> Generator[Batch]:
            return evaluation_batches(
                self.validation,
                self.validation_framing,
                self.config.eval.batch_size or self.plan.samples_per_step // group.share.parts,
                replace(group.share, rank=rank),
                prefetch=self.config.data.prefetch,
                bad=self.validation_bad,
                pin=self.engine.settings.gpu is not None,
            )

        own = begin_metrics(self.config.eval.metrics, self.spec.classes, multi_label=self.spec.multi_label)
        found = measure(
            state.eval_model,
            part_of(group.share.rank),
            self.engine,
            self.validation,
            own,
            group,
            watch=watch,
            stopping=self._interrupted,
            part_of=part_of,
        )
        state.evaluated_step = state.step
        # The first worker decides: one that joined later does not know the earlier results.
        better = group.share.rank == 0 and (state.best is None or found.score > state.best.score)
        best = group.sum([float(better)])[0] > 0
        epoch = state.step / self.plan.steps_per_epoch
        self.last_eval = found.event(state.step, epoch, self.engine.k, time.perf_counter() - begin, best=best)
        if best:
            state.best = Best.of(self.last_eval)
        self.observer.emit(self.last_eval)
        self._evaluated(state.step, self.last_eval)
        self.callbacks.agree(group.sum)
        self.patience.judge(state, state.step)
        self.patience.agree(group.sum)
        return best and self.config.checkpoint.keep_best

    def _evaluated(self, step: int, found: ev.Eval) -> None:
        numbers = {"loss": found.loss, **_measured(found.top1, found.topk, found.metrics)}
        self.callbacks.call("on_evaluated", step, numbers)

    def _sync_buffers(self, state: TrainState) -> None:
        self.exchange.state.sync_buffers()
        if state.ema is not None:
            state.ema.copy_buffers(state.model)
            cpu.load(state.ema.model, cpu.state(state.model))
        if state.swa is not None and state.swa.stale and self.compute_statistics is not None:
            cpu.load(state.swa.model, cpu.state(state.model))
            self.compute_statistics(state.swa.model)
            state.swa.measured = state.swa.count

    def _interrupted(self) -> bool:
        """Several workers must finish an evaluation together; a single one may stop in the middle."""
        return self.exchange.group.share.world == 1 and self.stopping()

    def save(self, state: TrainState) -> None:
        """Write a checkpoint. All workers call this; rank 0 writes."""
        begin = time.perf_counter()
        self._sync_buffers(state)
        refuse_nonfinite(state.model, state.step)
        optimizer, scalars = self.exchange.state.optimizer_state()
        residuals = self.exchange.residuals.residuals() if self.exchange.residuals is not None else {}
        if self.exchange.group.share.rank > 0:
            return
        state.callbacks = {**state.callbacks, **self.callbacks.state()}
        path = self._write(state, optimizer, scalars, residuals)
        if not self.config.eval.evaluator:  # otherwise the evaluator does this
            self._rotate(state)
        size = sum(file.stat().st_size for file in path.iterdir())
        self.observer.emit(ev.Checkpoint(state.step, str(path), time.perf_counter() - begin, size))
        self.callbacks.call("on_saved", state.step, path)

    def rejoined(self, state: TrainState, text: str) -> None:
        """After this worker was taken for lost: tell the user where it goes on."""
        self.observer.emit(ev.Note(state.step, text))

    def _rotate(self, state: TrainState) -> None:
        try:
            if state.best is not None and state.best.step == state.step and self.config.checkpoint.keep_best:
                checkpoint.mark_best(self.folder.checkpoints, state.step, state.best.score, state.best.metric)
            checkpoint.prune(self.folder.checkpoints, self.config.checkpoint.keep_last)
        except OSError as error:
            raise checkpoint.unwritable(self.folder.checkpoints, state.step, error) from error

    def read_evaluator(self, state: TrainState) -> None:
        """Show the evaluator's new results, and keep the best."""
        if self.evaluator is None:
            return
        for found in self.evaluator.poll():
            self.evaluator.show(found)
            self.last_eval = found
            self._evaluated(state.step, found)
            if found.best:
                state.best = Best.of(found)
            self.patience.judge(state, found.step)

    def await_evaluator(self, state: TrainState) -> None:
        """After the last step: wait until the evaluator has evaluated it, or a stop is requested."""
        self.read_evaluator(state)
        if self.evaluator is None or self.evaluator.last_step >= state.step:
            return
        self.evaluator.show(ev.Note(state.step, "training is done; the evaluator still has checkpoints to evaluate"))
        while self.evaluator.last_step < state.step and not self.stopping():
            time.sleep(_POLL_S)
            self.read_evaluator(state)

    def rescue(self, state: TrainState, boundary: Boundary) -> str:
        """After the loss of a worker: save the last completed step, unless another worker has. Returns what was done.

        Batch-norm statistics and residuals are those of this worker: the others may be lost.
        """
        boundary.restore(state)
        folder, step = self.folder.checkpoints, state.step
        if checkpoint.path_of(folder, step).is_dir() or not checkpoint.claim(folder, step):
            return f"step {step} is saved already"
        rescued = boundary.recovery.rescue(step)
        refuse_nonfinite(state.model, step)
        self._write(state, rescued.optimizer, rescued.scalars, rescued.residuals)
        return f"step {step} was saved"

    def _write(
        self,
        state: TrainState,
        optimizer: dict[str, Tensor],
        scalars: dict[str, Any],
        residuals: dict[str, Tensor],
    ) -> Path:
        tensors = {"model": own_tensors(state.model), "optimizer": optimizer}
        if extras := extra_tensors(state.model):
            tensors[EXTRAS] = extras
        if state.ema is not None:
            tensors["ema"] = own_tensors(state.ema.model)
        if state.swa is not None and state.swa.count:  # by the same name: whoever uses a checkpoint uses the average
            tensors["ema"] = own_tensors(state.swa.model)
        if residuals:
            tensors["residuals"] = residuals
        numbers = state.numbers() | {"wall_s": self.wall_s(state)}
        if self.config.eval.evaluator:  # checkpoints may still wait for their evaluation
            numbers["evaluated_step"] = self.evaluator.last_step if self.evaluator is not None else 0
        return checkpoint.save(
            self.folder.checkpoints,
            state.step,
            tensors,
            {
                "training": numbers,
                "optimizer": scalars,
                "identity": self.spec.saved(),
                "config": self.config.model_dump(mode="json"),
                "samples_per_step": self.plan.samples_per_step,
                "events": self.observer.recent(state.step),
            },
        )

    def summary(self, state: TrainState, start: ev.Start, finished: bool) -> Summary:
        """What the run has reached and how fast it was."""
        last, times, world = self.last_eval, self.run_times, self.exchange.group.share.world
        return Summary(
            finished=finished,
            best=vars(state.best) if state.best else None,
            last={name: getattr(last, name) for name in _OF_EVALUATION} if last else None,
            k=self.engine.k,
            epochs=state.step / self.plan.steps_per_epoch,
            steps=state.step,
            samples_per_s=times.samples_per_s * world,
            shares={name: getattr(times, f"{name}_s") / times.seconds for name in ev.TIMES},
            workers=world,
            slowest=self.slowness.sentence(),
            train_s=state.train_s,
            wall_s=self.wall_s(state),
            model=start.model,
            parameters=start.parameters,
            data=start.data,
            decisions=start.decisions,
            command=start.command,
        )

    def wall_s(self, state: TrainState) -> float:
        """Seconds that the run has taken, including the parts before a resume."""
        return state.wall_s + time.perf_counter() - self.started


def _measured(top1: float | None, topk: float | None, metrics: dict[str, float]) -> dict[str, float]:
    """Accuracies and metrics by name, those that were measured."""
    accuracies = {"top1": top1, "topk": topk}
    return {**{name: value for name, value in accuracies.items() if value is not None}, **metrics}
