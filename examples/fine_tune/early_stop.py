"""A callback that ends training when there is no progress."""

from typing import Any


class EarlyStop:
    """Ends training after `patience` evaluations without a better accuracy. A resumed run counts on."""

    def __init__(self, patience: int) -> None:
        self.patience, self.best, self.waited = patience, 0.0, 0

    def on_evaluated(self, run: Any, numbers: dict[str, float]) -> dict[str, float]:
        self.waited = 0 if numbers["top1"] > self.best else self.waited + 1
        self.best = max(self.best, numbers["top1"])
        if self.waited >= self.patience:
            run.stop(f"no better accuracy than {100 * self.best:.1f} % in {self.patience} evaluations")
        return {"waited": self.waited}

    def state(self) -> dict[str, float]:
        return {"best": self.best, "waited": self.waited}

    def load(self, state: dict[str, Any]) -> None:
        self.best, self.waited = state["best"], state["waited"]
