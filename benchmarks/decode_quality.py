"""How far fast decoding is from exact decoding: PSNR of photographs cropped at random and shrunk.

    .venv/bin/python benchmarks/decode_quality.py FOLDER

FOLDER holds class folders of JPEGs. Only crops that are at least twice as large as the result are shown in the table:
all others are the same bit for bit, which is checked.
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from phalanx.data.augment.framing import RandomResizedCrop
from phalanx.data.base import Pixels, View
from phalanx.data.decode.images import Decoding, Target, decode_all
from phalanx.data.order import Indices
from phalanx.data.sources.folders import open_class_folders

EXACT = Decoding(exact=True)
FAST = Decoding()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="*", default=[64, 112, 160, 224])
    arguments = parser.parse_args()
    source = open_class_folders(arguments.folder, channels=3, pool=None)
    files = [source.encoded(index) for index in range(len(source))]
    print("| to | filter | crops scaled | median dB | 5 % below | worst |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for size in arguments.sizes:
        for interpolation in ("bilinear", "bicubic"):
            found = qualities(files, size, interpolation)
            if len(found):
                low = np.percentile(found, 5)
                row = f"{len(found)} of {len(files)} | {np.median(found):.1f} | {low:.1f} | {found.min():.1f}"
                print(f"| {size} | {interpolation} | {row} |")


def qualities(files: list[bytes], size: int, interpolation: str) -> npt.NDArray[np.float64]:
    """PSNR of each image that was scaled while it was decoded, in dB."""
    framing = RandomResizedCrop(size, scale=(0.35, 1.0), interpolation=interpolation)
    larger = np.zeros(len(files), dtype=np.bool_)

    def views_of(positions: Indices, sizes: Indices) -> list[View]:
        views = framing.views(positions, sizes, 0)
        larger[positions] = [min(view.height, view.width) >= 2 * size for view in views]
        return views

    made: list[Pixels] = []
    for decoding in (FAST, EXACT):
        out = np.empty((len(files), size, size, 3), dtype=np.uint8)
        assert not any(decode_all(files, views_of, decoding, Target(out, interpolation, "zero")))
        made.append(out)
    fast, exact = made
    assert np.array_equal(fast[~larger], exact[~larger])
    errors = np.mean((fast.astype(np.float64) - exact) ** 2, axis=(1, 2, 3))
    scaled = errors > 0  # a PNG among them is not
    return np.asarray(10 * np.log10(255**2 / errors[scaled]), dtype=np.float64)


if __name__ == "__main__":
    main()
