"""The evaluator measures what a trainer would, remembers across restarts, and removes nothing that is still needed."""

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from phalanx.commands.evaluate import evaluate_checkpoint
from phalanx.config.resolve import resolve
from phalanx.config.role import Role
from phalanx.config.schema import MachineConfig
from phalanx.cpu.convolution import ConvAlgorithms, Shape, algorithms_for
from phalanx.errors import UserError
from phalanx.machine.cores import cores
from phalanx.native.build import find_library
from phalanx.observe.curves import read_run
from phalanx.roles.evaluator import Evaluator, make_evaluator
from phalanx.roles.request import Request
from phalanx.roles.run import run
from phalanx.runs import checkpoint
from phalanx.runs.events import EVALUATOR_EVENTS_FILE, EVENTS_FILE, read_events
from phalanx.runs.folder import RunFolder
from tests.conftest import LEAN, train_digits

SETTINGS = ["model.name=wrn10_1", "train.length=4ep", "train.batch_size=100", "optim.ema=0.9", *LEAN]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that a trainer has evaluated itself, with all of its checkpoints."""
    out = tmp_path_factory.mktemp("trained") / "run"
    return train_digits(out, *SETTINGS, "eval.every=1ep", "checkpoint.every=1ep", "checkpoint.keep_last=9")


@pytest.fixture
def unmeasured(trained: Path, tmp_path: Path) -> Path:
    """The same as a trainer leaves it where there is an evaluator."""
    return without_evaluations(trained, tmp_path / "run")


def without_evaluations(run: Path, out: Path) -> Path:
    shutil.copytree(run, out)
    lines = (out / EVENTS_FILE).read_text().splitlines(keepends=True)
    (out / EVENTS_FILE).write_text("".join(line for line in lines if json.loads(line)["kind"] != "eval"))
    (out / "checkpoints" / "best.json").unlink()
    return out


def change_state(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what the only checkpoint of a run says of itself."""
    (path,) = checkpoint.steps_saved(run / "checkpoints")
    loaded = checkpoint.load(path)
    change(loaded.state)
    checkpoint.save(path.parent, loaded.state["training"]["step"], loaded.tensors, loaded.state)


def evaluator_of(run: Path) -> Evaluator:
    config = resolve([RunFolder(run).layer()]).config
    kept = config.checkpoint.model_copy(update={"keep_last": 1})
    config = config.model_copy(update={"checkpoint": kept})
    return make_evaluator(config, RunFolder(run), Console(file=io.StringIO()), lambda: False)


def measured(run: Path) -> list[dict[str, Any]]:
    found = [record for record in read_events(run) if record["kind"] == "eval"]
    return [{key: value for key, value in record.items() if key not in ("t", "seconds")} for record in found]


def steps(run: Path) -> list[int]:
    return [int(path.name[5:]) for path in checkpoint.steps_saved(run / "checkpoints")]


def test_it_finds_what_a_trainer_finds_and_keeps_the_best(trained: Path, unmeasured: Path) -> None:
    evaluator = evaluator_of(unmeasured)
    assert [evaluator.evaluate_next() for _ in range(6)] == [True] * 4 + [False] * 2
    assert measured(unmeasured) == measured(trained)
    assert read_run(unmeasured, "").curve("val/top1", "epoch") == read_run(trained, "").curve("val/top1", "epoch")
    best = max(measured(trained), key=lambda record: (record["top1"], -record["step"]))["step"]
    assert checkpoint.best_path(unmeasured / "checkpoints") == checkpoint.path_of(unmeasured / "checkpoints", best)
    assert steps(unmeasured) == sorted({best, 60})


