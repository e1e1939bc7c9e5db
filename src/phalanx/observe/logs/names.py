"""What other systems call their numbers: from a tag, column or key to the name of a curve here."""

import math
import re
from collections.abc import Iterable, Mapping

VALIDATION = ("val", "valid", "validation", "eval", "evaluation", "test", "testing", "dev")
TRAINING = ("train", "training")
_KERAS = r"(?:epoch|batch)_(?=loss|acc|sparse|categorical|top|lr|learning)"  # begins its tags so
# Patterns of the rest of a name, the best first. An error is 100 % less the accuracy.
_METRICS = {
    "top1": (
        r"top_?1(_?acc(uracy)?)?",
        r"(acc(uracy)?|prec(ision)?)_?1",
        r"acc(uracy)?",
        r"(sparse_|binary_)?categorical_accuracy",
    ),
    "top5": (
        r"top_?5(_?acc(uracy)?)?",
        r"(acc(uracy)?|prec(ision)?)_?5",
        r"top_k_accuracy_5",
        r"(sparse_)?top_(k|5)_categorical_accuracy",
        r"top_5_accuracy",
    ),
    "error1": (r"(err(or)?|wrong)_?top_?1", r"top_?1_?err(or)?", r"err(or)?(_?rate)?", r"incorrect"),
    "error5": (r"(err(or)?|wrong)_?top_?5", r"top_?5_?err(or)?"),
    "loss": (
        r"loss",
        r"(softmax_?)?(x|cross)_?entropy(_?loss)?",
        r"nll(_?loss)?",
        r"ce_?loss",
        r"total_?(loss|cost)",
        r"cost",
        r"loss_\d+",
    ),
    "lr": (r"lr(\(\w+\))?", r"learning_?rate", r"(lr|learning_?rate)_(0|group_?0|pg_?0)", r"lr_\w+"),
}


def part_of(name: str) -> tuple[str, str]:
    """`val-error-top1` → (val, error_top1): whether a name is of validation or of training, and the rest of it."""
    words = [word for word in re.split(r"[/_\-.@: ]+", name.lower()) if word]
    if words[-2:] == ["vs", "iterations"]:  # Keras again
        words = words[:-2]
    part = "train"
    for place in (0, -1):
        if len(words) > 1 and words[place] in VALIDATION:
            part = "val"
            del words[place]
        elif len(words) > 1 and words[place] in TRAINING:
            del words[place]
    return part, re.sub(rf"^{_KERAS}", "", "_".join(words))


def metric_of(rest: str) -> tuple[str, int] | None:
    """The metric that the rest of a name says, and how sure that is: 0 is best. None if it is another."""
    for metric, patterns in _METRICS.items():
        for rank, pattern in enumerate(patterns):
            if re.fullmatch(pattern, rest):
                return metric, rank
    return None


def curve_names(names: Iterable[str], chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """For each name its curve: `train/loss`, `val/top1` …; errors are `val/error1`; any other keeps its own name.

    Of several names for one curve the most usual one has it. `chosen` says which name a curve has.
    """
    names, chosen = list(names), chosen or {}
    best: dict[str, tuple[int, str]] = {}
    for name in names:
        part, rest = part_of(name)
        if found := metric_of(rest):
            metric, rank = found
            curve = f"train/{metric}" if metric == "lr" else f"{part}/{metric}"
            if curve not in best or rank < best[curve][0]:
                best[curve] = rank, name
    # where both are logged, the accuracy needs no error
    needless = {curve.replace("/top", "/error") for curve in best if "/top" in curve}
    taken = {name: curve for curve, (_, name) in best.items() if curve not in chosen and curve not in needless}
    for curve, name in chosen.items():
        taken[name] = curve
    own = {name: "/".join(part_of(name)) for name in names if name not in taken}
    for name, curve in own.items():
        taken[name] = f"{curve} ({name})" if curve in best or curve in chosen else curve
    return {name: taken[name] for name in names}


def number(text: object) -> float | None:
    """A finite number, or None."""
    try:
        value = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def is_accuracy(curve: str) -> bool:
    return bool(re.fullmatch(r"(train|val)/(top|error)\d+", curve))


def as_accuracy(curve: str, percent: float) -> tuple[str, float]:
    """An error as an accuracy; any other curve as it is."""
    part, _, metric = curve.partition("/")
    return (f"{part}/top{metric[5:]}", 100 - percent) if metric.startswith("error") and metric[5:] else (curve, percent)
