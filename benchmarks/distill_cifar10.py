"""Distillation on CIFAR-10: two students with and without a teacher, and with half of the labels.

    python -m benchmarks.distill_cifar10 --data cifar-10-batches-bin [--epochs 20] [--methods 4]
    python -m benchmarks.distill_cifar10 --data cifar-10-batches-bin --cost       # only what a step costs

Each run is a folder below --runs. Started again, finished runs are only read, and unfinished ones are resumed. After
each run, the table of all that are done is printed and written to table.md, with students.png. --cost compares the
seconds of a step with the teacher in the trainer, in a process on another core, and in a cache: cost/table.md.

The students with half of the labels have a drawn half of the training images (a folder with the binary files of these);
"SSLD" then learns the teacher's answers about all 50,000, whose labels it does not read. The teacher has seen all
labels. All students take as many steps: those that see half of the images, for twice as many epochs.

Time, estimated and not measured, at the 600 images a second that ResNet-20 has had on two quiet cores: the teacher 20
minutes, a student 30 minutes for 20 epochs, with a teacher 50. So --methods 4 --students cifar_resnet20 takes 6 hours
for two seeds, and everything (32 runs) a day; --cost takes 10 minutes, in which the machine should do nothing else.
"""

import argparse
import json
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.kept_runs import finish, step_s, write_table
from phalanx.data.random import bits

STUDENTS = {
    "cifar_resnet20": ["model.name=cifar_resnet20"],
    # Strides of 8 in all, where photographs have 32.
    "mobilenetv2_035": ["model.name=mobilenetv2_035", "model.options={output_stride: 8}", "optim.weight_decay=0.0005"],
}
RECORD = 1 + 3 * 32 * 32  # bytes of a sample


