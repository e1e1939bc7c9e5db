"""`phalanx stop`: stops a job, from any terminal of its launching host."""

import platform
from pathlib import Path

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.control import send_request
from phalanx.launch.launchers.submitted import submitted_job
from phalanx.launch.record import find_record
from phalanx.observe.tables import print_text


def stop_job(console: Console, run: Path | None) -> None:
    """Ask the supervisor to stop the job, or cancel a batch job. Does not wait for the end."""
    batch = submitted_job(run)
    if batch is not None:
        batch.cancel()
        _print(console, f"{run}: cancelling {batch.scheduler} job {batch.job}; workers save a checkpoint and stop")
        return
    record = find_record(run, running=run is None)
    running = record.supervised and record.socket
    if not running or send_request(Path(record.socket or ""), {"request": "stop"}) is None:
        elsewhere = record.host != platform.node() and record.state != "ended"
        raise UserError(
            f"the job of {record.run} is not running here",
            why=f"it was launched on {record.host}" if elsewhere else f"it is {record.state}, and its launcher is gone",
            remedy=f"log in there: phalanx stop {record.run}" if elsewhere else "there is nothing to stop",
        )
    _print(console, f"{record.run}: workers save a checkpoint and stop; run `phalanx stop` again to stop at once")


def _print(console: Console, text: str) -> None:
    print_text(console, text)
