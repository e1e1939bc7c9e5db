"""Samples of a step, and what is done where the data has fewer."""

import math

from phalanx.config.schema import RunConfig
from phalanx.errors import UserError


def samples_per_step(config: RunConfig) -> int:
    """The samples of one update over all workers and their micro-batches."""
    parts, workers = config.micro_batches, config.exchange.workers
    if parts < workers:
        raise UserError(
            f"{workers} workers cannot share {parts} micro-batches",
            why="train.micro_batches counts the parts of a step over all workers, and some would have none",
            remedy=f"train.micro_batches={workers}, or leave it out",
        )
    whole = config.train.global_batch_size
    if whole is None:
        return config.train.batch_size * parts
    if whole % parts and config.train.micro_batches is None:  # with a given number of parts, sizes may differ by one
        below = max(parts, whole // parts * parts)
        raise UserError(
            f"a global batch of {whole} does not divide over {parts} micro-batches",
            why=f"{workers} workers × {config.optim.accumulate} accumulated",
            remedy=f"try {below} or {(whole // parts + 1) * parts}",
        )
    return whole


def fit_batch(config: RunConfig, epoch_samples: int) -> RunConfig:
    """The configuration with a step that an epoch can fill: a larger one becomes the whole epoch.

    The micro-batches of a step stay as many as they were, so that N workers still equal N accumulated micro-batches.
    """
    asked, parts, workers = samples_per_step(config), config.micro_batches, config.exchange.workers
    if asked <= epoch_samples:
        return config
    if epoch_samples < 2 * workers:
        samples = f"{epoch_samples:,} training sample{'s' * (epoch_samples != 1)}"
        raise UserError(
            f"{samples} cannot be shared by {workers} worker{'s' * (workers > 1)}",
            why="each worker needs two at least in a step: batch norm has no statistics of one",
            remedy=f"use {epoch_samples // 2} workers or fewer, or more data"
            if epoch_samples >= 2
            else "use more data, or a smaller data.val_share",
        )
    even = epoch_samples % parts == 0
    if even and config.train.global_batch_size is None:
        changed: dict[str, int] = {"batch_size": epoch_samples // parts}
    else:
        changed = {"global_batch_size": epoch_samples, **({} if even else {"micro_batches": parts})}
    return config.model_copy(update={"train": config.train.model_copy(update=changed)})


def cut_to_fit(config: RunConfig, samples: int) -> RunConfig:
    """The configuration with micro-batches of so many samples at most. A step keeps its samples.

    The number of its parts is multiplied, so that every worker still has as many as the others.
    """
    whole, parts = samples_per_step(config), config.micro_batches
    factor = math.ceil(math.ceil(whole / parts) / max(1, samples))
    if factor == 1:
        return config
    if samples < 2 or whole < 2 * parts * factor:
        raise UserError(
            "a micro-batch of two samples does not fit into the memory that is left",
            why=f"{config.model.name} at this image size needs more: there is room for {max(0, samples)} "
            "(train.fit_memory)",
            remedy="a smaller model, smaller images (data.image_size), fewer workers on this machine, or more memory",
        )
    changed = {"global_batch_size": whole, "micro_batches": parts * factor}
    return config.model_copy(update={"train": config.train.model_copy(update=changed)})
