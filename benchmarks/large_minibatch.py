"""Figures 1 and 3 of "ImageNet in 1 hour" (arXiv 1706.02677) in small: large batches, warm-up, and where it breaks.

    python -m benchmarks.large_minibatch --data cifar10/ --out large/ [--seeds 3] [--epochs 18] [--threads 2]
    python -m benchmarks.large_minibatch --quick --out quick/       # the built-in digits, one seed

Error against epochs for a small batch, and for one 16 times as large without warm-up, with constant and with gradual
warm-up, beside two mistakes that the paper warns of; then the error against the batch size. A large batch is 16 and
more micro-batches of the small one, so that batch-norm statistics are of as many images as before. Runs that are done
are kept: the same command goes on where it was stopped. Tables are printed and written as Markdown, figures as PNGs, to
--out, after each line of them.

Time, estimated and not measured, at the 600 images a second that ResNet-20 has had on two quiet cores: 25 minutes for a
run of 18 epochs of CIFAR-10, of which there are 36 (6 lines and 6 further sizes, 3 seeds): 15 hours with --threads 2,
and 5 with --seeds 1. --quick takes half a minute.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import phalanx
from benchmarks.kept_runs import write_table
from benchmarks.large_minibatch_variants import FACTOR, MILESTONES, WARMUP_SHARE
from phalanx.api.parts import is_done

CODE = Path(__file__).with_name("large_minibatch_variants.py")
DIVERGED = "diverged.txt"  # in a run's folder: why it ended
GRADUAL, NO_WARMUP, CONSTANT = "gradual warm-up", "no warm-up", "constant warm-up"


@dataclass(frozen=True)
class Variant:
    """One line of the first figure."""

    name: str
    times: int = FACTOR  # of the small batch
    settings: dict[str, Any] = field(default_factory=dict)


def variants(small: int, epochs: int) -> list[Variant]:
    """A small batch, three warm-ups of a large one, and the two mistakes."""
    gradual = {"schedule.warmup": f"{WARMUP_SHARE * epochs}ep", "schedule.warmup_start": f"one-of-{FACTOR}"}
    return [
        Variant(f"batch {small}", 1),
        Variant(f"batch {small * FACTOR}, {NO_WARMUP}"),
        Variant(f"batch {small * FACTOR}, {CONSTANT}", settings={"schedule.kind": f"{CODE}:constant_warmup"}),
        Variant(f"batch {small * FACTOR}, {GRADUAL}", settings=gradual),
        Variant("wrong: rate inside momentum", settings={**gradual, "optim.name": f"{CODE}:RateInsideMomentum"}),
        Variant("wrong: loss averaged per worker", settings={**gradual, "loss.name": f"{CODE}:per_worker_mean"}),
    ]


@dataclass(frozen=True)
class Bench:
    """What all runs share."""

    out: Path
    data: str
    model: str
    small: int
    epochs: int
    seeds: int
    lr: float
    threads: int

    def train(self, variant: Variant, seed: int) -> list[float] | None:
        """Validation errors by epoch; None if the loss was not finite."""
        run = (
            self.out
            / f"{variant.name.replace(' ', '-').replace(',', '').replace(':', '')}-x{variant.times}-seed-{seed}"
        )
        if (run / DIVERGED).exists():
            return None
        if not is_done(run):
            settings = self._settings(variant) | {"train.seed": seed}
            try:
                begun = (run / "events.jsonl").exists() and any(run.glob("checkpoints/step-*"))
                if begun:
                    phalanx.train(resume=run)
                else:
                    (run / "events.jsonl").unlink(missing_ok=True)
                    recipe = "digits" if self.data == "digits" else "cifar10-resnet20"  # size of images, and crops
                    phalanx.train(recipe, settings=settings, out=run)
            except phalanx.Error as error:
                if "loss is" not in error.what and "not finite" not in error.what:
                    raise
                (run / DIVERGED).write_text(f"{error.what}\n", encoding="utf-8")
                return None
        return [1 - top1 for top1 in phalanx.load(run).history("val/top1").values]

    def _settings(self, variant: Variant) -> dict[str, Any]:
        places = [f"{share * self.epochs}ep" for share in MILESTONES]
        return {
            "data.source": self.data,
            "model.name": self.model,
            "train.length": f"{self.epochs}ep",
            "train.global_batch_size": self.small * variant.times,
            "train.micro_batches": variant.times,
            "train.curves": False,
            "train.log_every": 1000,
            "optim.name": "sgd",
            "optim.nesterov": False,
            "optim.momentum": 0.9,
            "optim.weight_decay": 1e-4,
            "optim.lr": self.lr,
            "optim.lr_per": self.small,  # linear scaling
            "loss.label_smoothing": 0.0,
            "schedule.kind": "step",
            "schedule.milestones": places,
            "schedule.warmup": "0ep",
            "eval.every": "1ep",
            "checkpoint.every": "1ep",
            "machine.threads": self.threads,
            **variant.settings,
        }

    def errors(self, variant: Variant) -> list[list[float]]:
        """Of every seed. A run whose loss was not finite has none, and the table counts the runs that have."""
        found = [self.train(variant, seed) for seed in range(self.seeds)]
        return [errors for errors in found if errors is not None]


def spread(values: list[float]) -> str:
    """Mean ± sample standard deviation, in percent."""
    if not values:
        return "diverged"
    return f"{100 * fmean(values):.2f}" + (f" ± {100 * stdev(values):.2f}" if len(values) > 1 else "") + " %"


def draw_curves(rows: dict[str, list[list[float]]], out: Path) -> None:
    """Error against epochs: the mean of the seeds, and a band from the lowest to the highest."""
    from matplotlib.figure import Figure

    from phalanx.observe.plot_style import run_look

    figure = Figure(figsize=(7.2, 4.4), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    for number, (name, found) in enumerate(rows.items()):
        if not found:
            axes.plot([], [], color="grey", label=f"{name} (loss not finite)")
            continue
        epochs = range(1, min(map(len, found)) + 1)
        columns = [[100 * errors[epoch - 1] for errors in found] for epoch in epochs]
        look = run_look(number, "screen") | {"linestyle": "dashed" if name.startswith("wrong") else "solid"}
        axes.plot(epochs, [fmean(column) for column in columns], label=name, markersize=3.5, **look)
        axes.fill_between(epochs, [*map(min, columns)], [*map(max, columns)], color=look["color"], alpha=0.15, lw=0)
    axes.set(xlabel="epoch", ylabel="validation error, %")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=8.5)
    figure.savefig(out)


def draw_sizes(rows: dict[int, list[float]], breaks_at: int | None, out: Path) -> None:
    """The last error against the batch size, and the first size that is clearly worse."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 3.8), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    there = {size: [100 * value for value in values] for size, values in rows.items() if values}
    deviations = [stdev(values) if len(values) > 1 else 0.0 for values in there.values()]
    axes.errorbar(
        [*there], [fmean(values) for values in there.values()], deviations, marker="o", capsize=3, color="#0072B2"
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks([*rows], [str(size) for size in rows])
    if breaks_at is not None:
        axes.axvline(breaks_at, color="#D55E00", linestyle="dashed", label=f"worse from {breaks_at} on")
        axes.legend(frameon=False)
    axes.set(xlabel="samples a step, rate scaled linearly", ylabel="validation error, %")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out)


