"""A contact sheet: a few pictures of each class on one page, as the model sees them."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from phalanx.commands.data_settings import write_out
from phalanx.data.augment.framing import CentreCrop
from phalanx.data.sources.labelled import Labelled, Labels, class_counts
from phalanx.observe.class_names import class_names, legend_path, legend_text
from phalanx.observe.fonts import Lettering
from phalanx.observe.tables import printable
from phalanx.observe.text_images import Colour, text_image

SIDE, GAP, LINE, LETTERS = 112, 8, 18, 12  # pixels: of a picture, around it, for its caption and the caption's letters
COLUMNS = 8
MAX_ROWS = 12
PAPER, INK, BROKEN = (250, 250, 248), (40, 40, 40), (200, 60, 50)


def draw_contact_sheet(source: Labelled, path: Path) -> None:
    """Write the page as a PNG. Few classes get a row each; of many, each gets one picture."""
    cells = list(_cells(source))
    rows = -(-len(cells) // COLUMNS)
    names = class_names(source.classes, pillow_only=True)
    note = names.note(legend_path(path))
    width, height = COLUMNS * (SIDE + GAP) + GAP, rows * (SIDE + LINE + GAP) + GAP + (LINE if note else 0)
    page = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(page)
    framing = CentreCrop(SIDE, crop_share=1.0)
    for place, index in enumerate(cells):
        if index is None:
            continue
        left, top = GAP + place % COLUMNS * (SIDE + GAP), GAP + place // COLUMNS * (SIDE + LINE + GAP)
        read = source.read(np.array([index]), framing, 0, replace_bad=False)
        if len(read.images):
            page.paste(_image(read.images[0]), (left, top))
        else:
            pen.rectangle((left, top, left + SIDE - 1, top + SIDE - 1), outline=BROKEN)
            _write(page, (left + 6, top + SIDE // 2 - 8), "does not decode", names.lettering, BROKEN)
        caption = ", ".join(names.shown[number] for number in source.numbers_of(index))
        _write(page, (left, top + SIDE + 1), caption, names.lettering, INK)
    if note:
        _write(page, (GAP, height - LINE - 2), note, names.lettering, INK, width)
        write_out(legend_path(path), printable(legend_text(source.classes)).encode())
    write_out(path, _png(page))


def _cells(source: Labelled) -> Iterator[int | None]:
    """The sample in each cell of the page, or None where it stays empty."""
    present = np.flatnonzero(class_counts(source.labels, len(source.classes)))
    if len(present) > MAX_ROWS:
        chosen = _evenly(present, COLUMNS * MAX_ROWS)
        yield from (int(_having(source, label)[0]) for label in chosen)
        return
    for label in present:
        row = _evenly(_having(source, int(label)), COLUMNS)
        yield from row
        yield from [None] * (COLUMNS - len(row))


def _having(source: Labelled, label: int) -> Labels:
    """The samples that have a class."""
    return np.flatnonzero(source.labels[:, label] if source.multi_label else source.labels == label)


def _evenly(items: np.ndarray[tuple[int, ...], np.dtype[np.int64]], count: int) -> list[int]:
    count = min(count, len(items))
    return [int(items[i * len(items) // count]) for i in range(count)]


def _image(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> Image.Image:
    """Three of the channels where there are more, or one as grey."""
    return Image.fromarray(np.ascontiguousarray(pixels[:, :, :3]) if pixels.shape[2] >= 3 else pixels[:, :, 0])


def _write(
    page: Image.Image, place: tuple[int, int], text: str, lettering: Lettering, colour: Colour, longest: int = SIDE
) -> None:
    """Write a line; what is longer than `longest` pixels is cut."""
    image, kept = text_image(text, lettering, LETTERS, colour), text
    while kept and image.width > longest:
        kept = kept[:-1]
        image = text_image(f"{kept.rstrip()}…", lettering, LETTERS, colour)
    page.paste(image, place, image)


def _png(page: Image.Image) -> bytes:
    out = BytesIO()
    page.save(out, "PNG")
    return out.getvalue()
