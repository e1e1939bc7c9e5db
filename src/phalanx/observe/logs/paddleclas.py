"""PaddleClas: train.log of versions 1 and 2."""

import re

from phalanx.observe.logs.text import Collected, TextFormat, pairs

# [Train][Epoch 1/120][Iter: 10/304]lr(PiecewiseDecay): 0.001, top1: 0.97, CELoss: 0.05, loss: 0.05, batch_cost: …
_BATCH = re.compile(r"\[Train\]\[Epoch (\d+)/\d+\]\[Iter: (\d+)/(\d+)\]\s*(.*)")
# [Train][Epoch 1/120][Avg]…;  [Eval][Epoch 1][Avg]CELoss: 0.5, loss: 0.5, top1: 0.8, top5: 0.9
_EPOCH = re.compile(r"\[(Train|Eval)\]\[Epoch (\d+)(?:/\d+)?\]\[Avg\]\s*(.*)")
# version 1: epoch:0  , train step:50  , loss: 6.9, top1: 0.1, …;  END epoch:0   train top1: 0.1 …;  END epoch:0 valid
_STEP_1 = re.compile(r"\bepoch:(\d+)\s*,?\s*train step:(\d+)\s*,?\s*(.*)")
_END_1 = re.compile(r"\bEND epoch:(\d+)\s*,?\s*(train|valid)\s*,?\s*(.*)")
_VALID_1 = re.compile(r"\bEND (?:valid|eval)\s*,?\s*(.*)")  # some of its versions do not name the epoch
_OTHER = re.compile(r"\[Eval\]\[Epoch \d+\]\[(?:Iter|best metric)|valid step:\d+")


def _take(line: str, collected: Collected) -> bool:
    if found := _BATCH.search(line):
        collected.per_epoch = int(found[3])
        return collected.add("train", pairs(found[4]).items(), int(found[1]) - 1, int(found[2]))
    if found := _EPOCH.search(line):
        part = "train" if found[1] == "Train" else "val"
        return collected.add(part, pairs(found[3]).items(), int(found[2]) - 1)
    if found := _END_1.search(line):
        return collected.add("train" if found[2] == "train" else "val", pairs(found[3]).items(), int(found[1]))
    if found := _STEP_1.search(line):
        return collected.add("train", pairs(found[3]).items(), int(found[1]), int(found[2]))
    if found := _VALID_1.search(line):
        return collected.add("val", pairs(found[1]).items(), collected.last_epoch)
    return bool(_OTHER.search(line))


PADDLECLAS = TextFormat(
    "PaddleClas's train.log",
    re.compile(r"\[(?:Train|Eval)\]\[Epoch \d+|\bepoch:\d+\s*,?\s*(?:train|valid)\b|\bEND (?:valid|eval)\b"),
    _take,
)
