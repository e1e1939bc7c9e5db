"""A real Ray cluster of two hosts: two trainers learn together, and a killed launcher leaves nothing."""

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from phalanx.cli.main import app
from phalanx.errors import UserError
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.lab.hosts import Lab, hosts_up
from tests.waiting import until

SETTINGS = ["digits", "model.name=wrn10_1", *LEAN, "train.log_every=2"]
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="not installed: ray; pip install 'phalanx[ray]'"
)


@dataclass(frozen=True)
class Cluster:
    lab: Lab
    address: str
    env: dict[str, str]

    def launch(self, *words: str) -> list[str]:
        options = ["--launcher", "ray", "--address", self.address, "-n", "2", "--nodes", "2"]
        return [sys.executable, "-m", "phalanx", "launch", *options, *words]


@pytest.fixture(scope="module")
def ray() -> Iterator[Cluster]:
    """Ray's processes end with their hosts."""
    with hosts_up(2) as lab:
        (lab.folder / "token").write_text("0123456789abcdef" * 4)
        env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(lab.folder / "token")}
        env |= {"RAY_USAGE_STATS_ENABLED": "0"}
        address = f"{lab.address('h1')}:6379"
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--disable-usage-stats"]
        start += ["--object-store-memory=80000000"]
        head = ["--head", f"--node-ip-address={lab.address('h1')}", "--port=6379", "--include-dashboard=false"]
        lab.run("h1", [*start, *head, f"--temp-dir={lab.own}"], env=env, cwd=lab.own)
        joined = [f"--address={address}", f"--node-ip-address={lab.address('h2')}"]
        lab.run("h2", [*start, *joined], env=env, cwd=lab.own)
        yield Cluster(lab, address, env)


@needs_ray
@pytest.mark.lab
def test_two_nodes_train_together(ray: Cluster, tmp_path: Path) -> None:
    words = ["--", "train", *SETTINGS, "train.length=4st", "--out", str(tmp_path / "run")]
    said = ray.lab.run("h1", ray.launch(*words), cwd=tmp_path, env=ray.env)
    assert "2 hosts ready" in said.stderr
    assert {"trainer-0@10.77.0.1", "trainer-0@10.77.0.2"} & set(said.stdout.split())
    steps = [record for record in read_events(tmp_path / "run") if record["kind"] == "step"]
    assert len(steps[-1]["ranks"]) == 2
    assert left(ray.lab) == []


@needs_ray
@pytest.mark.lab
def test_a_killed_launcher_leaves_nothing(ray: Cluster, tmp_path: Path) -> None:
    words = ["--", "train", *SETTINGS, "train.length=100000st", "--out", str(tmp_path / "run")]
    launcher = ray.lab.start("h1", ray.launch(*words), cwd=tmp_path, env=ray.env)
    until(lambda: len(ray.lab.processes("PHALANX_NAME=trainer-")) == 2, timeout_s=120)
    assert {process.host for process in ray.lab.processes("PHALANX_NAME=trainer-")} == {"h1", "h2"}
    os.kill(ray.lab.inner(launcher), signal.SIGKILL)
    until(lambda: left(ray.lab) == [], why=lambda: str(left(ray.lab)))
    launcher.communicate()


def left(lab: Lab) -> list[str]:
    """What of a job is alive, Ray's own processes aside."""
    found = [
        *lab.processes("phalanx.launch.launchers.callback_agent"),
        *lab.processes("PHALANX_JOB="),
        *lab.processes("ray::AgentActor"),
    ]
    return [" ".join(process.words) for process in found]


@needs_ray
def test_no_cluster_at_that_address() -> None:
    words = ["launch", "--launcher", "ray", "-n", "2", "--address", "127.0.0.1:1", "--", "train", "digits"]
    with pytest.raises(UserError, match=r"no Ray cluster at 127.0.0.1:1"):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_dry_run_shows_the_placement_group() -> None:
    words = ["launch", "--launcher", "ray", "-n", "4", "--nodes", "2", "--cpus-per-worker", "3", "--dry-run"]
    said = CliRunner().invoke(app, [*words, "--", "train", "digits"], catch_exceptions=False)
    assert "STRICT_SPREAD, 2 bundles of {'CPU': 6.0}" in said.stdout
