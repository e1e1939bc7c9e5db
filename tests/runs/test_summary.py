"""summary.json: its fields, and what the values are made from."""

import json
from dataclasses import fields
from pathlib import Path

from phalanx.runs.folder import RunFolder
from phalanx.runs.summary import Summary, write_summary


def test_the_file_has_every_field(tmp_path: Path) -> None:
    summary = Summary(
        finished=True,
        best={"top1": 0.9, "topk": 1.0, "step": 8, "epoch": 2.0},
        last=None,
        k=5,
        epochs=2.5,
        steps=10,
        samples_per_s=120.0,
        shares={"data": 0.1, "compute": 0.7, "exchange": 0.1, "update": 0.1},
        workers=2,
        slowest=None,
        train_s=3.0,
        wall_s=4.0,
        model="wrn10_1",
        parameters=77_562,
        data="größere digits",
        decisions={"device": "cpu (no GPU found)"},
        command="phalanx train digits",
    )
    write_summary(RunFolder(tmp_path), summary)
    text = (tmp_path / "summary.json").read_text(encoding="utf-8")
    written = json.loads(text)
    assert list(written) == [field.name for field in fields(Summary)]
    assert (written["best"]["top1"], written["last"], written["epochs"]) == (0.9, None, 2.5)
    assert written["peak_memory_mib"] > 0
    assert {"phalanx", "torch"} <= written["versions"].keys()
    assert {"host", "cpu", "cores", "python"} <= written["machine"].keys()
    assert "größere" in text
    assert not list(tmp_path.glob("*.tmp"))
