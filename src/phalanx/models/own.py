"""A model of the user's own: a class or function that makes an nn.Module, tried on a blank batch."""

import torch
from torch import Tensor, nn

from phalanx.config.schema import ModelConfig
from phalanx.custom import load, user_code
from phalanx.custom.call import arguments
from phalanx.errors import UserError
from phalanx.models.initialize import initialize


def build_own(config: ModelConfig, *, num_classes: int, channels: int, image_size: int) -> nn.Module:
    """The model that a reference names. It gets num_classes, channels and image_size if its signature has them."""
    if config.pretrained:
        raise UserError(
            f"model.pretrained: {config.name} is your own", remedy="start from a file of weights: --init-from FILE"
        )
    make = load(config.name)
    if not callable(make):
        raise UserError(
            f"{config.name} cannot make a model",
            why=f"it is a {type(make).__name__}, and neither a class nor a function",
            remedy="name a class derived from nn.Module, or a function that returns a model",
        )
    known = {"num_classes": num_classes, "channels": channels, "image_size": image_size}
    rates = {"drop": config.drop, "drop_path": config.drop_path}
    required = {**config.options, **{name: rate for name, rate in rates.items() if rate is not None}}
    with user_code():
        model = make(**arguments(make, config.name, "model.options", known, required))
    if not isinstance(model, nn.Module):
        raise UserError(
            f"{config.name} did not make a model",
            why=f"it returned a {type(model).__name__}",
            remedy="return an nn.Module: the class itself can be named, without a function",
        )
    _try(model, config.name, num_classes, channels, image_size)
    initialize(model, config.initializer)
    return model


@torch.no_grad()
def _try(model: nn.Module, name: str, num_classes: int, channels: int, image_size: int) -> None:
    """One blank batch, so that a wrong shape is found now and not after the data was read."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    images = torch.zeros(2, channels, image_size, image_size, device=device)
    shape = f"{channels} × {image_size} × {image_size}"
    training = model.training
    model.eval()
    try:
        with user_code():
            answer = model(images)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{name} cannot take images of {shape}",
            why=f"{type(error).__name__}: {error}",
            remedy="take `channels` and `image_size` as arguments, or set data.channels and data.image_size",
        ) from error
    finally:
        model.train(training)
    if not isinstance(answer, Tensor) or answer.shape != (2, num_classes):
        found = list(answer.shape) if isinstance(answer, Tensor) else f"a {type(answer).__name__}"
        raise UserError(
            f"{name} answers two images of {shape} with {found}",
            why=f"a classifier returns one row for each image, with a number for each of {num_classes} classes: "
            f"[2, {num_classes}]",
            remedy="take `num_classes` as an argument, and return a tensor of logits",
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(f"{name} has nothing to train", why="none of its parameters has requires_grad")