@pytest.mark.skipif(find_library("winograd").handle is None, reason=find_library("winograd").reason)
def test_all_evaluate_by_the_algorithms_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(
        x: Tensor, weight: Tensor, shape: Shape, wish: ConvAlgorithms | None = None, **how: bool
    ) -> ConvAlgorithms:
        ways = algorithms_for(weight, shape)
        return ConvAlgorithms(**{which: "winograd" if "winograd" in each else each[0] for which, each in ways.items()})

    monkeypatch.setattr("phalanx.cpu.tuning.choose_algorithms", choose)
    run = train_digits(tmp_path / "run", *SETTINGS, "train.length=1ep", "eval.every=1ep", "machine.precision=fp32")
    (found,) = measured(run)
    evaluate_checkpoint(Console(file=io.StringIO()), run, None, None, "cpu", None, tmp_path / "eval")
    assert json.loads((tmp_path / "eval" / "eval.json").read_text())["loss"] == found["loss"]
    for own in ("auto", "off"):  # whatever the evaluator itself would choose
        out = without_evaluations(run, tmp_path / own)
        config = resolve([RunFolder(out).layer()]).config
        config = config.model_copy(update={"machine": MachineConfig.model_validate({"fast_path": own})})
        assert make_evaluator(config, RunFolder(out), Console(file=io.StringIO()), lambda: False).evaluate_next()
        assert measured(out)[0]["loss"] == found["loss"]
    change_state(run, lambda state: state["training"].pop("forms"))
    evaluate_checkpoint(Console(file=io.StringIO()), run, None, None, "cpu", None, tmp_path / "plain")
    plain = json.loads((tmp_path / "plain" / "eval.json").read_text())["loss"]
    assert found["loss"] != plain == pytest.approx(found["loss"], rel=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_evaluates_in_the_precision_of_the_checkpoint(tmp_path: Path, precision: str) -> None:
    run = train_digits(tmp_path / "run", *SETTINGS, "train.length=1ep", "eval.every=1ep", "checkpoint.every=1ep")
    out = without_evaluations(run, tmp_path / "other")
    change_state(out, lambda state: state["config"]["machine"].update(precision=precision))
    assert evaluator_of(out).evaluate_next()
    evaluate_checkpoint(Console(file=io.StringIO()), run, None, None, "cpu", precision, tmp_path / "eval")
    assert json.loads((tmp_path / "eval" / "eval.json").read_text())["loss"] == measured(out)[0]["loss"]


def test_it_has_the_cores_that_trainers_of_its_host_leave(unmeasured: Path) -> None:
    config = resolve([RunFolder(unmeasured).layer()]).config
    config = config.model_copy(update={"machine": config.machine.model_copy(update={"threads": "auto"})})
    threads = []
    for local_trainers in (0, cores() - 1):
        console = Console(file=io.StringIO())
        evaluator = make_evaluator(config, RunFolder(unmeasured), console, lambda: False, local_trainers=local_trainers)
        assert evaluator.evaluate_next()
        threads.append(torch.get_num_threads())
    assert threads == [cores(), 1]


def test_one_that_was_killed_goes_on_where_it_stood(trained: Path, unmeasured: Path) -> None:
    first = evaluator_of(unmeasured)
    assert first.evaluate_next()
    assert first.evaluate_next()
    assert steps(unmeasured)[-2:] == [45, 60]  # what is not measured yet stays, whatever keep_last says
    with (unmeasured / EVALUATOR_EVENTS_FILE).open("a") as file:
        file.write('{"t": 1, "kind": "ev')  # killed while it wrote
    second = evaluator_of(unmeasured)
    while second.evaluate_next():
        pass
    assert measured(unmeasured) == measured(trained)


def test_evaluations_that_a_resume_takes_back_are_made_again(unmeasured: Path) -> None:
    evaluator = evaluator_of(unmeasured)
    while evaluator.evaluate_next():
        pass
    before = measured(unmeasured)
    resume = {"t": read_events(unmeasured)[-1]["t"] + 0.001, "kind": "resume", "step": 45, "saved_step": 45}
    with (unmeasured / EVENTS_FILE).open("a") as file:
        file.write(json.dumps(resume | {"checkpoint": "", "warnings": []}) + "\n")
    assert measured(unmeasured) == before[:3]
    again = evaluator_of(unmeasured)  # and one that has seen the folder before would look once it changes
    assert again.evaluate_next()
    assert not again.evaluate_next()
    assert measured(unmeasured)[3]["step"] == 60


def test_a_damaged_checkpoint_is_told_once_and_passed_over(unmeasured: Path) -> None:
    (checkpoint.path_of(unmeasured / "checkpoints", 30) / "model.safetensors").write_bytes(b"")
    evaluator = evaluator_of(unmeasured)
    while evaluator.evaluate_next():
        pass
    assert [record["step"] for record in measured(unmeasured)] == [15, 45, 60]
    notes = [record["text"] for record in read_events(unmeasured) if record["kind"] == "note"]
    assert len(notes) == 1
    assert "damaged" in notes[0]


def test_nobody_waits_for_an_evaluator_that_nobody_started(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nobody has started the evaluator"):
        train_digits(tmp_path / "run", *SETTINGS, "eval.evaluator=true")


def test_one_trainer_with_an_evaluator_and_the_best_across_a_resume(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train = [sys.executable, "-m", "phalanx", "train"]
    parts = [
        ["digits", *SETTINGS, "checkpoint.every=2ep", "eval.every=1ep", "--evaluator", "--out", str(out)],
        ["--resume", str(out), "train.length=5ep", "optim.lr=1e-9"],  # at such a rate nothing gets better
    ]
    said = ""
    for words in parts:
        done = subprocess.run([*train, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        said += done.stdout
        if words is parts[0]:
            assert measured(out) == measured(trained)  # bit for bit, at the steps of eval.every
            best = json.loads((out / "summary.json").read_text())["best"]
            assert best["step"] == max(measured(trained), key=lambda record: record["top1"])["step"]
    assert [record["step"] for record in measured(out)] == [15, 30, 45, 60, 75]
    for line in (out / "log.txt").read_text(), said:
        assert line.count("validation at step") == 5
    summary = json.loads((out / "summary.json").read_text())
    assert summary["last"]["step"] == 75
    assert summary["best"]["top1"] >= best["top1"]
    assert checkpoint.path_of(out / "checkpoints", summary["best"]["step"]).is_dir()
    finished = Request(resolve([RunFolder(out).layer()]), "test", resume=RunFolder(out))
    with pytest.raises(UserError, match="is finished"):
        run(finished, Role(run=out, launcher="phalanx"), Console(file=io.StringIO()))
