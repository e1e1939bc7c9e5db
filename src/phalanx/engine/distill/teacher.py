"""A trained model that a student learns from: checked against the student's data, and loaded."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phalanx.config.schema import DistillConfig, ModelConfig
from phalanx.engine.distill.classes import match_columns
from phalanx.engine.distill.find import Found, find_teacher
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.weights import load_weights
from phalanx.errors import UserError
from phalanx.machine.settings import Settings
from phalanx.models.build import build_model


@dataclass(frozen=True)
class Teacher:
    """A model in eval mode without gradients, and how the student's input becomes its own."""

    name: str  # as the user names it
    model: nn.Module
    digest: str  # SHA-256 of its weights
    size: int  # of its input: smaller images of train.sizes are resized for it, too
    scale: Tensor | None  # (channels, 1, 1): the student's input × scale + shift is the teacher's; None: the same
    shift: Tensor | None
    columns: Tensor | None  # its classes that the student has, in the student's order; None: all, as they are
    settings: Settings
    about: str  # for the user: accuracy and parameters
    notes: list[str]  # for the user: what was done to match it

    def input(self, images: Tensor) -> Tensor:
        """The student's images as the teacher's input: the same pixels, with its own normalisation and size.

        Undoing one normalisation and applying the other is one multiplication and one addition in float32. That
        rounds twice more than normalising the bytes would: an error of some 2⁻²² of the largest value.
        """
        if self.scale is not None and self.shift is not None:
            images = torch.addcmul(self.shift, images.float(), self.scale)
        if images.shape[-1] != self.size:
            images = F.interpolate(images.float(), (self.size, self.size), mode="bilinear", antialias=True)
        return images.contiguous(memory_format=self.settings.memory_format)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Answers to the student's normalised images, for the student's classes: (n, classes) in float32."""
        with self.settings.autocast():
            answer: Tensor = self.model(self.input(images))
        answer = answer.float()
        return answer if self.columns is None else answer[:, self.columns]


def load_teachers(config: DistillConfig, spec: ModelSpec, settings: Settings) -> list[Teacher]:
    """The teachers of a configuration, for a student with this specification. A trainer or a server calls it."""
    return [_load(find_teacher(name, spec.classes), config, spec, settings) for name in config.names]


def _load(found: Found, config: DistillConfig, spec: ModelSpec, settings: Settings) -> Teacher:
    theirs = found.spec
    columns, notes = match_columns(theirs.classes, spec.classes, found.name)
    _refuse_other_images(found.name, theirs, spec, resize=config.resize)
    drawn = torch.get_rng_state()  # the teacher's first weights are overwritten; the student's stay what they were
    model = build_model(
        ModelConfig.model_validate(found.model),
        num_classes=len(theirs.classes),
        channels=theirs.channels,
        image_size=theirs.image_size,
    )
    torch.set_rng_state(drawn)
    if found.tensors is not None:
        load_weights(model, found.tensors, found.name)
    digest = digest_of(model.state_dict())
    # Plain layers: what phalanx.cpu chooses by timing is chosen for training, and workers would have to agree on it.
    model = model.to(settings.device, memory_format=settings.memory_format)  # type: ignore[call-overload]
    model.eval().requires_grad_(False)
    if theirs.image_size != spec.image_size:
        notes.append(f"the teacher {found.name} sees the images resized to {theirs.image_size} pixels")
    same = theirs.mean == spec.mean and theirs.std == spec.std
    scale, shift = (None, None) if same else _renormalise(theirs, spec, settings.device)
    return Teacher(
        found.name,
        model,
        digest,
        theirs.image_size,
        scale,
        shift,
        None if columns is None else torch.tensor(columns, device=settings.device),
        settings,
        about=f"{found.judged}{_millions(model)} parameters",
        notes=notes,
    )


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, shapes, types and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{list(tensor.shape)}\0{tensor.dtype}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _refuse_other_images(name: str, theirs: ModelSpec, spec: ModelSpec, *, resize: bool) -> None:
    if theirs.multi_label:
        raise UserError(
            f"the teacher {name} gives each class a probability of its own",
            why="it was trained with several labels a sample, and distillation compares one distribution over classes",
            remedy="choose a teacher with one label a sample",
        )
    if theirs.channels != spec.channels:
        raise UserError(
            f"the teacher {name} sees {theirs.channels} channel(s), the student {spec.channels}",
            why="both see the same images",
            remedy=f"data.channels={theirs.channels} for the student, or another teacher",
        )
    if theirs.image_size != spec.image_size and not resize:
        raise UserError(
            f"the teacher {name} sees images of {theirs.image_size} pixels, the student of {spec.image_size}",
            why="a teacher answers well at the size that it was trained for",
            remedy=f"data.image_size={theirs.image_size} for the student; or distill.resize=true: the teacher's "
            "images are resized from the student's",
        )


def _renormalise(theirs: ModelSpec, spec: ModelSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    """(x·s + m - m') / s' = x·(s/s') + (m - m')/s', for each channel."""
    mean, std, other_mean, other_std = (
        torch.tensor(values, dtype=torch.float64)[:, None, None]
        for values in (spec.mean, spec.std, theirs.mean, theirs.std)
    )
    scale, shift = std / other_std, (mean - other_mean) / other_std
    return scale.float().to(device), shift.float().to(device)


def _millions(model: nn.Module) -> str:
    return f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.3g} M"
