"""The report of an attack: a table of classes, JSON, and a picture."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.commands.evaluate import MOST_SHOWN
from phalanx.commands.loading import Trained
from phalanx.config.adversarial_schema import AttackConfig
from phalanx.observe.attack_picture import AttackedSample, draw_attack
from phalanx.observe.lines import percent
from phalanx.observe.tables import print_rows, print_table, print_text, tab_separated
from phalanx.runs.folder import versions, write_run_file

_TITLES = ("class", "samples", "correct", "top-1", "robust", "robust top-1")
_FILES = ("eval.json", "per_class.tsv", "attack.png")


@dataclass(frozen=True)
class RobustClass:
    """The result of one class: how many samples are right, and how many of them whatever the attack does."""

    name: str
    samples: int
    correct: int
    robust: int


@dataclass(frozen=True)
class Robustness:
    """Accuracy of a model before and under an attack. `folder` has eval.json, per_class.tsv and attack.png.

    >>> robustness = phalanx.load("runs/digits").attack("fgsm", eps="4/255")
    >>> robustness.attack
    'fgsm, linf 4/255, 1 step of 5/255'
    >>> [one.name for one in robustness.classes if one.robust <= one.correct][:3]
    ['0', '1', '2']
    """

    attack: str  # in words
    top1: float
    robust_top1: float
    target_reached: float | None  # share of samples whose answer became the class that was drawn; targeted attacks
    samples: int
    data: str
    classes: list[RobustClass] = field(repr=False)
    unreadable: list[tuple[str, str]] = field(repr=False)  # (image, reason)
    seconds: float
    folder: Path


def in_words(config: AttackConfig, restarts: int) -> str:
    """`pgd, linf 8/255, 20 steps of 2/255, 5 restarts`."""
    steps = "steps" if config.num_steps > 1 else "step"
    return ", ".join(
        [
            config.attack,
            f"{config.norm} {_pixels(config.eps)}",
            f"{config.num_steps} {steps} of {_pixels(config.step_size)}",
            *([f"{restarts} restarts"] if restarts > 1 else []),
            *(["targeted"] if config.targeted else []),
        ]
    )


def _pixels(value: float) -> str:
    levels = value * 255
    return f"{round(levels)}/255" if levels < 256 and abs(levels - round(levels)) < 1e-6 else f"{value:.4g}"


def write_robustness(
    trained: Trained, config: AttackConfig, restarts: int, result: Robustness, drawn: list[AttackedSample]
) -> None:
    """eval.json, per_class.tsv, and attack.png of samples that the attack has changed the answer of."""
    attack = config.model_dump(mode="json") | {"step": config.step_size, "steps": config.num_steps}
    report = {
        "checkpoint": str(trained.path),
        "step": trained.step,
        "model": trained.spec.model,
        "data": result.data,
        "samples": result.samples,
        "top1": result.top1,
        "robust_top1": result.robust_top1,
        "target_reached": result.target_reached,
        "attack": attack | {"restarts": restarts},
        "seconds": result.seconds,
        "decisions": {name: str(decision) for name, decision in trained.settings.decisions.items()},
        "bad_images": [{"image": name, "reason": reason} for name, reason in result.unreadable],
        "classes": [asdict(one) for one in result.classes],
        "versions": versions(),
    }
    write_run_file(result.folder / "eval.json", json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    lines = [_TITLES, *map(_cells, result.classes)]
    write_run_file(result.folder / "per_class.tsv", "".join(tab_separated(cells) + "\n" for cells in lines))
    picture = result.folder / "attack.png"
    picture.unlink(missing_ok=True)  # of an earlier attack
    if drawn:
        name = f"{trained.home.resolve().name}, step {trained.step:,}"
        title = f"{name}: {percent(result.top1)} right, under attack {percent(result.robust_top1)}\n{result.attack}"
        draw_attack(drawn, trained.spec.classes, title, picture)


def _cells(one: RobustClass) -> tuple[str, ...]:
    shares = [percent(count / one.samples) if one.samples else "-" for count in (one.correct, one.robust)]
    return one.name, str(one.samples), str(one.correct), shares[0], str(one.robust), shares[1]


def print_robustness(console: Console, result: Robustness) -> None:
    """The table of classes, then the numbers of all."""
    shown = result.classes
    if len(shown) > MOST_SHOWN:
        shown = sorted((one for one in shown if one.samples), key=lambda one: one.robust / one.samples)[:MOST_SHOWN]
        console.print(Text(f"the {len(shown)} worst of {len(result.classes):,} classes, the others in per_class.tsv:"))
    print_table(console, _TITLES, map(_cells, shown), numbers=_TITLES[1:])
    for name, reason in result.unreadable:
        print_text(console, f"left out, not readable: {name}: {reason}")
    rows = {
        "data": f"{result.data}: {result.samples:,} images in {result.seconds:.1f} s",
        "attack": result.attack,
        "top-1": percent(result.top1),
        "robust top-1": percent(result.robust_top1),
        **({"target reached": percent(result.target_reached)} if result.target_reached is not None else {}),
        "folder": f"{result.folder}: {', '.join(name for name in _FILES if (result.folder / name).exists())}",
    }
    print_rows(console, rows)
