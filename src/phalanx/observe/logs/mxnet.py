"""MXNet: lines of Module.fit with the Speedometer, and of Gluon's image classification."""

import re

from phalanx.observe.logs.text import NUMBER, Collected, TextFormat, pairs

# Epoch[0] Batch [20]  Speed: 12.13 samples/sec  accuracy=0.000744  top_k_accuracy_5=0.01;  also Batch [0-20]
_BATCH = re.compile(rf"Epoch\[(\d+)\] Batch \[(?:\d+-)?(\d+)\]\s+Speed:\s*{NUMBER} samples/sec\s+(.*)")
# Epoch[0] Train-accuracy=0.1;  Epoch[0] Validation-top_k_accuracy_5=0.2
_EPOCH = re.compile(rf"Epoch\[(\d+)\] (Train|Validation)-([\w-]+)=({NUMBER})")
# Gluon: [Epoch 0] training: accuracy=0.1;  [Epoch 0] validation: err-top1=0.9 err-top5=0.7
_GLUON = re.compile(r"\[Epoch (\d+)\] (training|validation): (.*)", re.IGNORECASE)
# Epoch[0] Time cost=3.347;  [Epoch 0] speed: 91 samples/sec  time cost: 7.728239
_COST = re.compile(rf"\[(?:Epoch )?(\d+)\].*time cost[:=]\s*({NUMBER})", re.IGNORECASE)
_UPDATE = re.compile(rf"Update\[(\d+)\]: Change learning rate to ({NUMBER})")


def _take(line: str, collected: Collected) -> bool:
    if found := _BATCH.search(line):
        named = {name.removeprefix("Train-"): value for name, value in pairs(found[3]).items()}
        return collected.add("train", named.items(), int(found[1]), int(found[2]))
    if found := _EPOCH.search(line):
        part = "train" if found[2] == "Train" else "val"
        return collected.add(part, [(found[3], found[4])], int(found[1]))
    if found := _GLUON.search(line):
        part = "train" if found[2].lower() == "training" else "val"
        return collected.add(part, pairs(found[3]).items(), int(found[1]))
    if found := _UPDATE.search(line):
        collected.updates.append((int(found[1]), float(found[2])))
        return True
    if found := _COST.search(line):
        epoch = int(found[1])
        collected.spent[epoch] = collected.spent.get(epoch - 1, 0.0) + float(found[2])
        return True
    return False


MXNET = TextFormat(
    "MXNet's `Epoch[0] Batch [20] Speed: … accuracy=…` and `Epoch[0] Validation-accuracy=…` lines",
    re.compile(
        r"Epoch\[\d+\] (?:Batch|Train-|Validation-|Time cost)|\[Epoch \d+\] (?:training|validation|.*time cost)"
        r"|Update\[\d+\]: Change",
        re.IGNORECASE,
    ),
    _take,
)
