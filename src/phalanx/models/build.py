"""Build the model of a configuration: a network of ours, a classic, or any classifier of timm's."""

from torch import nn

from phalanx.config.schema import ModelConfig
from phalanx.custom import is_reference
from phalanx.errors import UserError, nearest
from phalanx.models import cifar, fast
from phalanx.models.cifar import CifarNet, StagePlan, build_cifar, plan_of
from phalanx.models.classic import CLASSICS, build_classic
from phalanx.models.denoise import add_denoising
from phalanx.models.initialize import initialize, undo_zero_init
from phalanx.models.own import build_own
from phalanx.models.zoo import build_timm

LISTED = (*cifar.LISTED, fast.NAME, *CLASSICS)
CIFAR_OPTIONS = ("width", "dropout")
FAST_OPTIONS = ("width", "edge")


def is_ours(name: str) -> bool:
    """Whether Phalanx builds the model itself: a network of ours, a classic, or the user's own."""
    return is_reference(name) or name == fast.NAME or name in CLASSICS or plan_of(name) is not None


def build_model(config: ModelConfig, *, num_classes: int, channels: int, image_size: int) -> nn.Module:
    """The model of a configuration, for images of this size. Weights are drawn from torch's global generator."""
    model = _build(config, num_classes=num_classes, channels=channels, image_size=image_size)
    add_denoising(model, config.denoise, channels=channels, image_size=image_size)
    return model


def _build(config: ModelConfig, *, num_classes: int, channels: int, image_size: int) -> nn.Module:
    if config.pretrained and config.initializer != "default":
        raise UserError(
            f"model.initializer={config.initializer} would overwrite the weights that model.pretrained fetches",
            remedy="leave one of the two out",
        )
    if is_reference(config.name):
        return build_own(config, num_classes=num_classes, channels=channels, image_size=image_size)
    if config.name == fast.NAME:
        _refuse_foreign(config, FAST_OPTIONS)
        quick = fast.build_fast(num_classes=num_classes, channels=channels, image_size=image_size, **config.options)
        initialize(quick, config.initializer)
        return quick
    if config.name in CLASSICS:
        classic = _build_classic(config, num_classes=num_classes, channels=channels, image_size=image_size)
        initialize(classic, config.initializer)
        return classic
    plan = plan_of(config.name)
    if plan is not None:
        ours = _build_cifar(config, plan, num_classes=num_classes, channels=channels)
        initialize(ours, config.initializer)
        # after the initializer: the last layer may be a convolution
        if config.zero_init_last:
            ours.zero_init_last()
        return ours

    model = build_timm(config, num_classes=num_classes, channels=channels, image_size=image_size)
    initialize(model, config.initializer)
    # timm zero-initializes its ResNets, RegNets and similar models by default; the few others were published that way
    if not config.zero_init_last and not config.pretrained:
        undo_zero_init(model)
    return model


def _build_cifar(config: ModelConfig, plan: StagePlan, *, num_classes: int, channels: int) -> CifarNet:
    _refuse_foreign(config, CIFAR_OPTIONS)
    return build_cifar(
        plan,
        num_classes=num_classes,
        channels=channels,
        drop=config.drop or 0.0,
        drop_path=config.drop_path or 0.0,
        **config.options,
    )


def _build_classic(config: ModelConfig, *, num_classes: int, channels: int, image_size: int) -> nn.Module:
    if config.pretrained and CLASSICS[config.name].from_torchvision:
        raise UserError(
            f"model.pretrained: timm has no weights of {config.name}",
            why="torchvision publishes some as pickles, which can run code",
            remedy="if you trust them, save them as safetensors, and start from that file: --init-from FILE",
        )
    _refuse_foreign(config, ())
    if config.drop_path is not None:
        raise UserError(
            f"model.drop_path={config.drop_path}: {config.name} has no such rate", remedy="leave drop_path out"
        )
    return build_classic(
        config.name, num_classes=num_classes, channels=channels, image_size=image_size, drop=config.drop
    )


def _refuse_foreign(config: ModelConfig, options: tuple[str, ...]) -> None:
    """Refuse pretrained weights, and options that the model does not have."""
    if config.pretrained:
        raise UserError(f"model.pretrained: there are no published weights of {config.name}", remedy="--init-from FILE")
    for option in config.options:
        if option not in options:
            raise UserError(
                f"model.options.{option}: {config.name} has no such option",
                remedy=nearest(option, options) if options else "leave it out",
            )
