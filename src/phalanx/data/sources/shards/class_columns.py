"""Which columns of a Hugging Face dataset are class labels, or lists of them."""

from collections.abc import Mapping
from typing import Any

LISTS = ("Sequence", "List", "LargeList")


def class_label(feature: Any) -> Mapping[str, Any]:
    """The ClassLabel in a column's type: the type itself, or that of the elements of its lists; otherwise empty."""
    if isinstance(feature, list) and len(feature) == 1:  # of old versions of datasets
        feature = {"feature": feature[0], "_type": "List"}
    if not isinstance(feature, dict):
        return {}
    inner = feature.get("feature") if feature.get("_type") in LISTS else feature
    return inner if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" else {}


def class_columns(features: Mapping[str, Any], *, lists: bool) -> dict[str, Any]:
    """The ClassLabel of each column of lists of classes, or of classes; of the others where there are none."""
    found = {name: class_label(feature) for name, feature in features.items() if class_label(feature)}
    wanted = {name: kind for name, kind in found.items() if (features[name] is not kind) == lists}
    return wanted or found
