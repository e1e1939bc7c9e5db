"""Makes the pictures of docs/guide/board.md: a real job with a slow worker, and images with wrong labels.

    python -m dev.board_pictures [--data /usr/share/datasets/fashion-mnist] [--out docs/images] [--work FOLDER]

It needs Debian's dataset-fashion-mnist, chromium and chromium-driver, two cores, and some minutes. The job is what
docs/guide/board.md describes: two workers, one of which is held up again and again, like a slow host.
"""

import argparse
import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from selenium import webdriver
from tests.board.browser import chromium, set_dark, set_width
from tests.board.served import Served
from tests.board.started import started
from tests.waiting import until

from phalanx.board.notes import write_notes

CLASSES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
TRAINING, VALIDATION, WRONG = 4000, 1000, 9
SETTINGS = (
    *("data.image_size=28", "data.channels=1", "machine.threads=1", "train.curves=false"),
    *("train.batch_size=64", "optim.clip_norm=5", "eval.top_k=3"),
)
_WAIT_S = 600.0
_GOOD = 0.7  # top-1 of the live job when it is looked at: then what it is sure of and wrong about is often a label
_WIDE, _NARROW = 1240, 400
Bytes = npt.NDArray[np.uint8]


def main() -> None:
    asked = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    asked.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    asked.add_argument("--out", type=Path, default=Path("docs/images"))
    asked.add_argument("--work", type=Path, help="keeps the data and the runs there")
    options = asked.parse_args()
    out = options.out.resolve()
    with contextlib.ExitStack() as open_now:
        work = options.work or Path(open_now.enter_context(tempfile.TemporaryDirectory()))
        work = work.resolve()
        write_data(options.data, work / "clothes")
        earlier_runs(work)
        open_now.enter_context(live_job(work))
        board = open_now.enter_context(started("runs", cwd=work))
        driver = open_now.enter_context(chromium(width=_WIDE))
        take(driver, board, out, work)


# The data


def write_data(source: Path, folder: Path) -> None:
    """A folder of images for each class. Of those for validation, a few lie in the folder of another class."""
    if folder.exists():
        return
    chance = np.random.default_rng(5)
    for split, name, count in (("train", "train", TRAINING), ("val", "t10k", VALIDATION)):
        images, labels = read_idx(source, name)
        wrong = set(chance.choice(count, WRONG, replace=False).tolist()) if split == "val" else set()
        for number in range(count):
            label = int(labels[number])
            if number in wrong:
                label = (label + int(chance.integers(3, 8))) % len(CLASSES)
                print(f"wrong label: {number:05d}.png is {CLASSES[labels[number]]}, and lies in {CLASSES[label]}")
            place = folder / split / CLASSES[label] / f"{number:05d}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[number]).save(place)


def read_idx(source: Path, name: str) -> tuple[Bytes, Bytes]:
    images = gzip.decompress((source / f"{name}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((source / f"{name}-labels-idx1-ubyte.gz").read_bytes())
    return np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28), np.frombuffer(labels, np.uint8, offset=8)


# The runs


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "phalanx", *words]


def earlier_runs(work: Path) -> None:
    """Two short runs that differ in their learning rate."""
    for name, rate, tags, note in (
        ("first-try", "0.02", ["baseline"], ""),
        ("higher-rate", "0.2", ["baseline", "keep"], "Better than first-try from the second epoch on."),
    ):
        run = work / "runs" / name
        if not run.exists():
            words = ("train", "fashion-mnist", "--data", "clothes", "--epochs", "6", "--out", f"runs/{name}")
            subprocess.run(command(*words, f"optim.lr={rate}", "train.log_every=5", *SETTINGS), cwd=work, check=True)
            write_notes(run, {"tags": tags, "note": note})


