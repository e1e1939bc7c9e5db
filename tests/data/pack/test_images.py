"""What becomes of a sample's bytes: nothing, unless something asks for it."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phalanx.data.decode.images import BadImage
from phalanx.data.pack.images import Treatment
from phalanx.data.sources.cifar import open_cifar
from phalanx.data.sources.folders import open_class_folders
from phalanx.data.sources.labelled import Labelled
from tests.data.pack.packs import decoded
from tests.data.samples import image_bytes, smooth
from tests.data.sources.test_cifar import write_cifar10

COPY = Treatment(None, None, 3, "bilinear", False)


def treated(resize: int | None = None, quality: int | None = None, channels: int = 3, turn: bool = False) -> Treatment:
    return Treatment(resize, quality, channels, "bilinear", turn)


def one_image(folder: Path, data: bytes) -> Labelled:
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "x.jpg").write_bytes(data)
    return open_class_folders(folder, channels=None, pool=None)


def test_bytes_are_copied_untouched_even_if_they_are_no_image(tmp_path: Path) -> None:
    assert COPY.encoded(one_image(tmp_path, b"whatever"), 0) == b"whatever"


def test_only_what_is_larger_is_encoded_again(tmp_path: Path) -> None:
    data = image_bytes(smooth(60, 40), "JPEG")
    source = one_image(tmp_path, data)
    assert treated(resize=40).encoded(source, 0) == data
    assert treated(resize=40, quality=50).encoded(source, 0) == data
    smaller = decoded(treated(resize=20).encoded(source, 0))
    assert (smaller.format, smaller.size, smaller.mode) == ("JPEG", (20, 30), "RGB")
    difference = np.asarray(smaller).astype(int) - np.asarray(Image.fromarray(smooth(60, 40)).resize((20, 30)))
    assert np.abs(difference).mean() < 3


def test_what_was_made_smaller_once_is_left_alone(tmp_path: Path) -> None:
    first = treated(resize=20).encoded(one_image(tmp_path / "1", image_bytes(smooth(60, 40), "JPEG")), 0)
    assert treated(resize=20).encoded(one_image(tmp_path / "2", first), 0) == first


def test_quality_alone_encodes_everything(tmp_path: Path) -> None:
    source = one_image(tmp_path, image_bytes(smooth(60, 40)))
    low, high = (treated(quality=quality).encoded(source, 0) for quality in (10, 95))
    assert (decoded(low).format, decoded(low).size) == ("JPEG", (40, 60))
    assert len(low) < len(high)


@pytest.mark.parametrize(
    ("form", "mode", "kept"),
    [
        ("PNG", None, "PNG"),
        ("PNG", "RGBA", "PNG"),
        ("JPEG", "CMYK", "JPEG"),
        ("WEBP", None, "JPEG"),
        ("GIF", "P", "PNG"),
    ],
)
def test_what_was_exact_stays_exact(tmp_path: Path, form: str, mode: str | None, kept: str) -> None:
    source = one_image(tmp_path, image_bytes(smooth(30, 30), form, mode))
    smaller = decoded(treated(resize=10).encoded(source, 0))
    assert (smaller.format, smaller.size, smaller.mode) == (kept, (10, 10), "RGB")


def test_grey_stays_grey(tmp_path: Path) -> None:
    source = one_image(tmp_path, image_bytes(smooth(30, 30), "JPEG", "L"))
    assert decoded(treated(resize=10).encoded(source, 0)).mode == "L"


def held_sideways() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "a description that is not kept"
    out = BytesIO()
    Image.fromarray(smooth(40, 60)).save(out, "JPEG", exif=exif)
    return out.getvalue()


def test_how_a_camera_was_held_is_kept(tmp_path: Path) -> None:
    source = one_image(tmp_path, held_sideways())
    smaller = decoded(treated(resize=20).encoded(source, 0))
    assert dict(smaller.getexif()) == {0x0112: 6}
    assert treated().pixels(source, 0).shape == (40, 60, 3)
    assert treated(turn=True).pixels(source, 0).shape == (60, 40, 3)


def test_pixels_of_a_colour_image_as_grey(tmp_path: Path) -> None:
    pixels = treated(channels=1, resize=20).pixels(one_image(tmp_path, image_bytes(smooth(40, 60), "JPEG")), 0)
    assert pixels.shape == (20, 30, 1)


def test_broken_images_are_told(tmp_path: Path) -> None:
    source = one_image(tmp_path, image_bytes(smooth(40, 60), "JPEG")[:-200])
    for job in (treated(resize=20).encoded, treated(quality=80).encoded, treated().pixels):
        with pytest.raises(BadImage, match="truncated"):
            job(source, 0)


def test_images_in_memory_become_pngs_or_jpegs(tmp_path: Path) -> None:
    source = open_cifar(write_cifar10(tmp_path), "train", channels=None)
    image = decoded(COPY.encoded(source, 3))
    assert image.format == "PNG"
    np.testing.assert_array_equal(np.asarray(image), source.images[3])
    np.testing.assert_array_equal(COPY.pixels(source, 3), source.images[3])
    assert decoded(treated(quality=80).encoded(source, 3)).format == "JPEG"
    assert decoded(treated(resize=16).encoded(source, 3)).size == (16, 16)
