"""The classic networks that timm lacks: torchvision's, and our own where torchvision lacks them, too.

    alexnet, googlenet, squeezenet1_0, squeezenet1_1   torchvision's, for any number of channels
    inception_bn, inception_bn_small                   inception_bn.py
    lenet, mlp                                         small.py
    PPLCNet_x0_25 … PPLCNet_x2_5                       pplcnet.py

torchvision takes a second to import; only functions import it.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from phalanx.errors import UserError
from phalanx.models.inception_bn import build_inception_bn, build_inception_bn_small
from phalanx.models.pplcnet import LISTED as PPLCNETS
from phalanx.models.pplcnet import build_pplcnet, scale_of
from phalanx.models.small import build_lenet, build_mlp


@dataclass(frozen=True)
class Classic:
    """How a network is built, and for what it was designed: the images and classes that its published size is for."""

    build: Callable[..., nn.Module]  # num_classes, channels, image_size, and drop if it is set
    image_size: int = 224
    channels: int = 3
    num_classes: int = 1000
    from_torchvision: bool = False


def _alexnet(*, num_classes: int, channels: int, image_size: int, drop: float = 0.5) -> nn.Module:
    from torchvision.models import alexnet

    model = alexnet(weights=None, num_classes=num_classes, dropout=drop)
    if channels != 3:
        model.features[0] = _for_channels(model.features[0], channels)
    return _named(model, "classifier.6")


def _squeezenet(*, num_classes: int, channels: int, image_size: int, drop: float = 0.5, version: str) -> nn.Module:
    from torchvision.models import get_model

    model = get_model(f"squeezenet{version}", weights=None, num_classes=num_classes, dropout=drop)
    if channels != 3:
        features = model.get_submodule("features")
        assert isinstance(features, nn.Sequential)
        features[0] = first = _for_channels(features[0], channels)
        nn.init.kaiming_uniform_(first.weight)
        nn.init.constant_(cast(Tensor, first.bias), 0)
    return _named(model, "classifier.1")


def _googlenet(*, num_classes: int, channels: int, image_size: int, drop: float = 0.2) -> nn.Module:
    """Without the two auxiliary classifiers, which batch norm makes unnecessary."""
    from torchvision.models import GoogLeNet

    model = GoogLeNet(num_classes, aux_logits=False, transform_input=False, init_weights=True, dropout=drop)
    if channels != 3:
        model.conv1.conv = _for_channels(model.conv1.conv, channels)
        nn.init.trunc_normal_(model.conv1.conv.weight, std=0.01, a=-2, b=2)
    return _named(model, "fc")


CLASSICS: dict[str, Classic] = {
    "alexnet": Classic(_alexnet, from_torchvision=True),
    "googlenet": Classic(_googlenet, from_torchvision=True),
    "inception_bn": Classic(build_inception_bn),
    "inception_bn_small": Classic(build_inception_bn_small, image_size=28, num_classes=10),
    "lenet": Classic(build_lenet, image_size=28, channels=1, num_classes=10),
    "mlp": Classic(build_mlp, image_size=28, channels=1, num_classes=10),
    **{
        f"squeezenet{version}": Classic(partial(_squeezenet, version=version), from_torchvision=True)
        for version in ("1_0", "1_1")
    },
    **{name: Classic(partial(build_pplcnet, scale=scale_of(name))) for name in PPLCNETS},
}


def build_classic(name: str, *, num_classes: int, channels: int, image_size: int, drop: float | None) -> nn.Module:
    """The network. It is tried on the meta device first, and refused if the images are too small for it."""
    sized = partial(CLASSICS[name].build, num_classes=num_classes, channels=channels)
    if not _fits(sized, channels, image_size):
        smallest = next(size for size in range(image_size + 1, 225) if _fits(sized, channels, size))
        raise UserError(
            f"{name} cannot take images of {image_size} pixels",
            why=f"its layers shrink an image so often that it needs {smallest} pixels",
            remedy=f"data.image_size={smallest} or more, or --model cifar_resnet20",
        )
    return sized(image_size=image_size, **({} if drop is None else {"drop": drop}))


def _fits(build: Callable[..., nn.Module], channels: int, image_size: int) -> bool:
    """Whether the network takes images of this size. Tried with two: batch norm cannot train on a single value."""
    try:
        with torch.device("meta"), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # initializers warn that there is nothing to fill
            build(image_size=image_size)(torch.empty(2, channels, image_size, image_size))
    except (RuntimeError, ValueError):  # torch's layers raise these for an empty output
        return False
    return True


def _for_channels(first: nn.Module, channels: int) -> nn.Conv2d:
    """The same convolution for another number of channels, with torch's default initialization."""
    assert isinstance(first, nn.Conv2d)
    return nn.Conv2d(
        channels,
        first.out_channels,
        kernel_size=(first.kernel_size[0], first.kernel_size[1]),
        stride=(first.stride[0], first.stride[1]),
        padding=cast(tuple[int, int], first.padding),
        bias=first.bias is not None,
    )


def _named(model: nn.Module, classifier: str) -> nn.Module:
    """Name the model's classifier in `default_cfg`, as timm does."""
    model.default_cfg = {"classifier": classifier}  # type: ignore[assignment]
    return model
