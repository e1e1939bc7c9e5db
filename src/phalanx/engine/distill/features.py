"""Layers inside of student and teacher: what they put out, and the projections between them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from phalanx.engine.distill import losses
from phalanx.engine.distill.extras import Extras
from phalanx.engine.distill.teacher import Teacher
from phalanx.engine.model_spec import ModelSpec
from phalanx.errors import UserError, nearest
from phalanx.machine.settings import Settings


class TeacherLayers:
    """Some layers of a teacher."""

    def __init__(self, teacher: Teacher, layers: Iterable[str]) -> None:
        self._teacher, self._seen = teacher, dict[str, Tensor]()
        for layer in set(layers):
            _layer(teacher.model, layer, f"the teacher {teacher.name}").register_forward_hook(_keep(self._seen, layer))

    @torch.no_grad()
    def __call__(self, images: Tensor) -> dict[str, Tensor]:
        """What they put out for the student's images."""
        self._seen.clear()
        self._teacher.logits(images)
        return dict(self._seen)


class Features(Extras):
    """A learned projection for each pair of layers: from the student's channels to the teacher's."""

    def __init__(
        self, pairs: Mapping[str, str], student: nn.Module, teacher: TeacherLayers, spec: ModelSpec, settings: Settings
    ) -> None:
        super().__init__()
        self._pairs, self._seen = dict(pairs), dict[str, Tensor]()
        for layer in pairs:
            _layer(student, layer, "the student").register_forward_hook(_keep(self._seen, layer, self))
        blank = torch.zeros(2, spec.channels, spec.image_size, spec.image_size, device=settings.device)
        self.used = True
        with torch.no_grad(), _still(student), settings.autocast():
            student(blank.contiguous(memory_format=settings.memory_format))
            wanted = teacher(blank)
        self.used = False
        self.projections = nn.ModuleList(
            _projection(mine, theirs, self._seen, wanted).to(settings.device) for mine, theirs in pairs.items()
        )
        self._seen.clear()

    def loss(self, wanted: Mapping[str, Tensor]) -> Tensor:
        """The mean over pairs of layers, after a forward pass of the student."""
        values = []
        for (mine, theirs), projection in zip(self._pairs.items(), self.projections, strict=True):
            values.append(losses.feature(projection(self._seen.pop(mine)), wanted[theirs].detach()))
        return torch.stack(values).mean()


def _keep(into: dict[str, Tensor], layer: str, while_used: Extras | None = None) -> Any:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        if while_used is None or while_used.used:
            into[layer] = output[0] if isinstance(output, tuple) else output

    return hook


def _layer(model: nn.Module, name: str, whose: str) -> nn.Module:
    named: dict[str, nn.Module] = dict(model.named_modules())
    if name not in named or not name:
        stages = [each for each, _ in model.named_children()]
        raise UserError(
            f"distill.layers: {whose} has no layer {name!r}",
            why=f"its layers are {', '.join(stages)}, and those in them",
            remedy=nearest(name, [each for each in named if each]),
        )
    return named[name]


def _projection(mine: str, theirs: str, seen: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> nn.Module:
    """1×1 convolution of maps, linear layer of vectors and tokens."""
    for layer, found in ((mine, seen), (theirs, wanted)):
        if layer not in found:
            raise UserError(
                f"distill.layers: {layer} puts nothing out by itself",
                why="it was computed together with its neighbours, or not at all",
                remedy="name the block or stage around it, such as layer3",
            )
    here, there = seen[mine], wanted[theirs]
    if here.ndim != there.ndim or here.ndim not in (2, 3, 4) or (here.ndim == 3 and here.shape[1] != there.shape[1]):
        raise UserError(
            f"distill.layers: {mine} of the student does not match {theirs} of the teacher",
            why=f"their outputs are {list(here.shape[1:])} and {list(there.shape[1:])} for each sample",
            remedy="pair maps with maps, vectors with vectors, and as many tokens with as many",
        )
    if here.ndim == 4:
        return nn.Conv2d(here.shape[1], there.shape[1], 1)
    return nn.Linear(here.shape[-1], there.shape[-1])


@contextmanager
def _still(model: nn.Module) -> Iterator[None]:
    """In eval mode: a look at shapes changes no statistics."""
    training = model.training
    model.eval()
    yield
    model.train(training)
