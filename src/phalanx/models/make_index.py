"""Make the index of models for the version of timm that is installed, in processes.

`python -m phalanx.models.make_index` counts every model and writes the index that comes with Phalanx (some minutes).
"""

import multiprocessing
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version

import torch
from rich.console import Console

from phalanx.machine.cores import cores
from phalanx.migrate.model_names import SHORT_NAMES
from phalanx.models import zoo
from phalanx.models.build import LISTED
from phalanx.models.costs import count_cost
from phalanx.models.index import SHIPPED, ModelCost, ModelIndex, keep_index, shipped_index, write_index
from phalanx.observe.progress import progress

FEW = 16  # models; so few are counted before other processes have imported torch
CHUNK = 4  # models per message to a process


def index_installed(console: Console) -> ModelIndex:
    """The index of the installed timm, kept in the cache. What the shipped index has as well is taken from it.

    timm keeps the networks of its names, because published weights have to fit. What can change is the image size.
    """
    import timm

    shipped = shipped_index()
    names = timm.list_models()
    same = {name: cost for name in names if (cost := shipped.theirs.get(name)) and _same_size(name, cost)}
    new = [name for name in names if name not in same]
    counted = _count_all(new, console)
    index = ModelIndex(version("timm"), shipped.ours, shipped.short, {name: (same | counted)[name] for name in names})
    keep_index(index)
    return index


def _same_size(name: str, cost: ModelCost) -> bool:
    return max(zoo.own_input_size(name)) == cost.image_size


def make_shipped(console: Console) -> ModelIndex:
    """The index with every model counted."""
    import timm

    theirs = timm.list_models()
    found = _count_all([*LISTED, *SHORT_NAMES, *theirs], console)
    parts = [{name: found[name] for name in names} for names in (LISTED, SHORT_NAMES, theirs)]
    return ModelIndex(version("timm"), *parts)


def _count_all(names: Sequence[str], console: Console) -> dict[str, ModelCost]:
    with ExitStack() as stack:
        advance = stack.enter_context(progress(console, "models counted", len(names)))
        counts: Iterator[ModelCost] = map(_quietly, names)
        if len(names) > FEW and cores() > 1:
            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(
                ProcessPoolExecutor(cores(), context, initializer=torch.set_num_threads, initargs=(1,))
            )
            counts = pool.map(_quietly, names, chunksize=CHUNK)
        found = {}
        for name, cost in zip(names, counts, strict=True):
            found[name] = cost
            advance(1)
    return found


def _quietly(name: str) -> ModelCost:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constructors of old models warn about arguments of torch
        return count_cost(name)


if __name__ == "__main__":
    index = make_shipped(Console(stderr=True))
    write_index(index, SHIPPED)
    Console().print(f"{SHIPPED}: {len(index.models):,} models, timm {index.timm}")
