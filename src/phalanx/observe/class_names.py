"""Class names in pictures: on one line, cut to a length, and numbered where no font here shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.observe.fonts import Lettering, drawable, lettering
from phalanx.observe.tables import tab_separated


@dataclass(frozen=True)
class ClassNames:
    """The names of classes as a picture shows them."""

    shown: list[str]  # the number of a class where no font here has the letters of its name
    numbered: list[int]  # the classes that are shown by their numbers
    lettering: Lettering

    def note(self, legend: Path) -> str:
        """What a picture says about its numbers; empty if all names are shown."""
        count, total = len(self.numbered), len(self.shown)
        if not count:
            return ""
        some = "the class names" if count == total else f"{count:,} of the {total:,} class names"
        return f"no font here shows {some}; {legend.name} says which number is which"


def class_names(names: Sequence[str], longest: int | None = None, *, pillow_only: bool = False) -> ClassNames:
    """How a picture shows the names of all classes; those with more than `longest` letters are cut.

    Pillow may lack what matplotlib can do: `pillow_only` is for pictures that Pillow alone draws.
    """
    lines = [drawable(name) for name in names]
    fonts = lettering([*lines, "…"])
    seen = fonts.shown_by_pillow if pillow_only else lambda line: fonts.way(line) != "number"
    numbered = [number for number, line in enumerate(lines) if not seen(line)]
    shown = [cut(line, longest or len(line)) for line in lines]
    for number in numbered:
        shown[number] = f"#{number}"
    return ClassNames(shown, numbered, fonts)


def cut(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"


def legend_path(picture: Path) -> Path:
    """The file beside a picture that says which number is which class."""
    return picture.with_name(f"{picture.stem}-classes.tsv")


def legend_text(names: Sequence[str]) -> str:
    """A line per class: its number and its name."""
    return "".join(tab_separated((str(number), name)) + "\n" for number, name in enumerate(names))
