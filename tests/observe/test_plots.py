"""The figure of curves: panels, limits, lines, legends, and what it says about what it cannot draw."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from phalanx.errors import UserError
from phalanx.observe.plot_options import PlotOptions, parse_limits
from phalanx.observe.plots import curves_figure, draw_curves
from tests.observe.logs.test_text_logs import MXNET, PADDLE
from tests.observe.made_runs import make_run


def figure_of(*runs: str | Path, **options: object) -> Figure:
    return curves_figure(runs, PlotOptions(**options)).figure  # type: ignore[arg-type]


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def lines(axes: Axes) -> list[list[float]]:
    return [np.asarray(line.get_xdata(), float).tolist() for line in axes.lines]


def look(line: Line2D) -> tuple[str, str]:
    """Colour and dashes."""
    return to_hex(line.get_color()), str(line._dash_pattern)  # type: ignore[attr-defined]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_draws_several_runs(tmp_path: Path, ending: str) -> None:
    runs = [make_run(tmp_path / where / "same-name", lr=lr) for where, lr in (("x", 1), ("y", 2))]
    out = tmp_path / f"curves.{ending}"
    assert draw_curves(runs, out) == []
    if ending == "png":
        assert Image.open(out).size[0] > 1000
    elif ending == "svg":
        assert "<path" in out.read_text()
    else:
        assert out.read_bytes().startswith(b"%PDF")


def test_all_panels_have_the_same_x_range_and_begin_at_0(tmp_path: Path) -> None:
    figure = figure_of(make_run(tmp_path / "a"))
    assert titles(figure) == ["top-1 accuracy, %", "loss", "learning rate", "recall"]
    limits = {axes.get_xlim() for axes in figure.axes}
    assert len(limits) == 1
    [(low, high)] = limits
    assert -0.1 < low < 0
    assert 3 < high < 3.1


def test_training_and_validation_differ(tmp_path: Path) -> None:
    accuracy = figure_of(make_run(tmp_path / "a")).axes[0]
    training, validation = accuracy.lines
    assert lines(accuracy) == [[0.5, 1, 1.5, 2, 2.5, 3], [1, 2, 3]]
    assert validation.get_linewidth() > 1.5 * training.get_linewidth()
    assert (training.get_marker(), validation.get_marker()) == ("", "o")


def test_the_legend_is_below_the_data(tmp_path: Path) -> None:
    figure = figure_of(make_run(tmp_path / "a"), make_run(tmp_path / "b", lr=2))
    assert legend(figure) == ["a", "b", "validation", "training"]
    FigureCanvasAgg(figure).draw()
    top = figure.legends[0].get_window_extent().y1
    assert top <= min(axes.get_tightbbox().y0 for axes in figure.axes)  # type: ignore[union-attr]


def test_a_figure_of_one_part_says_so_in_its_panels(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    figure = figure_of(run, only="val")
    assert titles(figure)[:3] == ["validation top-1, %", "validation loss", "learning rate"]
    assert figure.legends == []
    (tmp_path / "paddle.log").write_text("\n".join(PADDLE.splitlines()[:4]))
    figure = figure_of(tmp_path / "paddle.log", f"b={tmp_path / 'paddle.log'}")
    assert titles(figure) == ["training top-1, %", "training loss"]
    assert legend(figure) == ["paddle.log", "b"]


def test_more_than_ten_runs_are_told_apart(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"r{n}", 1, lr=n + 1) for n in range(24)]
    figure = figure_of(*runs, panels=["top1"], only="val")
    assert len(set(map(look, figure.axes[0].lines))) == 24
    on_paper = figure_of(*runs[:6], panels=["top1"], only="val", style="paper").axes[0].lines
    assert len({line.get_marker() for line in on_paper}) == 6
    assert all(look(one)[1] != look(other)[1] for one, other in pairwise(on_paper))


def test_seeds_are_a_mean_and_a_band(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"digits-s{n}", seed=n, gain=n) for n in range(3)]
    figure = figure_of(*runs)
    accuracy = figure.axes[0]
    assert len(accuracy.lines) == len(accuracy.collections) == 2
    assert accuracy.lines[1].get_ydata()[0] == pytest.approx(51)  # type: ignore[index]
    assert figure.get_suptitle() == "digits, 3 seeds"
    assert legend(figure) == ["validation", "training", "mean, lowest to highest"]
    assert legend(figure_of(*runs, seeds="std"))[-1] == "mean ± standard deviation"
    each = figure_of(*runs, seeds="lines")
    assert (len(each.axes[0].lines), len(each.axes[0].collections)) == (6, 0)


def test_a_seed_that_ends_early_is_told(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"digits-s{n}", 4 - n) for n in range(2)]
    for run in runs:
        (run / "config.yaml").write_text(f"train: {{seed: {run.name[-1]}}}")
    drawing = curves_figure(runs)
    assert drawing.notes == ["digits, 2 seeds: drawn up to epoch 3, where digits-s1 ends"]


def test_smoothing_keeps_the_raw_curve_behind(tmp_path: Path) -> None:
    figure = figure_of(make_run(tmp_path / "a"), smooth=0.9)
    raw, smooth, _ = figure.axes[0].lines
    assert (raw.get_alpha() or 1) < (smooth.get_alpha() or 1)
    assert legend(figure) == ["validation", "training, smoothed by 0.9"]
    assert len(figure.axes[2].lines) == 1  # the rate as it is


def test_limits_and_logarithms(tmp_path: Path) -> None:
    figure = figure_of(
        make_run(tmp_path / "a"),
        xlim=parse_limits("1.5:", "--xlim"),
        ylim={"top1": (80, 95)},
        log=["loss"],
        panels=["top1", "loss", "lr"],
    )
    accuracy, loss, rate = figure.axes
    assert accuracy.get_ylim() == (80, 95)
    assert accuracy.get_xlim()[0] == loss.get_xlim()[0] == 1.5
    assert loss.get_yscale() == "log"
    assert rate.get_ylim()[0] > 1.2  # what is seen fills the panel


def test_a_figure_for_a_paper(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    one = figure_of(run, style="paper", panels=["top1"])
    assert one.get_size_inches()[0] == pytest.approx(3.3)
    assert (one.axes[0].get_title(), one.axes[0].get_ylabel(), one.get_suptitle()) == ("", "top-1 accuracy, %", "")
    assert figure_of(run, style="paper").get_size_inches()[0] == pytest.approx(6.9)
    draw_curves([run], tmp_path / "c.pdf", options=PlotOptions(style="paper"))
    pdf = (tmp_path / "c.pdf").read_bytes()
    assert b"/CIDFontType2" in pdf or b"/TrueType" in pdf
    assert b"/Type3" not in pdf


def test_other_systems_logs_are_in_the_same_figure(tmp_path: Path) -> None:
    (tmp_path / "paddle.log").write_text(PADDLE)
    (tmp_path / "mxnet.log").write_text(MXNET)
    drawing = curves_figure([make_run(tmp_path / "ours"), tmp_path / "paddle.log", f"theirs={tmp_path}/mxnet.log"])
    assert legend(drawing.figure)[:3] == ["ours", "paddle.log", "theirs"]
    assert lines(drawing.figure.axes[0])[-1] == [1]
    assert drawing.notes == [
        "paddle.log: 1 damaged line is left out, the first is line 12",
        "theirs: an epoch is taken as 60 steps: the last batch that is logged is 40, and one in 20 is",
    ]


def test_the_axis_is_one_that_all_have(tmp_path: Path) -> None:
    (tmp_path / "paddle.log").write_text("\n".join(PADDLE.splitlines()[:4]))
    run = make_run(tmp_path / "ours")
    assert figure_of(run).axes[0].get_xlabel() == "epoch"
    assert figure_of(run, tmp_path / "paddle.log").axes[0].get_xlabel() == "step"


def test_what_has_no_place_on_an_axis_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("epoch,loss,accuracy\n0,2,0.5\n1,1,0.75\n")
    drawing = curves_figure([make_run(tmp_path / "ours"), tmp_path / "a.csv"], PlotOptions(axis="step"))
    assert drawing.notes == [
        "a.csv: train/top1, train/loss: 4 points have no step in the log and are not drawn; --against epoch shows them"
    ]
    with pytest.raises(UserError, match="nothing can be drawn against step") as refusal:
        curves_figure([tmp_path / "a.csv"], PlotOptions(axis="step"))
    assert refusal.value.remedy == "--against epoch"


def test_names_that_no_font_shows_are_numbered(tmp_path: Path) -> None:
    run = make_run(tmp_path / "ours")
    drawing = curves_figure([f"قطة={run}", f"\U0010fffd={run}"])
    assert legend(drawing.figure)[1] == "run 2"
    assert drawing.notes == ["no font here shows '\\U0010fffd': it is run 2 in the figure"]


def test_what_cannot_be_drawn_is_explained(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    with pytest.raises(UserError, match="picture format"):
        draw_curves([run], tmp_path / "curves.docx")
    with pytest.raises(UserError, match="neither a run nor a log"):
        draw_curves([tmp_path], tmp_path / "curves.png")
    with pytest.raises(UserError, match="nothing to draw"):
        draw_curves([make_run(tmp_path / "b", epochs=0)], tmp_path / "curves.png")
    with pytest.raises(UserError, match="cannot be written"):
        draw_curves([run], tmp_path / "none" / "curves.png")
    with pytest.raises(UserError, match="no curve 'los'"):
        figure_of(run, panels=["los"])
    with pytest.raises(UserError, match="no curve 'top2'"):
        figure_of(run, ylim={"top2": (0, 1)})


@pytest.mark.parametrize(
    "options", [{"axis": "mood"}, {"smooth": 1.0}, {"seeds": "some"}, {"style": "poster"}, {"only": "test"}]
)
def test_unknown_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UserError):
        PlotOptions(**options)  # type: ignore[arg-type]
    for text in ("5", "5:3", "a:b", "3:3"):
        with pytest.raises(UserError, match="is no range"):
            parse_limits(text, "--xlim")
