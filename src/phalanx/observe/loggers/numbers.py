"""The numbers of an event, by the names that all loggers use: train/loss, val/top1, system/cpu …"""

import math
from collections.abc import Mapping
from typing import Any

from phalanx.runs.events import TIMES, Record


def numbers_of(record: Record) -> dict[str, float]:
    """The numbers of an event as JSON; empty if it has none to draw."""
    kind = record["kind"]
    if kind == "step":
        return _named(
            {
                **_of_training("train", record),
                "train/lr": record["lr"],
                "train/epoch": record["epoch"] - 1 + record["batch"] / record["batches"],
                "train/grad_norm": record.get("grad_norm"),
                "speed/samples_per_s": record["samples_per_s"],
                **{f"speed/{name}_s": record.get(f"{name}_s") for name in TIMES},
                "speed/bytes_sent": record.get("bytes_sent") or None,
                "speed/bytes_received": record.get("bytes_received") or None,
                "speed/compression_ratio": record.get("compression_ratio"),
            }
        )
    if kind == "epoch":
        return _named(_of_training("epoch", record))
    if kind == "eval":
        k = record["k"]
        top_k = {f"val/top{k}": record["topk"]} if k > 1 else {}
        own = {f"val/{name}": value for name, value in record.get("metrics", {}).items()}
        return _named({"val/loss": record["loss"], "val/top1": record["top1"], **top_k, **own})
    if kind == "system":
        names = ("cpu", "process_cpu", "memory", "process_memory")
        gpus = {f"gpu{gpu.get('gpu', 0)}_{name}": gpu.get(name) for gpu in record["gpus"] for name in ("memory", "use")}
        return _named({f"system/{name}": value for name, value in ({n: record[n] for n in names} | gpus).items()})
    if kind == "callback":
        return _named({f"{record['name']}/{name}": value for name, value in record["values"].items()})
    if kind == "norms":
        return _named({f"norm/{which}": _norm(record[which]) for which in ("parameters", "gradients")})
    return _named({"speed/data_wait_share": record["wait_share"]}) if kind == "data_service" else {}


def _of_training(part: str, record: Record) -> dict[str, Any]:
    metrics = {f"{part}/{name}": value for name, value in record.get("metrics", {}).items()}
    return {f"{part}/{name}": record.get(name) for name in ("loss", "top1", "topk")} | metrics


def _norm(values: Mapping[str, float | None]) -> float:
    return math.sqrt(sum(value * value for value in values.values() if value is not None))


def _named(values: Mapping[str, Any]) -> dict[str, float]:
    """Those that are there: a number that was not finite is null in the file."""
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
