"""Fuzzes the C code with sanitizers: damaged and random input, from a seed.

    python -m tests.fuzz.native 60                     every source for its share of 60 seconds
    python -m tests.fuzz.native 60 --target jpeg       one of them
    python -m tests.fuzz.native --corpus               the files that fuzzing starts from, once, undamaged
    python -m tests.fuzz.native --replay jpeg FILE     one file again

The input that a sanitizer complained about, or that took too long, is kept in .fuzz/, with the report.
"""

import argparse
import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np

from tests.fuzz.damage import mutated
from tests.fuzz.sanitizers import NoSanitizers, environment
from tests.fuzz.targets import FAULTY, TARGETS, Target, loaded

ROOT = Path(__file__).parents[2]
KEPT = ".fuzz"  # folder for what was found, in the current one
INSIDE = "PHALANX_FUZZ_INSIDE"  # set in the process that has the sanitizers
MAX_SECONDS = 10  # for one input
WARM_UP = 200  # inputs
SPARE_BYTES, LEAK_BYTES = 2**17, 64  # what Python may keep for itself, and what an input may leave behind
FRESH = 0.1  # share of inputs that are random rather than damaged


def inputs(target: Target, random: Random, seconds: float) -> Iterator[bytes]:
    """Damaged samples until the time is over."""
    samples = list(target.samples())
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if random.random() < FRESH:
            yield random.randbytes(random.randrange(2000))
        else:
            yield mutated(random, random.choice(samples), samples)


def run_inside(options: argparse.Namespace) -> None:
    """In the process with the sanitizers: whatever they find ends it. The input at hand is in a file by then."""
    chosen = {**TARGETS, **FAULTY}
    if options.replay:
        chosen[options.replay[0]].run(Path(options.replay[1]).read_bytes())
        return
    names = [options.target] if options.target else list(TARGETS)
    shares = sum(chosen[name].share for name in names)
    for name in names:
        target = chosen[name]
        loaded(target.library)  # it may have to be compiled, which is not part of the time
        seconds = options.seconds * target.share / shares
        ours = target.samples() if options.corpus else inputs(target, Random(f"{options.seed} {name}"), seconds)
        count = _run_all(name, target, ours)
        print(f"{name}: {count:,} inputs, nothing found", flush=True)


def _run_all(name: str, target: Target, ours: Iterable[bytes]) -> int:
    """Run a target with each input; returns how many there were."""
    count, before = 0, 0
    _ = [np.empty(size, np.uint8) for size in range(1200) for _ in range(8)]  # NumPy keeps a few of each size
    for data in ours:
        Path(os.environ[INSIDE]).write_bytes(name.encode() + b"\0" + data)
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)  # of computing; it ends the process, whatever C code is doing
        target.run(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        count += 1
        if count == WARM_UP:
            before = _allocated()
    grown = _allocated() - before
    if count > WARM_UP and grown > SPARE_BYTES + LEAK_BYTES * count:
        raise SystemExit(f"{name} holds {grown:,} bytes more after {count:,} inputs: some memory is never freed")
    return count


def _allocated() -> int:
    """Bytes of all that malloc gave out and that was not freed, which the sanitizer knows."""
    gc.collect()
    function = ctypes.CDLL(None).__sanitizer_get_current_allocated_bytes
    function.restype = ctypes.c_size_t
    return int(function())


def keep(current: Path, report: str) -> str:
    """Save the input that ended the process; returns what to tell."""
    name, _, data = current.read_bytes().partition(b"\0")
    if not name:
        return report
    folder = Path(KEPT)
    folder.mkdir(exist_ok=True)
    file = folder / f"{name.decode()}-{sha256(data).hexdigest()[:12]}"
    file.write_bytes(data)
    file.with_suffix(".txt").write_text(report)
    place = file.resolve()
    replay = f"cd {ROOT} && {sys.executable} -m tests.fuzz.native --replay {name.decode()} {place}"
    return f"{report}\nfound by {len(data):,} bytes, which are in {place}\nto see it again: {replay}"


def run(arguments: list[str]) -> int:
    """Run a process with the sanitizers, and keep what it ends with."""
    Path(KEPT).mkdir(exist_ok=True)
    current = Path(KEPT) / f"current-{os.getpid()}"
    current.write_bytes(b"")
    try:
        variables = {**environment(), INSIDE: str(current.resolve())}
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.native", *arguments]
        done = subprocess.run(command, env=variables, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        if done.returncode:
            late = "" if done.returncode != -signal.SIGPROF else f"one input took more than {MAX_SECONDS} s"
            print(keep(current, done.stderr + late), file=sys.stderr)
            return 1
        return 0
    except NoSanitizers as error:
        print(f"the C code is not fuzzed: {error}")
        return 0
    finally:
        current.unlink()
        if not any(current.parent.iterdir()):
            current.parent.rmdir()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, nargs="?", default=10.0)
    parser.add_argument("--target", choices=[*TARGETS, *FAULTY], metavar="NAME", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--seed", type=int, help="default: another one each time, which is printed")
    parser.add_argument("--corpus", action="store_true")
    parser.add_argument("--replay", nargs=2, metavar=("NAME", "FILE"))
    options = parser.parse_args()
    if INSIDE in os.environ:
        run_inside(options)
        return 0
    arguments = sys.argv[1:]
    if options.seed is None and not options.corpus and not options.replay:
        arguments += ["--seed", str(seed := time.time_ns() % 2**32)]
        print(f"seed {seed}", flush=True)
    return run(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
