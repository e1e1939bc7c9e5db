"""`phalanx export-log`: give the events of a run to a logger, as if it had been there from the start."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.errors import UserError
from phalanx.observe.loggers.base import logged_run
from phalanx.observe.loggers.csv_file import CSV_FILE
from phalanx.observe.loggers.make import LOGGERS, require_packages
from phalanx.observe.loggers.numbers import numbers_of
from phalanx.observe.loggers.tensorboard_files import FOLDER
from phalanx.observe.progress import progress
from phalanx.runs.events import read_events

_WHERE = {"tensorboard": FOLDER, "csv": CSV_FILE, "wandb": "wandb"}


def export_log(console: Console, run: Path, to: str, project: str) -> None:
    """Give all events of a run to a logger, in this thread: what fails here is an error."""
    if to not in LOGGERS:
        raise UserError(f"--to cannot be {to!r}", why="there is no such logger", remedy=f"one of {', '.join(LOGGERS)}")
    require_packages([to])
    records = read_events(run)
    logger = LOGGERS[to]()
    failed = False
    try:
        logger.begin(logged_run(run, project))
        logger.rewind(-1)  # what an earlier export has written
        with progress(console, f"events to {to}", len(records)) as advance:
            for record in records:
                values = numbers_of(record)
                if values:
                    logger.numbers(record["step"], record["t"], values)
                failed = record["kind"] == "stop" or (failed and record["kind"] not in ("start", "end"))
                advance(1)
        logger.finish(failed=failed)
    except UserError:
        raise
    except Exception as error:  # of a service's client: of any kind
        raise UserError(
            f"the log of {run} was not exported to {to}",
            why=f"{type(error).__name__}: {error}",
            remedy="the run's own events are complete: try again when that works",
        ) from error
    place = f" in {run / _WHERE[to]}" if to in _WHERE else ""
    console.print(Text(f"{sum(bool(numbers_of(one)) for one in records):,} events are in {to}{place}"), soft_wrap=True)
