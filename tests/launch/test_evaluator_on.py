"""An evaluator on its own host, which has the run folder: it ends quietly, and the job succeeds."""

import sys
from pathlib import Path

import pytest

from phalanx.launch.record import RoleRecord, load_record
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.lab.hosts import Lab

pytestmark = pytest.mark.lab

TRAIN = ["train", "digits", "model.name=wrn10_1", "train.length=4st", *LEAN, "--global-batch-size", "96"]


def launch(lab: Lab, *words: str) -> list[str]:
    return [*lab.launch, *words]


def role(run: Path, name: str) -> RoleRecord:
    return next(record for record in load_record(run).roles if record.name == name)


def test_on_a_new_host_that_shares_the_disk(lab: Lab, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["-n", "2", "--ips", "h1,h2", "--evaluator-on", "root@h3", "--", *TRAIN, "--out", str(run)]
    said = lab.run("h1", launch(lab, *words))
    assert "job finished in" in said.stderr
    assert [role(run, f"trainer-{rank}").host for rank in range(2)] == ["h1", "h2"]
    evaluator = role(run, "evaluator-0")
    assert (evaluator.host, evaluator.state, evaluator.code) == ("h3", "ended", 0)
    log = (run / "logs" / "evaluator-0.log").read_text()
    assert "validation at step 4" in log
    assert "SIG" not in log + said.stderr + said.stdout
    assert [record["step"] for record in read_events(run) if record["kind"] == "eval"] == [4]


def test_roles_are_spread_over_hosts(lab: Lab, tmp_path: Path) -> None:
    """Other roles than trainers go to the host with the fewest roles, in a real job."""
    run = tmp_path / "run"
    words = ["-n", "2", "-s", "2", "--ips", "h1,h2,h3,h4", "--", *TRAIN, "--evaluator", "--data-servers", "1"]
    lab.run("h1", launch(lab, *words, "--out", str(run)))
    hosts = [record.host for record in load_record(run).roles]
    assert len(hosts) == 6
    assert sorted(hosts.count(host) for host in ("h1", "h2", "h3", "h4")) == [1, 1, 2, 2]


def test_hosts_that_share_no_disk(lab: Lab) -> None:
    """A named host without the run folder is refused; the default is a host that has it."""
    named = ["-n", "1", "--ips", "h1,h2", "--evaluator-on", "h2", "--", *TRAIN, "--out", "refused"]
    refused = lab.run("h1", launch(lab, *named), cwd=lab.own, check=False)
    assert refused.returncode == 2
    for part in ("the evaluator cannot run on h2", f"{lab.own}/refused on h1", "leave --evaluator-on out"):
        assert part in refused.stderr
    assert "h2 does not share that disk" in refused.stderr
    lab.run("h1", launch(lab, "-n", "1", "--ips", "h1,h2", "--", *TRAIN, "--evaluator", "--out", "run"), cwd=lab.own)
    assert role(lab.own_of("h1") / "run", "evaluator-0").host == "h1"


def test_what_cannot_be_is_refused(lab: Lab, tmp_path: Path) -> None:
    without_ssh = [sys.executable, "-m", "phalanx", "launch"]  # other launchers refuse it
    for words, what in (
        (["--evaluator-on", "h2", "--", *TRAIN, "--no-evaluator"], "cannot be used with --no-evaluator"),
        (["--launcher", "slurm", "--nodes", "1", "--evaluator-on", "last", "--", *TRAIN], "needs a node for the eval"),
        (
            ["--launcher", "sge", "--pe", "x", "--nodes", "2", "--evaluator-on", "h9", "--", *TRAIN],
            "cannot be requested",
        ),
        (["--launcher", "ray", "--evaluator-on", "last", "--", *TRAIN], "--launcher ray has no --evaluator-on"),
        (["--launcher", "local", "--evaluator-on", "last", "--", *TRAIN], "--launcher local has no --evaluator-on"),
    ):
        refused = lab.run("h1", [*without_ssh, *words], cwd=tmp_path, check=False)
        assert refused.returncode == 2, refused.stdout
        assert what in refused.stderr
    script = lab.run(
        "h1", [*without_ssh, "--launcher", "slurm", "--nodes", "2", "--evaluator-on", "h4", "--dry-run", "--", *TRAIN]
    ).stdout
    assert "#SBATCH --nodelist=h4" in script
    assert "--launcher srun --evaluator-on h4" in script
    assert "#SBATCH --ntasks-per-node=1" in script