@contextlib.contextmanager
def live_job(work: Path) -> Iterator[None]:
    """A job of two workers, the second of which is slow, that has seen some epochs and was evaluated."""
    run, place = work / "runs" / "two-workers", "runs/two-workers"
    words = ("train", "fashion-mnist", "--data", "clothes", "--workers", "2", "--epochs", "60", "--out", place)
    begun = ("--init-from", "runs/higher-rate", "optim.lr=0.01", "schedule.kind=constant", "train.log_every=5")
    job = subprocess.Popen(command(*words, *begun, *SETTINGS), cwd=work, stdout=subprocess.DEVNULL)
    ended = threading.Event()
    try:
        until(lambda: len(events(run, "step")) > 2 or job.poll() is not None, _WAIT_S)
        assert job.poll() is None, "the job has ended"
        roles = json.loads((run / "job.json").read_text())["roles"]
        second = next(int(role["pid"]) for role in roles if role["name"] == "trainer-1")
        slow = threading.Thread(target=slow_down, args=(second, ended), daemon=True)
        slow.start()
        until(lambda: len(events(run, "eval")) >= 3 and best(run) >= _GOOD, _WAIT_S)
        subprocess.run(command("eval", str(run)), cwd=work, check=True, stdout=subprocess.DEVNULL)
        yield
        ended.set()
        slow.join()
    finally:
        ended.set()
        job.send_signal(signal.SIGINT)
        job.wait(_WAIT_S)


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    """Those that are complete."""
    try:
        lines = (run / "events.jsonl").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if f'"kind": "{kind}"' in line]


def best(run: Path) -> float:
    return max((one["top1"] for one in events(run, "eval")), default=0.0)


def slow_down(pid: int, ended: threading.Event) -> None:
    """Stop a process for two thirds of the time, in short turns."""
    with contextlib.suppress(ProcessLookupError):
        while not ended.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.04)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.02)
        os.kill(pid, signal.SIGCONT)


# The pictures


def take(driver: webdriver.Chrome, board: Served, out: Path, work: Path) -> None:
    """Go through the page as somebody who looks for the slow worker and for wrong labels."""
    page = Page(driver, board)
    keys = {name: board.key(name) for name in ("two-workers", "first-try", "higher-rate")}
    live = keys["two-workers"]
    page.open("", height=350)
    page.save(out / "board-runs.png")
    page.open(f"run/{live}/curves", height=900)
    page.save(out / "board-curves.png")
    page.open(f"run/{live}/job", height=1000)
    page.save(out / "board-job.png")
    page.open(f"run/{live}/results", height=1240)
    page.wait("document.querySelectorAll('.gallery img').length > 5")
    page.save(out / "board-results.png")
    page.open(f"compare/{keys['first-try']},{keys['higher-rate']}", height=900, dark=True)
    page.save(out / "board-compare.png")
    narrow = []
    for number, part in enumerate(("", f"run/{live}/curves", f"run/{live}/job")):
        page.open(part, width=_NARROW, height=800, dark=number != 1)
        narrow.append(page.save(work / f"narrow-{number}.png"))
    beside(narrow, out / "board-narrow.png")


class Page:
    """The board in the browser."""

    def __init__(self, driver: webdriver.Chrome, board: Served) -> None:
        self._driver, self._board = driver, board
        driver.get(board.address)

    def open(self, place: str, *, width: int = _WIDE, height: int, dark: bool = False) -> None:
        set_width(self._driver, width, height)
        set_dark(self._driver, dark=dark)
        self._driver.get("about:blank")
        self._driver.get(f"http://127.0.0.1:{self._board.guard.port}/#/{place}")
        self.wait("performance.getEntriesByName('shown').length > 1")

    def wait(self, condition: str) -> None:
        until(lambda: self._driver.execute_script(f"return {condition}"), _WAIT_S)

    def save(self, path: Path) -> Path:
        self._driver.save_screenshot(str(path))
        quantized(path)
        return path


def quantized(path: Path) -> None:
    """A page has few colours: a palette makes its picture small."""
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def beside(paths: list[Path], out: Path) -> None:
    """Pictures of the same height in one."""
    pictures = [Image.open(path).convert("RGB") for path in paths]
    gap = 12
    whole = Image.new("RGB", (sum(one.width + gap for one in pictures) - gap, pictures[0].height), "white")
    for number, one in enumerate(pictures):
        whole.paste(one, (number * (one.width + gap), 0))
    whole.save(out)
    quantized(out)


if __name__ == "__main__":
    main()
