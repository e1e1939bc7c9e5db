"""Attacks on folders of images and lists: links, pipes, devices, endless names, lists that name files elsewhere."""

import contextlib
import gzip
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from phalanx.config.schema import DataConfig
from phalanx.data.sources.open import open_data, open_parts
from tests.data.samples import FixedViews, image_bytes, noise, write_images
from tests.fuzz.budget import fuzz
from tests.fuzz.guard import MOST_BYTES, guarded

PNG = image_bytes(noise(5, 4, 3))
ODD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a loop of links": lambda path: path.symlink_to(path.name),
    "a link to above": lambda path: path.symlink_to("../.."),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to a folder": lambda path: path.symlink_to("."),
    "a folder": lambda path: path.mkdir(),
    "nothing in it": lambda path: path.write_bytes(b""),
    "an image": lambda path: path.write_bytes(PNG),
    "no permission": lambda path: path.touch(mode=0),
    "of this process": lambda path: path.symlink_to("/proc/self/mem"),
}
NAMES = ["x.jpg", "ape/x.png", "ape/deep/x.png", "train", "val", "train.csv", "train.tar", "train.tfrecord", "a.npz"]
NAMES += [
    "classes.txt",
    "pack.json",
    "README.md",
    "ape/\udcff.png",
    "ape/" + "n" * 250 + ".png",
    "ape/\n.png",
    "train.h5",
]
NAMES += ["train.parquet", "dataset_info.json", "state.json", "data_batch_1.bin", "train_X.bin", "train_32x32.mat"]
NAMES += ["train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz", "quarantine.tsv", "a.rec", "a.lst", "a.zip"]


def use(folder: Path, source: str, most_bytes: int = MOST_BYTES) -> None:
    with contextlib.chdir(folder), guarded(most_bytes=most_bytes):
        config = DataConfig(source=source)
        parts, _ = open_parts(config, threads=0)
        for each in parts.values():
            each.read(np.arange(min(8, len(each))), FixedViews(8), 0, replace_bad=False)
        open_data(config, threads=0)


@fuzz(
    examples=40, odd=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(sorted(ODD))), min_size=1, max_size=4)
)
def test_odd_files_in_folders(odd: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = write_images(Path(top) / "data" / "set", {"ape": 2, "cat": 2})
        for name, kind in odd:
            path = folder / name
            with contextlib.suppress(FileExistsError, NotADirectoryError, OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                if not os.path.lexists(path):  # writing into a pipe of an earlier turn would wait for ever
                    ODD[kind](path)
        for source in (".", "folder:.", odd[0][0]):
            if source.isprintable():
                use(folder, source)


CELLS = [
    "ape/0.png",
    "../../../etc/passwd",
    "/etc/passwd",
    "ape/../cat/0.png",
    "x" * 5000,
    "~root/x",
    "ape",
    ".",
    "0",
    "1",
]
CELLS += ["9" * 5000, "nan", "\0", '"' * 50, "/dev/zero", "pipe.png", "\ud800", "[" * 50, "1e400"]


@fuzz(
    examples=40,
    rows=st.lists(st.lists(st.sampled_from(CELLS), min_size=1, max_size=4), min_size=1, max_size=6),
    separator=st.sampled_from([",", "\t", " "]),
    name=st.sampled_from(["train.csv", "train.tsv", "train.txt", "a.lst"]),
)
def test_lists_that_name_anything(rows: list[list[str]], separator: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = write_images(Path(top) / "set", {"ape": 2, "cat": 2})
        os.mkfifo(folder / "pipe.png")
        text = "".join(separator.join(row) + "\n" for row in rows)
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        use(folder, f"list:{name}")


@pytest.mark.fuzz
@pytest.mark.parametrize("what", ["images", "labels"])
def test_a_small_gzip_does_not_become_large(what: str, tmp_path: Path) -> None:
    bomb = gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 2, 4, 4) + bytes(100 << 20), 1)
    good = {"images": struct.pack(">4B3I", 0, 0, 8, 3, 2, 4, 4) + bytes(32), "labels": b"\0\0\x08\1\0\0\0\2\0\1"}
    for name, content in good.items():
        file = tmp_path / f"train-{name}-idx{3 if name == 'images' else 1}-ubyte"
        file.write_bytes(bomb if name == what else content)
    use(tmp_path, "idx:.", 64 << 20)
