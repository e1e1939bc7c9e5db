"""A job of real processes that ends with its test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exchange.pserver.pserver_jobs import JobOfProcesses


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobOfProcesses]:
    """Parametrised with (number of servers, number of workers, transport), and perhaps silence_s."""
    job = JobOfProcesses(tmp_path, *request.param)
    job.start_servers()
    yield job
    job.kill()
