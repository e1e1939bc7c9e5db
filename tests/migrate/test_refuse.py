"""An old spelling that is typed is refused with the new one, before anything heavy is imported."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from phalanx.cli.launch import parse_train
from phalanx.cli.main import app
from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import parse_override, resolve
from phalanx.errors import UserError
from phalanx.migrate.refuse import MigratingCommand
from phalanx.migrate.table import Row, Scope
from tests.migrate.rows import label, rows

COMMANDS = typer.main.get_group(app).commands


def refusal(command: str, *words: str) -> UserError:
    with pytest.raises(UserError) as raised:
        COMMANDS[command].make_context(command, list(words))
    return raised.value


def own_flags(command: str) -> set[str]:
    return {name for parameter in COMMANDS[command].params for name in (*parameter.opts, *parameter.secondary_opts)}


def test_the_commands_know_the_table() -> None:
    assert all(isinstance(COMMANDS[name], MigratingCommand) for name in ("train", "launch", "serve-data"))


@pytest.mark.parametrize(("system", "kind", "row"), rows("train", "launch", "serve-data"), ids=label)
def test_every_old_flag_is_told_its_new_spelling(system: str, kind: Scope, row: Row) -> None:
    for name in row.names:
        if name in own_flags(kind) or name.startswith("#"):
            continue  # spelled as here, or a line of a script
        error = refusal(kind, name, *([row.example] if row.example else []), *(["train"] if kind == "launch" else []))
        assert error.what == f"there is no {name}"
        assert system in error.why
        assert row.translate(row.example or None) in error.remedy if row.new else row.note in error.remedy


@pytest.mark.parametrize(
    ("words", "what", "why", "remedy"),
    [
        ("train --gc-type 2bit", "there is no --gc-type", "MXNet spells it so", "--compress 2bit "),
        ("train --kv-store=dist_sync", "--kv-store", "MXNet", "--update-method pserver --mode sync"),
        (
            "train digits --network resnet --num-layers 50 --wd 0.1 --epochs 3",
            "there is no --network, --num-layers, --wd",
            "MXNet spells them so",
            "--model resnet model.options.num_layers=50 --weight-decay 0.1",
        ),
        (
            "train --update_method nccl2 --data_dir d",
            "--update_method",
            "Paddle",
            "--update-method collective --data d",
        ),
        ("train --batch_size 32", "--batch_size", "Paddle and TensorFlow spell it so", "--batch-size 32"),
        ("train --max_restarts 2", "--max_restarts", "joined by dashes", "--max-restarts 2"),
        ("train --no_pretrained", "--no_pretrained", "joined by dashes", "--no-pretrained"),
        ("train -c digits -o Global.epochs=3", "there is no -c, -o", "PaddleClas", "digits train.length=3ep"),
        ("train --class_dim 10", "--class_dim", "Paddle", "leave --class_dim out, it is not needed: classes"),
        ("train --pca-noise 1", "--pca-noise", "MXNet", "there is nothing like it"),
        # of two systems that know a flag, the one that knows the other flags too
        ("train --num_gpus 2 --batch_size 8", "--num_gpus", "TensorFlow spells", "--gpus 0,1 --batch-size 8"),
        ("launch -np 4 --hosts a:2,b:2 -- train", "there is no -np, --hosts", "Horovod", "-n 4 --ips a:2,b:2"),
        ("launch -n 2 python t.py --network mlp", "--network", "MXNet", "behind -- train: --model mlp"),
        (
            "launch --gpus 0,1 --nnodes 2 -- train",
            "--gpus, --nnodes",
            "PaddleClas",
            "--nodes 2; behind -- train: --gpus 0,1",
        ),
        ("serve-data --fake", "--fake", "tensorpack", "--data synthetic"),
    ],
)
def test_a_command_line_of_another_system(words: str, what: str, why: str, remedy: str) -> None:
    error = refusal(*words.split())
    assert what in error.what
    assert why in error.why
    assert remedy in error.remedy


def test_behind_the_dashes_of_launch_too() -> None:
    with pytest.raises(UserError, match="there is no --gc-type"):
        parse_train(["--gc-type", "2bit"])


def test_the_value_of_a_flag_is_no_flag() -> None:
    error = refusal("train", "--model", "--network", "--wd", "0.1")
    assert error.what == "there is no --wd"


def test_a_key_of_paddleclas_among_our_settings() -> None:
    for word, remedy in (("Global.epochs=7", "train.length=7ep"), ("AMP.level=O1", "not needed")):
        with pytest.raises(UserError, match="there is no setting") as raised:
            resolve([*load_recipe("digits").layers, parse_override(word)])
        assert "PaddleClas" in raised.value.remedy
        assert remedy in raised.value.remedy


def phalanx(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-X", "importtime", "-m", "phalanx", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


def test_as_a_user_sees_it(tmp_path: Path) -> None:
    done = phalanx("train", "--gc-type", "2bit", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert said == [
        "error: there is no --gc-type",
        "  why: MXNet spells it so",
        "  try: --compress 2bit (see docs/migrate.md)",
    ]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert not imported & {"torch", "yaml", "numpy"}
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_knows_is_clicks_to_refuse(tmp_path: Path) -> None:
    done = phalanx("train", "--wobble", "3", cwd=tmp_path)
    assert done.returncode == 2
    assert "No such option: --wobble" in done.stderr
