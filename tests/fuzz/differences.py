"""Damaged JPEGs decoded by native code and by Pillow: the same refusal, or the same pixels.

    python -m tests.fuzz.differences --files 20000 --seed 1 --folder PHOTOGRAPHS --save OUT

Without a folder of photographs, small files of our own are damaged.
"""

import argparse
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from zlib import crc32

import numpy as np

from phalanx.data.base import Pixels, View
from phalanx.data.decode.images import BadImage, Decoding, Target, decode_all, decode_by_pillow
from phalanx.data.decode.jpeg import DecodeSettings, find_decoder
from phalanx.data.order import Indices
from tests.fuzz.damage import mutated
from tests.fuzz.samples import jpegs

MAX_SIDE = 600  # of a whole image that is compared pixel by pixel
MAX_PIXELS = 4_000_000  # a damaged header may announce many more than are worth the time


@dataclass(frozen=True)
class Case:
    """How a file is decoded: at full size, if it is small enough; or a view of it."""

    decoding: Decoding
    channels: int
    size: int
    box: tuple[float, float, float, float] | None  # shares of the image; None: all of it, pixel by pixel

    def views_of(self, positions: Indices, sizes: Indices) -> list[View]:
        if self.box is None:
            return [View(0, 0, self.size, self.size)]
        height, width = sizes[0].tolist()
        return [View(self.box[0] * height, self.box[1] * width, self.box[2] * height, self.box[3] * width)]


def cases_of(data: bytes, views: int = 1) -> list[Case]:
    """All of the image and views of it, chosen by the file alone, so that it is all that a replay needs."""
    random = Random(crc32(data))
    orient, channels = random.random() < 0.3, random.choice((1, 3))
    decoder = find_decoder()
    assert decoder is not None
    height, width = decoder.sizes([data], DecodeSettings(1, 3, orient=orient))[0].tolist()
    if height * width > MAX_PIXELS:
        return []
    cases = [_view(random) for _ in range(views)]
    if 0 < max(height, width) <= MAX_SIDE:
        cases.append(Case(Decoding(exact=True, exif_orientation=orient), channels, max(height, width), None))
    return cases


def _view(random: Random) -> Case:
    decoding = Decoding(exact=random.random() < 0.6, exif_orientation=random.random() < 0.3)
    top, left, height, width = (random.uniform(low, 1) for low in (-0.2, -0.2, 0.05, 0.05))
    return Case(decoding, random.choice((1, 3)), random.choice((12, 40)), (top, left, height, width))


def difference(data: bytes, case: Case) -> str:
    """How the two decoders disagree about a file; empty where they do not."""
    ours, pillows = _room(case), _room(case)
    our_reason = decode_all([data], case.views_of, case.decoding, Target(ours, "bilinear", "zero"))[0]
    try:
        decode_by_pillow(data, 0, case.views_of, case.decoding, Target(pillows, "bilinear", "zero"))
        reason = ""
    except BadImage as error:
        reason = str(error)
    if our_reason != reason:
        return f"native code: {our_reason or 'accepted'}; Pillow: {reason or 'accepted'}"
    different = int(np.count_nonzero(ours != pillows)) if not reason else 0
    return f"{different:,} values differ" if different else ""


def _room(case: Case) -> Pixels:
    return np.zeros((1, case.size, case.size, case.channels), dtype=np.uint8)


def compare(count: int, seed: int, sources: Sequence[bytes], save: Path | None = None) -> Counter[str]:
    """Damage and compare so many files. Counts what came of them; those that differ are saved."""
    found: Counter[str] = Counter()
    for number in range(count):
        random = Random(f"{seed} {number}")
        data = mutated(random, random.choice(sources), sources)
        reports = [report for case in cases_of(data) if (report := difference(data, case))]
        found["different" if reports else "the same"] += 1
        for report in reports:
            print(f"seed {seed}, file {number} ({len(data):,} bytes): {report}", flush=True)
            if save is not None:
                save.mkdir(parents=True, exist_ok=True)
                (save / f"{seed}-{number}.jpg").write_bytes(data)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="photographs to damage, of which 200 are chosen")
    parser.add_argument("--save", type=Path, help="folder for files that differ")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # Pillow's, about what it skips
    sources = jpegs()
    if options.folder is not None:
        photographs = sorted(path for path in options.folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
        sources = [path.read_bytes() for path in Random(options.seed).sample(photographs, min(200, len(photographs)))]
    found = compare(options.files, options.seed, sources, options.save)
    print(f"{options.files:,} damaged files: {dict(found)}")
    return 1 if found["different"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
