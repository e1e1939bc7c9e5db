"""timm's models by name, adapted to classes, channels and image size, and tried before they are built.

A model is first built on torch's meta device, without memory, to find the arguments of its constructor and to run two
blank images through it. So a combination that cannot work is refused at once, with the reason, and not in the first
step. timm takes seconds to import, so only functions import it.
"""

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from phalanx.config.schema import ModelConfig
from phalanx.errors import UserError, nearest
from phalanx.models.cifar import LISTED
from phalanx.models.classic import CLASSICS
from phalanx.models.pretrained import cannot_fetch, require_weights

DECIDED_ELSEWHERE = {
    "num_classes": "the data decides it",
    "in_chans": "data.channels decides it",
    "pretrained": "model.pretrained decides it",
    "checkpoint_path": "--init-from FILE does that",
    "features_only": "Phalanx trains classifiers",
}


def build_timm(config: ModelConfig, *, num_classes: int, channels: int, image_size: int) -> nn.Module:
    """The timm model of that name, with timm's published weights if the configuration asks for them."""
    require_known(config.name)
    for option, why in DECIDED_ELSEWHERE.items():
        if option in config.options:
            raise UserError(f"model.options.{option} is not an option", why=why, remedy="leave it out")

    arguments = _arguments(config, num_classes=num_classes, channels=channels, image_size=image_size)
    _require_options(config, arguments)
    if complaint := misfit(config.name, arguments, image_size):
        raise UserError(
            f"model.name={config.name} cannot classify images of {image_size}×{image_size} with {channels} channel(s)",
            why=complaint,
            remedy=_sizes_that_fit(config.name, arguments, image_size),
        )
    if not config.pretrained:
        return _create(config.name, arguments)

    require_weights(config.name)
    try:
        return _create(config.name, arguments | {"pretrained": True})
    except Exception as error:  # the model can be built, so it is the weights that fail: network, disk, file
        raise cannot_fetch(config.name, error) from error


def require_known(name: str) -> None:
    """Refuse a name that is neither ours nor timm's, and a pretrained tag that timm lacks."""
    import timm

    architecture, _, tag = name.partition(".")
    known = timm.list_models()
    if architecture not in known:
        renamed = timm.models.get_deprecated_models().get(architecture)
        raise UserError(
            f"model.name={name} is not known",
            why=f"neither Phalanx nor timm {timm.__version__}, with its {len(known)} models, has it",
            remedy=f"model.name={renamed}"
            if renamed
            else f"{nearest(name, [*LISTED, *CLASSICS, *known])} (see `phalanx models`)",
        )
    tags = timm.list_models(f"{architecture}.*", include_tags=True)
    if tag and name not in tags:
        raise UserError(
            f"model.name={name}: {architecture} has no weights of that tag",
            why=f"its tags: {', '.join(tags) or 'none'}",
            remedy=nearest(name, tags) if tags else f"model.name={architecture}",
        )


def own_input_size(name: str) -> tuple[int, int]:
    """Height and width of the images that a model was designed for."""
    import timm

    weights = timm.get_pretrained_cfg(name)
    assert weights is not None, f"{name} is not registered"
    return weights.input_size[-2:]


