"""`phalanx plot` as it is typed."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import phalanx
from phalanx.cli.main import app
from phalanx.commands.plot import plot_curves, plot_options
from phalanx.errors import UserError
from phalanx.observe.plot_options import PlotOptions
from tests.observe.logs.test_text_logs import MXNET
from tests.observe.made_runs import make_run

PLAIN: dict[str, Any] = {
    "against": None,
    "panels": None,
    "only": None,
    "seeds": "range",
    "smooth": 0.0,
    "xlim": None,
    "ylim": [],
    "log": [],
    "style": "screen",
    "tag": [],
}


def options(**typed: Any) -> PlotOptions:
    return plot_options(**{**PLAIN, **typed})


def test_options_as_typed() -> None:
    assert options() == PlotOptions(panels=[], log=[])
    typed = options(
        panels="top1, loss", ylim=["top1=80:95", "loss=:2"], xlim="5:", log=["loss,lr"], tag=["val/top1=acc"]
    )
    assert typed.panels == ["top1", "loss"]
    assert typed.ylim == {"top1": (80, 95), "loss": (None, 2)}
    assert list(typed.xlim) == [5, None]
    assert typed.log == ["loss", "lr"]
    assert typed.tags == {"val/top1": "acc"}
    wrongs: list[dict[str, Any]] = [{"ylim": ["80:95"]}, {"tag": ["val/top1"]}, {"xlim": "1"}, {"ylim": ["top1=9"]}]
    for wrong in wrongs:
        with pytest.raises(UserError):
            options(**wrong)


def test_what_is_drawn_and_what_is_not_is_printed(tmp_path: Path) -> None:
    (tmp_path / "mxnet.log").write_text(MXNET)
    words, said = [str(make_run(tmp_path / "a")), f"theirs={tmp_path / 'mxnet.log'}"], io.StringIO()
    plot_curves(Console(file=said), words, tmp_path / "c.png", PlotOptions())
    assert said.getvalue().splitlines() == [
        "note: theirs: an epoch is taken as 60 steps: the last batch that is logged is 40, and one in 20 is",
        f"{tmp_path / 'c.png'}: curves of 2 runs",
    ]


def test_flags_reach_the_figure(tmp_path: Path) -> None:
    flags = (
        "--against step --panels top1 --only val --style paper --ylim top1=80:95 --xlim 0:30 --smooth 0.5 --log top1"
    )
    words = ["plot", str(make_run(tmp_path / "a")), "--out", str(tmp_path / "c.svg"), *flags.split()]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "curves of 1 run\n" in done.output
    assert (tmp_path / "c.svg").stat().st_size > 1000


def test_from_python(tmp_path: Path) -> None:
    (tmp_path / "mxnet.log").write_text(MXNET)
    ours = make_run(tmp_path / "a")
    with pytest.warns(UserWarning, match="60 steps"):
        figure = phalanx.plot({"ours": [ours], "theirs": tmp_path / "mxnet.log"}, tmp_path / "c.png", against="epoch")
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == ["ours", "theirs"]
    assert (tmp_path / "c.png").exists()
    assert len(phalanx.plot(phalanx.load(ours)).axes) == 4
