"""Decoding on a GPU: its code with torchvision's CPU decoder in the place of nvJPEG, and the refusal without CUDA."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from phalanx.config.schema import DataConfig
from phalanx.data.base import Pixels, View
from phalanx.data.decode.gpu import GpuDecoder, gpu_decoder
from phalanx.data.decode.images import Decoding, Target, decode_all
from phalanx.data.decode.limits import Limits
from phalanx.errors import UserError
from tests.data.samples import assert_helpful

VIEW = View(3, 5, 24, 24, flip=True)


def packed(form: str, height: int = 40, width: int = 56) -> bytes:
    rows, columns = np.mgrid[0:height, 0:width]
    pixels = np.stack([rows * 6 % 256, columns * 4 % 256, (rows * columns) % 256], axis=2).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, form, quality=90)
    return out.getvalue()


def decoded(data: list[bytes], decoding: Decoding) -> tuple[Pixels, list[str]]:
    out = np.zeros((len(data), 16, 16, 3), dtype=np.uint8)
    return out, decode_all(data, lambda places, sizes: [VIEW] * len(places), decoding, Target(out, "bilinear", "zero"))


@pytest.mark.parametrize("damaged", [False, True])
def test_jpegs_go_to_the_gpu_and_all_else_is_decoded_as_ever(damaged: bool) -> None:
    """One that the GPU refuses takes its group with it."""
    jpeg = packed("JPEG")
    data = [jpeg, packed("PNG"), b"", jpeg, packed("JPEG", 80, 90), *([b"\xff\xd8\xff broken"] if damaged else [])]
    limits = Limits(max_pixels=4000, max_scans=100)
    expected, reasons = decoded(data, Decoding(exact=True, limits=limits))
    found, told = decoded(data, Decoding(exact=True, limits=limits, gpu=GpuDecoder("cpu")))
    assert told == reasons
    assert [bool(each) for each in told] == [False, False, True, False, True, *([True] if damaged else [])]
    assert np.abs(found.astype(int) - expected).max() <= 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_cuda_it_is_refused_with_the_reason() -> None:
    with pytest.raises(UserError) as caught:
        gpu_decoder()
    assert_helpful(caught.value, "data.decode=gpu cannot be used", "nvJPEG", "data.decode=fast")


def test_photographs_are_not_turned_on_a_gpu() -> None:
    with pytest.raises(ValueError, match="does not turn photographs"):
        DataConfig(decode="gpu", exif_orientation=True)
