"""Real teacher processes for tests, forked from a process that has imported torch once."""

import json
import time
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from phalanx.config.resolve import parse_override, resolve
from phalanx.config.role import Role
from phalanx.config.schema import AugmentConfig, DistillConfig, MachineConfig, RunConfig
from phalanx.data.base import MicroBatch
from phalanx.engine.distill.find import find_teacher
from phalanx.engine.distill.logits import LocalTeachers
from phalanx.engine.distill.service.client import ServedTeachers
from phalanx.engine.distill.service.terms import Terms, terms_of_views
from phalanx.engine.distill.teacher import load_teachers
from phalanx.engine.inputs import Inputs
from phalanx.engine.objective import View
from phalanx.machine.job_settings import choose_for_job, report_machine
from phalanx.machine.settings import settings_for
from phalanx.roles.teacher import serve_role
from tests.processes import preload, start
from tests.waiting import until

KEY = "the teachers' secret"

preload("tests.engine.distill.service.teachers")


def teacher_process(role: Role, config: RunConfig, pause_s: float) -> None:
    """The main of a process; a pause before each answer has it busy when a test does something to it."""
    if pause_s:
        answer = LocalTeachers.logits

        def slowly(teachers: LocalTeachers, view: View) -> torch.Tensor:
            time.sleep(pause_s)
            return answer(teachers, view)

        LocalTeachers.logits = slowly  # type: ignore[method-assign, assignment]
    serve_role(role, config)


@dataclass
class TeacherProcesses:
    """Teacher processes on this machine, ended when the test ends."""

    folder: Path
    teacher: Path
    running: dict[int, ForkServerProcess] = field(default_factory=dict)

    def address(self, number: int) -> str:
        return f"ipc://{self.folder}/teacher-{number}"

    def start(self, number: int, address: str = "", teacher: Path | None = None, pause_s: float = 0.0) -> str:
        """Start a process; its address when it listens."""
        self._log(number).unlink(missing_ok=True)
        addresses = (*("" for _ in range(number)), address or self.address(number))
        role = Role("teacher", number, number + 1, teachers=addresses, key=KEY, run=self.folder)
        config = resolve([parse_override(f"distill.teachers=[{teacher or self.teacher}]")]).config
        self.running[number] = start(teacher_process, role, config, pause_s)
        until(lambda: any(line["kind"] == "start" for line in self.lines(number)))
        return str(next(line["address"] for line in self.lines(number) if line["kind"] == "start"))

    def lines(self, number: int) -> list[dict[str, Any]]:
        log = self._log(number)
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def kill(self, number: int) -> None:
        self.running[number].kill()
        self.running.pop(number).join()

    def end(self, number: int) -> dict[str, Any]:
        """Stop a process as a launcher does; the last line of its log."""
        process = self.running.pop(number)
        process.terminate()
        process.join()
        assert process.exitcode == 0
        return self.lines(number)[-1]

    def close(self) -> None:
        for number in list(self.running):
            self.kill(number)

    def _log(self, number: int) -> Path:
        return self.folder / "logs" / f"teacher-{number}.jsonl"


@dataclass(frozen=True)
class Student:
    """What a trainer has: inputs, its own copy of the teacher, and the terms that it joins with."""

    inputs: Inputs
    local: LocalTeachers
    terms: Terms

    def view(self, step: int, count: int = 6) -> View:
        """Noise as a trainer sees it at that step."""
        noise = np.random.default_rng(step)
        pixels = noise.integers(0, 256, (count, 16, 16, 1), dtype=np.uint8)
        indices = torch.from_numpy(noise.integers(0, 1000, count))
        micro = MicroBatch(
            1, torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.zeros(count, dtype=torch.int64), indices
        )
        images, targets = self.inputs.training(micro, 3, 64, step)
        return View(images, targets, micro, 3, 64, step)

    def served(self, *addresses: str, key: str = KEY, **options: Any) -> ServedTeachers:
        return ServedTeachers(dict.fromkeys(addresses, key), self.terms, **options)


def student_of(teacher: Path, precision: str = "fp32") -> Student:
    """All that changes a view on its way into the model is on."""
    machine = MachineConfig(threads=1, precision="fp32", device="cpu")
    job = choose_for_job(machine, [report_machine(machine)])
    settings = settings_for(job)
    augment = AugmentConfig(erase=0.5, mixup=0.4, cutmix=0.4)
    spec = find_teacher(str(teacher), []).spec
    inputs = Inputs(settings, augment, spec.mean, spec.std, seed=5, sizes=((2, 8),))
    config = DistillConfig.model_validate({"teachers": [str(teacher)], "precision": precision})
    teachers = load_teachers(config, spec, settings)
    terms = terms_of_views(inputs, job.machine, spec, config, [each.digest for each in teachers], "trainer-0")
    return Student(inputs, LocalTeachers(teachers), terms)
