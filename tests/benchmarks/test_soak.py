"""The soak's own parts: its faults come from the seed, and growth is told from noise."""

import random
import subprocess
import sys

import pytest
from benchmarks.soak import events, growth

from tests.waiting import until


def test_faults_come_from_the_seed() -> None:
    first, again, other = (events.plan(random.Random(seed), 40) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first.count(events.lose_host) == 1
    assert events.kill_role in first


def test_a_process_that_grows_is_told_from_one_that_does_not() -> None:
    steady: list[growth.Sample] = [(float(second), 100 + second % 2, 20 + second % 2) for second in range(100)]
    memory: list[growth.Sample] = [(float(second), 100 + second, 20) for second in range(100)]
    descriptors: list[growth.Sample] = [(float(second), 100.0, 20 + second // 3) for second in range(100)]
    assert not growth._slope("launcher", steady).grows
    assert growth._slope("launcher", memory).grows
    assert growth._slope("launcher", descriptors).grows
    assert "descriptors/h" in str(growth._slope("launcher", memory))


def test_samples_are_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process, which opens a file every moment."""
    opens = "import time; held = []\nwhile True: held.append(open('/dev/null')); time.sleep(0.02)"
    monkeypatch.setattr(growth, "SAMPLE_S", 0.05)
    process = subprocess.Popen([sys.executable, "-c", opens])
    try:
        watched = growth.Growth(lambda: {"launcher": process.pid})
        until(lambda: len(watched._samples["launcher", process.pid]) > 40, timeout_s=60)
        (slope,) = watched.stop()
        assert slope.grows
    finally:
        process.kill()
        process.wait()
