import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from phalanx.commands.compare import compare_runs, largest_difference
from phalanx.commands.compare_table import show_results, table_format
from phalanx.errors import UserError
from phalanx.observe.results import read_results
from tests.conftest import LEAN, train_digits


def test_a_run_is_identical_to_itself_and_differs_from_another(digits_run: Path, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    compare_runs(console, digits_run, digits_run, tmp_path / "same.png")
    settings = ["model.name=wrn10_1", "train.length=1ep", "train.seed=1", *LEAN]
    other = train_digits(tmp_path / "other", *settings)
    compare_runs(console, digits_run, other, tmp_path / "other.png")
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "identical in all" in said
    assert "largest difference in" in said
    assert (tmp_path / "same.png").stat().st_size > 0


def test_the_largest_difference_is_named() -> None:
    left = {"a": torch.ones(4), "b": torch.full((2,), 10.0)}
    right = {"a": torch.tensor([1.0, 1.0, 1.0, 1.5]), "b": torch.full((2,), 11.0)}
    found = largest_difference(left, right)
    assert found is not None
    assert (found.name, found.largest) == ("a", 0.5)
    assert found.relative == pytest.approx(0.25)


def test_what_is_no_run_is_refused(digits_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run"):
        compare_runs(Console(file=io.StringIO()), digits_run, tmp_path, tmp_path / "c.png")


NAME = "a [red]b[bold] | *x* `y` <z> ü\t_"


def table(*words: str) -> str:
    command = [sys.executable, "-m", "phalanx", "compare", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_many_runs_make_a_table(digits_run: Path, timm_run: Path, tmp_path: Path) -> None:
    odd = Path(shutil.copytree(digits_run, tmp_path / NAME))
    (odd / "config.yaml").unlink()
    runs = [str(run) for run in (digits_run, timm_run, odd)]
    accuracy = f"{100 * json.loads((digits_run / 'summary.json').read_text())['best']['top1']:.2f} %"

    titles, first, second, third = [line.split("\t") for line in table(*runs).splitlines()]
    assert titles[:7] == ["run", "recipe", "model", "best top-1", "final top-1", "best top-3", "final top-3"]
    assert (first[1:4], second[1:3]) == (["digits", "wrn10_1", accuracy], ["digits", "test_vit"])
    assert third[0] == NAME.replace("\t", " ")
    assert third[-1] == "config.yaml cannot be read"
    assert "servers" not in titles  # nobody has any

    lines = table(*runs, "--format", "markdown").splitlines()
    assert len(lines) == 5
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(titles) + 1}
    assert r"| a \[red\]b\[bold\] \| \*x\* \`y\` \<z\> ü \_ | - | wrn10\_1 |" in lines[4]

    out = tmp_path / "table.csv"
    assert table(*runs, "--out", str(out)) == f"{out}: a table of 3 runs\n"
    written = list(csv.DictReader(out.open(encoding="utf-8", newline="")))
    assert [one["run"] for one in written] == [digits_run.parent.name + "/run", timm_run.parent.name + "/run", NAME]
    found = read_results([digits_run])[0]
    assert (float(written[0]["best_top1"]), float(written[0]["wall_s"])) == (found.best_top1, found.wall_s)
    assert written[2]["workers"] == ""


def test_two_runs_make_a_table_where_it_is_asked_for(digits_run: Path, timm_run: Path, tmp_path: Path) -> None:
    runs = [str(digits_run), str(timm_run)]
    assert table(*runs, "--format", "text").startswith("run\trecipe\t")
    assert table(*runs, "--out", str(tmp_path / "t.md")).endswith("a table of 2 runs\n")
    assert (tmp_path / "t.md").read_text().startswith("| run | recipe |")
    assert "of different models" in table(*runs, "--out", str(tmp_path / "figure.png"))


def test_other_k_and_none_are_told_apart(digits_run: Path, tmp_path: Path) -> None:
    settings = ["model.name=wrn10_1", "train.length=2st", "eval.every=1st", *LEAN]
    alone = train_digits(tmp_path / "alone", *settings, "eval.top_k=0")
    two = train_digits(tmp_path / "two", *settings, "eval.top_k=2")
    titles, *rows = [line.split("\t") for line in table(str(alone), "--format", "text").splitlines()]
    assert [title for title in titles if "top-" in title] == ["best top-1", "final top-1"]
    titles, *rows = [line.split("\t") for line in table(str(digits_run), str(alone), str(two)).splitlines()]
    cells = [row[titles.index("best top-k")] for row in rows]
    assert cells[0].endswith(" % (top-3)")
    assert cells[1] == "-"
    assert cells[2].endswith(" % (top-2)")


def test_a_table_that_cannot_be_made_is_refused(digits_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no format 'xls'"):
        table_format("xls", None)
    with pytest.raises(UserError, match="has no known table format"):
        show_results(Console(file=io.StringIO()), [digits_run] * 3, table_format(None, Path("x.png")), Path("x.png"))
    with pytest.raises(UserError, match="cannot be written"):
        show_results(Console(file=io.StringIO()), [digits_run], "csv", tmp_path / "no" / "folder.csv")
