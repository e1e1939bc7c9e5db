"""The precision of a job where both are possible: the faster one, by the time of a training step on each host."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from phalanx.machine.job_settings import Decision

PRECISIONS = ("fp32", "bf16")
GAIN = 0.9  # the other precision must take at most this share of the time: near ties keep what the CPU's flags say


@dataclass(frozen=True)
class PrecisionTimes:
    """What one host has measured, or why it has not."""

    host: str
    samples: int = 0  # of a step
    seconds: dict[str, float] = field(default_factory=dict)  # of CPU time a thread, by precision; empty: not timed
    why_not: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "PrecisionTimes":
        return cls(**json.loads(text))


def faster_precision(by_flags: Decision, times: Sequence[PrecisionTimes]) -> Decision:
    """The precision whose slowest host is faster, since all workers wait for it."""
    timed = [each for each in times if each.seconds]
    if not timed:
        why = next((each.why_not for each in times if each.why_not), "")
        return Decision(by_flags.value, f"{by_flags.reason}; {why}" if why else by_flags.reason)
    slowest = {name: max(each.seconds[name] for each in timed) for name in PRECISIONS}
    chosen = by_flags.value
    other = next(name for name in PRECISIONS if name != chosen)
    alone = "this machine" if len({each.host for each in times}) == 1 else timed[0].host
    where = f"measured on {alone}" if len(timed) == 1 else f"the slowest of {len(timed)} hosts"
    near = f"no {100 * (1 - GAIN):.0f} % between them; the flags say {by_flags.reason}; "
    if slowest[other] <= GAIN * slowest[chosen]:
        chosen, other, near = other, chosen, ""
    elif slowest[chosen] <= GAIN * slowest[other]:
        near = ""
    said = f"a step of {timed[0].samples}: {_time(slowest[chosen])}, {other} {_time(slowest[other])}; {near}{where}"
    return Decision(chosen, said)


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
