"""`phalanx.train` and `phalanx.launch` with several processes: from a script, in a thread, and however it ends."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import phalanx
from phalanx.runs import checkpoint
from tests.waiting import until

SMALL = {"model.name": "wrn10_1", "machine.precision": "fp32", "train.curves": False}
MARK = "API_TEST"
# Without `if __name__ == "__main__"`.
LONG = f"""
import phalanx
run = phalanx.train("digits", workers=2, epochs=500, log_every=1, settings={SMALL}, out="run")
print(run.finished, run.resume(settings={{"train.length": f"{{run.history('train/lr').steps[-1] + 1}}st"}}).finished)
"""


def num_steps(run: Path) -> int:
    """How many step events a run has."""
    events = run / "events.jsonl"
    return events.read_text().count('"kind": "step"') if events.exists() else 0


def start_script(folder: Path, mark: str) -> "subprocess.Popen[str]":
    (folder / "script.py").write_text(LONG)
    return subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def alive(mark: str) -> list[str]:
    """Processes that the script started, itself among them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found


def test_a_script_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    script = start_script(tmp_path, mark)
    until(lambda: num_steps(tmp_path / "run") > 0 or script.poll() is not None)
    script.send_signal(signal.SIGINT)
    said, errors = script.communicate(timeout=180)
    assert (script.returncode, said, errors) == (0, "False True\n", "")
    assert not alive(mark)


def test_a_killed_process_leaves_no_worker_behind(tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    script = start_script(tmp_path, mark)
    until(lambda: num_steps(tmp_path / "run") > 0 or script.poll() is not None)
    assert len(alive(mark)) >= 4  # the script, the supervisor, two workers
    script.kill()
    script.communicate()
    until(lambda: not alive(mark))


def test_an_error_of_a_worker_comes_back_whole(tmp_path: Path) -> None:
    with pytest.raises(phalanx.Error) as caught:
        phalanx.train("digits", workers=2, optimizer="nonsense", settings=SMALL, out=tmp_path / "run")
    assert caught.value.what == "there is no optimizer 'nonsense'"
    assert caught.value.why
    assert "nesterov" in caught.value.remedy


def test_an_error_of_the_launcher_comes_back_whole(tmp_path: Path) -> None:
    with pytest.raises(phalanx.Error) as caught:
        phalanx.launch("digits", workers=2, hosts=["node1"], ssh="no-such-ssh", out=tmp_path / "run")
    assert "no-such-ssh: not found" in caught.value.what
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"launcher": "slrum"}, "slurm"),
        ({"launcher": "k8s"}, "command line"),
        ({"host": ["a"]}, "hosts"),
        ({"hosts": ["a"], "hostfile": "b"}, "both name the hosts"),
    ],
)
def test_a_launch_that_cannot_be_is_refused(
    arguments: dict[str, object], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(phalanx.Error, match=part):
        phalanx.launch("digits", **arguments)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("runs/*"))


def test_launched_or_trained_in_an_event_loop_it_is_the_same_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {**SMALL, "train.length": "3st", "machine.threads": 1}

    async def train() -> phalanx.Run:
        return await asyncio.to_thread(
            phalanx.train, "digits", workers=2, settings=settings, out=tmp_path / "trained", progress=False
        )

    trained = asyncio.run(train())
    assert capfd.readouterr() == ("", "")
    launched = phalanx.launch("digits", workers=2, servers=1, settings=settings, out=tmp_path / "on", progress=True)
    assert "trained:" in capfd.readouterr().out
    assert launched.config.exchange.method == "pserver"
    one, other = (
        checkpoint.load(checkpoint.find(run.path, prefer_best=False)).tensors["model"] for run in (trained, launched)
    )
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)


OWN = """
import sys
import torch
import phalanx

class TinyNet(torch.nn.Module):
    def __init__(self, num_classes, channels, image_size):
        super().__init__()
        self.body = torch.nn.Conv2d(channels, 4, 3, stride=4)
        self.head = torch.nn.Linear(64, num_classes)

    def forward(self, images):
        return self.head(self.body(images).flatten(1))

def main():
    settings = {"train.length": "2st", "train.curves": False, "machine.threads": 1}
    for workers in (1, 2):
        run = phalanx.train("digits", model=TinyNet, workers=workers, settings=settings, out=f"run-{workers}")
        print(type(run.model()).__name__, run.predict(torch.zeros(8, 8))[0].error)

"""


def test_a_model_of_the_user_s_own_is_trained(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f"{OWN}\nif __name__ == '__main__':\n    main()\n")
    done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("TinyNet None\n" * 2, "")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_script_that_trains_when_it_is_imported_is_refused(tmp_path: Path, workers: int) -> None:
    (tmp_path / "own.py").write_text(f"{OWN.replace('(1, 2)', f'({workers},)')}\nmain()\n")
    done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True)
    assert "if __name__ == '__main__':" in done.stderr
    assert not (tmp_path / "runs").exists()
