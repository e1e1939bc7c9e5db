"""Predicted beside measured: from a run, or from the JSON of `phalanx bench scaling`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from phalanx.errors import UserError
from phalanx.plan.cluster import Measured
from phalanx.plan.measured import Measurement, Row
from phalanx.plan.predict import predict
from phalanx.plan.setup import Arrangement, Setup


@dataclass(frozen=True)
class Checked:
    """A measured job and what was predicted of it, from the speed of one worker."""

    row: Row
    predicted: float  # images/s

    @property
    def error(self) -> float:
        """Above 0: the prediction is too fast."""
        return self.predicted / self.row.images_per_s - 1


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
        one = predict(replace(setup, config=config, cluster=cluster, times=None), arranged, ranges=False)
        checked.append(Checked(row, one.images_per_s.expected))
    return checked


def check_rows(checked: Sequence[Checked]) -> list[list[str]]:
    """Lines of a table."""
    return [
        [
            str(each.row.workers),
            str(Arrangement(each.row.workers, each.row.method, each.row.servers, each.row.mode, each.row.compress)),
            str(each.row.batch_size),
            f"{each.row.images_per_s:,.1f}",
            f"{each.predicted:,.1f}",
            f"{100 * each.error:+.0f} %",
        ]
        for each in checked
    ]
