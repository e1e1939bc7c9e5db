"""Clean and PGD-20 accuracy on CIFAR-10 with and without adversarial training, and what a step costs.

    python -m benchmarks.adversarial_cifar10 cifar-10-batches-bin [--epochs 15] [--out runs/adversarial] [KEY=VALUE ...]

Each run is `phalanx train cifar10-adversarial` with another attack, all else the same, in a folder below --out. Started
again, finished runs are only read, and unfinished ones are resumed. After each run, the table of all that are done is
printed and written to table.md, with robustness.png. A run's own eval-attack/attack.png shows images, changes and
answers. The cost of a step is the ratio of seconds a step, from the runs' own events.

Time, estimated and not measured, at the 600 images a second that ResNet-20 has had on two quiet cores: 25 minutes for
15 epochs of clean and free-4, 45 for fgsm, 70 for pgd-2, 3 hours for pgd-7, 3.5 for trades-7, and 10 minutes for each
measurement by PGD-20: 10 hours in all, 3 for --only clean,fgsm,free-4,pgd-2.
"""

import argparse
import json
from pathlib import Path

import phalanx
from benchmarks.kept_runs import finish, step_s, write_table

RUNS = {
    "clean": ["adversarial={attack: none, eps: 8/255, step: null, steps: null}"],
    "fgsm": ["adversarial={attack: fgsm, step: null, steps: null}"],
    "free-4": ["adversarial={attack: free, replays: 4, step: null, steps: null}"],
    "pgd-2": [],
    "pgd-7": ["adversarial={steps: 7, step: 2/255}"],
    "trades-7": ["adversarial={steps: 7, step: 2/255, loss: trades}"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("settings", nargs="*", help="further settings of all runs")
    parser.add_argument("--epochs", type=float, default=15)
    parser.add_argument("--out", type=Path, default=Path("runs/adversarial"))
    parser.add_argument("--only", help="some of the runs, such as clean,fgsm")
    parser.add_argument("--restarts", type=int, default=1, help="of the attack that measures")
    given = parser.parse_intermixed_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[list[str]] = []
    points: dict[str, tuple[float, float]] = {}
    first = 0.0
    for name in given.only.split(",") if given.only else RUNS:
        words = ["cifar10-adversarial", *RUNS[name], *given.settings, "--data", given.data]
        run = finish(given.out / name, [*words, "--epochs", f"{given.epochs:g}"])
        points[name], taken = robustness(run, given.restarts), step_s(run)
        first = first or taken
        clean, robust = (f"{100 * share:.2f} %" for share in points[name])
        rows.append([name, clean, robust, f"{taken:.3f}", f"{taken / first:.2f}×"])
        titles = ["training", "top-1", "under PGD-20, 8/255", "seconds a step", f"of {rows[0][0]}"]
        write_table(given.out / "table.md", titles, rows)
        _draw(points, given.out / "robustness.png")


def robustness(run: Path, restarts: int) -> tuple[float, float]:
    """Clean and robust accuracy, measured once. In float32: an attack through rounded gradients is weaker."""
    report = run / "eval-attack" / "eval.json"
    if report.exists():
        found = json.loads(report.read_text())
        if found["attack"]["restarts"] == restarts:
            return float(found["top1"]), float(found["robust_top1"])
    measured = phalanx.load(run).attack(eps="8/255", steps=20, restarts=restarts, precision="fp32", progress=False)
    return measured.top1, measured.robust_top1


def _draw(points: dict[str, tuple[float, float]], out: Path) -> None:
    """Robust against clean accuracy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 4.0), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    for name, (clean, robust) in points.items():
        axes.plot(100 * clean, 100 * robust, marker="o", color="#0072B2")
        axes.annotate(name, (100 * clean, 100 * robust), xytext=(5, 4), textcoords="offset points", fontsize=9)
    axes.set(xlabel="top-1, %", ylabel="top-1 under PGD-20 of 8/255, %")
    axes.margins(0.18)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out)


if __name__ == "__main__":
    main()
