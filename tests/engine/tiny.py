"""A tiny run of real parts for tests of the engine: synthetic images, a small network, the local update."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phalanx.config.batch import samples_per_step
from phalanx.config.resolve import parse_override, resolve
from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.data.base import Batch
from phalanx.data.order import Share
from phalanx.data.pipeline import Pipeline
from phalanx.data.sources.open import open_data
from phalanx.data.training import training_pipeline
from phalanx.engine.inputs import Inputs
from phalanx.engine.loop import StepPlan, make_plan
from phalanx.engine.loss import make_loss
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.objective import Supervised
from phalanx.engine.state import Ema, LossScale, TrainState
from phalanx.engine.step import Engine
from phalanx.exchange.base import Exchange
from phalanx.exchange.make import make_exchange
from phalanx.exchange.rendezvous import LocalRendezvous
from phalanx.machine.settings import choose
from phalanx.optim.schedule import make_schedule

# 40 samples in steps of 8: an epoch has 5 steps.
SETTINGS = (
    "data.source=synthetic",
    "data.synthetic={samples: 40, val_samples: 12, classes: 4, size: 8}",
    "train.batch_size=8",
    "train.length=2ep",
    "optim.momentum=0",
    "optim.nesterov=false",
    "optim.weight_decay=0",
    "schedule.kind=constant",
    "machine.precision=fp32",
    "machine.device=cpu",
    "machine.threads=1",
    "machine.fast_path=off",
)


def network(classes: int = 4, *, norm: bool = False, drop: float = 0.0) -> nn.Sequential:
    """A convolution and a classifier; without batch norm and dropout, cutting a batch changes nothing but rounding."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Dropout(drop),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, classes),
    )
    return model.to(memory_format=torch.channels_last)


@dataclass
class TinyRun:
    """All that a loop needs."""

    config: RunConfig
    state: TrainState
    pipeline: Pipeline
    exchange: Exchange
    engine: Engine
    plan: StepPlan
    spec: ModelSpec

    def batch(self, epoch: int = 0, start: int = 0) -> Batch:
        """The batch of the step there."""
        return self.pipeline.prepare(next(self.pipeline.works(epoch, start)))

    def weights(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.state.model.state_dict().items()}


def tiny_run(*settings: str, model: nn.Module | None = None, loss_scale: LossScale | None = None) -> TinyRun:
    """A run before its first step, with settings beside or instead of those above."""
    config = resolve([parse_override(each) for each in (*SETTINGS, *settings)]).config
    splits = open_data(config.data, threads=1)
    spec = ModelSpec.of(config, splits)
    model = network(len(spec.classes)) if model is None else model
    machine = choose(config.machine)
    plan = make_plan(config, len(splits.train), samples_per_step(config))
    schedule = make_schedule(config.schedule, peak=config.optim.lr, total=plan.total_steps, in_steps=plan.in_steps)
    seed = config.train.seed
    return TinyRun(
        config=config,
        state=TrainState(model, ema=Ema(model, config.optim.ema) if config.optim.ema else None, loss_scale=loss_scale),
        pipeline=training_pipeline(
            config,
            splits.train,
            batch=plan.samples_per_step,
            threads=1,
            share=Share(accumulate=config.optim.accumulate, micro_batches=config.train.micro_batches),
        ),
        exchange=make_exchange(config, model, schedule, Role(), machine, LocalRendezvous()),
        engine=Engine(
            machine,
            Inputs(machine, config.augment, spec.mean, spec.std, seed),
            Supervised(make_loss(config.loss)),
            config.eval.k(len(spec.classes)),
            seed,
            monitor=config.train.monitor,
        ),
        plan=plan,
        spec=spec,
    )


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())
