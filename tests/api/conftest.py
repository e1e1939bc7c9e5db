"""What tests of the Python interface share."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def one_core() -> Iterator[None]:
    """Settings are chosen for one core: examples set none, and tests share the cores."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)