def constructor_names(name: str) -> set[str]:
    """The keyword arguments that a model's constructor takes by name."""
    # timm's entry points take **kwargs: only an instance shows which class gets them
    names: set[str] = set()
    for ancestor in type(build_outline(name, {})).__mro__:
        parameters = inspect.signature(ancestor.__init__).parameters.values()  # type: ignore[misc]
        names |= {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
        if not any(p.kind == p.VAR_KEYWORD for p in parameters):
            break  # it passes no arguments on to its base class
    return names - {"self"}


def build_outline(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The model without memory for its weights: shapes only."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # initializers warn about empty tensors
        return _create(name, arguments)


def misfit(name: str, arguments: Mapping[str, Any], image_size: int) -> str:
    """Why a model cannot turn images of this size into one score per class; empty if it can."""
    try:
        complaint = _forward_complaint(build_outline(name, arguments), arguments, image_size)
        if "meta" in complaint.lower():  # a limit of the meta device, not of the model: try a real one
            with torch.random.fork_rng(devices=[]):
                complaint = _forward_complaint(_create(name, arguments), arguments, image_size)
    except Exception as error:  # timm's constructors may raise anything
        return _words(error)
    return complaint


def _forward_complaint(model: nn.Module, arguments: Mapping[str, Any], image_size: int) -> str:
    # two images: batch norm cannot train on a single value per channel
    images = torch.zeros(2, arguments["in_chans"], image_size, image_size, device=next(model.parameters()).device)
    try:
        with torch.no_grad():
            scores = model.train()(images)
    except Exception as error:  # and so may forward
        return _words(error)
    if not isinstance(scores, Tensor):
        return f"it does not classify: it returns a {type(scores).__name__}"
    if scores.shape != (2, arguments["num_classes"]):
        return f"it does not classify: 2 images become {tuple(scores.shape)}, not (2, {arguments['num_classes']})"
    return _cut_pixels(model, image_size)


def _cut_pixels(model: nn.Module, image_size: int) -> str:
    """Why pixels would be ignored: a ViT drops the rest of an image that its patches do not divide, silently."""
    from timm.layers.patch_embed import PatchEmbed

    for module in model.modules():
        if isinstance(module, PatchEmbed) and not module.dynamic_img_pad:
            patch = module.patch_size[0]
            if image_size % patch:
                return (
                    f"patches of {patch} pixels do not divide {image_size}; the last {image_size % patch} would be lost"
                )
    return ""


def _arguments(config: ModelConfig, *, num_classes: int, channels: int, image_size: int) -> dict[str, Any]:
    """The configuration as arguments of timm's constructors."""
    accepted = constructor_names(config.name)
    arguments: dict[str, Any] = {"num_classes": num_classes, "in_chans": channels}
    if "img_size" in accepted:
        arguments["img_size"] = image_size
    for setting, value, argument in (
        ("drop", config.drop, "drop_rate"),
        ("drop_path", config.drop_path, "drop_path_rate"),
    ):
        if value is not None and argument not in accepted:
            raise UserError(f"model.{setting}={value}: {config.name} has no such rate", remedy=f"leave {setting} out")
        if value is not None:
            arguments[argument] = value
    return arguments | config.options


def _require_options(config: ModelConfig, arguments: dict[str, Any]) -> None:
    """Refuse options if the model can be built only without them."""
    if not config.options:
        return
    try:
        build_outline(config.name, arguments)
    except Exception as error:
        without = {name: value for name, value in arguments.items() if name not in config.options}
        try:
            build_outline(config.name, without)
        except Exception:  # the options are not to blame: the caller will find the reason
            return
        given = ", ".join(f"{name}={value!r}" for name, value in config.options.items())
        raise UserError(
            f"model.options: {config.name} cannot be built with {given}",
            why=_words(error),
            remedy=f"its constructor takes {', '.join(sorted(constructor_names(config.name)))}",
        ) from error


def _sizes_that_fit(name: str, arguments: Mapping[str, Any], image_size: int) -> str:
    """The next image size that works, as the remedy of an error."""
    own = max(own_input_size(name))
    for size in sorted({image_size // 32 * 32 + 32, own}):
        if not misfit(name, {**arguments, **({"img_size": size} if "img_size" in arguments else {})}, size):
            return f"data.image_size={size}" + (", the size that it was designed for" if size == own else "")
    return "another model: `phalanx models` lists them"


def _create(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    import timm

    model = timm.create_model(name, **arguments)
    assert isinstance(model, nn.Module)
    return model


def _words(error: Exception) -> str:
    """The first line of an error, or its type if it has no text."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
