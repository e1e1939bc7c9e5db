"""Pixel operations on framed uint8 images: rotation, RandAugment, TrivialAugment, colour jitter.

The random choices are made here, from (seed, epoch, index), and torchvision's kernels carry them out. Operations,
ranges, signs and fill are torchvision's own, so a published recipe keeps its meaning.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from phalanx.config.schema import AugmentConfig
from phalanx.data.order import Indices
from phalanx.data.random import uniform

Draws = npt.NDArray[np.float64]
NUM_BINS = 31  # strengths 0 … 30


class PixelOp(Protocol):
    """Changes contiguous uint8 images (n, channels, size, size) in place, each sample by its own draws."""

    def __call__(self, images: torch.Tensor, indices: Indices, epoch: int) -> None: ...


@dataclass(frozen=True)
class PixelOps:
    """The configured operations, one after another."""

    ops: tuple[PixelOp, ...]

    def __call__(self, images: torch.Tensor, indices: Indices, epoch: int) -> torch.Tensor:
        """New images; the given ones are not changed. Kernels work on planes: 1.2 times as fast as channels last."""
        changed = images.clone(memory_format=torch.contiguous_format)
        if len(indices):
            for op in self.ops:
                op(changed, indices, epoch)
        return changed


def pixel_ops(augment: AugmentConfig, seed: int) -> PixelOps | None:
    """What the configuration asks for, or None. What moves pixels comes first, then the policy, as in timm.

    The user's own transform comes last.
    """
    ops: list[PixelOp] = []
    if augment.rotate:
        ops.append(Rotate(augment.rotate, augment.pad_mode, seed))
    if augment.policy == "randaugment":
        ops.append(RandAugment(augment.policy_ops, augment.policy_magnitude, seed))
    if augment.policy == "trivialaugment":
        ops.append(TrivialAugment(seed))
    if augment.brightness or augment.contrast or augment.saturation or augment.hue:
        ops.append(ColourJitter(augment.brightness, augment.contrast, augment.saturation, augment.hue, seed))
    if augment.transform is not None:
        from phalanx.data.augment.transform import user_transform

        ops.append(user_transform(augment.transform, augment.options, seed))
    return PixelOps(tuple(ops)) if ops else None


@dataclass(frozen=True)
class Rotate:
    """Rotation about the centre by up to `degrees` either way, uniformly, as torchvision's RandomRotation.

    Bilinear, since a small angle moves most pixels by less than one. The corners are black, or reflect the image.
    """

    degrees: float
    pad_mode: str
    seed: int

    def __call__(self, images: torch.Tensor, indices: Indices, epoch: int) -> None:
        from torchvision.transforms import InterpolationMode

        size = images.shape[-1]
        margin = _margin(size, self.degrees) if self.pad_mode == "reflect" else 0
        inside = slice(margin, margin + size)
        reflected = torch.from_numpy(np.pad(np.arange(size), margin, mode="reflect"))
        angles = (2 * uniform(self.seed, "rotate", epoch, indices)[:, 0] - 1) * self.degrees
        for image, angle in zip(images, angles.tolist(), strict=True):
            around = image.index_select(1, reflected).index_select(2, reflected) if margin else image
            turned = _kernels().rotate(around, angle, InterpolationMode.BILINEAR)
            image.copy_(turned[:, inside, inside])


def _margin(size: int, degrees: float) -> int:
    """How far a square reaches outside of itself when it is rotated by up to `degrees`."""
    angle = math.radians(min(45.0, degrees))
    return math.ceil(size * (math.cos(angle) + math.sin(angle) - 1) / 2) + 1


@dataclass(frozen=True)
class ColourJitter:
    """Brightness, contrast, saturation and hue by random amounts, in an order drawn per sample."""

    brightness: float
    contrast: float
    saturation: float
    hue: float
    seed: int

    def __call__(self, images: torch.Tensor, indices: Indices, epoch: int) -> None:
        kernels = _kernels()
        steps = (
            (kernels.adjust_brightness, max(0.0, 1 - self.brightness), 1 + self.brightness),
            (kernels.adjust_contrast, max(0.0, 1 - self.contrast), 1 + self.contrast),
            (kernels.adjust_saturation, max(0.0, 1 - self.saturation), 1 + self.saturation),
            (kernels.adjust_hue, -self.hue, self.hue),
        )
        draws = uniform(self.seed, "colour jitter", epoch, indices, 2 * len(steps))
        orders, amounts = np.argsort(draws[:, : len(steps)], axis=1), draws[:, len(steps) :]
        for image, order, amount in zip(images, orders.tolist(), amounts.tolist(), strict=True):
            changed = image
            for k in order:
                kernel, low, high = steps[k]
                if low < high:
                    changed = kernel(changed, low + amount[k] * (high - low))
            image.copy_(changed)


@dataclass(frozen=True)
class RandAugment:
    """`num_ops` random operations for each image, all of one strength."""

    num_ops: int
    magnitude: int
    seed: int

    def __call__(self, images: torch.Tensor, indices: Indices, epoch: int) -> None:
        space = randaugment_space(images.shape[-1])
        draws = uniform(self.seed, "randaugment", epoch, indices, 2 * self.num_ops)
        bins = np.full(len(indices), float(self.magnitude))
        for choice, sign in zip(draws[:, 0::2].T, draws[:, 1::2].T, strict=True):
            _change(images, space, choice, bins, sign)


@dataclass(frozen=True)
class TrivialAugment:
    """One random operation of random strength for each image: TrivialAugment, wide."""

    seed: int

    def __call__(self, images: torch.Tensor, indices: Indices, epoch: int) -> None:
        choice, strength, sign = uniform(self.seed, "trivialaugment", epoch, indices, 3).T
        _change(images, trivialaugment_space(), choice, np.floor(strength * NUM_BINS), sign)


@dataclass(frozen=True)
class Strengths:
    """What the bins 0 … 30 mean for one operation; `signed` ones go either way."""

    values: tuple[float, ...] = (0.0,) * NUM_BINS
    signed: bool = False


Space = dict[str, Strengths]


def randaugment_space(size: int) -> Space:
    """The operations of RandAugment on images of size × size."""
    return _space(shear=0.3, translate=150.0 / 331.0 * size, rotate=30.0, enhance=0.9, posterize=4)


def trivialaugment_space() -> Space:
    """The operations of TrivialAugment, wide."""
    return _space(shear=0.99, translate=32.0, rotate=135.0, enhance=0.99, posterize=6)


def _space(shear: float, translate: float, rotate: float, enhance: float, posterize: int) -> Space:
    """Operations in torchvision's order, with the strength that each reaches at its last bin."""
    bits_kept = (8 - torch.arange(NUM_BINS) / ((NUM_BINS - 1) / posterize)).round()
    return {
        "Identity": Strengths(),
        "ShearX": _up_to(shear),
        "ShearY": _up_to(shear),
        "TranslateX": _up_to(translate),
        "TranslateY": _up_to(translate),
        "Rotate": _up_to(rotate),
        "Brightness": _up_to(enhance),
        "Color": _up_to(enhance),
        "Contrast": _up_to(enhance),
        "Sharpness": _up_to(enhance),
        "Posterize": Strengths(tuple(bits_kept.tolist())),
        "Solarize": Strengths(tuple(torch.linspace(1.0, 0.0, NUM_BINS).tolist())),
        "AutoContrast": Strengths(),
        "Equalize": Strengths(),
    }


