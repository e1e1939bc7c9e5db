"""The notebook of the documentation, executed in a kernel of this Python."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebooks" / "first-run.ipynb"

nbformat: Any = pytest.importorskip("nbformat")
nbclient: Any = pytest.importorskip("nbclient")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel that is this interpreter."""
    folder = tmp_path / "jupyter" / "kernels" / "here"
    folder.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "here", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    return "here"


def shown(cell: Any) -> str:
    """Everything that a cell shows, as text."""
    return json.dumps(cell.outputs)


@pytest.mark.slow
@pytest.mark.usefixtures("one_core")
def test_the_notebook_runs(kernel: str, tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=500, kernel_name=kernel, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    cells = {cell.source.splitlines()[0]: shown(cell) for cell in notebook.cells if cell.cell_type == "code"}
    trained = cells['run = phalanx.train("digits", epochs=2)']
    assert "<pre style='margin:0'>" in trained or "text/html" in trained  # rich's, with a bar
    assert re.search(" training +validation", trained)  # the table of evaluations
    assert "data:image/png;base64," in trained
    assert "image/png" in cells["run.figure()"]
    assert re.search(" training +validation", cells['run = phalanx.train("digits", epochs=1, workers=2)'])
    assert "(2, True)" in cells['run = phalanx.train("digits", epochs=1, workers=2)']
    assert "did you mean epochs" in cells["try:"]


def test_the_notebook_has_no_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
