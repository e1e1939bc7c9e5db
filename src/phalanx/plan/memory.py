"""What a worker and a server keep in memory, and whether it fits."""

from phalanx.errors import UserError
from phalanx.plan.setup import Arrangement, Setup
from phalanx.plan.units import show_bytes

LIBRARIES = {"nccl": 1.0e9, "gloo": 0.4e9}  # torch with its libraries, and on a GPU its context and workspace
# Assumed, least and most of what is counted: allocators keep more than is in use, libraries choose their workspaces.
UNSURE = {"activations": (0.8, 1.3), "libraries": (0.7, 1.5)}
Parts = dict[str, float]


def worker_memory(setup: Setup, arranged: Arrangement) -> Parts:
    """Bytes by what they are for."""
    profile, config, device = setup.profile, setup.config, setup.device
    values, half = profile.values, setup.precision != "fp32"
    batch = setup.batch(arranged.workers)
    pixels = setup.data.channels * setup.data.image_size**2
    parts = {
        "parameters": 4.0 * (values + profile.frozen) + (2.0 * values if half else 0.0),
        "gradients": 4.0 * values,
        "activations": (0.6 if half else 1.0) * profile.kept_bytes * batch,
        "batches": 4.0 * pixels * batch,
        "libraries": LIBRARIES[device.exchange],
    }
    if arranged.method != "pserver":
        parts["optimizer"] = 4.0 * values * setup.kept_values
    else:
        parts["slices to send"] = 4.0 * values
    if config.optim.ema is not None or config.optim.swa.start is not None:
        parts["averaged weights"] = 4.0 * values
    if arranged.compress != "none":
        parts["residuals"] = 4.0 * values
    return parts


def server_memory(setup: Setup, arranged: Arrangement) -> Parts:
    """Of the fullest of equal servers; empty without servers."""
    if arranged.method != "pserver":
        return {}
    share = 4.0 * setup.profile.values / arranged.servers
    return {
        "parameters": share,
        "optimizer": share * setup.kept_values,
        "gradients of all workers": share * arranged.workers,
        "libraries": LIBRARIES["gloo"],
    }


def room(setup: Setup) -> float:
    """Bytes that one worker may have."""
    cluster = setup.cluster
    if setup.device.is_cpu:
        return (cluster.memory or setup.device.memory) / cluster.per_host
    return setup.device.memory


def refuse_too_large(setup: Setup, arranged: Arrangement) -> None:
    """Refuse a batch that does not fit into a worker's memory, and say which would."""
    parts, has = worker_memory(setup, arranged), room(setup)
    total = sum(parts.values())
    if total <= has:
        return
    batch = setup.batch(arranged.workers)
    each = (parts["activations"] + parts["batches"]) / batch
    fits = int((has - (total - each * batch)) / each)
    largest = ", ".join(
        f"{name} {show_bytes(size)}" for name, size in sorted(parts.items(), key=lambda item: -item[1])[:3]
    )
    raise UserError(
        f"a batch of {batch} does not fit into a worker's {show_bytes(has)}",
        why=f"it takes about {show_bytes(total)}: {largest}",
        remedy=f"--batch-size {fits} and optim.accumulate={-(-batch // fits)}, or a device with more memory"
        if fits >= 1
        else "a smaller model, or a device with more memory",
    )


def memory_bounds(parts: Parts) -> tuple[float, float]:
    """The least and the most that it may be."""
    low, high = (sum(UNSURE.get(name, (1.0, 1.0))[end] * size for name, size in parts.items()) for end in (0, 1))
    return low, high


def show_parts(parts: Parts) -> str:
    """The whole with its range, and what it consists of, the largest first."""
    named = ", ".join(f"{name} {show_bytes(size)}" for name, size in sorted(parts.items(), key=lambda item: -item[1]))
    low, high = memory_bounds(parts)
    return f"{show_bytes(sum(parts.values()))} ({show_bytes(low)} to {show_bytes(high)}): {named}"
