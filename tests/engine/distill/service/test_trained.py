"""A student's weights are the same bits with the teacher in the trainer, in other processes, or from a cache."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from phalanx.engine.distill.cache_file import ROWS
from phalanx.errors import UserError
from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from tests.conftest import LEAN, train_digits
from tests.engine.distill.service.teachers import KEY, TeacherProcesses
from tests.waiting import until

# Two micro-batches a step. Erasing is done where the model is, not where batches are made.
SETTINGS = (
    *("model.name=wrn10_1", "train.batch_size=128", "train.length=3ep", "optim.accumulate=2", "augment.erase=0.4"),
    *("train.seed=7", "train.log_every=1", "eval.every=100ep", *LEAN),
)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load_newest(run / "checkpoints")[0].tensors["model"]


def assert_same(one: Path, other: Path) -> None:
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


def student(out: Path, teacher: Path, *settings: str) -> Path:
    return train_digits(out, *SETTINGS, f"distill.teachers=[{teacher}]", *settings)


@pytest.fixture(scope="module")
def local(digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return student(tmp_path_factory.mktemp("local") / "run", digits_run)


def test_a_killed_teacher_process_changes_nothing(
    local: Path, processes: TeacherProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_KEY", KEY)
    addresses = [processes.start(number, pause_s=0.03) for number in range(2)]
    out = tmp_path / "run"

    def kill() -> None:
        until(lambda: (out / "events.jsonl").exists() and sum(e["kind"] == "step" for e in read_events(out)) > 3)
        processes.kill(0)

    killer = threading.Thread(target=kill)
    killer.start()
    student(out, processes.teacher, f"distill.service=[{','.join(addresses)}]")
    killer.join()
    assert_same(local, out)
    notes = [event["text"] for event in read_events(out) if event["kind"] == "note"]
    assert any(f"the teacher at {addresses[0]} disconnected" in note for note in notes), notes
    assert processes.end(1)["samples"] > 0


def test_a_cache_gives_the_same_weights_and_later_computes_nothing(
    local: Path, digits_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    kept = f"distill.cache={cache}"
    assert_same(local, student(tmp_path / "first", digits_run, kept))
    assert "cache: 1,442 samples × 3 epochs × 10 logits × 4 bytes" in capfd.readouterr().err
    assert (cache / ROWS).stat().st_size == 1442 * 3 * 44
    before = (cache / ROWS).read_bytes()
    rows = np.frombuffer(before, dtype="<u4").reshape(3, 1442, 11)
    assert (rows[:, :, 0] != 0).all(), "every view has its checksum"
    # Nobody listens there: a view that is not in the cache would end the run.
    served = (f"distill.service=[ipc://{tmp_path}/nobody]", "distill.service_timeout_s=1")
    assert_same(local, student(tmp_path / "second", digits_run, kept, *served))
    assert (cache / ROWS).read_bytes() == before
    with pytest.raises(UserError, match=r"train\.seed differs"):
        student(tmp_path / "other", digits_run, kept, "train.seed=8")
    with pytest.raises(UserError, match=r"augment\.erase differs"):
        student(tmp_path / "other", digits_run, kept, "augment.erase=0.1")
    with pytest.raises(UserError, match="weights of the teachers differs"):
        student(tmp_path / "other", local, kept)
    with pytest.raises(UserError, match=r"augment\.mixup") as error:
        student(tmp_path / "other", digits_run, kept, "augment.mixup=0.2")
    assert "mixes the samples" in error.value.why


def test_logits_of_16_bits_and_a_small_cache_train_and_resume_alike(
    processes: TeacherProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_KEY", KEY)
    address = processes.start(0)
    few = ("distill.cache_epochs=2", "distill.cache_top_k=3", "distill.precision=bf16")
    for name in ("first", "second"):  # the third epoch has the views of the first
        student(
            tmp_path / name,
            processes.teacher,
            f"distill.cache={tmp_path / 'cache'}",
            *few,
            f"distill.service=[{address}]",
        )
    assert_same(tmp_path / "first", tmp_path / "second")
    assert processes.end(0)["samples"] == 2 * 1442


def job(*words: str) -> list[str]:
    return [sys.executable, "-m", "phalanx", "train", *words]


def teacher_of(run: Path) -> list[int]:
    """The pid of its teacher, once the launcher has written it down."""
    roles = json.loads((run / "job.json").read_text())["roles"] if (run / "job.json").exists() else []
    return [role["pid"] for role in roles if role["name"] == "teacher-0" and role["pid"]]


def test_two_workers_whose_teacher_is_killed_and_that_are_resumed(digits_run: Path, tmp_path: Path) -> None:
    taught = (*SETTINGS, "optim.accumulate=1", "train.length=12st", f"distill.teachers=[{digits_run}]")
    saved = ("checkpoint.every=4st", "checkpoint.keep_last=5", "--workers", "2")
    whole, out = tmp_path / "local", tmp_path / "served"
    subprocess.run(job("digits", *taught, *saved, "--out", str(whole)), check=True, timeout=180, capture_output=True)
    command = job("digits", *taught, *saved, "--teachers", "1", "--out", str(out))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as served:
        until(lambda: (out / "events.jsonl").exists() and any(e["kind"] == "step" for e in read_events(out)))
        until(lambda: teacher_of(out))
        os.kill(teacher_of(out)[0], signal.SIGKILL)
        said, _ = served.communicate(timeout=180)
    assert served.returncode == 0, said
    assert_same(whole, out)
    assert "teacher-0" in said
    resumed = subprocess.run(
        job("--resume", str(out), "--at", "4st"), check=False, timeout=180, capture_output=True, text=True
    )
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert_same(whole, out)
    served_twice = [line for line in (out / "logs" / "teacher-0.jsonl").read_text().splitlines() if '"join"' in line]
    assert len(served_twice) >= 4, "both workers joined in both parts"
