"""Notes at the start of a run about what its settings make of the data: rare classes, few images."""

from phalanx.config.schema import RunConfig
from phalanx.models.build import is_ours
from phalanx.models.pretrained import has_weights
from phalanx.roles.request import Request

FEW = 1000  # training images, below which a network that starts from nothing learns little


def data_notes(request: Request, num_images: int) -> list[str]:
    """What a user should know about the data before training."""
    return [*_favoured_twice(request.config), *_few_images(request, num_images)]


def _favoured_twice(config: RunConfig) -> list[str]:
    sampling = config.data.sampling
    if config.loss.class_weights != "balanced" or sampling == "shuffle":
        return []
    return [
        f"loss.class_weights=balanced and data.sampling={sampling} both favour rare classes, which count more than "
        "the others then; usually one of them is enough"
    ]


def _few_images(request: Request, num_images: int) -> list[str]:
    model, started = request.config.model, request.resume is not None or request.init_from is not None
    if num_images >= FEW or model.pretrained or started or is_ours(model.name) or not has_weights(model.name):
        return []
    return [
        f"{num_images:,} training images are few for a network that starts from nothing: --pretrained starts from "
        "timm's published weights"
    ]
