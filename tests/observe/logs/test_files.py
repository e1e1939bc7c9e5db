"""Files with a row for each epoch: tensorpack, Keras, timm, JSON lines; and what is refused."""

import json
from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.observe.curves import Log
from phalanx.observe.logs.read import read_log
from tests.observe.logs.test_text_logs import MXNET, PADDLE, curve
from tests.observe.made_runs import make_run


def written(path: Path, text: str) -> Log:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return read_log(path, "a")


STATS = [
    {
        "epoch_num": epoch,
        "global_step": 5000 * epoch,
        "QueueInput/queue_size": 50.0,
        "learning_rate": 0.1 / epoch,
        "cost": 7.5 / epoch,
        "xentropy-loss": 7.0 / epoch,
        "train-error-top1": 0.75,
        "val-error-top1": 1 / (1 + epoch),
        "val-error-top5": 0.25,
    }
    for epoch in (1, 2, 3)
]


def test_tensorpacks_errors_become_accuracies(tmp_path: Path) -> None:
    log = written(tmp_path / "stats.json", json.dumps(STATS))
    assert curve(log, "val/top1") == ([1, 2, 3], [50.0, 66.6667, 75.0])
    assert curve(log, "val/top5", "step") == ([5000, 10000, 15000], [75.0] * 3)
    assert curve(log, "train/top1")[1] == [25.0] * 3
    assert curve(log, "train/loss")[1] == [7.0, 3.5, 2.3333]
    assert curve(log, "train/lr")[1] == [0.1, 0.05, 0.0333]
    assert curve(log, "train/cost")[1][0] == 7.5
    assert curve(read_log(tmp_path, "a"), "val/top1") == curve(log, "val/top1"), "its folder is found too"


def test_tensorpacks_file_that_is_cut_off(tmp_path: Path) -> None:
    log = written(tmp_path / "stats.json", json.dumps(STATS)[:-50])
    assert curve(log, "val/top1")[0] == [1, 2]
    assert log.notes == ["the file is cut off: its last epoch is left out"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_keras(tmp_path: Path, separator: str) -> None:
    text = "epoch,accuracy,learning_rate,loss,val_accuracy,val_loss\n0,0.25,0.1,2.0,0.5,1.5\n1,0.5,0.05,1.0,NA,NA\n"
    log = written(tmp_path / "run.csv", text.replace(",", separator))
    assert curve(log, "train/top1") == ([1, 2], [25.0, 50.0])
    assert curve(log, "val/top1") == ([1], [50.0])
    assert curve(log, "val/loss") == ([1], [1.5])
    assert curve(log, "train/lr")[1] == [0.1, 0.05]
    assert curve(log, "train/loss", "step")[0] == []


def test_keras_appended_and_damaged(tmp_path: Path) -> None:
    text = "epoch,acc,loss,val_acc,val_loss\n0,0.1,3,0.1,3\n1,0.2,2,0.2,2\n0,0.3,1,0.3,1\n1,0.\n"
    log = written(tmp_path / "run.csv", text)
    assert curve(log, "val/top1") == ([1, 2, 3], [10.0, 20.0, 30.0])
    assert log.notes == ["1 damaged row is left out", "its epochs begin again, and are counted on"]


def test_timm(tmp_path: Path) -> None:
    text = "epoch,train_loss,eval_loss,eval_top1,eval_top5,lr\n0,6.9,6.6,0.872,3.34,0.05\n1,6.2,4.6,14.98,33.5,0.04\n"
    log = written(tmp_path / "resnet50" / "summary.csv", text)
    assert curve(log, "val/top1") == ([1, 2], [0.872, 14.98])
    assert curve(log, "val/top5")[1] == [3.34, 33.5]
    assert curve(log, "val/loss")[1] == [6.6, 4.6]
    assert curve(log, "train/loss")[1] == [6.9, 6.2]
    assert curve(log, "train/lr")[1] == [0.05, 0.04]


def test_json_lines(tmp_path: Path) -> None:
    rows = [
        {"train_lr": 1e-3, "train_loss": 3.5, "test_loss": 1.5, "test_acc1": 68.9, "test_acc5": 89.8, "epoch": 0},
        {"train_lr": 1e-4, "train_loss": 3.0, "epoch": 1, "n_parameters": 81956008},
    ]
    log = written(tmp_path / "log.txt", "\n".join(map(json.dumps, rows)) + '\n{"train_lr": 1e')
    assert curve(log, "val/top1") == ([1], [68.9])
    assert curve(log, "val/top5") == ([1], [89.8])
    assert curve(log, "train/loss") == ([1, 2], [3.5, 3.0])
    assert log.notes == ["1 damaged line is left out"]


def test_a_name_of_the_log_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "stats.json").write_text(json.dumps(STATS))
    log = read_log(tmp_path / "stats.json", "a", {"train/loss": "cost", "val/loss": "nothing"})
    assert curve(log, "train/loss")[1][0] == 7.5
    assert log.notes == ["it has no 'nothing' for val/loss"]


@pytest.mark.parametrize("text", ["", "hello\n", "a,b\n1,2\n", "[1, 2]", '{"a": 1}', "\0\1", "Epoch 3 of 5: good\n"])
def test_an_unknown_file_is_refused_with_what_is_read(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="neither a run nor a log") as refusal:
        written(tmp_path / "a.txt", text)
    for system in (
        "Phalanx",
        "Paddle's",
        "MXNet's",
        "tensorpack's",
        "Keras's",
        "timm's",
        "TensorBoard's",
        "torchvision",
    ):
        assert system in refusal.value.why


def test_a_run_of_ours_by_its_folder_or_its_events(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert read_log(run, "a") == read_log(run / "events.jsonl", "a")


def test_folders_and_missing_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither a run nor a log") as refusal:
        read_log(tmp_path, "a")
    assert "events.jsonl" in refusal.value.why
    with pytest.raises(UserError, match="does not exist"):
        read_log(tmp_path / "none", "a")
    with pytest.raises(UserError, match="nothing to draw"):
        written(tmp_path / "a.csv", "epoch,loss,acc\n")


@pytest.mark.parametrize("text", [PADDLE, MXNET])
def test_lines_are_recognised_among_others(tmp_path: Path, text: str) -> None:
    noise = "W1118 warning: Pass the salt\n" * 50
    assert (
        written(tmp_path / "a.log", noise + text + noise).series.keys()
        == written(tmp_path / "b.log", text).series.keys()
    )
