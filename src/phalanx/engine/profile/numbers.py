"""The numbers that advice is drawn from: means over the workers of a profile, and the settings that it ran with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.engine.profile.kinds import COPIES

Data = dict[str, Any]


@dataclass(frozen=True)
class Numbers:
    """Milliseconds of a step."""

    step: float
    parts: dict[str, float]
    kinds: dict[str, float]
    calls: float  # of operators
    waited: float  # for the slowest worker
    bytes_sent: float
    copied_in: str  # the layer with the most copies and casts; empty where they are outside of the model
    settings: Data
    slowest: Data | None

    @classmethod
    def of(cls, profile: Data) -> "Numbers":
        workers: Sequence[Data] = profile["workers"]
        names = {one["kind"] for worker in workers for one in worker["kinds"]}
        return cls(
            step=_mean([worker["ms"] for worker in workers]),
            parts={name: _mean([worker["parts"][name] for worker in workers]) for name in workers[0]["parts"]},
            kinds={name: _mean([_of_kind(worker, name) for worker in workers]) for name in names},
            calls=sum(one["calls"] for one in workers[0]["kinds"]),
            waited=_mean([worker["waited_ms"] or 0.0 for worker in workers]),
            bytes_sent=_mean([worker["bytes_sent"] for worker in workers]),
            copied_in=_copied_in(workers[0]["tree"]),
            settings=profile["settings"],
            slowest=profile["slowest"],
        )

    def kind(self, name: str) -> float:
        return self.kinds.get(name, 0.0)

    def share(self, milliseconds: float) -> float:
        return milliseconds / max(self.step, 1e-9)

    def said(self, milliseconds: float) -> str:
        """Such as: 12.3 of 45.6 ms (27 %)."""
        return f"{milliseconds:.3g} of {self.step:.3g} ms ({100 * self.share(milliseconds):.0f} %)"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _of_kind(worker: Data, kind: str) -> float:
    return sum(float(one["ms"]) for one in worker["kinds"] if one["kind"] == kind)


def _copied_in(tree: Data) -> str:
    """The innermost layer in which most of the time of copies is spent."""
    found: dict[str, float] = {}

    def look(node: Data, layer: str) -> None:
        layer = node.get("layer", layer) or layer
        if node["kind"] == COPIES:
            found[layer] = found.get(layer, 0.0) + node["ms"]
            return
        for child in node["children"]:
            look(child, layer)

    look(tree, "")
    return max(found, key=lambda name: found[name], default="")
