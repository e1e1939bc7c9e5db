"""What the columns of a Hugging Face dataset are: described in the files, in dataset_info.json or in the README."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from phalanx.config.text import read_json, read_yaml
from phalanx.data.sources.shards.arrow_columns import is_nested
from phalanx.data.sources.shards.class_columns import class_columns, class_label
from phalanx.data.sources.shards.tables import described, pyarrow_for
from phalanx.errors import UserError

Features = Mapping[str, Mapping[str, Any]]  # by column: {"_type": "Image"}, {"_type": "ClassLabel", "names": […]}

IMAGE_COLUMNS = (
    *("image", "img", "images", "jpg", "jpeg", "png", "picture", "photo", "image_bytes", "image_data", "pixel_values"),
    *("pixels", "bytes", "data", "x", "image_path", "image_file", "file_path", "filepath", "path", "file_name"),
    *("filename", "file", "image_id"),
)
LABEL_COLUMNS = (
    *("label", "labels", "fine_label", "cls", "class", "class_id", "label_id", "target", "category", "category_id"),
    *("y", "class_label", "class_name", "label_name", "text_label", "species", "breed"),
)
README = "README.md"


def features_in(schema: Any) -> Features:
    """The features that a file's metadata describes; none if it describes none."""
    metadata = schema.metadata or {}
    try:
        found = read_json(metadata.get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def front_matter(folder: Path) -> dict[str, Any]:
    """The YAML at the beginning of a dataset's README; empty if there is none."""
    try:
        text = (folder / README).read_text(encoding="utf-8") if (folder / README).is_file() else ""
    except (OSError, UnicodeDecodeError):
        return {}
    lines = text.lstrip("\ufeff").split("\n")
    if lines[0].strip() != "---":
        return {}
    end = next((number for number, line in enumerate(lines[1:], start=1) if line.strip() == "---"), 0)
    try:
        found = read_yaml("\n".join(lines[1:end]))
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}


def features_of_readme(folders: Sequence[Path], config: str | None = None) -> Features:
    """The features that a README in one of these folders describes, of a configuration."""
    for folder in folders:
        found = front_matter(folder).get("dataset_info")
        infos = [info for info in (found if isinstance(found, list) else [found]) if isinstance(info, dict)]
        chosen = [info for info in infos if config is None or info.get("config_name", config) == config]
        if len(chosen) == 1 and isinstance(chosen[0].get("features"), list):
            return dict(filter(None, map(_feature, chosen[0]["features"])))
    return {}


def _feature(entry: Any) -> tuple[str, dict[str, Any]] | None:
    """A feature of a README in the form of the files: {"name": "label", "dtype": {"class_label": {"names": …}}}."""
    if not isinstance(entry, dict) or "name" not in entry:
        return None
    inner, name = entry.get("sequence", entry.get("list")), str(entry["name"])
    if isinstance(inner, dict) and (found := _feature({"name": name, "dtype": inner.get("dtype", inner)})):
        return name, {"_type": "List", "feature": found[1]}
    kind = entry.get("dtype")
    if kind == "image":
        return name, {"_type": "Image"}
    if isinstance(kind, dict) and isinstance(kind.get("class_label"), dict):
        names = kind["class_label"].get("names")
        if isinstance(names, dict):
            names = [names[key] for key in sorted(names, key=lambda key: int(key) if str(key).isdigit() else 0)]
        return name, {"_type": "ClassLabel", "names": names}
    return name, {"_type": "Value", "dtype": kind}


def image_column(where: str, schema: Any, features: Features, chosen: str | None) -> str:
    """The column of the image: the user's choice, the only one of type Image, by its name, or the only one of bytes."""
    _refuse_missing(where, schema, "image", chosen)
    of_type = _of_type(features, "Image", schema)
    by_content = [field.name for field in schema if _may_hold_images(schema, field)]
    return chosen or _one(where, schema, "image", of_type, IMAGE_COLUMNS, by_content)


def label_column(where: str, schema: Any, features: Features, chosen: str | None, *, lists: bool = False) -> str:
    """The column of the label: as the user says, the only one of ClassLabel (or `lists` of them), or by its name."""
    _refuse_missing(where, schema, "label", chosen)
    of_type = [name for name in class_columns(features, lists=lists) if name in schema.names]
    return chosen or _one(where, schema, "label", of_type, LABEL_COLUMNS, [])


def names_of(features: Features, column: str) -> list[str] | None:
    """The class names of a column; None if it has none."""
    names = class_label(features.get(column)).get("names")
    return [str(name) for name in names] if isinstance(names, list) and names else None


def _of_type(features: Features, kind: str, schema: Any) -> list[str]:
    return [
        name
        for name, feature in features.items()
        if isinstance(feature, Mapping) and feature.get("_type") == kind and name in schema.names
    ]


def _one(
    where: str, schema: Any, what: str, of_type: Sequence[str], usual: Sequence[str], by_content: Sequence[str]
) -> str:
    if len(of_type) == 1:
        return of_type[0]
    among = {name.lower(): name for name in (of_type or list(schema.names))}
    name = next((among[name] for name in usual if name in among), None)
    if name is None and len(by_content) == 1:
        return by_content[0]
    if name is None:
        kind = "Image" if what == "image" else "ClassLabel"
        raise UserError(
            f"nothing says which column of {where} is the {what}",
            why=f"its columns are {described(schema)}; of the type {kind}: {', '.join(of_type) or 'none'}",
            remedy=f"name it with data.{what}_field",
        )
    return name


def _may_hold_images(schema: Any, field: Any) -> bool:
    """Whether a column holds bytes, structures with bytes, or lists of lists of numbers."""
    arrow = pyarrow_for(Path(field.name))
    kind = field.type.storage_type if isinstance(field.type, arrow.BaseExtensionType) else field.type
    if arrow.types.is_struct(kind):
        return "bytes" in [inner.name for inner in kind]
    if is_nested(arrow, kind):
        return is_nested(arrow, kind.value_type)
    return bool(arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind))


def _refuse_missing(where: str, schema: Any, what: str, chosen: str | None) -> None:
    if chosen is not None and chosen not in schema.names:
        raise UserError(
            f"{where} has no column {chosen!r}",
            why=f"its columns are {described(schema)}",
            remedy=f"name the {what} with data.{what}_field",
        )
