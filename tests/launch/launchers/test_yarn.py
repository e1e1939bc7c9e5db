"""YARN by the documented protocol: containers are real processes that connect to the launcher, train, and end."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from phalanx.cli.main import app
from phalanx.errors import UserError
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.lab.hosts import Lab
from tests.waiting import until

SETTINGS = ["digits", "model.name=wrn10_1", *LEAN, "train.log_every=2"]
SERVER = Path(__file__).with_name("resource_manager.py")


@dataclass(frozen=True)
class Manager:
    url: str
    folder: Path
    python: Path

    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "requests.jsonl").read_text().splitlines()]


@pytest.fixture
def manager(lab: Lab, tmp_path: Path) -> Iterator[Manager]:
    folder = tmp_path / "manager"
    folder.mkdir()
    process = lab.start("h1", [sys.executable, str(SERVER), lab.address("h1"), "8088", str(folder)])
    knock = [sys.executable, "-c", f"import socket; socket.create_connection(('{lab.address('h1')}', 8088))"]
    until(lambda: lab.run("h1", knock, check=False).returncode == 0)
    yield Manager(f"http://{lab.address('h1')}:8088", folder, lab.python)
    os.kill(lab.inner(process), signal.SIGTERM)
    process.communicate()


def launch(manager: Manager, *words: str) -> list[str]:
    options = ["--launcher", "yarn", "--resource-manager", manager.url, "-n", "2", "--python", str(manager.python)]
    return [sys.executable, "-m", "phalanx", "launch", *options, *words]


@pytest.mark.lab
def test_containers_train_together_and_are_gone(lab: Lab, manager: Manager, tmp_path: Path) -> None:
    words = ["--memory-per-worker", "2048", "--", "train", *SETTINGS, "train.length=4st"]
    said = lab.run("h2", launch(manager, *words, "--out", str(tmp_path / "run")), cwd=tmp_path)
    assert "2 hosts ready" in said.stderr
    steps = [record for record in read_events(tmp_path / "run") if record["kind"] == "step"]
    assert len(steps[-1]["ranks"]) == 2
    posted, deleted = manager.requests()
    assert (posted["method"], posted["path"]) == ("POST", "/app/v1/services")
    (worker,) = posted["content"]["components"]
    assert worker["number_of_containers"] == 2
    assert worker["resource"] == {"cpus": 1, "memory": "2048"}
    assert (deleted["method"], deleted["path"]) == ("DELETE", f"/app/v1/services/{posted['content']['name']}")
    assert not lab.processes("phalanx.launch.launchers.callback_agent")
    assert not lab.processes("PHALANX_JOB")


@pytest.mark.lab
def test_a_refusal_is_reported_and_leaves_no_folder(lab: Lab, manager: Manager, tmp_path: Path) -> None:
    words = ["--partition", "nowhere", "--", "train", *SETTINGS, "--out", str(tmp_path / "run")]
    refused = lab.run("h2", launch(manager, *words), cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert "queue nowhere does not exist" in refused.stderr
    words = ["--python", "/no/such python", "--", "train", *SETTINGS, "--out", str(tmp_path / "run")]
    broken = lab.run("h2", launch(manager, *words), cwd=tmp_path, check=False)
    assert broken.returncode == 2
    assert "YARN ended the service" in broken.stderr
    assert "/no/such python: No such file" in (manager.folder / "container-0/stderr").read_text()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --resource-manager"),
        (["--resource-manager", "rm:8088"], "is not an address"),
        (["--resource-manager", "http://127.0.0.1:1"], "does not answer"),
        (["--resource-manager", "http://rm:1", "--nodes", "3"], "more than the job's 2 workers"),
        (["--resource-manager", "http://rm:1", "--ips", "a"], "--launcher yarn has no --ips"),
    ],
)
def test_wrong_options_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(
            app, ["launch", "--launcher", "yarn", "-n", "2", *words, "--", "train", "digits"], catch_exceptions=False
        )


def test_dry_run_shows_the_request() -> None:
    words = ["launch", "--launcher", "yarn", "--resource-manager", "http://rm:8088", "-n", "4", "--nodes", "2"]
    words += ["--gpus-per-worker", "1", "--time", "1:00:00", "--partition", "gpu", "--dry-run", "--", "train", "digits"]
    said = CliRunner().invoke(app, words, catch_exceptions=False)
    service = json.loads(said.stdout.partition(":\n")[2])
    assert (service["queue"], service["lifetime"]) == ("gpu", 3600)
    resource = service["components"][0]["resource"]
    assert (resource["cpus"], resource["memory"]) == (2, "8192")
    assert resource["additional"] == {"yarn.io/gpu": {"value": 2, "unit": ""}}
