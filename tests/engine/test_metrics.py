"""The user's metrics: exact however samples are divided, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from phalanx.engine.metrics import begin_metrics
from phalanx.errors import UserError

CODE = """
import torch

def top2(logits, labels):
    return (logits.topk(2).indices == labels[:, None]).any(1)

def two(logits, labels, shift=0):
    return {"even": labels % 2 == 0, "label": labels + shift}

class BalancedAccuracy:
    def __init__(self, num_classes):
        self.num_classes = num_classes

    def sums(self, logits, labels):
        hits = logits.argmax(1) == labels
        return {"correct": torch.bincount(labels[hits], minlength=self.num_classes),
                "samples": torch.bincount(labels, minlength=self.num_classes)}

    def result(self, sums):
        present = sums["samples"] > 0
        return {"balanced_accuracy": (sums["correct"][present] / sums["samples"][present]).mean()}

class OneNumber(BalancedAccuracy):
    def result(self, sums):
        return sums["samples"].sum()

class Growing(BalancedAccuracy):
    def sums(self, logits, labels):
        return {"labels": labels}

class Loss(BalancedAccuracy):
    def result(self, sums):
        return {"loss": 1}

class Nothing:
    pass

def mean(logits, labels):
    return logits.mean()
"""
LOGITS = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(50) % 3


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "own_metrics.py").write_text(CODE)
    return tmp_path / "own_metrics.py"


def test_sums_do_not_depend_on_how_samples_are_divided(code: Path) -> None:
    entries: list[str | dict[str, Any]] = [
        f"{code}:top2",
        f"{code}:BalancedAccuracy",
        {"name": f"{code}:two", "options": {"shift": 10}},
        f"{code}:OneNumber",
    ]
    found = []
    for parts in ([50], [20, 30], [7, 0, 40, 3]):  # one of four workers has no sample
        numbers = []
        for logits, labels in zip(LOGITS.split(parts), LABELS.split(parts), strict=True):
            worker = begin_metrics(entries, list("abcd"))
            for start in range(0, len(labels), 6):
                worker.add(logits[start : start + 6], labels[start : start + 6])
            numbers.append(worker.numbers())
        found.append(worker.results([sum(column) for column in zip(*numbers, strict=True)]))
    assert found[0] == found[1] == found[2]
    hits = LOGITS.argmax(1) == LABELS
    expected = torch.stack([hits[label == LABELS].double().mean() for label in range(3)]).mean()
    assert found[0]["balanced_accuracy"] == pytest.approx(float(expected))
    assert found[0]["top2"] == pytest.approx(float((LOGITS.topk(2).indices == LABELS[:, None]).any(1).double().mean()))
    assert found[0]["even"] == pytest.approx(float((LABELS % 2 == 0).double().mean()))
    assert found[0]["label"] == pytest.approx(float((LABELS + 10).double().mean()))
    assert found[0]["OneNumber"] == 50


def test_several_labels_are_given_as_rows(tmp_path: Path) -> None:
    path = tmp_path / "set_metrics.py"
    path.write_text(
        "def exact(logits, labels):\n    return ((logits > 0) == (labels > 0)).all(1)\n\n"
        "class Marks:\n    def sums(self, logits, labels):\n        return {'each': labels.sum(0)}\n\n"
        "    def result(self, sums):\n        return {'last': float(sums['each'][-1])}\n"
    )
    labels = (LOGITS > 0.5).long()
    workers = [begin_metrics([f"{path}:exact", f"{path}:Marks"], list("abcd"), multi_label=True) for _ in range(3)]
    workers[0].add(LOGITS[:20], labels[:20])
    workers[2].add(LOGITS[20:], labels[20:])
    numbers = [worker.numbers() for worker in workers]  # the second has no sample
    found = workers[0].results([sum(column) for column in zip(*numbers, strict=True)])
    assert found == {
        "exact": float(((LOGITS > 0) == (labels > 0)).all(1).double().mean()),
        "last": float(labels[:, 3].sum()),
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Growing", "other sums than for the first batch"),
        ("Loss", "a name that is taken"),
        ("Nothing", "is not a metric"),
        ("mean", r"returned \[\] for 25 samples"),
    ],
)
def test_what_is_wrong_with_a_metric_is_said(code: Path, name: str, message: str) -> None:
    def measure() -> None:
        metrics = begin_metrics([f"{code}:{name}"], list("abcd"))
        metrics.add(LOGITS[:25], LABELS[:25])
        metrics.add(LOGITS[25:45], LABELS[25:45])
        metrics.results(metrics.numbers())

    with pytest.raises(UserError, match=message):
        measure()
