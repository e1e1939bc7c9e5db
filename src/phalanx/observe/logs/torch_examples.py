"""What the training scripts of torchvision, of PyTorch's ImageNet example, and their many descendants print."""

import re

from phalanx.observe.logs.text import NUMBER, Collected, TextFormat, pairs

# Epoch: [0]  [ 10/5005]  eta: 1:02:03  lr: 0.1  img/s: 99.1  loss: 6.98 (7.01)  acc1: 0.0 (0.2)  acc5: 1.5 (0.9)  …
# Epoch: [0][  10/5005]  Time 0.3 (0.4)  Data 0.0 (0.1)  Loss 6.98e+00 (7.08e+00)  Acc@1   0.00 (  0.08)  Acc@5 …
_BATCH = re.compile(r"Epoch: \[(\d+)\]\s*\[\s*(\d+)/(\d+)\]\s*(.*)")
# Test:  Acc@1 69.758 Acc@5 89.078;   * Acc@1 56.5 Acc@5 79.1 loss 1.9
_TESTED = re.compile(r"(?:^|\s)(?:Test:|\*)\s+(Acc@1\s.*)")
_OTHER = re.compile(r"Test: (?:EMA|\s*\[)|Epoch: \[\d+\] Total time|Test: Total time")
_MEAN = re.compile(rf"\(\s*{NUMBER}\s*\)")  # since the epoch began; before it stands the current number


def _take(line: str, collected: Collected) -> bool:
    if _OTHER.search(line):
        return True
    if found := _BATCH.search(line):
        collected.per_epoch = int(found[3])
        named = {name.lower(): value for name, value in pairs(_MEAN.sub("", found[4])).items()}
        return collected.add("train", named.items(), int(found[1]), int(found[2]))
    if found := _TESTED.search(line):
        if not collected.values:
            return True  # an evaluation before training
        named = {name.lower(): value for name, value in pairs(found[1]).items()}
        return collected.add("val", named.items(), collected.last_epoch)
    return False


TORCH_EXAMPLES = TextFormat(
    "what torchvision's train.py and PyTorch's ImageNet example print",
    re.compile(r"Epoch: \[\d+\]\s*\[|(?:Test:|\*)\s+Acc@1\s"),
    _take,
    percent=True,
)
