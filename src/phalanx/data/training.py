"""The training pipeline of a configuration: the same on a trainer and on a data server."""

import torch

from phalanx.config.schema import RunConfig
from phalanx.data.augment.framing import train_framing
from phalanx.data.augment.pixels import pixel_ops
from phalanx.data.base import Source
from phalanx.data.order import Share
from phalanx.data.pipeline import Pipeline, Remote
from phalanx.data.sampling import Sampler, make_sampler
from phalanx.data.sources.bad_images import BadImages
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.open import Splits
from phalanx.data.unlabeled import MixedSampler, WithUnlabeled, open_unlabeled


def training_pipeline(
    config: RunConfig,
    train: Labelled,
    *,
    batch: int,
    threads: int,
    share: Share | None = None,
    gpu: torch.device | None = None,
    remote: Remote | None = None,
    unlabeled: Labelled | None = None,
) -> Pipeline:
    """Batches of the training split; `batch` counts the samples of a step over all workers.

    They are copied to `gpu`, if it is given. A share of each comes from `unlabeled`, where there are such images.
    """
    source: Source = train if unlabeled is None else WithUnlabeled(train, unlabeled)
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
        gpu=gpu,
        remote=remote,
        sampler=training_sampler(config, train, unlabeled),
        view_epochs=config.distill.view_epochs,
    )


def training_sampler(config: RunConfig, train: Labelled, unlabeled: Labelled | None) -> Sampler:
    """The samples of an epoch."""
    labelled = make_sampler(config.data, train.labels)
    if unlabeled is None:
        return labelled
    return MixedSampler(labelled, len(train), len(unlabeled), config.distill.unlabeled_share)


def open_beside(config: RunConfig, splits: Splits, threads: int) -> tuple[Labelled | None, list[str]]:
    """The images without labels that the configuration names, and notes for the user."""
    if config.distill.unlabeled is None:
        return None, []
    found, note = open_unlabeled(config.distill.unlabeled, config.data, splits.train, splits.val, threads)
    return found, [f"{note}: {config.distill.unlabeled_share:.0%} of each micro-batch"]
