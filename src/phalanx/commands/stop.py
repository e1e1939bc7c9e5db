"""`phalanx stop`: ends a job from any terminal of its launching host."""

import platform
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.errors import UserError
from phalanx.launch.control import ask
from phalanx.launch.launchers.submitted import submitted_job
from phalanx.launch.record import find_record


def stop_job(console: Console, run: Path | None) -> None:
    """Ask the conductor to stop; it tells when all has ended, on its own terminal. A batch job is cancelled."""
    batch = submitted_job(run)
    if batch is not None:
        batch.cancel()
        _say(console, f"{run}: {batch.scheduler}'s job {batch.job} is cancelled; trainers save and end")
        return
    record = find_record(run, running=run is None)
    if not record.conducted or not record.socket or ask(Path(record.socket), {"ask": "stop"}) is None:
        elsewhere = record.host != platform.node() and record.state != "ended"
        raise UserError(
            f"the job of {record.run} is not running here",
            why=f"it was launched on {record.host}" if elsewhere else f"it is {record.state}, and its launcher is gone",
            remedy=f"log in there: phalanx stop {record.run}" if elsewhere else "there is nothing to stop",
        )
    _say(console, f"{record.run}: trainers save and end; `phalanx stop` again ends everything at once")


def _say(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
