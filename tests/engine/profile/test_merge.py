import pytest

from phalanx.data.order import Share
from phalanx.engine.profile.clocks import ClockOffset, compare_clocks, offset_of
from phalanx.engine.profile.merge import gather_parts
from phalanx.engine.profile.trace import chrome_trace
from phalanx.exchange.local import SingleWorker
from tests.engine.profile.made import parts, profile, recording


def test_the_shortest_ways_there_and_back_bound_the_clocks_difference() -> None:
    # The other clock is 5 s ahead. First its worker comes last and leaves 1 ms later, then the first worker does.
    first, other = [(1.000, 1.021), (2.020, 2.022)], [(6.020, 6.022), (7.000, 7.021)]
    found = offset_of(first, other)
    assert found.ahead == pytest.approx(5.0, abs=1e-6)
    assert found.error == pytest.approx(0.001, abs=1e-6)
    assert offset_of(first, first) == ClockOffset(0.0, 0.0)


def test_one_worker_has_nothing_to_compare_or_to_gather() -> None:
    group = SingleWorker(Share())
    assert compare_clocks(group) == [ClockOffset(0.0, 0.0)]
    (part,) = parts(recording())
    assert gather_parts(part, group) == [part]


def test_the_slowest_worker_is_named_and_how_long_the_others_wait_for_it() -> None:
    found = profile(recording(exchange_ms=40), recording(extra_ms=30, exchange_ms=10))
    assert [worker["waited_ms"] for worker in found["workers"]] == pytest.approx([30, 0])
    slowest = found["slowest"]
    assert (slowest["rank"], slowest["at"]) == (1, "backward")
    assert slowest["own_ms"] == pytest.approx(130)
    assert slowest["others_waited_ms"] == pytest.approx(30)
    assert all("spans" not in worker for worker in found["workers"])


def test_a_trace_has_all_workers_on_one_clock() -> None:
    made = parts(recording(began_s=100.0), recording(began_s=905.0))
    trace = chrome_trace(made, [ClockOffset(0.0, 0.0), ClockOffset(804.99, 0.0005)])
    begun = {event["pid"]: event["ts"] for event in reversed(trace["traceEvents"]) if event["name"] == "step 9"}
    assert begun == {0: 0.0, 1: pytest.approx(10_000)}
    assert trace["otherData"]["clock_error_ms"] == {"trainer-0": 0.0, "trainer-1": 0.5}
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert [name.partition(" ")[0] for name in names] == ["trainer-0", "trainer-1"]
