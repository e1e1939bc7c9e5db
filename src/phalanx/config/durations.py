"""Durations: "90ep", "5000st", "1000000ex" or "10%", resolved once into steps."""

import math
import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

_PATTERN = re.compile(r"^\s*(\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,9})?)\s*(ep|st|ex|%)\s*$")
_MOST_STEPS = 1 << 62
_HELP = "a duration is written 90ep (epochs), 5000st (steps), 1000000ex (examples) or 10% (of the run)"


@dataclass(frozen=True)
class Duration:
    """A length of training. `steps()` is the only way to use it."""

    amount: float
    unit: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", float(self.amount))

    @classmethod
    def parse(cls, text: str) -> "Duration":
        match = _PATTERN.match(text)
        if match is None:
            raise ValueError(f"{text!r} is not a duration: {_HELP}")
        amount = float(match[1])
        if not math.isfinite(amount):
            raise ValueError(f"{text!r} is too large: {_HELP}")
        return cls(amount, match[2])

    def __str__(self) -> str:
        amount = int(self.amount) if self.amount.is_integer() else self.amount
        return f"{amount}{self.unit}"

    def steps(self, *, steps_per_epoch: int, samples_per_step: int, total_steps: int | None = None) -> int:
        """This duration in optimizer steps; a share of the run needs `total_steps`."""
        if self.unit == "ep":
            exact = self.amount * steps_per_epoch
        elif self.unit == "st":
            exact = self.amount
        elif self.unit == "ex":
            exact = self.amount / samples_per_step
        elif total_steps is None:
            raise ValueError(f"{self} is a share of the run, so it cannot be the run's length")
        else:
            exact = self.amount / 100 * total_steps
        if not exact < _MOST_STEPS:
            raise ValueError(f"{self} is longer than any training: {_HELP}")
        return round(exact)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def read(value: Any) -> "Duration":
            if isinstance(value, Duration):
                return value
            if isinstance(value, str):
                return cls.parse(value)
            raise ValueError(f"{value!r} has no unit: {_HELP}")

        as_text = core_schema.plain_serializer_function_ser_schema(str, return_schema=core_schema.str_schema())
        return core_schema.no_info_plain_validator_function(read, serialization=as_text)
