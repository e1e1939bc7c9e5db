"""Small runs, as events that training would have written."""

from pathlib import Path

from phalanx.runs import events as ev
from phalanx.runs.events import EventFile


def make_run(folder: Path, epochs: int = 3, *, seed: int = 0, lr: float = 1.0, gain: float = 0.0) -> Path:
    """Ten steps an epoch, logged after every fifth; accuracies grow with the epochs."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"name: made\noptim: {{lr: {lr}}}\ntrain: {{seed: {seed}, epochs: {epochs}}}\n")
    file = EventFile(folder)
    file.take(ev.Start("phalanx train", "m", 1, "d", 100, 10, 10, 10, 10 * epochs, 10, {}, []))
    for epoch in range(1, epochs + 1):
        for step in (10 * epoch - 5, 10 * epoch):
            top1 = 0.25 if step % 10 else 0.5
            rates = {"lr": (step - 1) / 10, "lr_first": (step - 5) / 10}
            first = (step, epoch, step % 10 or 10, 10, 1 / epoch, top1, 0.9, rates["lr"], 100.0, 0.0, 0.1, 0.0, 0.01)
            file.take(ev.Step(*first, lr_first=rates["lr_first"]))
        file.take(ev.Epoch(step, epoch, 1 / epoch, 0.5, 0.9, 100))
        reached = 1 - 0.5 / epoch + 0.01 * gain
        file.take(ev.Eval(step, epoch, 1 / epoch, reached, 0.9, 5, 10, 0.1, True, {"recall": 0.5}))
    file.close()
    return folder
