"""From agreed settings and open data to everything that a step needs: pipeline, model, state, exchange."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from phalanx import cpu
from phalanx.config.batch import samples_per_step
from phalanx.config.patterns import refuse_unmatched
from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.data.augment.framing import eval_framing
from phalanx.data.augment.mixing import to_input
from phalanx.data.base import Source
from phalanx.data.order import Share
from phalanx.data.pipeline import Pipeline
from phalanx.data.service.client import Service
from phalanx.data.training import training_pipeline
from phalanx.engine.algorithms import AlgorithmNotes, agree_on_algorithms
from phalanx.engine.inputs import Inputs, Sizes
from phalanx.engine.loop import StepPlan, make_plan
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.objective import Objective
from phalanx.engine.sizes import plan_sizes, refuse_unseen_sizes
from phalanx.engine.state import Ema, LossScale, TrainState
from phalanx.engine.swa import make_swa
from phalanx.engine.weights import initialize_from, restore
from phalanx.errors import UserError
from phalanx.exchange.base import Exchange
from phalanx.exchange.make import make_exchange
from phalanx.machine.settings import Settings
from phalanx.models.build import build_model
from phalanx.models.depth import decayed_rates, layer_depths
from phalanx.models.fast import FastNet
from phalanx.models.freeze import freeze
from phalanx.net.key import key_of, read_key
from phalanx.optim.schedule import Schedule, make_schedule, scaled_rate
from phalanx.roles.agree import Agreed
from phalanx.roles.objective import build_objective
from phalanx.roles.teacher_logits import open_teacher_logits
from phalanx.runs import events as ev

FIRST_IMAGES = 5000  # that a model may look at before it learns


@dataclass(frozen=True)
class Training:
    """The parts of a run that is ready for its next step."""

    plan: StepPlan
    pipeline: Pipeline
    service: Service | None
    inputs: Inputs
    objective: Objective
    state: TrainState
    exchange: Exchange
    resumed: ev.Resume | None
    algorithms: AlgorithmNotes
    notes: list[str]  # about the weights that it starts from


def build_training(agreed: Agreed, tell: Callable[[str], None]) -> Training:
    """Build all parts, and put saved state into them. `tell` gets what data servers have to report while it trains."""
    config, role, spec, settings = agreed.config, agreed.role, agreed.spec, agreed.settings
    service = _data_service(config, role, tell)
    pipeline = training_pipeline(
        config,
        agreed.splits.train,
        batch=samples_per_step(config),
        threads=agreed.threads,
        share=Share(role.rank, role.world, config.optim.accumulate, config.train.micro_batches),
        gpu=settings.gpu,
        remote=service,
        unlabeled=agreed.unlabeled,
    )
    plan = make_plan(config, pipeline.epoch_samples, pipeline.batch)
    sizes = plan_sizes(config.train.sizes, plan, spec.image_size)
    model = _model(config, spec, settings, sizes)
    if isinstance(model, FastNet):
        model.fit_whitening(_first_images(agreed.splits.train, spec, config).to(settings.device))
    notes: list[str] = []
    if config.optim.layer_decay < 1:  # before anything that is no layer of it hangs below the model
        config, note = _with_layer_decay(config, model)
        notes.append(note)
    inputs = _inputs(agreed, plan, sizes)
    objective = build_objective(agreed, model, lambda: open_teacher_logits(agreed, inputs, pipeline, plan, tell))
    state = TrainState(
        model,
        ema=Ema(model, config.optim.ema) if config.optim.ema is not None else None,
        swa=make_swa(config.optim.swa, model, plan),
        loss_scale=LossScale() if settings.dtype == torch.float16 else None,
    )
    start = agreed.request.init_from
    if start is not None:
        notes += initialize_from(start, state, spec, new_head=config.model.new_head)
    exchange = make_exchange(config, model, _schedule(config, plan), role, settings, agreed.rendezvous)
    resumed = _restore(agreed, plan, state, exchange)
    if not agreed.keeps_algorithms:
        cpu.forget(model)
    shapes = _shapes(config, spec, plan, sizes)
    algorithms = agree_on_algorithms(model, settings, agreed.rendezvous, role.rank, shapes)
    return Training(plan, pipeline, service, inputs, objective, state, exchange, resumed, algorithms, notes)


def _inputs(agreed: Agreed, plan: StepPlan, sizes: Sizes) -> Inputs:
    config, spec = agreed.config, agreed.spec
    until = config.augment.mix_until
    return Inputs(
        *(agreed.settings, config.augment, spec.mean, spec.std, config.train.seed, sizes),
        mix_until=None if until is None else plan.in_steps(until),
        view_epochs=config.distill.view_epochs,
    )


def _with_layer_decay(config: RunConfig, model: nn.Module) -> tuple[RunConfig, str]:
    """The configuration with a rate for each parameter, which trainers and parameter servers both know how to use."""
    decay = config.optim.layer_decay
    rates = decayed_rates(model, decay, config.optim.rates)
    optim = config.optim.model_copy(update={"rates": rates})
    first, depths = min(rates.values()), len(set(layer_depths(model).values()))
    note = f"optim.layer_decay={decay:g} over {depths} depths: the first layer has {first:.2g} of the learning rate"
    return config.model_copy(update={"optim": optim}), note


def _restore(agreed: Agreed, plan: StepPlan, state: TrainState, exchange: Exchange) -> ev.Resume | None:
    """Go to the step of a job that runs already, or of a checkpoint."""
    request = agreed.request
    if exchange.joined_step is not None:
        state.move_to(exchange.joined_step, plan.steps_per_epoch, plan.samples_per_step, plan.replays)
        return None
    if request.resume is None:
        return None
    return restore(
        request.resume.checkpoints,
        state,
        exchange,
        agreed.spec,
        plan,
        at_step=request.at_step,
        evaluator=agreed.config.eval.evaluator,
        code=agreed.config.code.files,
    )


def _model(config: RunConfig, spec: ModelSpec, settings: Settings, sizes: Sizes) -> nn.Module:
    model = build_model(
        config.model,
        num_classes=len(spec.classes),
        channels=spec.channels,
        image_size=spec.image_size,
    )
    model.to(settings.device).to(memory_format=settings.memory_format)
    freeze(model, config.model.freeze)
    refuse_unmatched("optim.rates", config.optim.rates, (name for name, _ in model.named_parameters()))
    refuse_unseen_sizes(model, sizes, config.model.name, spec.channels)
    if settings.compile:
        model.compile()
    cpu.prepare(model, settings.fast_path, to_train=True)
    return model


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
    optim = config.optim
    peak = scaled_rate(optim.lr, optim.lr_per, plan.samples_per_step)
    schedule = make_schedule(
        config.schedule,
        peak=peak,
        total=plan.total_steps,
        in_steps=plan.in_steps,
        micro_batches=config.micro_batches,
    )
    if optim.swa.start is None or optim.swa.lr is None:
        return schedule
    rate = scaled_rate(optim.swa.lr, optim.lr_per, plan.samples_per_step)
    return replace(schedule, swa_from=plan.in_steps(optim.swa.start), swa_rate=rate)


def _data_service(config: RunConfig, role: Role, tell: Callable[[str], None]) -> Service | None:
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
    return Service(servers, config, name=role.name, notify=tell) if servers else None
