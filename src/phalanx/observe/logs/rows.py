"""Logs of rows, one for each epoch: a column is a curve."""

from collections.abc import Mapping, Sequence

from phalanx.observe.curves import Log
from phalanx.observe.logs.names import as_accuracy, curve_names, is_accuracy, number

Row = Mapping[str, object]
PLACES = ("epoch", "epoch_num", "step", "global_step")  # columns that say where, and are no curves


def rows_log(
    label: str,
    rows: Sequence[Row],
    epochs: Sequence[float | None],
    *,
    steps: Sequence[float | None] | None = None,
    percent: bool | None = None,
    tags: Mapping[str, str] | None = None,
) -> Log:
    """The curves of rows. `epochs` are done when a row is written. `percent` says whether accuracies are.

    Where it is None, accuracies are percent if one of them is above 1.
    """
    log = Log(label)
    names = dict.fromkeys(name for row in rows for name in row if name not in PLACES)
    for name, curve in curve_names(names, tags).items():
        values = [number(row.get(name)) for row in rows]
        scale = 1.0
        if is_accuracy(curve):
            whole = percent if percent is not None else max((v for v in values if v is not None), default=0) > 1
            scale = 1.0 if whole else 100.0
        for place, value in enumerate(values):
            if value is not None:
                shown, scaled = as_accuracy(curve, scale * value)
                log.add(shown, scaled, epoch=epochs[place], step=steps[place] if steps else None)
    return log


def left_out(count: int, what: str) -> list[str]:
    """A note about damaged lines or rows, if there are any."""
    if not count:
        return []
    return [f"1 damaged {what} is left out" if count == 1 else f"{count:,} damaged {what}s are left out"]
