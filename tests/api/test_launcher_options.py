"""No option of `phalanx launch` is ignored: a launcher uses it, or refuses it with a reason."""

import json
from dataclasses import asdict

import pytest
import typer

from phalanx.api.launch_options import LAUNCHERS, LaunchOptions
from phalanx.api.launcher_options import TAKEN_BY, refuse_options
from phalanx.cli.main import app
from phalanx.errors import UserError


def help_of_options() -> dict[str, str]:
    command = typer.main.get_group(app).commands["launch"]
    return {str(one.name): getattr(one, "help", "") or "" for one in command.params}


def test_help_names_the_launchers_of_each_option() -> None:
    told = {name: text.partition(":")[0].split(", ") for name, text in help_of_options().items() if ":" in text}
    named = {name: set(words) for name, words in told.items() if set(words) <= set(LAUNCHERS)}
    assert named == {name: set(launchers) for name, launchers in TAKEN_BY.items()}


@pytest.mark.parametrize(
    ("launcher", "options", "message"),
    [
        ("ssh", LaunchOptions(image="x"), "--launcher ssh has no --image"),
        ("local", LaunchOptions(env=("A=1",)), "--launcher local has no --env"),
        ("ray", LaunchOptions(volume_claim="disk"), "--launcher ray has no --volume-claim"),
        ("slurm", LaunchOptions(gpus_per_worker=1), "--launcher slurm has no --gpus-per-worker"),
        ("srun", LaunchOptions(ips="a,b"), "--launcher srun has no --ips"),
        ("ray", LaunchOptions(detach=True), "--launcher ray has no --detach"),
        ("k8s", LaunchOptions(address="auto"), "--launcher k8s has no --address"),
        ("mpi", LaunchOptions(sync_dst_dir="d"), "--launcher mpi has no --sync-dst-dir"),
        ("local", LaunchOptions(hostfile="hosts"), "--launcher local has no -H"),
        ("slurm", LaunchOptions(servers_on="a"), "--launcher slurm has no --servers-on"),
        ("ray", LaunchOptions(evaluator_on="a"), "--launcher ray has no --evaluator-on"),
    ],
)
def test_an_option_of_another_launcher_is_refused(launcher: str, options: LaunchOptions, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        refuse_options(options, launcher)
    assert refused.value.why.startswith("it is an option of ")


def test_only_launchers_that_take_an_option_are_named() -> None:
    for options, takers in ((LaunchOptions(servers_on="a"), "ssh, mpi"), (LaunchOptions(sync_dst_dir="d"), "ssh")):
        with pytest.raises(UserError, match="--launcher srun has no") as refused:
            refuse_options(options, "srun")
        assert refused.value.why == f"it is an option of {takers}"


def test_defaults_are_no_options_that_were_given() -> None:
    for launcher in LAUNCHERS:
        refuse_options(LaunchOptions(), launcher)
        refuse_options(LaunchOptions(**json.loads(json.dumps(asdict(LaunchOptions())))), launcher)
