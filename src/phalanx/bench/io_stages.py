"""The time of one image by stage: read, entropy decoding, decode and resize, and the rest."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from phalanx.data.augment.framing import RandomResizedCrop
from phalanx.data.decode.jpeg import DecodeSettings, find_decoder
from phalanx.data.decode.resize import address
from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.labelled import Labelled

IMAGES = 256
BATCH = 64
TURNS = 3


def stages(source: Labelled, indices: npt.NDArray[np.int64], size: int) -> dict[str, float]:
    """µs of CPU per image for each stage, in this thread alone; the best of a few turns."""
    chosen, framing = indices[:IMAGES], RandomResizedCrop(size, flip=0.5)
    batches = [chosen[low : low + BATCH] for low in range(0, len(chosen), BATCH)]

    def everything() -> None:
        for batch in batches:
            source.read(batch, framing, 0, replace_bad=True)

    decoder = find_decoder()
    if not isinstance(source, EncodedSource) or decoder is None:
        return {"in all": _costs([everything], len(chosen))[0]}
    data = [source.encoded(index) for index in chosen.tolist()]
    settings = DecodeSettings(size, source.channels, exact=source.decoding.exact)
    views = framing.views(chosen, decoder.sizes(data, settings), 0)
    out = np.empty((len(data), size, size, source.channels), dtype=np.uint8)
    places = [address(out) + i * out.strides[0] for i in range(len(data))]
    total, read, decode, entropy = _costs(
        [
            everything,
            lambda: [source.encoded(index) for index in chosen.tolist()],
            lambda: decoder.decode(data, views, settings, places),
            lambda: decoder.undo_entropy_coding(data),
        ],
        len(chosen),
    )
    return {
        "read": read,
        "decode, crop, resize, flip": decode,
        "draw views, hand over, batch": max(0.0, total - read - decode),
        "in all": total,
        "to compare: the entropy coding of whole images undone": entropy,
    }


def _costs(actions: Sequence[Callable[[], object]], images: int) -> list[float]:
    best = [float("inf")] * len(actions)
    for _ in range(TURNS):
        for number, action in enumerate(actions):
            begin = time.thread_time()
            action()
            best[number] = min(best[number], time.thread_time() - begin)
    return [1e6 * seconds / images for seconds in best]
