"""Attacks on logs of other systems, from which curves are drawn."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import example
from hypothesis import strategies as st

from phalanx.observe.logs.read import read_log
from tests.data.shard_files import field, tf_record, varint
from tests.fuzz import repair
from tests.fuzz.budget import fuzz
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import damaged

MXNET = b"""INFO:root:Epoch[0] Batch [20]\tSpeed: 12.13 samples/sec\taccuracy=0.0007\ttop_k_accuracy_5=0.01
Epoch[0] Train-accuracy=0.1
Epoch[0] Time cost=3.347
Epoch[0] Validation-accuracy=0.2
Update[5001]: Change learning rate to 1.0e-02
[Epoch 0] validation: err-top1=0.9 err-top5=0.7
"""
PADDLE = b"""Pass 0, batch 3, loss 7.1, accucacys: [0.0039, 0.0039], learning_rate 0.1, py_reader queue_size: 60
Pass: 0, Test Accuracy: [0.1, 0.2], Spend 1.50 hours
Pass 0, trainbatch 10, loss 6.9, acc1 0.1, acc5 0.2, lr 0.1, time 0.2 sec
End pass 0, train_loss 6.9, train_acc1 0.1, test_loss 6.8, test_acc1 0.2
"""
PADDLECLAS = b"""[2021/01/01 10:00:00] [Train][Epoch 1/120][Iter: 10/304]lr(Piecewise): 0.001, top1: 0.97, loss: 0.05
[Eval][Epoch 1][Avg]CELoss: 0.5, loss: 0.5, top1: 0.8, top5: 0.9
epoch:0  , train step:50  , loss: 6.9, top1: 0.1
END epoch:0   valid top1: 0.1
"""
TORCH = b"""Epoch: [0]  [ 10/5005]  eta: 1:02:03  lr: 0.1  img/s: 99.1  loss: 6.98 (7.01)  acc1: 0.0 (0.2)
Test:  Acc@1 69.758 Acc@5 89.078
"""
LINES = b'{"epoch": 0, "train_loss": 6.9, "test_acc1": 10.0}\n{"epoch": 1, "train_loss": 6.9, "test_acc1": 10.0}\n'
TENSORPACK = b'[{"epoch_num": 1, "global_step": 10, "val-error-top1": 0.5}, {"epoch_num": 2, "global_step": 20}]'
KERAS = b"epoch,accuracy,loss,val_loss\n0,0.1,2.3,2.2\n1,0.2,2.2,2.1\n"
TIMM = b"epoch,train_loss,eval_loss,eval_top1,lr\n0,6.9,6.8,1.0,0.1\n1,6.9,6.8,1.0,0.1\n"


def _event(step: int) -> bytes:
    value = field(1, b"val/loss") + varint(2 << 3 | 5) + b"\0\0\x80\x3f"
    tensor = field(1, b"epoch") + field(8, varint(1 << 3) + varint(1) + field(4, b"\0\0\x80\x3f"))
    return varint(1 << 3 | 1) + bytes(8) + varint(2 << 3) + varint(step) + field(5, field(1, value) + field(1, tensor))


TENSORBOARD = b"".join(tf_record(_event(step)) for step in (1, 2, 300))
LOGS: dict[str, bytes] = {
    **{"mxnet.log": MXNET, "paddle.log": PADDLE, "train.log": PADDLECLAS, "torch.log": TORCH, "log.txt": LINES},
    **{"stats.json": TENSORPACK, "log.csv": KERAS, "summary.csv": TIMM, "events.out.tfevents.1.h": TENSORBOARD},
}


def read(name: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, guarded():
        path = Path(folder) / name
        path.write_bytes(content)
        read_log(path, "log", {"val/top1": "acc"})


@pytest.mark.parametrize("name", LOGS)
def test_valid_logs_are_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(LOGS[name])
    assert read_log(tmp_path / name, "log").series


@pytest.mark.parametrize("name", LOGS)
@fuzz(examples=15, data=st.data())
def test_damaged_logs(name: str, data: st.DataObject) -> None:
    fix = repair.tfrecord if "tfevents" in name else None
    contents = [LOGS[name], *(LOGS.values() if data.draw(st.booleans()) else ())]
    read(name, data.draw(damaged(contents, fix)))


@fuzz(examples=20, name=st.sampled_from(list(LOGS)), content=st.binary(max_size=400))
@example(name="log.txt", content=b'{"epoch": ' + b"[" * 50_000)
@example(name="stats.json", content=b'[{"global_step": ' + b"[" * 50_000)
@example(name="train.log", content=b"epoch:1" + b" " * 6000 + b"x")
@example(name="train.log", content=b"[Train][Epoch 1/1][Iter: 1/1]" + b"a" * 3000 + b" " * 3000)
@example(name="torch.log", content=b"Epoch: [0]" + b" " * 6000 + b"[" + b" " * 6000)
@example(name="mxnet.log", content=b"[Epoch 0] validation: " + b"a" * 3000 + b" " * 3000 + b"!")
@example(name="mxnet.log", content=b"Epoch[" + b"9" * 5000 + b"] Validation-accuracy=0.2")
@example(name="mxnet.log", content=b"Epoch[" + b"9" * 400 + b"] Batch [1] Speed: 1 samples/sec accuracy=0.2")
@example(name="torch.log", content=b"Epoch: [1]  [ 10/" + b"9" * 400 + b"]  loss: 6.98")
def test_any_log(name: str, content: bytes) -> None:
    read(name, content)
