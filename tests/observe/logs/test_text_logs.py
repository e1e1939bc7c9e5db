"""Lines of Paddle, MXNet, PaddleClas and PyTorch's examples: values, places, damage, several workers."""

from pathlib import Path

import pytest

from phalanx.observe.curves import Log
from phalanx.observe.logs.names import curve_names, part_of
from phalanx.observe.logs.read import read_log


def read(tmp_path: Path, text: str) -> Log:
    (tmp_path / "a.log").write_text(text)
    return read_log(tmp_path / "a.log", "a")


def curve(log: Log, name: str, axis: str = "epoch") -> tuple[list[float], list[float]]:
    found = log.curve(name, axis)  # type: ignore[arg-type]
    return found.x, [round(y, 4) for y in found.y]


PADDLE = """\
-----------  Configuration Arguments -----------
batch_size: 32
Pass 0, batch 0, loss 7.0, accucacys: [0.0, 0.00390625]
Pass 0, batch 1, loss 6.5, accucacys: [0.125, 0.25]
Pass 0, batch 2, loss nan, accucacys: [0.25, 0.5]

Total examples: 96, total time: 12.5, 7.68 examples/sed

Pass: 0, Test Accuracy: [0.25, 0.5], Spend 0.50 hours

Pass 1, batch 0, loss 6.0, accucacys: [np.float32(0.5), np.float32(0.75)], learning_rate 0.1, py_reader queue_size: 60
Pass 1, batch 1, loss 5.0, accuc
Pass: 1, Test Accuracy: [0.5, 0.75], Spend 1.00 hours
"""


def test_paddles_passes(tmp_path: Path) -> None:
    log = read(tmp_path, PADDLE)
    assert curve(log, "train/loss") == ([1 / 3, 2 / 3, 4 / 3], [7.0, 6.5, 6.0])
    assert curve(log, "train/loss", "step")[0] == [1, 2, 4]
    assert curve(log, "train/top1")[1] == [0.0, 12.5, 25.0, 50.0]
    assert curve(log, "train/top5")[1] == [0.3906, 25.0, 50.0, 75.0]
    assert curve(log, "train/lr", "step") == ([4], [0.1])
    assert curve(log, "val/top1") == ([1, 2], [25.0, 50.0])
    assert curve(log, "val/top1", "step")[0] == [3, 6]
    assert curve(log, "val/top5", "time") == ([1800, 3600], [50.0, 75.0])
    assert log.notes == ["1 damaged line is left out, the first is line 12"]


def test_a_pass_that_is_not_complete_has_steps_and_no_epochs(tmp_path: Path) -> None:
    log = read(tmp_path, "\n".join(PADDLE.splitlines()[:4]))
    assert curve(log, "train/loss", "step")[0] == [1, 2]
    assert curve(log, "train/loss", "epoch")[0] == []


def test_paddles_other_scripts(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        """\
Pass 0, trainbatch 0, loss 6.9, acc1 0.01, acc5 0.05, lr 0.10000, time 0.30 sec, speed 99.10
Pass 0, trainbatch 10, loss 6.1, acc1 0.02, acc5 0.06, lr 0.10000, time 0.30 sec, speed 99.10
Pass 0,testbatch 0,loss 6.0,                         acc1 0.5,acc5 0.6,time 0.30 sec
End pass 0, train_loss 6.5, train_acc1 0.02, train_acc5 0.05, test_loss 6.2, test_acc1 0.25, test_acc5 0.5
INFO:utils.utility:[Pass 1, train batch 0]  loss 5.5, acc1 0.5, acc5 0.75, lr 0.05, batch_cost 1.3 sec, ips 94.2
""",
    )
    assert curve(log, "train/loss", "step") == ([1, 11, 20, 21], [6.9, 6.1, 6.5, 5.5])
    assert curve(log, "val/top1") == ([1], [25.0])
    assert curve(log, "val/loss") == ([1], [6.2])
    assert curve(log, "train/lr", "step") == ([1, 11, 21], [0.1, 0.1, 0.05])
    assert log.notes == ["an epoch is taken as 20 steps: the last batch that is logged is 10, and one in 10 is"]


