"""What a pod does before it trains: it waits for the others, and goes on where its job has saved."""

from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.launch.launchers.pod import await_pods, start_or_resume
from phalanx.runs.events import EVENTS_FILE

WORDS = ["train", "recipe.yaml", "--out", "runs/x"]


def test_a_pod_does_not_begin_without_the_others() -> None:
    await_pods(["localhost"], 1)
    with pytest.raises(UserError, match=r"1 of 2 pods have not started within 0 s: nobody"):
        await_pods(["localhost", "nobody.invalid"], 0)


def test_a_job_goes_on_from_its_own_checkpoint_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert start_or_resume(run, WORDS, "job-1", first=True) == WORDS
    (run / EVENTS_FILE).write_text("")
    # lost before its first checkpoint
    assert start_or_resume(run, WORDS, "job-1", first=True) == WORDS
    assert not (run / EVENTS_FILE).exists()
    (run / "checkpoints" / "step-00000004").mkdir(parents=True)
    assert start_or_resume(run, WORDS, "job-1", first=False) == ["train", "--resume", str(run)]
    (run / "code").mkdir()
    assert start_or_resume(run, WORDS, "job-1", first=True)[-2:] == ["--accept-code", "run"]
    with pytest.raises(UserError, match="holds a run already"):
        start_or_resume(run, WORDS, "job-2", first=True)