def breaking_point(rows: dict[int, list[float]]) -> int | None:
    """The first batch whose mean error is above the smallest batch's by a percent and by two deviations."""
    sizes = list(rows)
    base = rows[sizes[0]]
    allowed = fmean(base) + max(0.01, 2 * (stdev(base) if len(base) > 1 else 0.0)) if base else 0.0
    return next((size for size in sizes[1:] if not rows[size] or fmean(rows[size]) > allowed), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits", help="CIFAR-10's folder, or any data that `phalanx train` takes")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="cifar_resnet20")
    parser.add_argument("--small", type=int, default=32, help="samples of the small batch")
    parser.add_argument("--lr", type=float, default=0.0125, help="rate of the small batch; the paper's for 32 samples")
    parser.add_argument("--epochs", type=int, default=18)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a tiny network, few epochs, one seed: does it run?")
    asked = parser.parse_args()
    if asked.quick:
        asked.model, asked.epochs, asked.seeds = "mlp", 6, 1
    bench = Bench(asked.out, asked.data, asked.model, asked.small, asked.epochs, asked.seeds, asked.lr, asked.threads)
    bench.out.mkdir(parents=True, exist_ok=True)
    compare_warmups(bench)
    compare_sizes(bench, (1, 4, 16) if asked.quick else (1, 2, 4, 8, 16, 32, 64))


def compare_warmups(bench: Bench) -> None:
    """The first figure. Table and figure are written after each line, so that there is something early."""
    curves: dict[str, list[list[float]]] = {}
    for variant in variants(bench.small, bench.epochs):
        curves[variant.name] = bench.errors(variant)
        rows = [
            [name, spread([errors[-1] for errors in found]), f"{len(found)} of {bench.seeds}"]
            for name, found in curves.items()
        ]
        write_table(bench.out / "warmup.md", ["", "last validation error", "runs with a finite loss"], rows)
        draw_curves(curves, bench.out / "warmup.png")


def compare_sizes(bench: Bench, factors: Sequence[int]) -> None:
    """The second figure: the small batch, and batches that are so many times larger."""
    sizes: dict[int, list[float]] = {}
    for times in factors:
        start = {"schedule.warmup": f"{WARMUP_SHARE * bench.epochs}ep", "schedule.warmup_start": f"one-of-{times}"}
        small = Variant(f"batch {bench.small}", 1)  # of the first figure
        found = bench.errors(small if times == 1 else Variant("size", times, start))
        sizes[bench.small * times] = [errors[-1] for errors in found]
        breaks_at = breaking_point(sizes)
        rows = [
            [f"{size}", spread(values), "clearly worse from here on" if size == breaks_at else ""]
            for size, values in sizes.items()
        ]
        write_table(bench.out / "batch-size.md", ["samples a step", "last validation error", ""], rows)
        draw_sizes(sizes, breaks_at, bench.out / "batch-size.png")


if __name__ == "__main__":
    main()
