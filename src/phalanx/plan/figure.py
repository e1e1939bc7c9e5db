"""The figure of a plan: images/s with their range and the linear line, and where a step's time goes."""

from typing import TYPE_CHECKING

from phalanx.plan.all_reduce import bucket_ready, bucket_seconds
from phalanx.plan.simulate import PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from phalanx.plan.job import Job
    from phalanx.plan.plan import Plan

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
    _times(times, plan)
    for axes in (speeds, times):
        axes.grid(alpha=0.3, axis="y")
        axes.spines[["top", "right"]].set_visible(False)
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
    axes.set_xticks(workers, [str(count) for count in workers])
    axes.minorticks_off()
    axes.set_title("images/s", fontsize=10)
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
    axes.set_yticks(range(3), ["forward, backward", f"{len(wires)} buckets on the links", "update"], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title(f"one step of {job.workers} workers that are equally fast", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def _times(axes: "Axes", plan: "Plan") -> None:
    bottom = [0.0] * len(plan.rows)
    places = range(len(plan.rows))
    for part in PARTS:
        heights = [1e3 * row.simulated.parts[part] for row in plan.rows]
        if max(heights) > 0:
            axes.bar(places, heights, 0.6, bottom, color=COLOURS[part], label=part)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_xticks(list(places), [str(row.arranged.workers) for row in plan.rows])
    axes.set_title("ms of a step", fontsize=10)
    axes.legend(fontsize=8)
