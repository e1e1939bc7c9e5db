"""`phalanx eval`: measure a trained model, as it is or under an attack. Heavy imports happen when it runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from phalanx.errors import UserError

app = typer.Typer()
Checkpointed = Annotated[Path, typer.Argument(help="a run folder (its best checkpoint) or one checkpoint")]


def find_checkpoint(path: Path) -> Path:
    """Find the checkpoint, or raise, before heavy imports."""
    from phalanx.runs.checkpoint import find

    return find(path)


@app.command("eval")
def evaluate(
    checkpoint: Checkpointed,
    data: Annotated[str | None, typer.Option(help="default: the run's own validation data")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1)] = None,
    device: Annotated[str, typer.Option()] = "auto",
    precision: Annotated[str | None, typer.Option(help="default: as in training")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder for the tables and the figure")] = None,
    attack: Annotated[str | None, typer.Option(help="also the accuracy under an attack: pgd or fgsm")] = None,
    eps: Annotated[str | None, typer.Option(help="largest change, pixels being 0 to 1; default: 8/255")] = None,
    step: Annotated[str | None, typer.Option(help="change of one step; default: a quarter of eps")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="of pgd; default: 20")] = None,
    norm: Annotated[str | None, typer.Option(help="linf (each pixel) or l2 (the image); default: linf")] = None,
    restarts: Annotated[int | None, typer.Option(min=1, help="random starts, the worst counts; default: 1")] = None,
    targeted: Annotated[bool, typer.Option("--targeted", help="towards a wrong class, drawn for each sample")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="how to read --data, such as data.label_field=X"),
    ] = None,
) -> None:
    """Measure a trained model: top-1, top-k, each class, and a confusion matrix; mAP with several labels a sample."""
    given = {"eps": eps, "step": step, "steps": steps, "norm": norm, "restarts": restarts, "targeted": targeted or None}
    for name, value in given.items():
        if attack is None and value is not None:
            raise UserError(f"--{name} has no effect here", why="it describes an attack", remedy="add --attack pgd")
    found = find_checkpoint(checkpoint)
    from phalanx.config.resolve import parse_override

    layers = [parse_override(setting) for setting in settings or ()]
    if attack is None:
        from phalanx.commands.evaluate import evaluate_checkpoint

        evaluate_checkpoint(Console(), found, data, batch_size, device, precision, out, layers)
        return
    from phalanx.commands.attack_report import print_robustness
    from phalanx.commands.evaluate_attack import attack_config, measure_attack

    config = attack_config(attack, norm=norm, eps=eps, step=step, steps=steps, targeted=targeted)
    console = Console()
    result = measure_attack(console, found, config, restarts or 1, data, batch_size, device, precision, out, layers)
    print_robustness(console, result)
