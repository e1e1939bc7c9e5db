"""Show the examples in docstrings as code. Markdown would take their `>>>` for quotations. mkdocstrings runs this."""

import re
from typing import Any

import griffe

# An example: lines from one with >>> up to the next empty line.
_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n.*\S.*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts each example of a docstring into a fenced block."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for everything that has been read from the source."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring whose examples are code blocks."""
    return _EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
