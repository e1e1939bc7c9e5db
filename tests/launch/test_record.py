"""RUN/job.json is written beside the supervisor's loop."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from phalanx.launch.record import JobRecord, RecordFile, load_record


def test_a_disk_that_takes_its_time_does_not_stop_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that hear nothing from their supervisor end their roles."""
    flushed, flush = threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        assert flushed.wait(60)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    record = JobRecord("id", "command", "ssh", str(tmp_path))
    file = RecordFile(record)

    async def main() -> None:
        writing = asyncio.create_task(file.write_aside())
        await asyncio.sleep(0.05)
        assert not writing.done()
        flushed.set()
        await writing

    asyncio.run(main())
    assert load_record(tmp_path).state == "starting"


def test_a_thread_that_comes_late_replaces_nothing_newer(tmp_path: Path) -> None:
    record = JobRecord("id", "command", "ssh", str(tmp_path), state="running")
    file = RecordFile(record)
    late = file._text()
    record.state = "ended"
    file.write()
    file._put(*late)
    assert load_record(tmp_path).state == "ended"
