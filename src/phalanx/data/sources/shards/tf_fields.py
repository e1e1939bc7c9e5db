"""Which features of a tf.train.Example hold the image and the label, found in the first records of a dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.config.schema import DataConfig
from phalanx.data.sources.find_layout import NoImage
from phalanx.data.sources.shards.classes import one_hot_class
from phalanx.data.sources.shards.tf_example import Feature, bytes_of, kind_of, numbers_of
from phalanx.data.sources.shards.tf_pixels import PixelFields, pixel_fields
from phalanx.errors import UserError

Example = Mapping[str, Feature]

SLIM_LABEL = "image/class/label"
# In the order in which they are tried; upper and lower case are the same.
IMAGE_FIELDS = (
    *("image/encoded", "image", "image_raw", "image/image_raw", "image/raw", "img", "img_raw", "image_bytes"),
    *("image/bytes", "image/data", "image_data", "raw_image", "jpg", "jpeg", "png", "jpg_bytes", "jpeg_bytes"),
    *("encoded", "image_encoded", "encoded_image", "image_string", "images", "picture", "photo", "pixels", "raw"),
    *("data", "x", "inputs", "input", "features"),
)
LABEL_FIELDS = (
    *(SLIM_LABEL, "label", "labels", "class", "image/label", "image/class", "image_label", "img_label", "class_label"),
    *("label_id", "class_id", "cls", "target", "targets", "category", "category_id", "fine_label", "y", "output"),
    *("image/class/text", "class_name", "label_name", "class_text", "image/object/class/label"),
)
NAME_FIELDS = ("image/class/synset", "image/class/text")  # TF-Slim's names of a label
MAX_NAMED = 12  # of the fields, in a message


@dataclass(frozen=True)
class Fields:
    """The features to read."""

    image: str
    label: str
    class_name: str | None = None
    one_hot: int = 0  # the length of labels that are a one among zeros; 0: they are numbers or names
    pixels: PixelFields | None = None  # None: images are compressed
    note: str = ""  # what was found, for the user


def find_fields(where: str, examples: Sequence[Example], config: DataConfig) -> Fields:
    """The fields of the image and the label: from the settings, by their usual names, or the only one with images."""
    image, pixels, kind = _image(where, examples, config)
    label = _label(where, examples, config, image)
    labels = [example[label] for example in examples if label in example]
    one_hot = 0 if config.label_element is not None or config.multi_label else _one_hot(labels)
    named = [name for name in NAME_FIELDS if any(any(bytes_of(each[name])) for each in examples if name in each)]
    others = sorted({name for example in examples for name in example} - {image, label})
    found = f"fields: image = {image} ({kind}), label = {label}" + (f" (one-hot, {one_hot} classes)" if one_hot else "")
    return Fields(
        image,
        label,
        named[0] if named and label == SLIM_LABEL else None,
        one_hot,
        pixels,
        found + (f"; also in the records: {_some(others)}" if others else ""),
    )


def _image(where: str, examples: Sequence[Example], config: DataConfig) -> tuple[str, PixelFields | None, str]:
    """(the field, how its pixels are read or None if they are compressed, what it holds in words)."""
    names = _present(config.image_field, IMAGE_FIELDS, examples)
    reasons: dict[str, NoImage] = {}
    for name in names:
        try:
            pixels, kind = pixel_fields(name, examples, config)
            return name, pixels, kind
        except NoImage as error:
            reasons[name] = error
    if config.image_field is None and (found := _only_compressed(examples, config, set(names))):
        return found
    if not reasons:
        raise _not_found(where, "image", config.image_field, examples)
    name, reason = next(iter(reasons.items()))
    raise UserError(
        f"the field {name!r} of {where} holds no image that can be read",
        why=f"{reason.why}. The fields are {described(examples)}",
        remedy=reason.remedy or "name the field of the image with data.image_field",
    ) from reason


def _only_compressed(
    examples: Sequence[Example], config: DataConfig, tried: set[str]
) -> tuple[str, PixelFields | None, str] | None:
    """The only field of an unusual name that holds compressed images."""
    found = []
    for name in sorted({name for example in examples for name in example} - tried):
        try:
            pixels, kind = pixel_fields(name, examples, config)
        except NoImage:
            continue
        if pixels is None:
            found.append((name, pixels, kind))
    return found[0] if len(found) == 1 else None


def _label(where: str, examples: Sequence[Example], config: DataConfig, image: str) -> str:
    names = [name for name in _present(config.label_field, LABEL_FIELDS, examples) if name != image]
    if not names:
        raise _not_found(where, "label", config.label_field, examples)
    return names[0]


def _present(chosen: str | None, usual: Sequence[str], examples: Sequence[Example]) -> list[str]:
    """The field that the user chose, or those of usual names; without those that list nothing."""
    filled = {name for example in examples for name, value in example.items() if kind_of(value) != "nothing"}
    if chosen is not None:
        return [chosen] if chosen in filled else []
    by_lower = {name.lower(): name for name in sorted(filled, reverse=True)}
    return [by_lower[name] for name in usual if name in by_lower]


def _one_hot(labels: Sequence[Feature]) -> int:
    """The length of one-hot labels, if all are of the same length and have a single one."""
    lists = [numbers_of(label) for label in labels]
    lengths = {len(values) for values in lists}
    if len(lengths) != 1 or any(one_hot_class(values) is None for values in lists):
        return 0
    return lengths.pop()


def _not_found(where: str, what: str, chosen: str | None, examples: Sequence[Example]) -> UserError:
    usual = f"under a usual name ({', '.join((IMAGE_FIELDS if what == 'image' else LABEL_FIELDS)[:5])} …)"
    shape = "; raw pixels may need their shape, as data.image_shape=[28,28,1]" if what == "image" else ""
    return UserError(
        f"{where} has no {what} {usual if chosen is None else f'under {chosen}'}",
        why=f"the fields of its records are {described(examples)}",
        remedy=f"name the field with data.{what}_field{shape}",
    )


def described(examples: Sequence[Example]) -> str:
    """The fields of records, with the kind and length of each, for a message."""
    first: dict[str, Feature] = {}
    for example in examples:
        for name, value in example.items():
            if name not in first or kind_of(first[name]) == "nothing":
                first[name] = value
    shown = [f"{name[:60]!r} ({_kind(value)})" for name, value in sorted(first.items())]
    return _some(shown) or "none"


def _kind(feature: Feature) -> str:
    texts, kind = bytes_of(feature), kind_of(feature)
    if kind == "bytes" and len(texts) == 1:
        return f"{len(texts[0]):,} bytes"
    count = len(texts) or len(numbers_of(feature))
    return (
        kind if kind == "nothing" else f"{count:,} {'texts' if kind == 'bytes' else kind[: -1 if count == 1 else None]}"
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (f" … ({len(names)} in all)" if len(names) > MAX_NAMED else "")
