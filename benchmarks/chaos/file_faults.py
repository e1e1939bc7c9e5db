"""Faults of files, numbers and clocks: full disk, damaged checkpoint, damaged data, NaN, a clock that jumps."""

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits
from tests.waiting import until

from benchmarks.chaos.cell import MACHINE, Cell
from benchmarks.chaos.process_faults import kill_worker

DAMAGED = (700, 900, 1100)  # of 1,797: some of them are for training
_HOUR_NS = 3600 * 10**9


def own_disk(cell: Cell) -> None:
    """The run is on a small disk, which only this job uses."""
    cell.out = cell.lab.own / f"run-{cell.folder.name}"
    cell.cleanup.callback(cell.lab.run, MACHINE, ["rm", "-rf", str(cell.out)], check=False)


def fill_disk(cell: Cell) -> None:
    filler = cell.lab.own_of(MACHINE) / "filler"
    cell.relief.callback(filler.unlink, missing_ok=True)
    with filler.open("wb", buffering=0) as file:
        chunk = bytes(1 << 16)
        while True:
            try:
                file.write(chunk)
            except OSError:
                if len(chunk) == 1:
                    return
                chunk = chunk[: max(1, len(chunk) // 16)]


def truncate_checkpoint(cell: Cell) -> None:
    """Without restarts: between Ctrl-C and a resume. With restarts: before a worker is killed."""
    if not cell.restarts:
        cell.job.signal(signal.SIGINT)
        until(lambda: cell.job.ended and not cell.job.alive())
        cell.job.finish_reading()
    newest = max((cell.run / "checkpoints").glob("step-*"))
    os.truncate(newest / "model.safetensors", (newest / "model.safetensors").stat().st_size // 2)
    if cell.restarts:
        kill_worker(cell)
    else:
        cell.resume()


def not_a_number(cell: Cell) -> None:
    cell.tell("nan", cell.mode.hit)
    cell.relief.callback(cell.untell, "nan")


def shim_clock(cell: Cell) -> None:
    """A preloaded library adds an offset from a file to what the wall clock says, in all processes of the job."""
    library, offset = cell.folder / "clock.so", cell.folder / "clock"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source)], check=True)
    offset.write_bytes(bytes(8))
    cell.env |= {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(offset)}


def jump_clock(cell: Cell) -> None:
    """An hour on, and two seconds later two hours back."""
    for ahead in (_HOUR_NS, -_HOUR_NS):
        with (cell.folder / "clock").open("r+b") as file:  # the same file: it is mapped
            file.write(struct.pack("<q", ahead))
        if ahead > 0:
            time.sleep(2)


def whole_jpegs(cell: Cell) -> None:
    digits_folder(cell.folder / "digits")
    cell.words += [f"data.source={cell.folder / 'digits'}"]


def corrupt_jpeg(cell: Cell) -> None:
    images = digits_folder(cell.folder / "digits")
    for number in DAMAGED:
        images[number].write_bytes(images[number].read_bytes()[:200])
    cell.words += [f"data.source={cell.folder / 'digits'}"]


def flip_bit(cell: Cell) -> None:
    """In the middle of a record of a TFRecord file, whose records have checksums."""
    digits_folder(cell.folder / "digits")
    packed = cell.folder / "packed"
    pack = ["phalanx", "data", "pack", str(cell.folder / "digits"), str(packed), "--format", "tfrecord"]
    subprocess.run([sys.executable, "-m", *pack], check=True, capture_output=True)
    shard = next(packed.glob("*.tfrecord"))
    with shard.open("r+b") as file:
        file.seek(shard.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    cell.words += [f"data.source={packed}"]


def digits_folder(folder: Path) -> list[Path]:
    """The digits as JPEGs in a folder for each class."""
    digits = load_digits()
    files = []
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        files.append(folder / str(label) / f"{number:04}.jpg")
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15.9).astype("uint8")).save(files[-1], quality=95)
    return files
