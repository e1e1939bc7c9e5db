"""A page of a run's training images as its model sees them: framed, augmented, erased and mixed.

`python -m phalanx.commands.augmented RUN OUT.png [--code]`; `phalanx board` starts it. A run with code of its own is
refused without --code: whoever looks at a run of someone else does not mean to run that.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from phalanx.config.resolve import resolve
from phalanx.custom import user_code
from phalanx.custom.reference import references
from phalanx.data.sources.open import open_data
from phalanx.data.training import training_pipeline
from phalanx.engine.inputs import Inputs
from phalanx.errors import EXIT_USER, UserError
from phalanx.machine.settings import choose
from phalanx.runs.code import install_code
from phalanx.runs.folder import find_run

COLUMNS, ROWS = 8, 4
GAP = 4
_SMALLEST, _LARGEST = 64, 112  # pixels of a picture's side on the page


@user_code()
def draw_augmented(run: Path, out: Path, *, run_code: bool) -> None:
    """Write the first batch of the first epoch as a PNG."""
    config = resolve([find_run(run).layer()]).config
    if not run_code and (config.code.files or config.code.packages or references(config.model_dump())):
        raise UserError(
            "no samples are drawn",
            why="the run has code of its own, and the board only looks",
            remedy="if you trust that code, start the board with --control",
        )
    install_code(run, config)
    splits = open_data(config.data, threads=1)
    source = splits.train
    count = min(COLUMNS * ROWS, len(source))
    pipeline = training_pipeline(config, source, batch=count, threads=1)
    machine = config.machine.model_copy(update={"device": "cpu", "precision": "fp32", "compile": False})
    mean, std = list(source.mean), list(source.std)
    inputs = Inputs(choose(machine), config.augment, mean, std, config.train.seed)
    batch = pipeline.prepare(next(pipeline.works(0, 0)))
    images, _ = inputs.training(batch.micro[0], batch.epoch, batch.start, 0)
    # Back from the model's numbers to colours, as they are after everything that training does to them.
    shape = (1, -1, 1, 1)
    seen = images * torch.tensor(std).view(shape) + torch.tensor(mean).view(shape)
    pixels = (seen.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    page = _page([np.ascontiguousarray(one) for one in pixels])
    page.save(out, "PNG")


def _page(images: list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]) -> Image.Image:
    side = images[0].shape[0]
    shown = min(_LARGEST, side * max(1, -(-_SMALLEST // side)))  # small images by a whole factor: pixels stay square
    rows = -(-len(images) // COLUMNS)
    page = Image.new("RGBA", (COLUMNS * (shown + GAP) - GAP, rows * (shown + GAP) - GAP))
    for place, pixels in enumerate(images):
        image = Image.fromarray(np.ascontiguousarray(pixels[:, :, :3]) if pixels.shape[2] >= 3 else pixels[:, :, 0])
        method = Image.Resampling.NEAREST if shown >= side else Image.Resampling.LANCZOS
        left, top = place % COLUMNS * (shown + GAP), place // COLUMNS * (shown + GAP)
        page.paste(image.resize((shown, shown), method).convert("RGBA"), (left, top))
    return page


def main(run: str, out: str, *flags: str) -> int:
    try:
        draw_augmented(Path(run), Path(out), run_code="--code" in flags)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_USER
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
