"""WebDataset: tar archives in which the members of a sample share a name up to its first dot: 17.jpg, 17.cls."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phalanx.config.text import read_json
from phalanx.data.decode.images import BadImage
from phalanx.data.sources.folders import IMAGE_ENDINGS
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.classes import BadLabel, number_label, one_of, refuse_names, text_label
from phalanx.data.sources.shards.index import AnyLabel, Index, IndexBuilder, Label
from phalanx.data.sources.shards.indexing import Reader, Shard
from phalanx.data.sources.shards.label_sets import any_set, written_label, written_set
from phalanx.data.sources.shards.shard_source import ShardSource, describe, open_shards
from phalanx.data.sources.shards.tar import Member, member_at, member_runs
from phalanx.data.sources.shards.tar_headers import BLOCK, FOLDER
from phalanx.data.sources.shards.tar_samples import Samples, is_usual, unusual
from phalanx.data.sources.shards.unpack import readable_shards
from phalanx.data.sources.window import Damaged, Window

IMAGES = frozenset(ending.decode().removeprefix(".") for ending in IMAGE_ENDINGS)
LABEL_KEYS = ("label", "cls", "class")  # in a .json
SEVERAL_KEYS = ("labels", "classes")  # where a sample may have several
LARGEST_LABEL_FILE = 1 << 20
SHORT = 64  # bytes of a label that is worth remembering
OTHER, IMAGE, LABEL, LABEL_IN_JSON = range(4)  # what a member is


def open_webdataset(paths: list[Path], request: OpenRequest) -> ShardSource:
    """One dataset from tar archives, plain or gzipped."""
    config = request.config
    reader = TarReader(config.image_field, config.label_field, config.label_element, config.multi_label)
    return open_shards(describe("WebDataset", paths), readable_shards(paths), reader, request)


@dataclass(frozen=True)
class TarReader(Reader):
    """Samples of WebDataset archives. A field is an ending (`jpg`, `cls`); a label may also be a key of the .json."""

    image_field: str | None
    label_field: str | None
    label_element: int | None
    multi_label: bool = False

    @property
    def fingerprint(self) -> str:
        labels = "multi_label" if self.multi_label else f"label_element={self.label_element}"
        return f"webdataset image={self.image_field!r} label={self.label_field!r} {labels}"

    def scan(self, window: Window, builder: IndexBuilder) -> None:
        samples = Samples(window.path, builder)
        role_of = functools.lru_cache(1024)(self._role)  # members have few endings
        try:
            for run in member_runs(window):
                for member in run:
                    if member.kind == FOLDER:
                        continue
                    key, ending = _key_and_ending(member.name)
                    text, role = role_of(ending)
                    if role == OTHER:
                        if text:
                            samples.others[text] += 1
                        continue
                    if not is_usual(member):
                        raise unusual(window.path, member)
                    if role == IMAGE:
                        samples.add_image(key, text, member)
                    elif (label := self._label(window, member, role)) is not None:
                        samples.add_label(key, text, label)
        except Damaged:
            samples.close(whole=False)
            raise
        samples.close(whole=True)

    def _role(self, ending: bytes) -> tuple[str, int]:
        """(an ending in lower case, what the members with it are)."""
        text = ending.decode(errors="replace").lower()
        known = text.rpartition(".")[2] in IMAGES
        if known if self.image_field is None else text == _ending(self.image_field):
            return text, IMAGE
        if text == (_ending(self.label_field) or "cls"):
            return text, LABEL
        return text, LABEL_IN_JSON if text == "json" else OTHER

    def _label(self, window: Window, member: Member, role: int) -> AnyLabel | None:
        """The label in a member; None for a .json without one."""
        try:
            if member.size > LARGEST_LABEL_FILE:
                raise BadLabel(f"it has {member.size:,} bytes")
            data = window.bytes_at(member.offset, member.size, "a label")
            if role == LABEL_IN_JSON:
                return self._in_json(data.decode())
            if self.multi_label:
                return written_set(data.decode())
            return _short_label(data) if len(data) <= SHORT else written_label(data.decode())
        except (BadLabel, UnicodeDecodeError) as error:
            bad = error if isinstance(error, BadLabel) else BadLabel("it is not UTF-8 text")
            raise bad.of(f"{member.shown_name} (offset {member.offset:,} of {window.path})") from error

    def _in_json(self, text: str) -> AnyLabel | None:
        try:
            found = read_json(text)
        except ValueError as error:
            raise BadLabel(f"it is not JSON: {error}") from error
        usual = (*LABEL_KEYS, *SEVERAL_KEYS) if self.multi_label else LABEL_KEYS
        keys = usual if self.label_field is None else (self.label_field,)
        value = next((found[key] for key in keys if key in found), None) if isinstance(found, dict) else None
        if self.multi_label:
            labels = found if isinstance(found, list) else value
            return None if labels is None else any_set(labels)
        if value is None:
            return None
        if isinstance(value, str):
            return text_label(value)
        values = value if isinstance(value, list) else [value]
        refuse_names(values if all(isinstance(name, str) for name in values) else [])
        if not all(isinstance(number, (int, float)) for number in values):
            raise BadLabel(f"{str(value)[:40]!r} is neither a number nor a name")
        return number_label(one_of(values, self.label_element))

    def finish(self, shard: Shard, builder: IndexBuilder) -> Index:
        return builder.index().in_file_order()

    def image(self, stored: bytes, mark: int) -> bytes:
        return stored

    def title(self, number: int, offset: int, mark: int, read: Callable[[int, int], bytes]) -> str:
        """The member's name, read from its header again: a million names would need more memory than the index."""
        try:
            member = member_at(lambda place, count, what: read(place, count), offset - mark * BLOCK)
        except (Damaged, BadImage, OSError):
            return super().title(number, offset, mark, read)
        return f": {member.shown_name}"


@functools.cache
def _ending(field: str | None) -> str:
    """A field as the ending of a name: lower case, without a dot."""
    return (field or "").lower().lstrip(".")


@functools.lru_cache(4096)
def _short_label(data: bytes) -> Label:
    """The label in a short .cls: members of a class have the same one."""
    return written_label(data.decode())


def _key_and_ending(name: bytes) -> tuple[bytes, bytes]:
    """A member's name up to the first dot after the folder, and the rest."""
    base = name.rfind(b"/") + 1
    dot = name.find(b".", base)
    if dot <= base:  # no ending; or hidden files, such as those that macOS adds
        return name, b""
    return name[:dot], name[dot + 1 :]
