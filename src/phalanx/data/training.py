"""The training pipeline of a configuration: the same on a trainer and on a data server."""

from phalanx.config.schema import RunConfig
from phalanx.data.augment.framing import train_framing
from phalanx.data.augment.pixels import pixel_ops
from phalanx.data.base import Source
from phalanx.data.order import Share
from phalanx.data.pipeline import Pipeline, Remote
from phalanx.data.sampling import make_sampler
from phalanx.data.sources.bad_images import BadImages


def training_pipeline(
    config: RunConfig,
    source: Source,
    *,
    batch: int,
    threads: int,
    share: Share | None = None,
    pin: bool = False,
    remote: Remote | None = None,
) -> Pipeline:
    """Batches of the training split `source`; `batch` counts the samples of a step over all workers."""
    size, seed = config.data.image_size or source.image_size, config.train.seed
    return Pipeline(
        source,
        train_framing(config.augment, config.data, size, seed, source),
        seed=seed,
        batch=batch,
        share=share,
        drop_last=config.data.drop_last,
        pixels=pixel_ops(config.augment, seed),
        threads=threads,
        prefetch=config.data.prefetch,
        bad=BadImages.of(config.data, source),
        pin=pin,
        remote=remote,
        sampler=make_sampler(config.data, source.labels),
    )
