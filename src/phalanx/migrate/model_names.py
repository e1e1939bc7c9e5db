"""What other systems call a network, and its name here.

MXNet has families with a number of layers (`--network resnet --num-layers 50`): `model.name=resnet` with
`model.options.num_layers=50`. PaddleClas and Paddle's older scripts have names of their own (`ResNet50_vd`). Both work
as they are; capital letters and dashes do not matter.
"""

import re
from collections.abc import Mapping
from typing import Any

from phalanx.errors import UserError

# family: how its network of so many layers is called here, and how many layers it has where nobody says
FAMILIES: dict[str, tuple[dict[int, str], int]] = {
    "resnet": ({depth: f"resnetv2_{depth}" for depth in (18, 34, 50, 101, 152)}, 50),
    "resnet_v1": ({depth: f"resnet{depth}" for depth in (18, 34, 50, 101, 152)}, 50),
    "resnext": ({50: "resnext50_32x4d", 101: "resnext101_32x4d"}, 50),
    "vgg": ({depth: f"vgg{depth}" for depth in (11, 13, 16, 19)}, 16),
}
# The forms for tiny images: depths 6n+2 below 164, as in MXNet, save those that have a form for photographs.
_TINY = {"resnet": "cifar_preact", "resnet_v1": "cifar_resnet"}
_TINY_DEPTHS = [depth for depth in range(8, 164, 6) if depth not in (50, 152)]

# what `phalanx models` lists beside our own names
SHORT_NAMES = ("inception-bn", "mobilenet", "resnet", "resnet-v1", "resnext", "squeezenet", "vgg")

_RENAMED = {
    # MXNet's symbols, and what its other examples call them
    "inception_bn_28_small": "inception_bn_small",
    "mobilenet": "mobilenetv1_100",
    "mobilenetv2": "mobilenetv2_100",
    "resnetv1": "resnet_v1",
    "squeezenet": "squeezenet1_0",
    # Paddle
    "distresnet": "resnet50",
    "fastimagenet": "resnet50",
    "mobilenetv1": "mobilenetv1_100",
    "mobilenetv2_x0_5": "mobilenetv2_050",
    "mobilenetv2_x0_75": "mobilenetv2_075",
    "mobilenetv3_large_x0_75": "mobilenetv3_large_075",
    "mobilenetv3_large_x1_0": "mobilenetv3_large_100",
    "mobilenetv3_small_x0_5": "mobilenetv3_small_050",
    "mobilenetv3_small_x0_75": "mobilenetv3_small_075",
    "mobilenetv3_small_x1_0": "mobilenetv3_small_100",
    "inceptionv3": "inception_v3",
    "inceptionv4": "inception_v4",
    "ghostnet_x0_5": "ghostnet_050",
    "ghostnet_x1_0": "ghostnet_100",
    "ghostnet_x1_3": "ghostnet_130",
    "regnetx_4gf": "regnetx_040",
    "resnest50": "resnest50d",
    "pphgnet_tiny": "hgnet_tiny",
    "pphgnet_small": "hgnet_small",
    "pphgnet_base": "hgnet_base",
}
_PATTERNS = (
    (r"resnet(18|34|50|101|152|200)_vd", r"resnet\1d"),
    (r"resnet(50)_vc", r"resnet\1c"),
    (r"resnet(18|34|50|101|152)_v1", r"resnet\1"),
    (r"resnet(18|34|50|101|152)_v2", r"resnetv2_\1"),
    (r"se_(resnext\w+)", r"se\1"),
    (r"efficientnetb([0-7])", r"efficientnet_b\1"),
    (r"hrnet_w(\d+)_c", r"hrnet_w\1"),
    (r"pplcnet_x(\d_\d+)", r"PPLCNet_x\1"),
    (r"pplcnetv2_(\w+)", r"lcnetv2_\1"),
    (r"pphgnetv2_(b\d)", r"hgnetv2_\1"),
    (r"swintransformer_(\w+)", r"swin_\1"),
    (r"squeezenet(1)\.(\d)", r"squeezenet\1_\2"),
)


def translate_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """The `model` section with another system's name replaced by ours; any other name stays as it is."""
    name, options = given.get("name"), given.get("options") or {}
    if not isinstance(name, str) or not isinstance(options, dict):
        return dict(given)  # refused elsewhere, in the schema's words
    ours = our_name(name)
    if ours in FAMILIES:
        rest = dict(options)
        ours = _of_family(ours, rest.pop("num_layers", None), batch_norm=bool(rest.pop("batch_norm", False)))
        return {**given, "name": ours, "options": rest}
    return {**given, "name": ours}


def our_name(name: str) -> str:
    """The name here of what another system calls so: a network, or a family of FAMILIES."""
    if any(sign in name for sign in ":/"):
        return name  # a place and not a name
    plain = name.lower().replace("-", "_")
    renamed = _RENAMED.get(plain, plain)
    for pattern, ours in _PATTERNS:
        if re.fullmatch(pattern, renamed):
            return re.sub(pattern, ours, renamed)
    # A name as we and timm spell it has no capitals (PPLCNet is above), and tags of weights are left alone.
    return renamed if "." not in name else name


def _of_family(family: str, layers: Any, *, batch_norm: bool) -> str:
    known, usual = FAMILIES[family]
    depth = usual if layers is None else layers
    if depth in known:
        return known[depth] + ("_bn" if batch_norm and family == "vgg" else "")
    if family in _TINY and depth in _TINY_DEPTHS:
        return f"{_TINY[family]}{depth}"
    tiny = f"; for tiny images {', '.join(map(str, _TINY_DEPTHS[:9]))} … 6n+2" if family in _TINY else ""
    raise UserError(
        f"model.options.num_layers={depth}: there is no {family} of so many layers",
        why=f"there are {', '.join(map(str, known))}{tiny}",
        remedy=f"model.options.num_layers={usual}, or another name that `phalanx models` lists",
    )
