"""Names from data and from strangers' runs are shown, and the terminal carries nothing out that is in them."""

from io import StringIO

import pytest
from rich.console import Console

from phalanx.observe.tables import print_line, print_rows, print_table, print_text, printable

TITLE = "\x1b]0;fake\x07"  # sets the title of the terminal's window
HOSTILE = f"a{TITLE}b\rc\x9b2Jd [red]e"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_no_control_character_of_a_name_is_printed(is_terminal: bool) -> None:
    console = Console(file=StringIO(), force_terminal=is_terminal, width=200)
    print_rows(console, {"run": HOSTILE})
    print_table(console, ("role", "state"), [(HOSTILE, "ended")])
    print_line(console, HOSTILE)
    print_text(console, HOSTILE, "yellow")
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    for part in (TITLE, "\x1b]", "\x07", "\r", "\x9b"):
        assert part not in shown
    assert shown.count("[red]e") == 4  # no markup either


def test_tabs_and_line_breaks_are_kept() -> None:
    assert printable("a\tb\nc \udce9") == "a\tb\nc \ufffd"
