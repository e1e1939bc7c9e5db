"""Paddle's image classification before PaddleClas: dist_train.py, Fleet's train scripts, and the models repository."""

import re

from phalanx.observe.logs.text import NUMBER, Collected, TextFormat, numbers, pairs

# Pass 0, batch 3, loss 7.1, accucacys: [0.0039, 0.0039], learning_rate 0.1, py_reader queue_size: 60   (their spelling)
_BATCH = re.compile(
    rf"(?:Pass|Epoch) (\d+), batch (\d+), loss ({NUMBER}), accucacys: \[(.*?)\](?:, learning_rate ({NUMBER}))?"
)
# Pass: 0, Test Accuracy: [0.1, 0.2], Spend 1.50 hours
_TEST = re.compile(rf"(?:Pass|Epoch): (\d+), Test Accuracy: \[(.*?)\](?:, Spend ({NUMBER}) hours)?")
# Pass 0, trainbatch 10, loss 6.9, acc1 0.1, acc5 0.2, lr 0.1, time 0.2 sec;  [Pass 0, train batch 10]  loss 6.9, …
_TRAINED = re.compile(r"Pass (\d+), ?train ?batch (\d+)\]?,?\s+(.*)")
_TESTED = re.compile(r"Pass \d+, ?test ?batch \d+")  # a part of what `End pass` sums up
# End pass 0, train_loss 6.9, train_acc1 0.1, train_acc5 0.2, test_loss 6.8, test_acc1 0.2, test_acc5 0.3
_END = re.compile(r"End (?:pass|test) (\d+),\s*(.*)")
_ACCURACIES = ("top1", "top5")


def _take(line: str, collected: Collected) -> bool:
    if _TESTED.search(line):
        return True
    if found := _BATCH.search(line):
        epoch, batch, loss, accuracies, rate = found.groups()
        named = [("loss", loss), ("lr", rate), *zip(_ACCURACIES, numbers(accuracies), strict=False)]
        return collected.add("train", named, int(epoch), int(batch))
    if found := _TEST.search(line):
        epoch, accuracies, hours = found.groups()
        if hours is not None:
            collected.spent[int(epoch)] = 3600 * float(hours)
        return collected.add("val", zip(_ACCURACIES, numbers(accuracies), strict=False), int(epoch))
    if found := _TRAINED.search(line):
        return collected.add("train", pairs(found[3]).items(), int(found[1]), int(found[2]))
    if found := _END.search(line):
        return _take_end(int(found[1]), pairs(found[2]), collected)
    return False


def _take_end(epoch: int, named: dict[str, str], collected: Collected) -> bool:
    taken = False
    for part, prefix in (("train", "train_"), ("val", "test_")):
        own = [(name.removeprefix(prefix), value) for name, value in named.items() if name.startswith(prefix)]
        taken = collected.add(part, own, epoch) or taken
    return taken


PADDLE = TextFormat(
    "Paddle's `Pass 0, batch 3, loss …, accucacys: […]` lines",
    re.compile(r"\b(?:Pass|Epoch):? \d+, ?(?:batch|train ?batch|test ?batch|Test Acc)|\bEnd (?:pass|test) \d+,"),
    _take,
)
