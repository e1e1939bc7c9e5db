"""How long a run still takes: from the latest steps, and from what came between steps."""

from phalanx.observe.time_left import Pace, duration


def test_durations() -> None:
    assert [duration(seconds) for seconds in (0, 59.6, 300, 3900)] == ["0:00", "1:00", "5:00", "1:05:00"]


def test_pauses_do_not_count_as_steps() -> None:
    pace, now = Pace(), 100.0
    assert pace.left_s(10) is None
    for step in range(1, 101):
        pace.add(step, now)
        now += 2.0
        if step == 50:
            pace.pause()
            now += 99.0
    assert pace.left_s(10) == 20.0
    assert pace.left_s(99, pauses=True) == 99 * 2.0 + 99.0
    assert pace.left_s(-1) == 0.0


def test_only_now_and_then() -> None:
    """A launcher hears of every n-th step."""
    pace = Pace()
    for number in range(5):
        pace.add(10 * number, 5.0 * number)
    assert pace.left_s(100) == 50.0


def test_steps_that_become_slower_are_noticed() -> None:
    pace, now = Pace(), 0.0
    for step in range(400):
        pace.add(step, now)
        now += 1.0 if step < 200 else 3.0
    left = pace.left_s(1)
    assert left is not None
    assert 2.9 < left < 3.1
