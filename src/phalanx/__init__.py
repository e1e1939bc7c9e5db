"""Phalanx trains image classifiers on one machine or many: one recipe, one result.

>>> import phalanx
>>> run = phalanx.train("digits", epochs=1)                 # as `phalanx train digits --epochs 1`
>>> 0 <= run.best.top1 <= 1
True
>>> steps, values = run.history("val/top1")                 # plt.plot(*run.history("val/top1"))
>>> figure = run.figure()                                   # a matplotlib figure
>>> model = run.model()                                     # an nn.Module in eval mode, with the best weights
>>> run.evaluate().samples                                  # as `phalanx eval`
355
>>> run = run.resume(epochs=2)                              # as `phalanx train --resume RUN --epochs 2`
>>> phalanx.load(run.path).finished
True

Public are the names in `phalanx.__all__`; all modules below are private and may change. Errors that a caller can
correct are `phalanx.Error`, with `.what`, `.why` and `.remedy`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.api.cross_validation import CrossValidation
    from phalanx.api.history import History
    from phalanx.api.launch import launch
    from phalanx.api.load import load, runs
    from phalanx.api.numbers import Evaluation, Score
    from phalanx.api.plan import plan
    from phalanx.api.plot import plot
    from phalanx.api.recipe import Recipe, recipe
    from phalanx.api.run import Run
    from phalanx.api.sweep import Sweep, sweep
    from phalanx.api.train import train
    from phalanx.commands.attack_report import Robustness
    from phalanx.commands.predict import Prediction
    from phalanx.errors import UserError as Error
    from phalanx.plan.plan import Plan

__version__ = "0.2.0"
__all__ = [
    "CrossValidation",
    "Error",
    "Evaluation",
    "History",
    "Plan",
    "Prediction",
    "Recipe",
    "Robustness",
    "Run",
    "Score",
    "Sweep",
    "launch",
    "load",
    "plan",
    "plot",
    "recipe",
    "runs",
    "sweep",
    "train",
]

_HOMES = {
    "CrossValidation": ("phalanx.api.cross_validation", "CrossValidation"),
    "Error": ("phalanx.errors", "UserError"),
    "Evaluation": ("phalanx.api.numbers", "Evaluation"),
    "History": ("phalanx.api.history", "History"),
    "Plan": ("phalanx.plan.plan", "Plan"),
    "Prediction": ("phalanx.commands.predict", "Prediction"),
    "Recipe": ("phalanx.api.recipe", "Recipe"),
    "Robustness": ("phalanx.commands.attack_report", "Robustness"),
    "Run": ("phalanx.api.run", "Run"),
    "Score": ("phalanx.api.numbers", "Score"),
    "Sweep": ("phalanx.api.sweep", "Sweep"),
    "launch": ("phalanx.api.launch", "launch"),
    "load": ("phalanx.api.load", "load"),
    "plan": ("phalanx.api.plan", "plan"),
    "plot": ("phalanx.api.plot", "plot"),
    "recipe": ("phalanx.api.recipe", "recipe"),
    "runs": ("phalanx.api.load", "runs"),
    "sweep": ("phalanx.api.sweep", "sweep"),
    "train": ("phalanx.api.train", "train"),
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import phalanx` takes no time."""
    if name not in _HOMES:
        raise AttributeError(f"module 'phalanx' has no attribute {name!r}")
    module, original = _HOMES[name]
    return getattr(import_module(module), original)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _public(name: str) -> property:
    return property(lambda module: __getattr__(name), lambda module, value: None)


class _Package(ModuleType):
    """This module. `launch`, `plan` and `runs` are functions of it, and packages of those names exist too.

    Python sets a package as an attribute of its parent when it is imported; here that must not hide the function.
    """

    launch = _public("launch")
    plan = _public("plan")
    runs = _public("runs")


sys.modules[__name__].__class__ = _Package
