"""Runs with a model, loss, optimizer and schedule of the user's own: exact, resumable, errors show the user's lines."""

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from rich.console import Console

from phalanx.api.request import make_request
from phalanx.api.start import start
from phalanx.commands.compare import compare_runs
from phalanx.commands.export import export_checkpoint
from phalanx.commands.loading import load_trained
from phalanx.config.schema import LossConfig
from phalanx.custom import load
from phalanx.custom.installed import install
from phalanx.data.augment.mixing import Targets
from phalanx.engine.loss import make_loss, training_loss
from phalanx.errors import UserError
from phalanx.net.interfaces import free_port
from phalanx.runs import checkpoint
from tests.custom.project import OWN, STEPS, write_project


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder is the project's."""
    monkeypatch.chdir(write_project(tmp_path / "project"))
    yield tmp_path / "project"
    install([])


def train(out: Path, *settings: str) -> Path:
    """A run in this process, from a fresh request."""
    request = make_request("digits", [*OWN, *STEPS, *settings], {}, out=out)
    assert start(request, console=Console(file=io.StringIO())).exit_code == 0
    return out


def resume(out: Path, *settings: str, at: str | None = None, accept: str | None = None) -> str:
    console = Console(file=io.StringIO(), width=200)
    request = make_request(None, list(settings), {}, resume=str(out), at=at, accept_code=accept)
    assert start(request, console=console).exit_code == 0
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def weights(run: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load_newest(run / "checkpoints")[0].tensors["model"]


def same(one: Path, other: Path) -> bool:
    left, right = weights(one), weights(other)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "phalanx", *words], capture_output=True, text=True, timeout=120)


def test_a_run_keeps_the_code_and_goes_on_exactly(tmp_path: Path, project: Path) -> None:
    run = train(tmp_path / "run")
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["name"] == "code/nets.py:TinyNet"
    assert sorted(config["code"]["files"]) == ["blocks.py", "nets.py", "parts.py"]
    saved = checkpoint.load_newest(run / "checkpoints")[0].state["config"]["code"]["files"]
    assert saved == config["code"]["files"]
    assert (run / "code" / "nets.py").read_text() == (project / "nets.py").read_text()
    again = shutil.copytree(run, tmp_path / "again")
    project.rename(tmp_path / "moved")  # the run's copy is enough
    (tmp_path / "project").mkdir()
    resume(again, at="3st")
    assert same(run, again)
    trained = load_trained(again, {"device": "cpu"})
    assert trained.logits(torch.zeros(3, 1, 8, 8, dtype=torch.uint8)).shape == (3, 10)
    export_checkpoint(Console(file=io.StringIO()), again, tmp_path / "exported", ["safetensors"])
    assert (tmp_path / "exported" / "code" / "blocks.py").is_file()


