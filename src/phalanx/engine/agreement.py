"""All workers of a job have the same settings and see the same data, or it is refused before the first step.

Our own launchers start all workers with one command. Others (torchrun, mpirun, srun, a script) may start each with
another one, on hosts whose data differ: the job would train, and what it learns would be nobody's.
"""

import hashlib
import json
import socket
from collections.abc import Collection
from typing import Any

from phalanx.config.resolve import flatten
from phalanx.config.schema import RunConfig
from phalanx.data.sources.open import Splits
from phalanx.engine.model_spec import ModelSpec
from phalanx.errors import UserError
from phalanx.exchange.rendezvous import Rendezvous
from phalanx.machine.job_settings import JOB_WIDE

# Each host's own: where things are, and how much of the machine is used. Data are compared by what is in them.
_OWN = {
    *("name", "data.source", "data.val", "data.val_labels", "data.quarantine"),
    *("data.threads", "data.prefetch", "data.service", "data.service_key", "data.service_fallback"),
    *("machine.device", "machine.gpus", "machine.threads", "machine.allocator"),
    *("train.log_dir", "train.curves", "code.origins"),
}


def refuse_other_settings(rendezvous: Rendezvous, config: RunConfig, worker: int) -> None:
    """Raise where a worker was started with another value of a setting than the first one. All workers call this."""
    settings = {key: value for key, value in flatten(config.model_dump(mode="json")).items() if key not in _OWN}
    digests = {**settings.pop("code.files"), **settings.pop("code.packages")}
    _refuse_other_code(rendezvous, digests, worker)
    # The run's file, from which one that joins later may have its settings, says what was settled since.
    job_settings = {f"machine.{name}" for name in JOB_WIDE}
    found = _first_difference(rendezvous, "settings", settings, worker, but_of_joiners=job_settings)
    if found is not None:
        key, told = found
        raise UserError(
            f"the workers of this job differ in {key}: {told}",
            why="each computes a part of every step, so all must have the same settings",
            remedy="start all of them with the same recipe, flags and settings",
        )


def _refuse_other_code(rendezvous: Rendezvous, digests: dict[str, str], worker: int) -> None:
    """The same for the user's own code, by file. All workers call this, also those without code."""
    found = _first_difference(rendezvous, "code", {name: digest[:12] for name, digest in digests.items()}, worker)
    if found is not None:
        name, told = found
        raise UserError(
            f"the workers of this job have different code in {name}: {told}",
            why="the numbers are the beginnings of its SHA-256; each computes a part of every step with it",
            remedy=f"copy the same {name} to all hosts; `phalanx launch` does that by itself",
        )


def refuse_other_data(rendezvous: Rendezvous, spec: ModelSpec, splits: Splits, worker: int) -> None:
    """Raise where a worker's data are not the first one's. All workers call this."""
    about = {
        "training images": len(splits.train),
        "validation images": len(splits.val),
        "classes": len(spec.classes),
        "names of the classes": hashlib.sha256("\0".join(spec.classes).encode()).hexdigest()[:12],
        "image size": spec.image_size,
        "channels": spec.channels,
        "mean": spec.mean,
        "deviation": spec.std,
    }
    found = _first_difference(rendezvous, "data", about, worker)
    if found is not None:
        key, told = found
        raise UserError(
            f"the hosts of this job do not have the same data: {key}: {told}",
            why="samples are divided by their numbers, so number N must be the same image everywhere",
            remedy="copy the data anew, or use a disk that all hosts share; `phalanx data info` tells what is there",
        )


def _first_difference(
    rendezvous: Rendezvous, topic: str, mine: dict[str, Any], worker: int, but_of_joiners: Collection[str] = ()
) -> tuple[str, str] | None:
    """What differs, and who says what. This worker need not be among those who met: it may have joined later."""
    here = json.dumps({"worker": worker, "host": socket.gethostname(), "says": mine})
    met = rendezvous.gather(topic, here)
    first = json.loads(met[0])
    for text in [*met[1:], here]:
        other, left_out = json.loads(text), () if text in met else but_of_joiners
        for key in {**first["says"], **other["says"]}:
            theirs, its = first["says"].get(key), other["says"].get(key)
            if theirs != its and key not in left_out:
                return key, "; ".join(
                    f"{value} for worker {one['worker']} on {one['host']}"
                    for value, one in ((theirs, first), (its, other))
                )
    return None