MXNET = """\
INFO:root:start with arguments Namespace(batch_size=32)
2018-05-01 12:00:00,000 Node[0] Epoch[0] Batch [20]\tSpeed: 12.13 samples/sec\taccuracy=0.125000\tcross-entropy=6.500000
2018-05-01 12:00:30,500 Node[0] Epoch[0] Batch [20-40]\tSpeed: 12.1 samples/sec\taccuracy=0.250000\tcross-entropy=6.0000
2018-05-01 12:01:00,000 Node[0] Epoch[0] Train-accuracy=0.200000
2018-05-01 12:01:00,000 Node[0] Epoch[0] Train-cross-entropy=6.200000
2018-05-01 12:01:00,000 Node[0] Epoch[0] Time cost=60.0
2018-05-01 12:01:10,000 Node[0] Saved checkpoint to "model-0001.params"
2018-05-01 12:01:10,000 Node[0] Epoch[0] Validation-accuracy=0.300000
2018-05-01 12:01:10,000 Node[0] Epoch[0] Validation-top_k_accuracy_5=0.500000
2018-05-01 12:01:11,000 Node[0] Update[61]: Change learning rate to 1.00000e-02
"""


def test_mxnets_epochs(tmp_path: Path) -> None:
    log = read(tmp_path, MXNET)
    assert curve(log, "train/top1", "step") == ([21, 41, 60], [12.5, 25.0, 20.0])
    assert curve(log, "train/top1", "time")[0] == [0, 30.5, 60]
    assert curve(log, "train/loss") == ([21 / 60, 41 / 60, 1], [6.5, 6.0, 6.2])
    assert curve(log, "val/top1") == ([1], [30.0])
    assert curve(log, "val/top5") == ([1], [50.0])
    assert curve(log, "train/lr", "step") == ([61], [0.01])


def test_mxnets_workers_in_one_file_are_drawn_as_their_mean(tmp_path: Path) -> None:
    lines = [
        f"INFO:root:Epoch[0] Batch [{batch}]   Speed: 12.1 samples/sec        accuracy=0.{value}"
        for batch, value in ((20, 1), (20, 3), (40, 2), (40, 6))
    ]
    log = read(tmp_path, "\n".join(lines))
    assert curve(log, "train/top1", "step") == ([21, 41], [20.0, 40.0])
    assert log.notes == ["2 numbers are logged more than once, by several workers or after a restart: drawn as means"]


def test_older_mxnet_and_gluon(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        """\
INFO:root:Epoch[0] Batch [50]   Speed: 47.36 samples/sec        Train-accuracy=0.25
INFO:root:Epoch[0] Batch [50]   Speed: 47.36 samples/sec        Train-top_k_accuracy_5=0.5
INFO:root:[Epoch 0] training: accuracy=0.375
INFO:root:[Epoch 0] speed: 91 samples/sec     time cost: 10.0
INFO:root:[Epoch 0] validation: err-top1=0.750000 err-top5=0.250000
INFO:root:[Epoch 1] training: accuracy=0.5
INFO:root:[Epoch 1] time cost: 12.0
INFO:root:[Epoch 1] validation: err-top1=nan err-top5=0.125
""",
    )
    assert curve(log, "val/top1") == ([1], [25.0])
    assert curve(log, "val/top5") == ([1, 2], [75.0, 87.5])
    assert curve(log, "val/top5", "time")[0] == [10.0, 22.0]
    assert curve(log, "train/top1", "step")[0] == [51, 100, 200]
    assert log.notes == ["an epoch is taken as 100 steps: the last batch that is logged is 50, and one in 50 is"]


def test_paddleclas(tmp_path: Path) -> None:
    stamp = "[2024/07/31 20:24:{}] ppcls INFO: "
    log = read(
        tmp_path,
        stamp.format("00")
        + "[Train][Epoch 1/2][Iter: 0/4]lr(PiecewiseDecay): 0.00100000, top1: 0.25000, CELoss: 0.7, loss: 0.8, "
        "batch_cost: 0.61280s, reader_cost: 0.12493, ips: 26.10981 samples/s, eta: 5:01:10\n"
        + stamp.format("10")
        + "[Train][Epoch 1/2][Iter: 2/4]lr(PiecewiseDecay): 0.00100000, top1: 0.50000, CELoss: 0.5, loss: 0.6\n"
        + stamp.format("15")
        + "[Train][Epoch 1/2][Avg]top1: 0.40000, CELoss: 0.6, loss: 0.7\n"
        + stamp.format("17")
        + "[Eval][Epoch 1][Iter: 0/1]CELoss: 9.0, loss: 9.0, top1: 0.1, top5: 0.2\n"
        + stamp.format("20")
        + "[Eval][Epoch 1][Avg]CELoss: 0.5, loss: 0.5, top1: 0.75, top5: 1.0\n"
        + stamp.format("20")
        + "[Eval][Epoch 1][best metric: 0.75]\n",
    )
    assert curve(log, "train/loss") == ([0.25, 0.75, 1], [0.8, 0.6, 0.7])
    assert curve(log, "train/lr", "step") == ([1, 3], [0.001, 0.001])
    assert curve(log, "val/top1", "time") == ([20], [75.0])
    assert curve(log, "val/top5") == ([1], [100.0])
    assert log.notes == []