def test_a_runs_configuration_repeats_it(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    request = make_request(str(run / "config.yaml"), [], {}, out=tmp_path / "again")
    assert start(request, console=Console(file=io.StringIO())).exit_code == 0
    assert same(run, tmp_path / "again")
    assert request.config.code == make_request(None, ["train.length=9st"], {}, resume=str(run)).config.code


def test_a_changed_file_is_refused_unless_it_is_accepted(tmp_path: Path, project: Path) -> None:
    run = train(tmp_path / "run")
    text = (project / "parts.py").read_text().replace("gamma=2.0", "gamma=1.0")
    (project / "parts.py").write_text(text)
    with pytest.raises(UserError, match="has changed since") as caught:
        make_request(None, [], {}, resume=str(run))
    assert "line 5 is now: def focal(logits, labels, gamma=1.0):" in caught.value.why
    assert "--accept-code" in caught.value.remedy
    with pytest.raises(UserError, match="cannot be 'old'"):
        make_request(None, [], {}, resume=str(run), accept_code="old")
    kept = make_request(None, [], {}, resume=str(run), accept_code="run")
    assert [file for file in kept.code if file.text == text] == []
    told = resume(run, "train.length=7st", accept="new")
    assert "parts.py has changed since this checkpoint was saved" in told
    assert (run / "code" / "parts.py").read_text() == text
    for path in sorted((run / "checkpoints").glob("step-*")):  # each with the code that it was trained with
        load_trained(path, {"device": "cpu"})
    (run / "code" / "nets.py").write_text("")
    with pytest.raises(UserError, match="not what this checkpoint was trained with"):
        load_trained(run / "checkpoints" / "step-00000007", {"device": "cpu"})
    with pytest.raises(UserError, match="has changed since the run used it"):
        make_request(None, [], {}, resume=str(run))


def test_comparing_runs_imports_nothing(tmp_path: Path, project: Path) -> None:
    run = train(tmp_path / "run")
    other = shutil.copytree(run, tmp_path / "other")
    (other / "code" / "nets.py").write_text("raise OSError('imported')\n")
    console = Console(file=io.StringIO(), width=200)
    compare_runs(console, run, other, tmp_path / "curves.png")
    assert isinstance(console.file, io.StringIO)
    assert "identical in all" in console.file.getvalue()


def test_two_workers_and_servers_compute_the_same(tmp_path: Path) -> None:
    words = ["train", "digits", *OWN, *STEPS, "--workers", "2"]
    for out, method in (("collective", []), ("pserver", ["--update-method", "pserver", "--servers", "2"])):
        done = command(*words, *method, "--out", str(tmp_path / out))
        assert done.returncode == 0, done.stdout + done.stderr
    assert same(tmp_path / "collective", tmp_path / "pserver")


@pytest.mark.parametrize("method", [["--workers", "2"], ["--update-method", "pserver"]], ids=["trainer", "server"])
def test_an_error_shows_the_users_line_and_leaves_the_run_resumable(
    tmp_path: Path, project: Path, method: list[str]
) -> None:
    parts = project / "parts.py"
    right = parts.read_text()
    loop = "        for group in self.param_groups:\n"
    assert loop in right
    parts.write_text(
        right.replace(loop, f"{loop}            _ = [0][group['lr'] < 0.0014]\n")
    )  # wrong at the fifth step
    run = tmp_path / "run"
    done = command("train", "digits", *OWN, *STEPS, *method, "--out", str(run))
    told = done.stdout + done.stderr
    assert done.returncode == 2, told
    assert "IndexError in" in told
    assert "_ = [0][group['lr'] < 0.0014]" in told
    assert "phalanx/optim" not in told, "the user's lines alone"
    assert f"--resume {run if '--workers' in method else 'RUN'} --accept-code new" in told
    parts.write_text(right)
    done = command("train", "--resume", str(run), "--accept-code", "new")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("return self.fc(", "return (self.fc("), "nets.py, line 13: '(' was never closed"),
        (("nn.Linear(width, num_classes)", "nn.Linear(width, 3)"), "answers two images of 1 × 16 × 16 with [2, 3]"),
        (("nn.Linear(width,", "nn.Linear(2 * width,"), "line 13, in forward"),
        (("width=8", "wide=8"), "does not take width"),
    ],
)
def test_a_model_that_does_not_fit(tmp_path: Path, project: Path, change: tuple[str, str], said: str) -> None:
    nets = project / "nets.py"
    nets.write_text(nets.read_text().replace(*change))
    with pytest.raises(UserError) as caught:
        train(tmp_path / "run")
    assert said in str(caught.value)
    assert not (tmp_path / "run" / "events.jsonl").exists()


def test_workers_with_different_code_are_refused(tmp_path: Path) -> None:
    """As torchrun starts them: each reads its own files."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1")), "WORLD_SIZE": "2"}
    folders = [write_project(tmp_path / str(rank)) for rank in (0, 1)]
    (folders[1] / "blocks.py").write_text((folders[1] / "blocks.py").read_text() + "\n")
    words = [sys.executable, "-m", "phalanx", "train", "digits", *OWN, *STEPS, "--out", str(tmp_path / "run")]
    started = [
        subprocess.Popen(
            words,
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, folder in enumerate(folders)
    ]
    for process in started:
        told = process.communicate(timeout=120)[1]
        assert process.returncode == 2
        assert "different code in blocks.py" in told
        assert "for worker 1 on" in told


def test_a_script_that_starts_a_run_when_it_is_imported(project: Path) -> None:
    (project / "script.py").write_text(
        "from phalanx.api.request import make_request\n\nclass Net: pass\n\nmake_request('digits', [], {})\n"
    )
    with pytest.raises(UserError, match="while its own code is imported") as caught:
        load("script.py:Net")
    assert "__main__" in caught.value.remedy


def test_a_loss_of_mixed_labels_counts_by_their_share(project: Path) -> None:
    (project / "losses.py").write_text(
        "import torch\n\nclass Scaled(torch.nn.Module):\n"
        "    def __init__(self, by=1.0):\n        super().__init__()\n        self.by = by\n\n"
        "    def forward(self, logits, labels):\n        return self.by * logits[range(len(labels)), labels]\n\n"
        "def wrong(logits, labels):\n    return logits\n\n"
        "def constant(logits, labels):\n    return torch.tensor(1.0)\n"
    )
    logits = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    labels, others = torch.tensor([0, 0]), torch.tensor([1, 1])
    loss = make_loss(LossConfig(name="losses.py:Scaled", options={"by": 2.0}))
    assert float(training_loss(logits.detach(), Targets(labels, others, 0.25), loss)) == 2 * (0.25 * 2.0 + 0.75 * 3.0)
    for name, said in (("wrong", "a tensor of [2, 2]"), ("constant", "without a gradient")):
        with pytest.raises(UserError, match=said.replace("[", r"\[")):
            make_loss(LossConfig(name=f"losses.py:{name}"))(logits, labels)
