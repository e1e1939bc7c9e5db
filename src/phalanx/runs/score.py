"""The number that a run is judged by: top-1 accuracy, or mAP where a sample may have several labels."""

import math
from collections.abc import Mapping

TOP1 = "top1"
MAP = "mAP"  # the mean over classes of the average precision, as scikit-learn's average_precision_score of all classes
F1_MICRO = "f1_micro"  # of all labels together, those with a probability above 1/2
F1_MACRO = "f1_macro"  # the mean over classes
OF_LABELS = (MAP, F1_MICRO, F1_MACRO)
WORST = -1.0  # instead of a number that is not finite


def score_of(metric: str, top1: float | None, metrics: Mapping[str, float | None]) -> float:
    """The value of the number that decides which evaluation is the best."""
    value = top1 if metric == TOP1 else metrics.get(metric)
    return WORST if value is None or math.isnan(value) else value
