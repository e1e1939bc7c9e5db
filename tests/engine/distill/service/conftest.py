from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.distill.service.teachers import TeacherProcesses


@pytest.fixture
def processes(tmp_path: Path, digits_run: Path) -> Iterator[TeacherProcesses]:
    started = TeacherProcesses(tmp_path, digits_run)
    yield started
    started.close()
