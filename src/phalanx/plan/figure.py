"""The figure of a plan: images/s with their range and the linear line, and where a step's time goes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from phalanx.plan.all_reduce import bucket_ready, bucket_seconds
from phalanx.plan.simulate import PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from phalanx.plan.job import Job
    from phalanx.plan.plan import Plan
    from phalanx.plan.predict import Prediction

COLOURS = {"input": "C2", "compute": "C0", "exchange": "C3", "server": "C4", "update": "C1", "waiting": "0.7"}


def draw_plan(plan: "Plan") -> "Figure":
    """Speeds and times by workers, and below them one step of the largest number of workers."""
    from matplotlib.figure import Figure

    lines = plan.asked.job.method == "collective"
    figure = Figure(figsize=(10.4, 6.0 if lines else 4.2), layout="constrained", dpi=130)
    grid = figure.add_gridspec(2 if lines else 1, 2, height_ratios=(3, 1.4) if lines else None)
    speeds, times = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    if lines:
        _one_step(figure.add_subplot(grid[1, :]), plan.asked.job)
    _speeds(speeds, plan)
    bars_of_parts(times, plan.rows)
    steps = [row.step_s * 1e3 for row in plan.rows]
    spans = [[step.expected - step.low for step in steps], [step.high - step.expected for step in steps]]
    times.errorbar(range(len(steps)), [step.expected for step in steps], spans, fmt="none", ecolor="0.3", capsize=3)
    times.set_ylim(top=1.35 * max(step.high for step in steps))  # room for the legend
    times.set_xticks(range(len(plan.rows)), [str(row.arranged.workers) for row in plan.rows])
    times.set_title("ms of a step, and its range", fontsize=10)
    for axes in (speeds, times):
        plain_axes(axes)
        axes.set_xlabel("workers")
    config, cluster = plan.setup.config, plan.setup.cluster
    link = f", {cluster.link}" if cluster.link else ""
    where = f"{cluster.device}, {cluster.per_host} a host{link}"
    title = f"{config.name}, {config.model.name}, on {where}: {plan.asked.arranged}"
    figure.suptitle(title, parse_math=False, fontsize=10)
    return figure


def _speeds(axes: "Axes", plan: "Plan") -> None:
    workers = [row.arranged.workers for row in plan.rows]
    speeds = [row.images_per_s for row in plan.rows]
    alone = plan.rows[0].job.images / plan.rows[0].alone_s / workers[0] if plan.rows else 0.0
    axes.plot(workers, [count * alone for count in workers], "--", color="0.6", label="N × one worker")
    axes.fill_between(workers, [each.low for each in speeds], [each.high for each in speeds], alpha=0.2, label="range")
    axes.plot(workers, [each.expected for each in speeds], "o-", label="predicted")
    if plan.best.arranged != plan.asked.arranged:
        best = plan.best.images_per_s.expected
        axes.plot([plan.best.arranged.workers], [best], "*", ms=11, color="C1", label=f"best: {plan.best.arranged}")
    if len(workers) > 1 and workers[-1] > 8 * workers[0]:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    for row, speed in zip(plan.rows, speeds, strict=True):
        share, place = f"{100 * row.efficiency.expected:.0f} %", (row.arranged.workers, speed.expected)
        axes.annotate(share, place, (3, -11), textcoords="offset points", fontsize=7, color="0.3")
    axes.set_xticks(workers, [str(count) for count in workers])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("images/s, and % of linear", fontsize=10)
    axes.legend(fontsize=8)


def _one_step(axes: "Axes", job: "Job") -> None:
    """Who works when: backward makes gradients, and each bucket is exchanged when it is full."""
    times, scale = job.times, 1e3
    begin = scale * ((job.accumulate - 1) * times.compute_s + times.forward_s)
    compute = [(0.0, begin, "C9"), (begin, scale * times.backward_s, COLOURS["compute"])]
    wires, channel = [], 0.0
    for (seconds, encoded), wire_s in zip(bucket_ready(job), bucket_seconds(job), strict=True):
        channel = max(channel, begin + scale * (seconds + encoded))
        wires.append((channel, scale * wire_s, COLOURS["exchange"]))
        channel += scale * wire_s
    end = max(channel, begin + scale * times.backward_s)
    rows = [compute, wires, [(end, scale * times.update_s, COLOURS["update"])]]
    for row, bars in enumerate(rows):
        for left, width, colour in bars:
            axes.barh(row, width, 0.7, left=left, color=colour, edgecolor="white")
    for (left, width, _), name in zip(compute, ("forward", "backward"), strict=True):
        axes.text(left + width / 2, 0, name, ha="center", va="center", color="white", fontsize=8)
    axes.set_yticks(range(3), ["a worker computes", f"{len(wires)} buckets on the links", "update"], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title(f"one step of {job.workers} workers that are equally fast", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def bars_of_parts(axes: "Axes", rows: Sequence["Prediction"], *, across: bool = False) -> None:
    """Stacked bars, one for each prediction: upright, or across."""
    before = [0.0] * len(rows)
    for part in PARTS:
        sizes = [1e3 * row.simulated.parts[part] for row in rows]
        if max(sizes) < 1e-3 * max(1e3 * row.simulated.step_s for row in rows):
            continue  # nobody would see it
        if across:
            axes.barh(range(len(rows)), sizes, 0.6, before, color=COLOURS[part], label=part)
        else:
            axes.bar(range(len(rows)), sizes, 0.6, before, color=COLOURS[part], label=part)
        before = [low + size for low, size in zip(before, sizes, strict=True)]
    axes.legend(fontsize=8, ncols=3, loc="upper left")


def plain_axes(axes: "Axes", grid: Literal["x", "y"] = "y") -> None:
    axes.grid(alpha=0.3, axis=grid)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
