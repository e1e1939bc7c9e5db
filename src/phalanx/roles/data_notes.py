"""Notes at the start of a run about what its settings make of the data: rare classes, few images."""

from phalanx.config.schema import DataConfig, RunConfig
from phalanx.models.build import is_ours
from phalanx.models.pretrained import has_weights
from phalanx.roles.request import Request

FEW = 1000  # training images, below which a network that starts from nothing learns little
FEW_JUDGED = 50  # validation images, below which one of them is more than 2 %


def data_notes(request: Request, num_train: int, num_val: int) -> list[str]:
    """What a user should know about the data before training."""
    config = request.config
    return [*_favoured_twice(config), *_few_images(request, num_train), *_few_judged(config.data, num_val)]


def _favoured_twice(config: RunConfig) -> list[str]:
    sampling = config.data.sampling
    if config.loss.class_weights != "balanced" or sampling == "shuffle":
        return []
    return [
        f"loss.class_weights=balanced and data.sampling={sampling} both favour rare classes, which count more than "
        "the others then; usually one of them is enough"
    ]


def _few_judged(config: DataConfig, num_images: int) -> list[str]:
    if num_images >= FEW_JUDGED or config.folds is not None:
        return []
    images = f"{num_images:,} validation image{'s' * (num_images > 1)}"
    return [
        f"{images}: each is {100 / num_images:.3g} % of the accuracy; --folds 5 validates every training image once"
    ]


def _few_images(request: Request, num_images: int) -> list[str]:
    model, started = request.config.model, request.resume is not None or request.init_from is not None
    if num_images >= FEW or model.pretrained or started or is_ours(model.name) or not has_weights(model.name):
        return []
    return [
        f"{num_images:,} training images are few for a network that starts from nothing: --pretrained starts from "
        "timm's published weights"
    ]
