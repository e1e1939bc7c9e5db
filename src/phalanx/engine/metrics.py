"""The user's metrics: sums over the samples of an evaluation, added exactly over batches and workers, then numbers.

A metric is a function (logits, labels) → one value for each sample, whose mean is the result. Or it is a class with
`sums(logits, labels)`, which returns named sums over the samples of a batch, and `result(sums)`, which returns the
numbers made of the totals. Sums are kept in float64: counts are exact, whatever the number of workers.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from phalanx.config.code import Entry, name_of, options_of
from phalanx.custom import load
from phalanx.custom.construct import construct
from phalanx.errors import UserError
from phalanx.runs.score import OF_LABELS

_RESERVED = {"loss", "top1", "topk", "k", "samples", "seconds", "best", "step", "epoch", "metric", *OF_LABELS}


class Metric(Protocol):
    """What a class of the user's has."""

    def sums(self, logits: Tensor, labels: Tensor) -> Mapping[str, Any]:
        """Sums over the samples of a batch. Names and shapes are the same for every batch, also for an empty one."""
        ...

    def result(self, sums: dict[str, Tensor]) -> Mapping[str, float] | float:
        """Named numbers from the sums over all samples."""
        ...


class SampleMean:
    """A function that gives a value for each sample, or several named ones, as a metric: their means."""

    def __init__(self, name: str, function: Callable[[Tensor, Tensor], Any]) -> None:
        self._name, self._function = name, function

    def sums(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        found = self._function(logits, labels)
        values = dict(found) if isinstance(found, Mapping) else {self._name: found}
        for name, value in values.items():
            if not isinstance(value, Tensor) or value.shape != labels.shape[:1]:
                shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise UserError(
                    f"eval.metrics: {self._name} returned {shape} for {len(labels)} samples",
                    why=f"the mean of {name!r} over all workers is exact if each sample has a value of its own",
                    remedy="return a tensor with one value per sample; or write a class with `sums` and `result`",
                )
        return {**{name: value.double().sum() for name, value in values.items()}, "": torch.tensor(len(labels))}

    def result(self, sums: dict[str, Tensor]) -> dict[str, float]:
        samples = sums.pop("").clamp(min=1)
        return {name: float(total / samples) for name, total in sums.items()}


class MetricSums:
    """The sums of one evaluation, of all metrics of a run."""

    def __init__(self, metrics: Sequence[tuple[str, Metric]], num_classes: int, *, multi_label: bool = False) -> None:
        self._metrics, self._num_classes, self._multi_label = metrics, num_classes, multi_label
        self._sums: list[dict[str, Tensor]] = [{} for _ in metrics]

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Some samples: their logits (n, classes) and labels, (n, classes) too where a sample may have several."""
        if not self._metrics:
            return
        logits, labels = logits.detach().float().cpu(), labels.cpu()
        for (name, metric), sums in zip(self._metrics, self._sums, strict=True):
            found = metric.sums(logits, labels)
            new = {str(key): torch.as_tensor(value).double() for key, value in found.items()}
            if sums and {key: value.shape for key, value in sums.items()} != {k: v.shape for k, v in new.items()}:
                raise UserError(
                    f"eval.metrics: {name} returned other sums than for the first batch",
                    why=f"{_shapes(new)} instead of {_shapes(sums)}",
                    remedy="return the same names and shapes for every batch",
                )
            for key, value in new.items():
                sums[key] = sums[key] + value if key in sums else value

    def numbers(self) -> list[float]:
        """All sums in a fixed order, to be added over workers."""
        if any(not sums for sums in self._sums):  # a worker without samples
            of_sample = [self._num_classes] if self._multi_label else []
            self.add(torch.zeros(0, self._num_classes), torch.zeros(0, *of_sample, dtype=torch.int64))
        return [x for sums in self._sums for key in sorted(sums) for x in sums[key].flatten().tolist()]

    def results(self, numbers: Sequence[float]) -> dict[str, float]:
        """The named numbers from the totals of `numbers`."""
        results: dict[str, float] = {}
        start = 0
        for (name, metric), sums in zip(self._metrics, self._sums, strict=True):
            totals: dict[str, Tensor] = {}
            for key in sorted(sums):
                size = sums[key].numel()
                part = torch.tensor(numbers[start : start + size], dtype=torch.float64)
                totals[key] = part.view(sums[key].shape)
                start += size
            found = metric.result(totals)
            _add_results(results, name, found if isinstance(found, Mapping) else {name: found})
        return results


def begin_metrics(entries: Sequence[Entry], classes: Sequence[str], *, multi_label: bool = False) -> MetricSums:
    """The metrics of a run, made anew for each evaluation."""
    return MetricSums([_made(entry, classes) for entry in entries], len(classes), multi_label=multi_label)


def _made(entry: Entry, classes: Sequence[str]) -> tuple[str, Metric]:
    reference, options = name_of(entry), options_of(entry)
    name, value = reference.rpartition(":")[2], load(reference)
    if inspect.isclass(value):
        offered = {"classes": list(classes), "num_classes": len(classes)}
        value = construct(value, reference, "options", offered, options)
    elif inspect.isroutine(value):
        return name, SampleMean(name, partial(value, **options) if options else value)
    if not (hasattr(value, "sums") and hasattr(value, "result")):
        raise UserError(
            f"eval.metrics: {reference} is not a metric",
            why="it is neither a function nor a class with the methods `sums` and `result`",
            remedy="write a function (logits, labels) → one value per sample, or both methods",
        )
    return name, value


def _add_results(results: dict[str, float], metric: str, found: Mapping[str, Any]) -> None:
    for name, value in found.items():
        if name in results or name in _RESERVED:
            raise UserError(
                f"eval.metrics: {metric} returns {name!r}, a name that is taken",
                why="each number of an evaluation has its own name",
                remedy=f"call it something else, such as {metric}_{name}",
            )
        try:
            results[str(name)] = float(value)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"eval.metrics: {metric} returned {value!r} for {name!r}",
                why="a result is a number",
                remedy="return numbers by name, such as {'balanced_accuracy': 0.9}",
            ) from error


def _shapes(sums: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name or 'samples'} {list(value.shape)}" for name, value in sums.items())