def test_paddleclas_before_version_2(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        """\
2020-12-30 06:13:33 INFO: epoch:0  , train step:0   , loss: 6.9, top1: 0.1, top5: 0.2, lr: 0.100000, batch_cost: 0.2 s
2020-12-30 06:13:43 INFO: epoch:0  , train step:10  , loss: 6.5, top1: 0.2, top5: 0.3, lr: 0.100000, batch_cost: 0.2 s
2020-12-30 06:13:44 INFO: END epoch:0   train top1: 0.15 top5: 0.25 loss: 6.7  batch_cost: 0.26346 s
2020-12-30 06:13:45 INFO: valid step:10   top1: 0.0625 top5: 0.0625 loss: 5.1
2020-12-30 06:13:46 INFO: END epoch:0   valid top1: 0.30000 top5: 0.40000 loss: 6.0
2020-12-30 06:13:56 INFO: END epoch:1   train top1: 0.4 top5: 0.5 loss: 5.7
2020-12-30 06:13:57 INFO: END valid top1: 0.5 top5: 0.6 loss: 5.0
""",
    )
    assert curve(log, "val/top1") == ([1, 2], [30.0, 50.0])
    assert curve(log, "train/loss", "step")[0] == [1, 11, 20, 40]


@pytest.mark.parametrize(
    ("batch", "tested"),
    [
        (
            "Epoch: [{0}]  [{1:>2}/40]  eta: 1:02:03  lr: 0.1  img/s: 99.1  loss: 6.5000 (7.0100)  "
            "acc1: 12.5000 (0.2000)  acc5: 25.0 (0.9)  time: 0.3 (0.3)  data: 0.01  max mem: 5990",
            "Test:  Acc@1 50.000 Acc@5 75.000",
        ),
        (
            "Epoch: [{0}][{1:>4}/40]\tTime  0.315 ( 0.372)\tData  0.002 ( 0.073)\tLoss 6.5e+00 (7.0827e+00)\t"
            "Acc@1  12.50 (  0.08)\tAcc@5  25.00 (  0.55)\tlr 0.1",
            " * Acc@1 50.000 Acc@5 75.000",
        ),
    ],
)
def test_pytorchs_examples(tmp_path: Path, batch: str, tested: str) -> None:
    lines = [tested]  # of the weights that training begins with
    for epoch in (0, 1):
        lines += [batch.format(epoch, 0), batch.format(epoch, 20), "Test:  [ 0/10]  eta: 0:00:10", tested]
    log = read(tmp_path, "\n".join(lines))
    assert curve(log, "train/top1") == ([1 / 40, 21 / 40, 41 / 40, 61 / 40], [12.5] * 4)
    assert curve(log, "train/loss", "step") == ([1, 21, 41, 61], [6.5] * 4)
    assert curve(log, "train/lr")[1] == [0.1] * 4
    assert curve(log, "val/top1") == ([1, 2], [50.0, 50.0])
    assert curve(log, "val/top5", "step") == ([40, 80], [75.0, 75.0])


def test_names_of_other_systems() -> None:
    assert part_of("val-error-top1") == ("val", "error_top1")
    assert part_of("validation/epoch_accuracy") == ("val", "accuracy")
    assert part_of("evaluation_loss_vs_iterations") == ("val", "loss")
    assert part_of("epoch") == ("train", "epoch")
    assert curve_names(["loss", "aux_loss", "val_acc", "learning_rate", "img/s"]) == {
        "loss": "train/loss",
        "aux_loss": "train/aux_loss",
        "val_acc": "val/top1",
        "learning_rate": "train/lr",
        "img/s": "train/img_s",
    }
    assert curve_names(["loss", "cost"])["cost"] == "train/cost"
    assert curve_names(["loss", "cost"], {"train/loss": "cost"}) == {
        "loss": "train/loss (loss)",
        "cost": "train/loss",
    }
    assert curve_names(["val_acc", "val_error"])["val_error"] == "val/error"
