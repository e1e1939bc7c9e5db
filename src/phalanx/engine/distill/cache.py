"""Teachers whose logits are kept in a file: each view is computed once, in its first epoch or its first run."""

from collections.abc import Callable, Sequence

from torch import Tensor

from phalanx.config.schema import RunConfig
from phalanx.data.base import Batch, MicroBatch
from phalanx.data.order import Indices
from phalanx.data.pipeline import Pipeline
from phalanx.data.service.terms import terms_of
from phalanx.engine.distill.cache_file import HEADER, CacheFile, CacheShape, open_file
from phalanx.engine.distill.logits import LooksAhead, TeacherLogits
from phalanx.engine.inputs import Inputs
from phalanx.engine.objective import View
from phalanx.errors import UserError

_NO_IDENTITY = ("phalanx", "versions")  # of the terms: code may change, the pixels are compared


class CachedTeachers:
    """Logits from a file, and from `teachers` where they are not there yet. What was written is what is used.

    So a run that is resumed, and a later one, learn from the very numbers of the first.
    """

    def __init__(self, teachers: TeacherLogits, file: CacheFile, view_epochs: int | None = None) -> None:
        self._teachers, self._file, self._view_epochs = teachers, file, view_epochs
        self.computed = self.read = 0  # views

    def logits(self, view: View) -> Tensor:
        epoch, indices = self._epoch(view.epoch), view.micro.indices.numpy()
        if epoch is None:
            return self._teachers.logits(view)
        rows, known = self._file.read(epoch, indices)
        if not known.all():
            fresh = self._file.shape.pack(self._teachers.logits(view))
            rows[~known] = fresh[~known]
            self._file.write(epoch, indices[~known], rows[~known])
        self.computed += int((~known).sum())
        self.read += int(known.sum())
        return self._file.shape.unpack(rows).to(view.images.device)

    def announce(self, batch: Batch, step: int) -> None:
        for micro in batch.micro:
            if micro.count:
                self.announce_micro(micro, batch.epoch, batch.start, step)

    def announce_micro(self, micro: MicroBatch, epoch: int, start: int, step: int) -> None:
        """Has the teachers begin with what is not in the file."""
        if isinstance(self._teachers, LooksAhead) and not self._has(epoch, micro.indices.numpy()):
            self._teachers.announce_micro(micro, epoch, start, step)

    def close(self) -> None:
        self._file.close()
        self._teachers.close()

    def _epoch(self, epoch: int) -> int | None:
        """The epoch of the file's rows; None for one that has none there."""
        if self._view_epochs is not None:
            epoch %= self._view_epochs
        return epoch if epoch < self._file.shape.epochs else None

    def _has(self, epoch: int, indices: Indices) -> bool:
        place = self._epoch(epoch)
        return place is not None and bool(self._file.read(place, indices)[1].all())


def open_cache(
    config: RunConfig,
    pipeline: Pipeline,
    inputs: Inputs,
    digests: Sequence[str],
    epochs: int,
    say: Callable[[str], None],
) -> CacheFile:
    """The file of a configuration's cache; `epochs` are those of the run. `say` prints its size, before it is taken."""
    distill, source = config.distill, pipeline.source
    assert distill.cache is not None
    _refuse_other_views(config)
    classes = len(source.classes)
    kept = None if distill.cache_top_k is None else min(distill.cache_top_k, classes)
    shape = CacheShape(distill.view_epochs or epochs, len(source), len(digests), classes, kept)
    terms = terms_of(config, pipeline, "the trainer")
    identity = {
        "weights of the teachers": list(digests),
        **{name: value for name, value in terms.items() if name not in _NO_IDENTITY},
        "augment.erase": config.augment.erase,
        "distill.resize": distill.resize,
        "mean": inputs.mean,
        "std": inputs.std,
        "teachers compute in": str(inputs.settings.dtype).removeprefix("torch."),
        "teachers send": distill.precision if distill.served else "fp32",
    }
    is_new = not (distill.cache / HEADER).exists()
    if is_new:
        say(f"cache: {shape}, in {distill.cache}")
    file = open_file(distill.cache, shape, identity, any_epochs=distill.view_epochs is None)
    if not is_new:
        say(f"cache: {file.shape}, in {distill.cache}, as it was there")
    return file


def _refuse_other_views(config: RunConfig) -> None:
    """Refuse what makes a sample's view depend on more than its epoch and its number."""
    reasons = {
        "augment.mixup": (config.augment.mixup, "it mixes the samples of a batch, which others surround in each epoch"),
        "augment.cutmix": (
            config.augment.cutmix,
            "it mixes the samples of a batch, which others surround in each epoch",
        ),
        "train.sizes": (config.train.sizes, "the images of a sample have other sizes at other steps"),
        "data.sampling": (config.data.sampling != "shuffle", "a sample that is drawn twice has two views in an epoch"),
        "distill.unlabeled": (config.distill.unlabeled, "images without labels have no numbers of their own"),
    }
    for setting, (used, why) in reasons.items():
        if used:
            raise UserError(
                f"distill.cache does not go together with {setting}",
                why=why,
                remedy=f"leave {setting} out; or leave distill.cache out and use teacher processes: --teachers 1",
            )
