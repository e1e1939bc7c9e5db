"""The samples of a WebDataset archive, assembled from its members in any order."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.data.sources.shards.index import LARGEST_SAMPLE, AnyLabel, IndexBuilder
from phalanx.data.sources.shards.tar import SPARSE, Member
from phalanx.data.sources.shards.tar_headers import BLOCK, FILES
from phalanx.errors import UserError

REGULAR = b"0"
MAX_HEADERS = BLOCK << 16  # bytes; an index counts their blocks in 16 bits
MAX_INCOMPLETE = 200_000  # samples that may wait for their other members


@dataclass(slots=True)
class Sample:
    """The members of a sample so far, by the endings of their names."""

    key: bytes
    images: dict[str, Member] = field(default_factory=dict)
    labels: dict[str, AnyLabel] = field(default_factory=dict)


class Samples:
    """Adds each sample to an index when it has an image and a label.

    Members of a sample usually follow one another. An incomplete one waits for members later in the file.
    """

    def __init__(self, path: Path, builder: IndexBuilder) -> None:
        self.others = Counter[str]()  # endings of members that are neither image nor label
        self._path, self._builder = path, builder
        self._current = Sample(b"")
        self._incomplete: dict[bytes, Sample] = {}

    def add_image(self, key: bytes, ending: str, member: Member) -> None:
        sample = self._sample(key)
        if ending in sample.images:
            raise UserError(
                f"{self._path} has {member.shown_name} twice in one sample",
                why=f"the second one is at offset {member.offset:,}, and it is not clear which one to use",
                remedy="give each sample its own name",
            )
        sample.images[ending] = member

    def add_label(self, key: bytes, ending: str, label: AnyLabel) -> None:
        self._sample(key).labels[ending] = label

    def close(self, *, whole: bool) -> None:
        """End the last sample, and note incomplete ones. In an undamaged file, images without labels are refused."""
        self._end(self._current)
        waiting = self._incomplete.values()
        without_label = [member for sample in waiting for member in list(sample.images.values())[:1]]
        if len(self._incomplete) > len(without_label):
            count = len(self._incomplete) - len(without_label)
            self._builder.notes.append(f"{count:,} labels without an image are left out{self._also_there()}")
        if without_label and whole:
            raise UserError(
                f"{len(without_label):,} images of {self._path} have no label, first {without_label[0].shown_name}",
                why="a label is a .cls or .json (label, cls or class; with data.multi_label=true also labels) "
                f"of the same name{self._also_there()}",
                remedy="name the ending, or the key of the .json, with data.label_field; or add the labels",
            )
        if not len(self._builder) and not self._incomplete:
            self._builder.notes.append(f"no member has the ending of an image or label{self._also_there()}")

    def _sample(self, key: bytes) -> Sample:
        if key != self._current.key:
            self._end(self._current)
            self._current = self._incomplete.pop(key) if key in self._incomplete else Sample(key)
        return self._current

    def _end(self, sample: Sample) -> None:
        if sample.images and sample.labels:
            if len(sample.images) == len(sample.labels) == 1:  # as nearly all have
                (image,), (label,) = sample.images.values(), sample.labels.values()
            else:
                image, label = self._image_of(sample), _label_of(sample)
            self._builder.add(image.offset, image.size, label, (image.offset - image.start) // BLOCK)
        elif sample.images or sample.labels:
            self._incomplete[sample.key] = sample
            if len(self._incomplete) > MAX_INCOMPLETE:
                raise UserError(
                    f"{self._path} has {MAX_INCOMPLETE:,} samples with only an image or only a label",
                    why=f"the first one is {next(iter(self._incomplete)).decode(errors='replace')}{self._also_there()}",
                    remedy="keep the members of a sample together, and name the label with data.label_field",
                )

    def _image_of(self, sample: Sample) -> Member:
        """The sample's only image; of several, the only one without a second dot in its name."""
        images = sample.images
        plain = [ending for ending in images if "." not in ending] or list(images)
        if len(plain) > 1:
            name = next(iter(images.values())).shown_name
            raise UserError(
                f"a sample of {self._path} has {len(plain)} images: {name}",
                why=f"they end in {', '.join(plain)}, and it is not clear which one to use",
                remedy=f"choose one with data.image_field, such as data.image_field={plain[0]}",
            )
        return images[plain[0]]

    def _also_there(self) -> str:
        endings = ", ".join(f".{ending[:40]} ({count:,})" for ending, count in self.others.most_common(5))
        return f"; other members end in {endings}" if endings else ""


def _label_of(sample: Sample) -> AnyLabel:
    """A member with only the label takes precedence over a .json."""
    return next((label for ending, label in sample.labels.items() if ending != "json"), None) or sample.labels["json"]


def is_usual(member: Member) -> bool:
    """Whether an image or label is a regular file, of a size that an index can hold."""
    start, offset, size, _, kind = member
    return size <= LARGEST_SAMPLE and offset - start < MAX_HEADERS and (kind == REGULAR or kind in FILES)


def unusual(path: Path, member: Member) -> UserError:
    """The refusal of an image or label that is not."""
    what = {SPARSE: "sparse", b"1": "a hard link", b"2": "a symbolic link"}.get(member.kind, "not a regular file")
    if member.kind in FILES:
        what = f"{member.size:,} bytes long"
    return UserError(
        f"{path}: {member.shown_name} is {what}",
        why="images and labels are read at their offsets in the archive",
        remedy="pack the archive again, with tar's --hard-dereference --dereference and without --sparse",
    )