def _up_to(end: float) -> Strengths:
    # torch's float32, not numpy's float64: a translation is cut to whole pixels, where the last digit counts.
    return Strengths(tuple(torch.linspace(0.0, end, NUM_BINS).tolist()), signed=True)


def _change(images: torch.Tensor, space: Space, choice: Draws, bins: Draws, sign: Draws) -> None:
    """One operation per image. Images that drew the same one go through its kernel together."""
    names = list(space)
    drawn: dict[tuple[str, float], list[int]] = {}
    for row, (which, strength, side) in enumerate(zip(choice, bins, sign, strict=True)):
        name = names[int(which * len(names))]
        value = space[name].values[int(strength)]
        drawn.setdefault((name, -value if space[name].signed and side < 0.5 else value), []).append(row)
    for (name, strength), rows in drawn.items():
        if name != "Identity":
            images[rows] = _apply(name, strength, images[rows])


def _apply(name: str, strength: float, images: torch.Tensor) -> torch.Tensor:
    """One operation on all the images, with the conventions of torchvision's automatic augmentations."""
    kernels = _kernels()
    match name:
        case "ShearX" | "ShearY":
            # the kernel takes an angle, the strength is its tangent; sheared about the corner
            angle = math.degrees(math.atan(strength))
            shear = [angle, 0.0] if name == "ShearX" else [0.0, angle]
            changed = kernels.affine(images, 0.0, [0, 0], 1.0, shear, center=[0, 0])
        case "TranslateX":
            changed = kernels.affine(images, 0.0, [int(strength), 0], 1.0, [0.0, 0.0])
        case "TranslateY":
            changed = kernels.affine(images, 0.0, [0, int(strength)], 1.0, [0.0, 0.0])
        case "Rotate":
            changed = kernels.rotate(images, strength)
        case "Brightness":
            changed = kernels.adjust_brightness(images, 1.0 + strength)
        case "Color":
            changed = kernels.adjust_saturation(images, 1.0 + strength)
        case "Contrast":
            changed = kernels.adjust_contrast(images, 1.0 + strength)
        case "Sharpness":
            changed = kernels.adjust_sharpness(images, 1.0 + strength)
        case "Posterize":
            changed = kernels.posterize(images, int(strength))
        case "Solarize":
            changed = kernels.solarize(images, 255.0 * strength)
        case "AutoContrast":
            changed = kernels.autocontrast(images)
        case "Equalize":
            changed = kernels.equalize(images)
        case _:
            raise ValueError(f"no operation {name}")
    result: torch.Tensor = changed
    return result


def _kernels() -> Any:
    """torchvision's functions, imported only by a run that uses one: the import takes a second or two."""
    from torchvision.transforms.v2 import functional

    return functional
