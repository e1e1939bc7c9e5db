"""Every row is tried: flags are parsed, settings resolved, variables read by launch/dialects, examples run."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import typer

from phalanx.cli.launch import parse_train
from phalanx.cli.main import app, request_from
from phalanx.config.role import Environment
from phalanx.config.schema import OptimConfig, RunConfig
from phalanx.errors import UserError
from phalanx.exchange.compress.spec import parse_compression
from phalanx.launch.env.roles import role_from_env
from phalanx.migrate.paddleclas import KEYS
from phalanx.migrate.table import Example, Row, Scope, systems
from phalanx.models.build import is_ours
from phalanx.net.interfaces import free_port
from phalanx.optim.update import make_optimizer
from tests.conftest import LEAN
from tests.launch.env.test_complete_role import dmlc, sync_step
from tests.migrate.rows import groups, label, rows

# What some new spellings need beside them to make sense.
BESIDE = {
    "model.options.num_layers": ["--model", "resnet"],
    "--min-workers": ["--workers", "8"],
}
NEW = [(kind, row) for _, kind, row in rows() if row.new]


def translations(row: Row) -> list[str]:
    return [row.translate(None), *(row.translate(value) for value in row.values)]


def resolved(words: list[str]) -> RunConfig:
    """What `phalanx train` makes of words; a run that `--resume` names need not be there."""
    beside = [more for key, more in BESIDE.items() if any(word.startswith(key) for word in words)]
    given = dict(parse_train([*words, *(word for more in beside for word in more)]))
    if given["resume"]:
        given["resume"] = given["at"] = None
    return request_from(given).resolved.config


def parse_command(words: list[str]) -> None:
    """A whole command that the table names: it exists, and takes these words."""
    command: Any = typer.main.get_group(app)
    name, *rest = words
    assert name == "phalanx"
    while hasattr(command, "commands"):
        name, *rest = rest
        command = command.commands[name]
    command.make_context(name, [*rest, "--", "train", "digits"] if name == "launch" else rest)


def try_out(kind: Scope, row: Row, words: list[str]) -> None:
    if words[0] == "phalanx":
        parse_command(words)
    elif kind == "launch" and not row.behind:
        parse_command(["phalanx", "launch", *words])
    elif kind == "serve-data":
        parse_command(["phalanx", "serve-data", *words])
    else:
        check(resolved(words))


def check(config: RunConfig) -> None:
    """What the schema leaves to others: names of models, optimizers and compressions."""
    assert is_ours(config.model.name) or timm.is_model(config.model.name), config.model.name
    parse_compression(config.exchange.compress)
    make_optimizer([{"params": [torch.zeros(3, 3, requires_grad=True)]}], OptimConfig(name=config.optim.name), 0.1)


@pytest.mark.parametrize(("kind", "row"), NEW, ids=label)
def test_what_is_to_be_written_works(kind: Scope, row: Row) -> None:
    for text in translations(row):
        assert "{}" not in text
        try_out(kind, row, shlex.split(text))


@pytest.mark.parametrize(("system", "kind", "row"), rows(), ids=label)
def test_a_row_is_whole(system: str, kind: Scope, row: Row) -> None:
    assert row.new or row.note or row.understood, "what is not written has a reason"
    assert not (row.new and (row.lacking or row.understood))
    assert ("{}" not in row.new and row.rewrite is None) or row.example
    assert not row.values or row.example
    for name in row.names:
        expected = name.lstrip("#").strip().split("=")[0]
        assert expected.startswith("-") == (kind in ("train", "launch", "serve-data")) or name.startswith("#SBATCH")


def test_no_spelling_is_explained_twice() -> None:
    for name, group in groups():
        spelled = [old for row in group.rows for old in row.names]
        assert len(spelled) == len(set(spelled)), f"{name}, {group.title}: {sorted(spelled)}"


def test_a_value_that_cannot_be_read_shows_the_example_instead() -> None:
    row = next(row for _, _, row in rows("train") if "--rgb-mean" in row.names)
    assert row.translate("127.5,127.5,127.5") == "data.mean=[0.5,0.5,0.5]"
    assert row.translate("grey") == row.translate(None)


@pytest.mark.parametrize(
    ("spelled", "value", "words"),
    [
        ("--image-shape", "1,28,28", "data.image_size=28 data.channels=1"),
        ("--lr-step-epochs", "pow2", "--lr-schedule polynomial schedule.power=2"),
        ("--max-random-h", "36", "augment.hue=0.2"),
        ("--worker-memory", "512m", "--memory-per-worker 512"),
        ("--num_gpus", "0", "--device cpu"),
        ("--ps_hosts", "a:1,a:2,b:1", "-s 3 --servers-on a,b"),
        ("-o", "Optimizer.lr.decay_epochs=[30, 60]", "schedule.milestones=[30ep,60ep]"),
        ("-o", "Optimizer.lr.values=[0.1, 0.01]", "schedule.factor=0.1"),
        ("-o", "AMP.level=O2", "(nothing: weights and updates are float32, and the loss scale follows the gradients)"),
        ("-n", "18", "-n 18"),
        ("--gpus", "2", "--gpus 0,1"),
    ],
)
def test_a_value_is_translated(spelled: str, value: str, words: str) -> None:
    assert words in [row.translate(value) for _, _, row in rows() if spelled in row.names]


def test_a_key_within_a_list_is_found() -> None:
    name = "DataLoader.Train.dataset.transform_ops.2.RandCropImage.size"
    assert any(row for row in KEYS.rows if name.replace(".2.", ".") in row.names)
    row = next(row for _, _, row in rows("train") if "-o" in row.names)
    assert row.translate(f"{name}=160") == "augment.crop=random-resized data.image_size=160"


# variables

PADDLE = {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2"}
SERVER = {"PADDLE_TRAINING_ROLE": "PSERVER", "PADDLE_TRAINERS_NUM": "2"}
SLURM = {
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "n[1-2]",
}
MPI = {f"OMPI_COMM_WORLD_{name}": value for name, value in (("RANK", "1"), ("SIZE", "2"))}
DMLC = dmlc(9000, "worker", "worker", "server", "scheduler")
SCENARIOS: list[dict[str, str]] = [
    {"PADDLE_TRAINING_ROLE": "TRAINER", **PADDLE, "PADDLE_PSERVER_ENDPOINTS": "10.0.0.1:1,10.0.0.2:1"},
    {"TRAINING_ROLE": "TRAINER", **PADDLE, "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:1"},
    {
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_TRAINERS": "2",
        "PADDLE_PSERVERS": "10.0.0.1",
    },
    {**PADDLE, "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:1,10.0.0.2:1", "PADDLE_CURRENT_ENDPOINT": "10.0.0.2:1"},
    {**PADDLE, "PADDLE_TRAINER_IPS": "10.0.0.1,10.0.0.2", "PADDLE_PORT": "6000"},
    {**PADDLE, "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:1,10.0.0.2:1", "PADDLE_IS_LOCAL": "0"},
    {**SERVER, "PADDLE_PSERVER_IPS": "10.0.0.1,10.0.0.2", "PADDLE_PSERVER_PORT": "6", "PADDLE_CURRENT_IP": "10.0.0.2"},
    {**SERVER, "PADDLE_PSERVER_IPS": "10.0.0.1,10.0.0.2", "POD_IP": "10.0.0.2"},
    *DMLC,
    {**DMLC[0], "DMLC_WORKER_ID": "1"},
    {**DMLC[2], "DMLC_NUM_SERVER": "2", "DMLC_SERVER_ID": "1"},
    SLURM,
    {**{k: v for k, v in SLURM.items() if k != "SLURM_STEP_NUM_TASKS"}, "SLURM_NTASKS": "3"},
    {**{k: v for k, v in SLURM.items() if k != "SLURM_STEP_NODELIST"}, "SLURM_JOB_NODELIST": "n[1-2]"},
    {**MPI, "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
    {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
    {
        "RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "5",
    },
]
UNDERSTOOD = [name for _, _, row in rows("variables") if row.understood for name in row.names]


def outcome(environment: Environment) -> str:
    try:
        return repr(role_from_env(environment))
    except UserError as error:
        return f"refused: {error}"


def other(value: str) -> list[str]:
    return [str(int(value) + 1), str(int(value) + 2)] if value.isdecimal() else [f"{value}9", "x"]


@pytest.mark.parametrize("variable", [name for name in UNDERSTOOD if name != "DMLC_NODE_HOST"])
def test_a_variable_that_is_understood_makes_a_difference(variable: str) -> None:
    """In a job that sets it, another value of it leads to another role, or to a refusal."""
    of_it = [scenario for scenario in SCENARIOS if variable in scenario]
    assert of_it, "no scenario sets it"
    for scenario in of_it:
        assert outcome(scenario).startswith("Role("), outcome(scenario)
    assert any(
        outcome({**scenario, variable: value}) != outcome(scenario)
        for scenario in of_it
        for value in other(scenario[variable])
    )


def test_dmlc_node_host_is_where_a_server_listens() -> None:
    assert "DMLC_NODE_HOST" in UNDERSTOOD
    job = dmlc(free_port("127.0.0.1"), "worker", "server", "scheduler")
    job[1]["DMLC_NODE_HOST"] = "127.0.0.2"
    worker = sync_step(job)[0]
    assert worker.servers[0].startswith("tcp://127.0.0.2:")


def test_a_variable_that_is_not_read_is_not_called_understood() -> None:
    """Whatever else the table lists changes no role."""
    for _, _, row in rows("variables"):
        for name in [] if row.understood else row.names:
            if not name.startswith(("FLAGS_", "TF_", "OMP_", "CPU_", "NCCL_", "CUDA_")):
                for scenario in SCENARIOS:
                    assert outcome({**scenario, name: "3"}) == outcome(scenario), name


# examples

EXAMPLES = [example for system in systems() for example in system.examples]


def test_every_system_has_an_example_that_runs_here() -> None:
    assert all(any(example.on_digits for example in system.examples) for system in systems())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.new[:60])
def test_a_whole_example_is_what_our_commands_take(example: Example, tmp_path: Path) -> None:
    for line in example.new.splitlines():
        program, command, *words = shlex.split(line)
        assert program == "phalanx"
        if command == "train":
            check(resolved(words))
            continue
        assert command == "launch"
        said = run([command, "--dry-run", *words], tmp_path)
        assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each.on_digits], ids=lambda example: example.new[:60])
def test_an_example_on_digits_runs(example: Example, tmp_path: Path) -> None:
    _, *words = shlex.split(example.new)
    said = run([*words, "--out", "run", *LEAN], tmp_path)
    assert said.returncode == 0, said.stdout + said.stderr
    assert (tmp_path / "run" / "summary.json").is_file()


def run(words: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "phalanx", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300, check=False)
