"""Contact sheets with names in any script."""

from pathlib import Path

import numpy as np
from PIL import Image

from phalanx.commands.data_contact import LINE, draw_contact_sheet
from phalanx.config.schema import DataConfig
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.open import open_parts

NOWHERE = "\U0010fffd"  # for private use: no font has it


def source(folder: Path, *names: str) -> Labelled:
    pixels = np.random.default_rng(0).integers(0, 255, (20, 20, 3), dtype=np.uint8)
    for name in names:
        for number in range(3):
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return next(iter(open_parts(DataConfig(source=str(folder)), threads=1)[0].values()))


def test_names_that_no_font_shows_are_numbered_with_a_legend(tmp_path: Path) -> None:
    draw_contact_sheet(source(tmp_path / "a", "cat", NOWHERE), tmp_path / "a.png")
    draw_contact_sheet(source(tmp_path / "b", "cat", "dog"), tmp_path / "b.png")
    assert (tmp_path / "a-classes.tsv").read_text() == f"0\tcat\n1\t{NOWHERE}\n"
    assert not (tmp_path / "b-classes.tsv").exists()
    with Image.open(tmp_path / "a.png") as numbered, Image.open(tmp_path / "b.png") as named:
        assert numbered.height == named.height + LINE  # the note


def test_captions_are_drawn_and_end_in_the_picture(tmp_path: Path) -> None:
    long = "a very long name of a class that does not fit"
    draw_contact_sheet(source(tmp_path / "a", "قطة", long), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as page:
        pixels = np.asarray(page.convert("L"))
    for row in (0, 1):  # of a class each: a caption below the picture, and paper between the columns
        top = 8 + row * 138 + 112 + 1
        caption = pixels[top : top + LINE - 2]
        assert caption[:, 8:120].min() < 120
        assert caption[:, 121:127].min() > 240
