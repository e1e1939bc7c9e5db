"""How long a worker computes: a roofline of each layer, scaled to what the device achieves on ResNet-50.

A layer takes as long as its arithmetic at the peak rate or its memory traffic at the peak bandwidth, whichever is
longer, and so much for each operation that is started. All of it is multiplied by one number, so that ResNet-50 has
the published speed of the device; with two published batch sizes the cost of an operation follows, too.
"""

import functools
from dataclasses import dataclass, replace

from phalanx.config.schema import ModelConfig
from phalanx.errors import UserError
from phalanx.plan.devices import Device, Precision, Speed, Table
from phalanx.plan.profile import Cost, ModelProfile, profile_key, shipped_profiles

OPERATION_S = 10e-6  # to start one, where no second batch size says it
ASSUMED_SLOW = 2.5  # times the roofline, where nothing is published of a device nor of one like it
UPDATE_PASSES = {0: 3, 1: 5, 2: 7}  # over the parameters, by number of values that the optimizer keeps of each


@dataclass(frozen=True)
class Achieved:
    """What a device really reaches."""

    slow: float  # times the roofline
    operation_s: float
    share: float  # of uncertainty: 0.1 is ± 10 %
    basis: str


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one worker's micro-batch: forward, and when after it each gradient is ready; and of the update."""

    forward_s: float
    ready: tuple[tuple[int, float], ...]  # place of the parameter, seconds since the beginning of backward
    update_s: float

    @property
    def backward_s(self) -> float:
        return self.ready[-1][1] if self.ready else 0.0

    @property
    def compute_s(self) -> float:
        return self.forward_s + self.backward_s

    def scaled(self, factor: float) -> "StepTimes":
        ready = tuple((place, factor * seconds) for place, seconds in self.ready)
        return StepTimes(factor * self.forward_s, ready, factor * self.update_s)


def choose_precision(wanted: str, device: Device) -> Precision:
    """As machine.precision=auto does: bf16 where the device computes it natively."""
    if wanted == "auto":
        return "bf16" if device.bf16 else "fp32"
    for precision in device.flops:
        if precision == wanted:
            return precision
    raise UserError(
        f"machine.precision={wanted} has no rate on this device",
        why=f"the table of devices has {', '.join(device.flops)} for it",
        remedy="machine.precision=auto, or another device",
    )


def step_times(
    profile: ModelProfile, device: Device, achieved: Achieved, precision: Precision, batch: int, kept_values: int
) -> StepTimes:
    """The times of a micro-batch of `batch` images. `kept_values`: of each parameter, by the optimizer."""

    def seconds(image: Cost, step: Cost) -> float:
        return _seconds(image * batch + step, device, precision, achieved)

    ready, now = [], 0.0
    for segment in profile.backward:
        now += seconds(segment.image, segment.step)
        ready.append((segment.param, now))
    traffic = Cost(other_bytes=4.0 * profile.values * UPDATE_PASSES[kept_values], operations=4)
    return StepTimes(
        forward_s=seconds(*profile.forward),
        ready=tuple(ready),
        update_s=_seconds(traffic, device, "fp32", replace(achieved, slow=min(achieved.slow, 1.5))),
    )


def _seconds(cost: Cost, device: Device, precision: Precision, achieved: Achieved) -> float:
    width = 1.0 if precision == "fp32" else 0.5
    arithmetic = max(cost.flops / device.flops[precision], width * cost.matrix_bytes / device.bandwidth)
    roofline = arithmetic + width * cost.other_bytes / device.bandwidth
    return max(0.0, achieved.slow * roofline + achieved.operation_s * cost.operations)


def with_cores(device: Device, cores: float | None) -> Device:
    """A CPU's figures for another number of cores."""
    if device.cores is None or cores is None:
        return device
    part = cores / device.cores
    flops = {precision: part * rate for precision, rate in device.flops.items()}
    return device.model_copy(update={"flops": flops, "bandwidth": part * device.bandwidth})


def achieved(device: Device, precision: Precision, table: Table) -> Achieved:
    """What the device reaches, by its own published speeds, or by those of the device that it is likened to."""
    if device.resnet50:
        return _from_speeds(device, precision)
    if device.achieved_as is None:
        return Achieved(ASSUMED_SLOW, OPERATION_S, 0.5, f"assumed: 1/{ASSUMED_SLOW} of the peak rates")
    alike = table.device(device.achieved_as)
    return replace(
        achieved(alike, _nearest(alike, precision), table),
        share=0.35,
        basis=f"the share of the peak rates that {device.achieved_as} has in published figures",
    )


def _nearest(device: Device, precision: Precision) -> Precision:
    return precision if precision in device.flops else "fp32"


def _from_speeds(device: Device, precision: Precision) -> Achieved:
    speeds = [speed for speed in device.resnet50 if speed.precision == precision]
    if not speeds and precision != "fp32":  # both halves run at the same rate
        speeds = [speed for speed in device.resnet50 if speed.precision != "fp32"]
    share, basis = 0.1, "published speed of ResNet-50"
    if not speeds:
        share, basis, speeds = 0.35, "published speed of ResNet-50 in another precision", list(device.resnet50)
        precision = speeds[0].precision
    first, second = speeds[0], speeds[1] if len(speeds) > 1 else None
    work, operations = _resnet50(device, precision, first.batch)
    if second is None:
        slow = (first.batch / first.images_per_s - OPERATION_S * operations) / work
        return Achieved(slow, OPERATION_S, share, basis)
    return _two_batches(device, precision, first, second, basis)


def _two_batches(device: Device, precision: Precision, first: Speed, second: Speed, basis: str) -> Achieved:
    """Two equations: slow × roofline + seconds of an operation × operations = the published time."""
    (work, operations), (other, _) = (_resnet50(device, precision, speed.batch) for speed in (first, second))
    time, other_time = (speed.batch / speed.images_per_s for speed in (first, second))
    slow = (time - other_time) / (work - other)
    return Achieved(slow, max(0.0, (time - slow * work) / operations), 0.1, f"{basis}, two batch sizes")


@functools.cache
def _resnet50_profile() -> ModelProfile:
    profile = shipped_profiles().get(profile_key(ModelConfig(name="resnet50"), 1000, 3, 224))
    assert profile is not None, "the profile of resnet50 comes with Phalanx"
    return profile


def _resnet50(device: Device, precision: Precision, batch: int) -> tuple[float, float]:
    """(seconds of the roofline, operations) of a training step."""
    profile, plain = _resnet50_profile(), Achieved(1.0, 0.0, 0.0, "")
    times = step_times(profile, device, plain, precision, batch, 1)
    operations = profile.forward[1].operations + sum(each.step.operations for each in profile.backward)
    return times.compute_s + times.update_s, operations
