"""Before the first step, workers compare their settings and their data; a difference is refused.

Our own launchers give all workers the same configuration. Other launchers (torchrun, mpirun, srun, a script) may start
each worker with other flags, or on hosts whose data differ.
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

# May differ between hosts: paths, and how much of the machine is used. Data are compared by their content.
_OWN = {
    *("name", "data.source", "data.root", "data.val", "data.val_labels", "data.class_names", "data.quarantine"),
    *("data.remote_options", "data.cache_gb"),
    *("data.threads", "data.prefetch", "data.service", "data.service_key", "data.service_fallback"),
    *("machine.device", "machine.gpus", "machine.threads", "machine.allocator"),
    *("train.log_dir", "train.curves", "code.origins"),
    *("distill.teachers", "distill.digests", "distill.unlabeled", "distill.cache"),  # teachers: by their digests
    *("distill.service", "distill.service_key"),
    *("log.to", "log.project", "log.notify"),  # the first worker's count
}
# Where it is larger than the data, config.yaml has what it became; it is compared together with the data.
_BATCH = ("train.batch_size", "train.global_batch_size", "train.micro_batches")
_CODE = "code of "  # before the name of a file of the user's own code


def refuse_other_settings(rendezvous: Rendezvous, config: RunConfig, worker: int) -> None:
    """Refuse a worker whose settings differ from the first worker's. All workers call this."""
    settings = {key: value for key, value in flatten(config.model_dump(mode="json")).items() if key not in _OWN}
    digests = {**settings.pop("code.files"), **settings.pop("code.packages")}
    settings |= {f"{_CODE}{name}": digest[:12] for name, digest in digests.items()}
    # A worker that joins later may read its settings from config.yaml, where the job-wide ones are chosen already.
    chosen = {*(f"machine.{name}" for name in JOB_WIDE), *_BATCH}
    found = _first_difference(rendezvous, "settings", settings, worker, ignored_if_joining=chosen)
    if found is not None:
        key, values = found
        if key.startswith(_CODE):
            raise _other_code(key, values)
        raise UserError(
            f"the workers of this job differ in {key}: {values}",
            why="each computes a part of every step, so all must have the same settings",
            remedy="start all of them with the same recipe, flags and settings",
        )


def _other_code(key: str, values: str) -> UserError:
    name = key.removeprefix(_CODE)
    return UserError(
        f"the workers of this job have different code in {name}: {values}",
        why="the SHA-256 digests differ; each worker computes a part of every step with this code",
        remedy=f"copy the same {name} to all hosts; `phalanx launch` does that by itself",
    )


def refuse_other_data(
    rendezvous: Rendezvous, spec: ModelSpec, splits: Splits, samples_per_step: int, worker: int, unlabeled: int = 0
) -> None:
    """Refuse a worker whose data differ from the first worker's. All workers call this."""
    about = {
        "training images": len(splits.train),
        "validation images": len(splits.val),
        "images without labels": unlabeled,
        "classes": len(spec.classes),
        "names of the classes": hashlib.sha256("\0".join(spec.classes).encode()).hexdigest()[:12],
        "image size": spec.image_size,
        "channels": spec.channels,
        "mean": spec.mean,
        "deviation": spec.std,
        "samples of a step": samples_per_step,
    }
    found = _first_difference(rendezvous, "data", about, worker)
    if found is not None:
        key, values = found
        raise UserError(
            f"the hosts of this job do not have the same data: {key}: {values}",
            why="samples are divided by their numbers, so number N must be the same image everywhere",
            remedy="copy the data again, or use a shared disk; `phalanx data info` shows the data of a host",
        )


def _first_difference(
    rendezvous: Rendezvous, topic: str, mine: dict[str, Any], worker: int, ignored_if_joining: Collection[str] = ()
) -> tuple[str, str] | None:
    """The first key that differs from worker 0, with both values. A worker that joins later is compared, too."""
    here = json.dumps({"worker": worker, "host": socket.gethostname(), "values": mine})
    gathered = rendezvous.gather(topic, here)
    first = json.loads(gathered[0])
    for text in [*gathered[1:], here]:
        other, ignored = json.loads(text), () if text in gathered else ignored_if_joining
        for key in {**first["values"], **other["values"]}:
            theirs, its = first["values"].get(key), other["values"].get(key)
            if theirs != its and key not in ignored:
                return key, "; ".join(
                    f"{value} for worker {one['worker']} on {one['host']}"
                    for value, one in ((theirs, first), (its, other))
                )
    return None
