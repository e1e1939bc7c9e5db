"""A profile as tables: the parts of a step, the workers, the layers, the kinds of work, and what to change."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from phalanx.observe.tables import print_line, print_rows, print_table

Data = dict[str, Any]

_PARTS = {
    "data": "waiting for data",
    "inputs": "preparing images on the device",
    "forward": "forward",
    "backward": "backward",
    "exchange": "exchange that is not hidden",
    "update": "update",
    "other": "other",
}
_OUTSIDE = "(loss and others)"
_MOST_OF_IT = 0.9  # of its parent: such a layer alone would be the table
_SMALL = 0.001  # of a step: such kinds are left out


def print_profile(console: Console, profile: Data, *, depth: int, rank: int = 0) -> None:
    """The tables of one worker, and those of all. `depth` is how far layers are opened."""
    workers = profile["workers"]
    worker = next((one for one in workers if one["rank"] == rank), workers[0])
    whose = f" of trainer-{worker['rank']}" if len(workers) > 1 else ""
    _print_about(console, profile, worker)
    step = worker["ms"]
    _title(console, f"a step{whose}")
    rows = [[_PARTS.get(name, name), _ms(ms), _share(ms, step)] for name, ms in worker["parts"].items()]
    print_table(console, ("part", "ms", "share"), [*rows, ["a step", _ms(step), _share(step, step)]], numbers=_NUMBERS)
    if len(workers) > 1:
        _print_workers(console, profile)
    if worker["layers"]:
        _title(console, f"layers{whose}: --depth {depth + 1} opens them further")
        print_table(
            console,
            ("layer", "class", "forward ms", "backward ms", "share"),
            layer_rows(worker, depth),
            numbers=_NUMBERS,
            asides=("class",),
        )
    _title(console, f"kinds of work{whose}")
    kinds = [
        [one["kind"], f"{one['calls']:g}", _ms(one["ms"]), _share(one["ms"], step)]
        for one in worker["kinds"]
        if one["ms"] >= _SMALL * step
    ]
    print_table(console, ("kind", "calls", "ms", "share"), kinds, numbers=_NUMBERS)
    _print_advice(console, profile["advice"])


_NUMBERS = ("ms", "share", "calls", "forward ms", "backward ms", "own ms", "exchange ms", "waited ms", "clock ± ms")


def layer_rows(worker: Data, depth: int) -> list[list[str]]:
    """Modules down to `depth` below the model, in the order of their use; a module that is nearly all is opened."""
    layers, step = worker["layers"], worker["ms"]
    shown = [one for one in layers if one["path"] and _depth(one["path"]) <= depth + _opened(layers, one["path"])]
    tops = [one for one in layers if _depth(one["path"]) == 1]
    rows = [
        [
            "  " * (_depth(one["path"]) - 1) + one["path"],
            one["type"],
            _ms(one["forward_ms"]),
            _ms(one["backward_ms"]),
            _share(_both(one), step),
        ]
        for one in shown
        if _both(one) >= _SMALL * step
    ]
    outside = {
        name: max(0.0, worker["parts"][name] - sum(one[f"{name}_ms"] for one in tops))
        for name in ("forward", "backward")
    }
    total = sum(outside.values())
    return [*rows, [_OUTSIDE, "", _ms(outside["forward"]), _ms(outside["backward"]), _share(total, step)]]


def _opened(layers: Sequence[Data], path: str) -> int:
    """By how much deeper a layer is shown: one for each module around it that is nearly all of the model."""
    whole = max((_both(one) for one in layers), default=0.0)
    around = {".".join(path.split(".")[:count]) for count in range(1, _depth(path))}
    return sum(one["path"] in around and _both(one) > _MOST_OF_IT * whole for one in layers)


def _print_about(console: Console, profile: Data, worker: Data) -> None:
    first, count = profile["first_step"], profile["steps"]
    samples, before, memory = profile["samples_per_step"], worker["unprofiled_ms"], worker["memory"]
    rows = {
        "profile": f"{profile['model']}, steps {first} to {first + count - 1}, {samples} samples each",
        "speed": f"{profile['images_per_s']:.1f} images/s with the profiler on",
        "memory": ", ".join(
            f"{memory[name]:,} MiB {words}"
            for name, words in (("process_mib", "of the process at most"), ("gpu_mib", "of the GPU"))
            if name in memory
        ),
    }
    if before:
        rows["speed"] += f" ({_ms(worker['ms'])} ms a step; {_ms(before)} ms before it was on)"
    if profile["settings"]["on_gpu"]:
        rows["times"] = "layers and kinds: of the GPU; parts: of the process, which the GPU follows"
    if not worker["layers"]:
        rows["layers"] = "not known of a compiled model; machine.compile=false shows them"
    print_rows(console, rows)


def _print_workers(console: Console, profile: Data) -> None:
    _title(console, "workers")
    rows = [
        [
            f"trainer-{one['rank']}",
            one["host"],
            _ms(one["ms"]),
            _ms(one["ms"] - one["parts"]["exchange"]),
            _ms(one["parts"]["exchange"]),
            "–" if one["waited_ms"] is None else _ms(one["waited_ms"]),
            f"{one['clock']['error_ms']:.3f}",
        ]
        for one in profile["workers"]
    ]
    titles = ("worker", "host", "ms", "own ms", "exchange ms", "waited ms", "clock ± ms")
    print_table(console, titles, rows, numbers=_NUMBERS, asides=("clock ± ms",))
    slow = profile["slowest"]
    if slow is not None:
        print_line(
            console,
            f"slowest: trainer-{slow['rank']} on {slow['host']} needs {_ms(slow['own_ms'])} ms by itself, the others "
            f"{_ms(slow['others_own_ms'])}; they wait {_ms(slow['others_waited_ms'])} ms of a step for it",
        )


def _print_advice(console: Console, advice: Sequence[Data]) -> None:
    _title(console, "the largest things to change" if advice else "nothing large to change was found in these numbers")
    for number, one in enumerate(advice, start=1):
        print_line(console, f"{number}. {one['reason']}: {one['change']}")


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"), soft_wrap=True)


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _both(layer: Data) -> float:
    return float(layer["forward_ms"] + layer["backward_ms"])


def _ms(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.1f}"


def _share(value: float, whole: float) -> str:
    return f"{100 * value / max(whole, 1e-9):.1f} %"
