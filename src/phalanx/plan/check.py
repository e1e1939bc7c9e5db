"""Predicted beside measured: from a run, or from the JSON of `phalanx bench scaling`."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.errors import UserError
from phalanx.plan.cluster import Measured
from phalanx.plan.measured import Measurement, Row, read_measurement
from phalanx.plan.predict import Range, predict
from phalanx.plan.setup import Arrangement, Setup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from phalanx.plan.text_table import TextTable


@dataclass(frozen=True)
class Checked:
    """A measured job and what was predicted of it, from the speed of one worker."""

    row: Row
    predicted: Range  # images/s

    @property
    def error(self) -> float:
        """Above 0: the prediction is too fast."""
        return self.predicted.expected / self.row.images_per_s - 1


@dataclass(frozen=True)
class Check:
    """Measured jobs beside their predictions."""

    rows: list[Checked]

    @property
    def median(self) -> float:
        """Of the errors without their sign: 0.1 is 10 %."""
        return statistics.median(abs(each.error) for each in self.rows)

    @property
    def largest(self) -> float:
        return max(abs(each.error) for each in self.rows)

    @property
    def text_table(self) -> "TextTable":
        from phalanx.plan.report import check_table

        return check_table(self)

    @property
    def summary(self) -> str:
        return f"median error {100 * self.median:.0f} %, largest {100 * self.largest:.0f} %"

    def table(self) -> str:
        """A line for each job, as text."""
        return str(self.text_table)

    def figure(self) -> "Figure":
        """Predicted against measured images/s: a matplotlib figure."""
        from phalanx.plan.figures import draw_check

        return draw_check(self)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        from phalanx.plan.data import range_data

        rows = [
            {
                **each.row.model_dump(mode="json"),
                "predicted_images_per_s": range_data(each.predicted),
                "error": each.error,
            }
            for each in self.rows
        ]
        return {"rows": rows, "median_error": self.median, "largest_error": self.largest}

    def __repr__(self) -> str:
        return f"{self.table()}\n{self.summary}"


def check_files(setup: Setup, paths: Sequence[Path]) -> Check:
    """Of runs' folders, and files of `phalanx bench scaling --json`."""
    return Check([each for path in paths for each in check(setup, read_measurement(path))])


def check(setup: Setup, found: Measurement) -> list[Checked]:
    """Predict each job of a measurement. Its own workers' speed is used: what is checked is the rest."""
    if not found.rows:
        raise UserError(
            "there is nothing to compare with",
            why="the measurement has no job of several workers",
            remedy="phalanx bench scaling --json FILE, or a run's folder",
        )
    checked = []
    for row in found.rows:
        alone = row.alone_images_per_s or found.images_per_s
        speed = Measured(images_per_s=alone, batch=row.batch_size) if alone else setup.cluster.speed
        per_host = setup.cluster.per_host
        hosts = max(1, -(-row.workers // per_host))
        cluster = setup.cluster.but(hosts=hosts, speed=speed.model_dump() if speed else None)
        if found.spread is not None and cluster.spread is None:
            cluster = cluster.but(spread=found.spread)
        train = setup.config.train.model_copy(update={"batch_size": row.batch_size, "global_batch_size": None})
        config = setup.config.model_copy(update={"train": train})
        arranged = Arrangement(row.workers, row.method, row.servers, row.mode, row.compress)
        one = predict(replace(setup, config=config, cluster=cluster, times=None), arranged)
        checked.append(Checked(row, one.images_per_s))
    return checked
