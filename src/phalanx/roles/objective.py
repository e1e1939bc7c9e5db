"""What a trainer minimises: the loss of labels, of a teacher or a second student, and of attacked images."""

from collections.abc import Callable
from functools import partial

from torch import nn

from phalanx.config.schema import RunConfig
from phalanx.engine.adversarial import Adversarial
from phalanx.engine.attack import PixelRange
from phalanx.engine.class_weights import class_weights
from phalanx.engine.distill.extras import attach
from phalanx.engine.distill.features import Features, TeacherLayers
from phalanx.engine.distill.logits import TeacherLogits
from phalanx.engine.distill.objective import Distilled, FeatureDistilled, Mutual, of_labelled
from phalanx.engine.distill.peer import make_peer
from phalanx.engine.fgsm_guard import FgsmGuard
from phalanx.engine.free_adversarial import FreeAdversarial
from phalanx.engine.loss import make_loss
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.objective import Objective, Supervised
from phalanx.engine.state import TrainState
from phalanx.errors import UserError
from phalanx.machine.settings import Settings
from phalanx.roles.agree import Agreed


def build_objective(agreed: Agreed, model: nn.Module, teacher_logits: Callable[[], TeacherLogits]) -> Objective:
    """The objective of a configuration. What it trains beside the model is hung below the model.

    `teacher_logits` opens the source of the teachers' logits where the objective learns from them.
    """
    config, spec, settings = agreed.config, agreed.spec, agreed.settings
    distill = config.distill
    weights = class_weights(config.loss, agreed.splits.train.labels, len(spec.classes))
    loss = make_loss(
        config.loss, None if weights is None else weights.to(settings.device), multi_label=spec.multi_label
    )
    if agreed.unlabeled is not None:
        loss = partial(of_labelled, loss, 1 - distill.unlabeled_share)
    if not distill.on:
        return Supervised(loss)
    if spec.multi_label:
        raise UserError(
            "distillation compares answers of one label a sample, and this data has several",
            remedy="leave distill.teachers out",
        )
    if distill.loss == "mutual":
        peer = make_peer(config.model, distill.peer, spec, settings)
        attach(model, peer)
        return Mutual(loss, distill, peer)
    if distill.loss == "feature":
        if settings.compile:
            raise UserError(
                "distill.loss=feature does not work with a compiled model",
                why="it reads layers inside of the model while they are computed",
                remedy="machine.compile=false",
            )
        layers = TeacherLayers(agreed.teachers[0], distill.layers.values())
        features = Features(distill.layers, model, layers, spec, settings)
        attach(model, features)
        return FeatureDistilled(loss, distill, features, layers)
    return Distilled(loss, distill, teacher_logits())


def make_guard(config: RunConfig, state: TrainState) -> FgsmGuard | None:
    """What watches over training by FGSM; None where nothing has to."""
    wanted = config.adversarial.attack == "fgsm" and config.adversarial.guard_every
    return FgsmGuard(state, config.adversarial.guard_every) if wanted else None


def make_adversarial(
    config: RunConfig, inner: Objective, state: TrainState, spec: ModelSpec, settings: Settings, guard: FgsmGuard | None
) -> Objective:
    """The objective of attacked images, or `inner` itself where nothing is to be attacked."""
    if not config.adversarial.on:
        return inner
    pixels = PixelRange.of(spec.mean, spec.std, settings.device)
    if config.adversarial.attack == "free":
        return FreeAdversarial(config.adversarial, inner, pixels, config.train.seed)
    return Adversarial(config.adversarial, inner, state.model, pixels, len(spec.classes), config.train.seed, guard)
