"""Samples of a step."""

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
