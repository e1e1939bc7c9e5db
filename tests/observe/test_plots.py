from pathlib import Path

import pytest
from PIL import Image

from phalanx.errors import UserError
from phalanx.observe.plots import draw_curves, read_curves
from phalanx.runs import events as ev
from phalanx.runs.events import EventFile


def make_run(folder: Path, epochs: int = 3) -> Path:
    folder.mkdir(parents=True)
    file = EventFile(folder)
    file.take(ev.Start("phalanx train", "m", 1, "d", 100, 10, 10, 10, 10 * epochs, 10, {}, []))
    for epoch in range(1, epochs + 1):
        step = 10 * epoch
        file.take(ev.Step(step, epoch, 10, 10, 1 / epoch, 0.5, 0.9, 0.1, 100.0, 0.0, 0.1, 0.0, 0.01))
        file.take(ev.Epoch(step, epoch, 1 / epoch, 0.5, 0.9, 100))
        file.take(ev.Eval(step, epoch, 1 / epoch, 1 - 0.5 / epoch, 0.9, 5, 10, 0.1, True))
    file.close()
    return folder


def test_curves_follow_the_events(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    assert read_curves(run, "epoch", "a").val_top1.x == [1, 2, 3]
    assert read_curves(run, "step", "a").val_top1.x == [10, 20, 30]
    assert read_curves(run, "step", "a").val_top1.y == pytest.approx([50, 75, 100 - 50 / 3])
    times = read_curves(run, "time", "a").val_top1.x
    assert times == sorted(times)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_draws_several_runs(tmp_path: Path, ending: str) -> None:
    runs = [make_run(tmp_path / where / "same-name") for where in ("x", "y")]
    out = tmp_path / f"curves.{ending}"
    draw_curves(runs, out)
    if ending == "png":
        assert Image.open(out).size[0] > 1000
    elif ending == "svg":
        assert "x/same-name" in out.read_text() or "<path" in out.read_text()
    else:
        assert out.read_bytes().startswith(b"%PDF")


def test_what_cannot_be_drawn_is_explained(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    with pytest.raises(UserError, match="picture format"):
        draw_curves([run], tmp_path / "curves.docx")
    with pytest.raises(UserError, match="is not a run"):
        draw_curves([tmp_path], tmp_path / "curves.png")
    with pytest.raises(UserError, match="nothing to draw"):
        draw_curves([make_run(tmp_path / "b", epochs=0)], tmp_path / "curves.png")
    with pytest.raises(UserError, match="cannot be written"):
        draw_curves([run], tmp_path / "none" / "curves.png")
