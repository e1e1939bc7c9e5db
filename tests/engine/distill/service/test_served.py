"""Logits from teacher processes are those of teachers in the trainer, whichever process computes them."""

from contextlib import closing
from pathlib import Path

import pytest
import torch

from phalanx.data.base import Batch
from phalanx.errors import UserError
from tests.engine.distill.service.teachers import KEY, TeacherProcesses, student_of


@pytest.mark.parametrize("place", ["ipc", "tcp"])
def test_logits_are_those_of_a_teacher_in_the_trainer(processes: TeacherProcesses, place: str) -> None:
    address = processes.start(0, "tcp://127.0.0.1:*" if place == "tcp" else "")
    student = student_of(processes.teacher)
    with closing(student.served(address)) as served:
        for step in range(5):  # images grow at step 2
            view = student.view(step)
            assert torch.equal(served.logits(view), student.local.logits(view))
        view = student.view(1, count=100)  # larger than what a socket takes
        assert torch.equal(served.logits(view), student.local.logits(view))
        assert torch.equal(served.logits(view), student.local.logits(view)), "asked again, answered again"
    assert processes.end(0)["samples"] == 5 * 6 + 200


def test_logits_of_16_bits(processes: TeacherProcesses) -> None:
    student = student_of(processes.teacher, "bf16")
    view = student.view(4)
    with closing(student.served(processes.start(0))) as served:
        assert torch.equal(served.logits(view), student.local.logits(view).bfloat16().float())


def test_announced_batches_are_computed_once_and_each_process_has_its_share(processes: TeacherProcesses) -> None:
    student = student_of(processes.teacher)
    addresses = [processes.start(number, pause_s=0.05) for number in range(2)]
    with closing(student.served(*addresses)) as served:
        views = [student.view(step) for step in range(12)]
        for view in views:
            served.announce(Batch(view.epoch, view.start, [view.micro], 6, last=False), view.step)
        for view in views:
            assert torch.equal(served.logits(view), student.local.logits(view))
    samples = [processes.end(number)["samples"] for number in range(2)]
    assert sum(samples) == 12 * 6
    assert min(samples) > 0


def test_a_killed_process_loses_nothing_and_may_come_back(processes: TeacherProcesses) -> None:
    student, told = student_of(processes.teacher), list[str]()
    addresses = [processes.start(number, pause_s=0.1) for number in range(2)]
    with closing(student.served(*addresses, notify=told.append)) as served:
        views = [student.view(step) for step in range(20)]
        for view in views:
            served.announce(Batch(view.epoch, view.start, [view.micro], 6, last=False), view.step)
        for number, view in enumerate(views):
            if number == 4:
                processes.kill(0)
            if number == 8:
                processes.kill(1)
                processes.start(0)
            assert torch.equal(served.logits(view), student.local.logits(view))
    assert any("teacher-0" in line and "go to others" in line for line in told), told


def test_an_error_names_the_processes_when_none_is_left(processes: TeacherProcesses, tmp_path: Path) -> None:
    student = student_of(processes.teacher)
    processes.start(0)
    with closing(student.served(processes.address(0), timeout_s=1.0)) as served:
        served.logits(student.view(0))
        processes.kill(0)
        with pytest.raises(UserError, match="no teacher has been there for 1 s") as error:
            served.logits(student.view(1))
        assert f"{processes.address(0)}: nobody listens" in error.value.why
        with pytest.raises(UserError, match="no teacher"):
            served.logits(student.view(2))


def test_another_teacher_and_another_key_are_refused(
    processes: TeacherProcesses, timm_run: Path, digits_run: Path
) -> None:
    student = student_of(digits_run)
    address = processes.start(0, "tcp://127.0.0.1:*", teacher=timm_run)
    with closing(student.served(address)) as served:
        with pytest.raises(UserError, match="would compute other logits") as error:
            served.logits(student.view(0))
        assert "pixels" in error.value.why or "SHA-256" in error.value.why
    with closing(student.served(address, key=f"not {KEY}", timeout_s=3.0)) as served:
        with pytest.raises(UserError, match="no teacher") as error:
            served.logits(student.view(0))
        assert "another PHALANX_KEY?" in error.value.why
