"""What a row of the migration table is. The rows are data, in a file per system; nothing heavy is imported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

# train, launch and serve-data: flags that stand where those commands' flags stand now; keys: settings in a file
Scope = Literal["train", "launch", "serve-data", "keys", "variables"]


@dataclass(frozen=True)
class Row:
    """One old spelling, and what to write now."""

    old: str  # a flag, variable or key; several that mean the same are separated by ", "
    new: str = ""  # flags and settings, or a whole command; {} stands for the value. Empty: nothing is to be written
    example: str = ""  # a value, where it takes one
    note: str = ""  # what is different; or why nothing is to be written
    values: Mapping[str, str] = field(default_factory=dict)  # values for which something else is to be written
    rewrite: Callable[[str], str] | None = None  # from a value to all that is to be written
    behind: bool = False  # launch: written behind --, among what `train` takes
    lacking: bool = False  # nothing is to be written because Phalanx has nothing like it
    understood: bool = False  # a variable that Phalanx reads as it is

    @property
    def names(self) -> list[str]:
        return self.old.split(", ")

    def translate(self, value: str | None) -> str:
        """What to write for a value; where there is none, or none that can be read, for the example."""
        given = value if value is not None else self.example
        if value is None and not self.example:
            return self.new
        if given in self.values:
            return self.values[given]
        if self.rewrite is None:
            return self.new.replace("{}", given)
        try:
            return self.rewrite(given)
        except (ValueError, IndexError, ZeroDivisionError):
            return self.rewrite(self.example)


def needless(old: str, why: str) -> Row:
    """What nobody has to say any more."""
    return Row(old, note=why)


def lacking(old: str, why: str) -> Row:
    """What Phalanx does not have."""
    return Row(old, note=why, lacking=True)


def understood(old: str, note: str = "") -> Row:
    """A variable that means here what it meant there."""
    return Row(old, note=note, understood=True)


@dataclass(frozen=True)
class Group:
    """The flags of one program, or the variables of one system."""

    title: str
    kind: Scope
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Example:
    """A whole command, and the same here; several lines are several commands."""

    old: str
    new: str
    note: str = ""
    on_digits: bool = False  # needs nothing but what is built in, so anybody can run it as it stands


@dataclass(frozen=True)
class System:
    """One of the systems that Phalanx follows."""

    name: str  # as an error names it: "MXNet"
    title: str
    words: str  # what one has to know first
    groups: tuple[Group, ...]
    examples: tuple[Example, ...]


def systems() -> tuple[System, ...]:
    """All of them; imported here, since most commands need none."""
    from phalanx.migrate import horovod, mxnet, paddle, paddleclas, tensorflow

    return (paddle.SYSTEM, mxnet.SYSTEM, paddleclas.SYSTEM, tensorflow.SYSTEM, horovod.SYSTEM)
