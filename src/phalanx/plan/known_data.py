"""What is known of data by its name: how many images, how large. A plan does not read the data itself."""

from pathlib import Path

from phalanx.config.schema import RunConfig
from phalanx.models.index import shipped_index
from phalanx.plan.setup import Data

# a word in the data's name → samples, pixels of a side, channels, classes
KNOWN = {
    "imagenet21k": (14_197_122, 224, 3, 21_841),
    "imagenette": (9_469, 224, 3, 10),
    "imagenet": (1_281_167, 224, 3, 1000),
    "ilsvrc": (1_281_167, 224, 3, 1000),
    "cifar-100": (50_000, 32, 3, 100),
    "cifar100": (50_000, 32, 3, 100),
    "cifar": (50_000, 32, 3, 10),
    "fashion": (60_000, 28, 1, 10),
    "mnist": (60_000, 28, 1, 10),
    "svhn": (73_257, 32, 3, 10),
    "digits": (1_442, 16, 1, 10),
}
SMALL = 64  # pixels: such data is in memory, and a batch of it is made in no time


def data_of(config: RunConfig, samples: int | None) -> Data:
    """By the data's name, the settings, and the size that the model was designed for. `samples` is the user's word."""
    data, synthetic = config.data, config.data.synthetic
    if data.source == "synthetic":
        known: tuple[int | None, int, int, int] = (
            synthetic.samples,
            synthetic.size,
            synthetic.channels,
            synthetic.classes,
        )
    else:
        name = Path(data.source).name.lower() or data.source.lower()
        found = next((facts for word, facts in KNOWN.items() if word in name), None)
        known = found if found is not None else (None, _designed(config.model.name), 3, 1000)
    count, size, channels, classes = known
    size = data.image_size or size
    in_memory = data.source == "synthetic" or size <= SMALL
    return Data(samples or count, size, data.channels or channels, classes, in_memory)


def _designed(model: str) -> int:
    cost = shipped_index().models.get(model)
    return (cost.image_size if cost is not None else None) or 224
