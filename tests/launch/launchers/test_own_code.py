"""The user's own code on hosts that do not have it: it travels with the job, and the run goes on exactly."""

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from phalanx.runs import checkpoint
from tests.custom.project import OWN, STEPS, write_project
from tests.lab.hosts import Lab

pytestmark = pytest.mark.lab


def weights(run: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load_newest(run / "checkpoints")[0].tensors["model"]


def test_two_hosts_train_and_resume_with_a_model_of_the_users(lab: Lab) -> None:
    """The project is on the launching host alone, in a folder that the hosts do not share. Trainer 0 is elsewhere."""
    write_project(lab.own_of("h1") / "project")
    for host in ("h2", "h3"):
        (lab.own_of(host) / "project").mkdir()
    folder = lab.own / "project"
    launch = [*lab.launch, "--ips", "h2,h3"]
    lab.run("h1", [*launch, "-n", "2", "--", "train", "digits", *OWN, *STEPS, "--out", "run"], cwd=folder)
    here, there = (lab.own_of(host) / "project" / "run" for host in ("h1", "h2"))
    for run in (here, there):
        assert (run / "code" / "blocks.py").read_text() == (here.parent / "blocks.py").read_text()
        assert yaml.safe_load((run / "config.yaml").read_text())["model"]["name"] == "code/nets.py:TinyNet"
    undisturbed = weights(there)

    again = [*launch, "-n", "2", "--", "train", "--resume", "run", "--at", "3st"]
    (here.parent / "nets.py").write_text("")
    refused = lab.run("h1", again, cwd=folder, check=False)
    assert refused.returncode == 2
    assert "nets.py has changed since run was started" in refused.stderr
    shutil.rmtree(there / "code")
    lab.run("h1", [*again, "--accept-code", "run"], cwd=folder)
    resumed = weights(there)
    assert resumed.keys() == undisturbed.keys()
    assert all(torch.equal(resumed[name], undisturbed[name]) for name in undisturbed)
    assert (there / "code" / "nets.py").read_text()
