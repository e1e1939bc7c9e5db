"""The packing job: splits into shards, in the source's order, the same bytes for any number of threads.

A shard counts when pack.json names it, after it was written atomically. So a job that died at any moment goes on after
its last finished shard, and unfinished files are never taken for data.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from phalanx.atomic import write_text_atomically
from phalanx.config.schema import DataConfig
from phalanx.data.pack.class_folders import refuse_alike, refuse_as_folders
from phalanx.data.pack.destination import interrupted, locked, refuse_foreign, sweep, unwritable
from phalanx.data.pack.fingerprint import fingerprint
from phalanx.data.pack.images import Treatment, smaller_size
from phalanx.data.pack.packing import MULTI_LABEL, Packing, ShardName, beside, packing
from phalanx.data.pack.parquet import pyarrow_modules
from phalanx.data.pack.plan import Prepared, planned_shards, prepared_sample, shard_ends
from phalanx.data.sources.bad_images import BadImages, verify_command
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.manifest import CLASSES, LeftOut, Manifest, Options, Shard, save_manifest
from phalanx.data.sources.packed_folders import listed_images
from phalanx.data.sources.stamp import Stamp
from phalanx.errors import UserError
from phalanx.observe.tables import printable

AHEAD_PER_THREAD = 4  # samples prepared before they are written


@dataclass(frozen=True)
class Order:
    """What to pack: the splits of a source, under the same classes; and the command that resumes the job."""

    source: str
    splits: Mapping[Part, Labelled]
    options: Options
    config: DataConfig
    command: str
    places: tuple[Path, ...]  # files and folders that it was found in


def pack(order: Order, folder: Path, *, threads: int, advance: Callable[[int], None]) -> Manifest:
    """Pack into a new or empty folder, or resume the same job. `advance` is called with the number of samples done."""
    refuse_unpackable(order)
    wanted = _new_manifest(order)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder), ThreadPoolExecutor(threads, thread_name_prefix="pack") as pool:
            refuse_foreign(folder)
            manifest = interrupted(folder, wanted)
            prepared = _packing(order, wanted)
            if manifest is None:
                manifest = wanted
                manifest.planned = planned_shards(order.splits, order.options, prepared, pool)
                save_manifest(folder, manifest)
            if order.options.form == "folder":
                refuse_alike(folder, manifest.classes)
            _Job(folder, order, prepared, manifest, pool, AHEAD_PER_THREAD * threads, advance).run()
    except OSError as error:
        raise unwritable(folder, error) from error
    return manifest


@dataclass
class _Job:
    folder: Path
    order: Order
    packing: Packing
    manifest: Manifest
    pool: ThreadPoolExecutor
    ahead: int
    advance: Callable[[int], None]

    def run(self) -> None:
        for part, source in self.order.splits.items():
            config = self.order.config
            verify = verify_command(config) if config.source == self.order.source else None
            bad = BadImages(source, config.bad_images, config.bad_images_cap, verify=verify)
            self._restore(part, bad)
            self._go_on(part, bad)
        if not self.manifest.finished:
            for name, text in beside(self.manifest).items():
                write_text_atomically(self.folder / name, text)
            sweep(self.folder)
            self.manifest.finished = True
            save_manifest(self.folder, self.manifest)

    def _restore(self, part: Part, bad: BadImages) -> None:
        """Skip the shards that exist, and make missing ones again."""
        for number, shard in enumerate(self.manifest.splits[part]):
            bad.seen.update(left.index for left in shard.left_out)
            if self._is_there(shard):
                self.advance(shard.end - shard.first)
                continue
            samples = self._prepared(part, shard.first)
            again = self._write(part, number, shard.first, shard.end, None, samples, bad)
            if again.files != shard.files:
                for file in again.files:
                    (self.folder / file.name).unlink()
                raise UserError(
                    f"{shard.files[0].name} cannot be made again as it was",
                    why="its samples have other bytes than when it was packed",
                    remedy="pack into another folder",
                )

    def _is_there(self, shard: Shard) -> bool:
        """Whether the files of a shard exist, and have their lengths."""
        if not all(_has_size(self.folder / file.name, file.bytes) for file in shard.files):
            return False
        if shard.image_bytes is None:
            return True
        sizes = (Stamp.of(self.folder / name).size for _, name in listed_images(self.folder, [shard]))
        return sum(sizes) == shard.image_bytes  # a missing one has the size -1

    def _go_on(self, part: Part, bad: BadImages) -> None:
        shards = self.manifest.splits[part]
        start = shards[-1].end if shards else 0
        samples = self._prepared(part, start)
        by_size = self.order.options.shards is None and not self.packing.says_how_many
        enough = self.packing.shard_bytes if by_size else None
        for end in shard_ends(self.order.splits, self.order.options, part, self.manifest.planned.get(part)):
            while start < end:
                shards.append(self._write(part, len(shards), start, end, enough, samples, bad))
                save_manifest(self.folder, self.manifest)
                start = shards[-1].end

    def _write(
        self,
        part: Part,
        number: int,
        first: int,
        end: int,
        enough: int | None,
        samples: Iterator[Prepared],
        bad: BadImages,
    ) -> Shard:
        """One shard: the samples up to `end`, or until it has `enough` bytes."""
        labels = self.order.splits[part].labels
        before = sum(shard.samples for shard in self.manifest.splits[part][:number])
        shard = Shard(first=first, end=first, samples=0, files=[])
        writer = self.packing.shard(ShardName(self.folder, part, number, self.manifest.planned.get(part)))
        try:
            while shard.end < end and (enough is None or writer.size < enough):
                sample = next(samples)
                if sample.reason is None:
                    label = labels[sample.index]
                    writer.add(before + shard.samples, label if label.ndim else int(label), sample.data)
                    shard.samples += 1
                else:
                    for name, reason in bad.count([(sample.index, sample.reason)]):
                        left = LeftOut(index=sample.index, name=printable(name), reason=printable(reason))
                        shard.left_out.append(left)
                shard.end += 1
                self.advance(1)
            if self.order.options.form == "folder":
                shard.image_bytes = writer.size
            shard.files = writer.finish()
        except BaseException:
            writer.abandon()
            raise
        return shard

    def _prepared(self, part: Part, start: int) -> Iterator[Prepared]:
        """The samples from `start` on, in order, each prepared in a thread while others before it are written."""
        waiting = deque[Future[Prepared]]()
        try:
            for index in range(start, len(self.order.splits[part])):
                waiting.append(self.pool.submit(prepared_sample, self.packing, part, index))
                if len(waiting) > self.ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def refuse_unpackable(order: Order) -> None:
    """Refuse data that does not fit the format, before anything is written."""
    first = next(iter(order.splits.values()))
    if first.channels not in (1, 3):
        raise UserError(
            f"images of {first.channels} channels cannot be packed",
            why="image files are grey (1) or colour (3)",
            remedy="set data.channels to 1 or 3",
        )
    if first.multi_label and order.options.form not in MULTI_LABEL:
        raise UserError(
            f"samples with several labels cannot be packed as {order.options.form}",
            why="the format has one label a sample",
            remedy=f"choose another format: {', '.join(MULTI_LABEL)}",
        )
    odd = [name for name in first.classes if not _is_a_line(name)]
    if odd:
        raise UserError(
            f"the class {printable(odd[0])!r} cannot be written to {CLASSES}",
            why="a class is a line of UTF-8 there, without tabs and without blanks at its ends",
            remedy="rename the class",
        )
    if order.options.form == "folder":
        refuse_as_folders(first.classes)
    if order.options.form == "parquet":
        pyarrow_modules()
    largest = max(map(len, order.splits.values()))
    if order.options.shards is not None and order.options.shards > largest:
        raise UserError(
            f"{order.options.shards:,} shards cannot be made of {largest:,} samples",
            why="each shard needs one",
            remedy=f"at most --shards {largest}, or leave it out",
        )


def _is_a_line(name: str) -> bool:
    return bool(name) and name == name.strip() and name.isprintable()


def _new_manifest(order: Order) -> Manifest:
    first = next(iter(order.splits.values()))
    return Manifest(
        command=order.command,
        options=order.options,
        source=order.source,
        fingerprints={part: fingerprint(source, order.places) for part, source in order.splits.items()},
        classes=first.classes,
        multi_label=first.multi_label,
        channels=first.channels,
        image_size=first.image_size,
        mean=list(first.mean),
        std=list(first.std),
        extent=first.extent and smaller_size(first.extent, order.options.resize),
        splits={part: [] for part in order.splits},
    )


def _packing(order: Order, manifest: Manifest) -> Packing:
    options = order.options
    treatment = Treatment(
        options.resize, options.quality, manifest.channels, options.interpolation, options.exif_orientation
    )
    return packing(options.form, treatment, manifest.classes, order.splits)


def _has_size(file: Path, wanted: int) -> bool:
    return file.is_file() and file.stat().st_size == wanted
