"""Runs the main function of a process: a UserError is printed without a traceback."""

import os
import sys
import warnings
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from phalanx.errors import EXIT_OURS, EXIT_USER, UserError
from phalanx.machine.ending import leave_ending
from phalanx.machine.open_files import allow_many_files
from phalanx.machine.openmp import let_idle_threads_sleep
from phalanx.native.features import hold_libraries_to_level
from phalanx.observe.tables import printable


def run_process(main: Callable[[], int]) -> NoReturn:
    """Run `main` and end the process with its exit code."""
    let_idle_threads_sleep()
    allow_many_files()
    # About single images (odd metadata, a palette with transparency): what cannot be read is reported by us.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    try:
        hold_libraries_to_level()
        code = main()
    except UserError as error:
        leave_ending(error)
        _print_error(str(error))
        sys.exit(EXIT_USER)
    except KeyboardInterrupt:
        _print_error("interrupted")
        sys.exit(130)
    except BrokenPipeError:  # `phalanx models | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_OURS)
    sys.exit(code)


def _print_error(text: str) -> None:
    Console(stderr=True).print(Text.assemble(("error: ", "bold red"), printable(text)), soft_wrap=True)
