"""A plan as plain data, for JSON."""

import json
import time
from pathlib import Path
from typing import Any

from phalanx.atomic import make_folder, write_text_atomically
from phalanx.errors import UserError
from phalanx.plan.plan import Plan
from phalanx.plan.predict import Prediction, Range
from phalanx.plan.report import assumptions
from phalanx.runs.folder import PLAN_FILE


def plan_data(plan: Plan) -> dict[str, Any]:
    constraint, offers = plan.constraint, plan.offers
    data: dict[str, Any] = {
        "recipe": plan.setup.config.name,
        "model": plan.setup.config.model.name,
        "precision": plan.setup.precision,
        "basis": plan.setup.basis,
        "cluster": plan.setup.cluster.model_dump(mode="json", exclude_unset=True),
        "rows": [prediction_data(each) for each in plan.rows],
        "best": prediction_data(plan.best),
        "constraint": {
            "kind": constraint.kind,
            "gain": constraint.gain,
            "since_workers": constraint.since,
            "why": constraint.sentence,
        },
        "command": plan.command,
        "notes": plan.notes,
        "assumed": assumptions(plan),
    }
    if offers is not None:
        data["goals"] = [str(goal) for goal in offers.goals]
        data["offers"] = [
            {**prediction_data(each), "frontier": each in offers.frontier, "chosen": each is offers.chosen}
            for each in offers.all
        ]
    return data


def save_plan(plan: Plan, run: Path) -> None:
    """Into the folder of a run that is planned, or that was run: the board shows it beside what is measured."""
    try:
        make_folder(run)
        text = json.dumps({**plan_data(plan), "made": time.time()}, indent=1)
        write_text_atomically(run / PLAN_FILE, text + "\n")
    except OSError as error:
        raise UserError(
            f"the plan cannot be kept in {run}",
            why=error.strerror or str(error),
            remedy="--out is the folder of a run, which `phalanx train --out` then fills",
        ) from error


def prediction_data(predicted: Prediction) -> dict[str, Any]:
    """One arrangement. Ranges are [expected, lowest, highest]."""
    arranged = predicted.arranged
    return {
        "workers": arranged.workers,
        "hosts": predicted.hosts,
        "method": predicted.job.method,
        "servers": arranged.servers if arranged.method == "pserver" else 0,
        "mode": arranged.mode,
        "compress": arranged.compress,
        "batch_size": predicted.job.batch,
        "images_per_step": predicted.job.images,
        "step_s": range_data(predicted.step_s),
        "parts_s": {part: range_data(found) for part, found in predicted.parts.items()},
        "busy": predicted.simulated.busy,
        "images_per_s": range_data(predicted.images_per_s),
        "speed_up": range_data(predicted.speed_up),
        "efficiency": range_data(predicted.efficiency),
        "worker_memory_bytes": predicted.worker_memory,
        "server_memory_bytes": predicted.server_memory,
        "hours": range_data(predicted.hours),
        "cost": range_data(predicted.cost),
    }


def range_data(found: Range | None) -> list[float] | None:
    return None if found is None else [found.expected, found.low, found.high]
