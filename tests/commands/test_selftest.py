"""The selftest of GPUs, on the CPU: each check runs, and the report is what a user can send."""

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from phalanx.commands import selftest_checks
from phalanx.commands.doctor_gpu import gpu_rows
from phalanx.commands.selftest import JSON_BELOW, selftest

CPU = torch.device("cpu")


@pytest.mark.slow
def test_all_checks_run_without_a_gpu_and_the_report_says_so(tmp_path: Path) -> None:
    said, out = io.StringIO(), tmp_path / "report.txt"
    code = selftest(Console(file=said, width=200), out, "cpu")
    text, _, data = out.read_text(encoding="utf-8").partition(JSON_BELOW)
    found = json.loads(data)
    assert code == 0, text
    assert [each["status"] for each in found["checks"]] == ["ok"] * len(selftest_checks.CHECKS)
    assert "no GPU is used" in text
    assert "no GPU is used" in said.getvalue()
    for each in found["checks"]:
        assert f"ok: {each['name']}: {each['text']}" in text
    numbers = {each["name"]: each["numbers"] for each in found["checks"]}
    assert numbers["resume"]["differ"] == []
    assert numbers["two workers"]["workers"] == 2
    assert numbers["speed"]["ours"] > 0
    assert numbers["sums"]["right"]
    assert found["about"]["torch"].startswith(torch.__version__)


def test_numbers_that_are_off_are_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(selftest_checks, "LIMITS", {"bf16": (torch.bfloat16, 1e-9, 1.0, 1.0)})
    with pytest.raises(selftest_checks.Wrong, match="bf16 is off by") as caught:
        selftest_checks.numbers(CPU, tmp_path)
    assert caught.value.numbers["bf16"][0] > 1e-9


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_doctor_says_why_there_is_no_gpu() -> None:
    rows = gpu_rows()
    assert rows["torch"].startswith(torch.__version__)
    assert "CUDA" in rows["GPU"]