@dataclass(frozen=True)
class Bench:
    """What all runs share."""

    data: str
    runs: Path
    epochs: float
    seeds: Sequence[str]
    common: list[str]

    @property
    def teacher(self) -> Path:
        return self.runs / "teacher"

    def methods(self) -> dict[str, list[str]]:
        """The settings of each way to learn, by what it is called in the table."""
        half, taught = ["--data", str(self._half())], ["--teacher", str(self.teacher)]
        ssld = ["distill.loss=js", f"distill.unlabeled={self.data}"]
        return {  # the most telling ones first
            "labels only": ["--data", self.data],
            "kl": ["--data", self.data, *taught],
            "half of the labels": half,
            "half of the labels, SSLD": [*half, *taught, *ssld],
            "half of the labels, kl": [*half, *taught],
            **{loss: ["--data", self.data, *taught, f"distill.loss={loss}"] for loss in ("js", "dist", "dkd")},
        }

    def train(self, student: str, method: str, settings: Sequence[str], seed: str) -> float:
        """The best accuracy of a student."""
        epochs = self.epochs * (2 if method.startswith("half") and "SSLD" not in method else 1)
        words = ["cifar10-resnet20", *STUDENTS[student], *settings, "--epochs", f"{epochs:g}", "--seed", seed]
        # Drops of the rate at half and three quarters, as in the recipe.
        words.append(f"schedule.milestones=[{epochs / 2:g}ep,{epochs * 3 / 4:g}ep]")
        name = f"{student}-{method.replace(' ', '-').replace(',', '')}-{seed}"
        return best_top1(finish(self.runs / name, [*words, *self.common]))

    def _half(self) -> Path:
        """A folder with half of the training images, drawn from seed 0, and the test images."""
        folder, source = self.runs / "half", Path(self.data)
        if (folder / "test_batch.bin").exists():  # the last of its files
            return folder
        folder.mkdir(exist_ok=True)
        for number in range(1, 6):
            name = f"data_batch_{number}.bin"
            records = np.fromfile(source / name, dtype=np.uint8).reshape(-1, RECORD)
            drawn = bits(0, f"half of the labels {number}", 0, np.arange(len(records), dtype=np.int64))[:, 0]
            records[np.sort(np.argsort(drawn, kind="stable")[: len(records) // 2])].tofile(folder / name)
        for name in ("batches.meta.txt", "test_batch.bin"):
            shutil.copyfile(source / name, folder / name)
        return folder


def best_top1(run: Path) -> float:
    return float(json.loads((run / "summary.json").read_text())["best"]["top1"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder with data_batch_1.bin")
    parser.add_argument("--runs", type=Path, default=Path("runs/distill"))
    parser.add_argument("--epochs", type=float, default=20, help="of each student")
    parser.add_argument("--teacher-recipe", default="cifar10-fast")
    parser.add_argument("--teacher-epochs", type=float, help="default: the recipe's")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--students", default=",".join(STUDENTS))
    parser.add_argument("--methods", type=int, default=8, help="so many of the ways to learn, the most telling first")
    parser.add_argument("--cost", action="store_true", help="only what a step costs")
    parser.add_argument("--cost-steps", type=int, default=150)
    parser.add_argument("settings", nargs="*", help="KEY=VALUE for all students")
    given = parser.parse_intermixed_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    bench = Bench(given.data, given.runs, given.epochs, given.seeds.split(","), given.settings)
    length = [] if given.teacher_epochs is None else ["--epochs", f"{given.teacher_epochs:g}"]
    finish(bench.teacher, [given.teacher_recipe, "--data", given.data, *length])
    if given.cost:
        measure_cost(bench, given.cost_steps)
    else:
        measure_students(bench, given.students.split(","), given.methods)


def measure_students(bench: Bench, students: Sequence[str], most: int) -> None:
    """Train them all, one seed after the other, so that there is an overview early."""
    found: dict[tuple[str, str], list[float]] = {}
    for seed in bench.seeds:
        for student in students:
            for method, settings in [*bench.methods().items()][:most]:
                found.setdefault((student, method), []).append(bench.train(student, method, settings, seed))
                _show(bench, found)


def _show(bench: Bench, found: dict[tuple[str, str], list[float]]) -> None:
    rows = [["the teacher", "all labels", f"{100 * best_top1(bench.teacher):.2f} %", "", ""]]
    for (student, method), scores in found.items():
        mean, alone = statistics.mean(scores), statistics.mean(found[student, _base(method)])
        gain = "" if method == _base(method) else f"{100 * (mean - alone):+.2f}"
        rows.append([student, method, ", ".join(f"{100 * one:.2f} %" for one in scores), f"{100 * mean:.2f} %", gain])
    seeds = f"best top-1 (seeds {', '.join(bench.seeds)})"
    write_table(
        bench.runs / "table.md", ["network", "learns from", seeds, "mean", "points above the same labels alone"], rows
    )
    _draw(found, best_top1(bench.teacher), bench.runs / "students.png")


def _base(method: str) -> str:
    """What a method is compared with: the same labels without a teacher."""
    return "half of the labels" if method.startswith("half") else "labels only"


def _draw(found: dict[tuple[str, str], list[float]], teacher: float, out: Path) -> None:
    """A dot for each run; the dashed line is the teacher."""
    from matplotlib.figure import Figure

    from phalanx.observe.plot_style import run_look

    methods, students = list(dict.fromkeys(method for _, method in found)), list(dict.fromkeys(one for one, _ in found))
    figure = Figure(figsize=(6.8, 0.42 * len(methods) + 1.6), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    for number, student in enumerate(students):
        points = [
            (100 * score, method) for (one, method), scores in found.items() if one == student for score in scores
        ]
        rows = [methods.index(method) + 0.12 * (number - (len(students) - 1) / 2) for _, method in points]
        look = run_look(number, "screen") | {"linestyle": "none", "marker": "o", "markersize": 5}
        axes.plot([score for score, _ in points], rows, label=student, **look)
    axes.axvline(100 * teacher, color="grey", linestyle="dashed", label="the teacher")
    axes.set_yticks(range(len(methods)), methods)
    axes.invert_yaxis()
    axes.set_xlabel("best validation accuracy, %")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
    figure.savefig(out)


def measure_cost(bench: Bench, steps: int) -> None:
    """Seconds of a step of ResNet-20 on one thread, by where the teacher's answers come from; measured anew."""
    home = bench.runs / "cost"
    shutil.rmtree(home, ignore_errors=True)
    taught, cache = ["--teacher", str(bench.teacher)], [f"distill.cache={home / 'cache'}", "distill.cache_top_k=10"]
    ways = {
        "no teacher": [],
        "teacher in the trainer": taught,
        "teacher on a second core": [*taught, "--teachers", "1"],
        "cache, written": [*taught, *cache],
        "cache, read": [*taught, *cache],
    }
    rows: list[list[str]] = []
    first = 0.0
    for number, (title, settings) in enumerate(ways.items()):
        words = ["cifar10-resnet20", "--data", bench.data, *settings, f"train.length={steps}st", "eval.every=100%"]
        words += ["machine.threads=1", "train.log_every=10", "train.curves=false", *bench.common]
        taken = step_s(finish(home / f"{number}", words))
        first = first or taken
        rows.append([title, f"{1000 * taken:.0f} ms", f"{taken / first:.2f}×"])
        write_table(home / "table.md", ["answers come from", "a step of 128 images", "of the first"], rows)


if __name__ == "__main__":
    main()
