"""The simulation equals hand calculations in limit cases, and is monotone where physics is."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.exchange.compress.spec import parse_compression
from phalanx.plan.job import Codec
from phalanx.plan.simulate import PARTS, simulate
from tests.plan.jobs import MB, REAL, job, network

VALUES = 25 * MB // 4  # of one full bucket


def test_one_worker_computes_and_updates() -> None:
    found = simulate(job(VALUES, update_s=0.05))
    assert found.step_s == pytest.approx(0.35)
    assert found.parts["compute"] == pytest.approx(0.3)
    assert found.parts["update"] == pytest.approx(0.05)


def test_parts_add_up_to_the_step() -> None:
    for method in ("collective", "pserver"):
        one = job(VALUES, VALUES, workers=8, method=method, network=network(1e9), server=REAL, spread=0.1)
        found = simulate(one)
        assert set(found.parts) == set(PARTS)
        assert sum(found.parts.values()) == pytest.approx(found.step_s, rel=0.05)


def test_a_ring_takes_what_its_bytes_take() -> None:
    # One bucket, ready when backward ends: 2 (N - 1)/N of it pass each link.
    found = simulate(job(VALUES, workers=4, method="collective", network=network(1e9)))
    assert found.step_s == pytest.approx(0.3 + 2 * 3 / 4 * 25 * MB / 1e9)
    assert found.parts["exchange"] == pytest.approx(2 * 3 / 4 * 25 * MB / 1e9, rel=1e-4)


def test_latency_counts_once_a_hop() -> None:
    found = simulate(job(VALUES, workers=4, method="collective", network=network(1e15, latency_s=0.001)))
    assert found.step_s == pytest.approx(0.3 + 2 * 2 * 3 * 0.001)  # the bucket, and the step's sums


def test_backward_hides_the_first_buckets() -> None:
    # The first bucket (the last parameter's) is ready after 0.1 s of 0.2 s and takes 39 ms: only the second is seen.
    both = job(VALUES, VALUES, workers=4, method="collective", network=network(1e9))
    assert len(both.buckets) == 2
    assert simulate(both).parts["exchange"] == pytest.approx(2 * 3 / 4 * 25 * MB / 1e9, rel=1e-4)


def test_workers_of_a_host_share_its_link_once() -> None:
    one = job(VALUES, workers=8, per_host=4, method="collective", network=network(1e9))
    assert simulate(one).parts["exchange"] == pytest.approx(2 * 7 / 8 * 25 * MB / 1e9, rel=1e-4)


def test_two_bit_gathers_every_payload() -> None:
    spec = parse_compression("2bit")
    one = job(VALUES, workers=4, method="collective", compress=spec, network=network(1e9), codec=Codec(1e-9, 2e-9))
    wire = 4 + VALUES // 4
    expected = 0.3 + 4 * VALUES * 1e-9 + 3 * wire / 1e9 + 4 * 4 * VALUES * 2e-9
    assert simulate(one).step_s == pytest.approx(expected, rel=0.01)


def test_a_server_apart_receives_and_sends_all() -> None:
    # All push 4 slices through the server's link, and pull them again: it is full both ways, one after the other.
    one = job(4 * MB, workers=4, method="pserver", servers=1, server_hosts=1, network=network(1e8))
    push = 4 * 16 * MB / 1e8
    found = simulate(one, steps=6)
    # Pulls of the first slices overlap with pushes of the last ones, and nothing can be faster than one direction.
    assert 0.3 + push < found.step_s < 0.3 + 2 * push
    assert found.busy["links"] > 0.45


def test_a_servers_own_time_is_counted() -> None:
    slow = REAL.model_copy(update={"message": 0.0, "rate": 1e15, "sum": 1e15, "update": 1e7})
    one = job(MB, workers=2, method="pserver", server=slow)
    found = simulate(one)
    assert found.step_s == pytest.approx(0.3 + 4 * MB / 1e7, rel=0.02)
    assert found.parts["server"] > 0.9 * 4 * MB / 1e7


def test_input_binds_a_step() -> None:
    one = job(VALUES, workers=4, per_host=4, method="collective", input_images_per_s=100.0)
    found = simulate(one)
    assert found.step_s == pytest.approx(4 * 32 / 100.0, rel=0.01)
    assert found.parts["input"] == pytest.approx(4 * 32 / 100.0 - 0.3, rel=0.02)


def test_sync_waits_for_the_slowest_and_async_does_not() -> None:
    sync = job(MB, workers=16, method="pserver", servers=2, spread=0.2)
    waiting = simulate(sync, steps=40)
    free = simulate(sync.but(mode="async"), steps=40)
    bounded = simulate(sync.but(mode="ssp:1"), steps=40)
    assert waiting.parts["waiting"] > 0.02
    assert free.step_s < bounded.step_s * 1.001 < waiting.step_s * 1.002
    assert free.step_s == pytest.approx(0.3, rel=0.03)


def test_accumulated_micro_batches_exchange_once() -> None:
    one = job(VALUES, workers=4, method="collective", network=network(1e9), accumulate=3)
    assert simulate(one).step_s == pytest.approx(0.9 + 2 * 3 / 4 * 25 * MB / 1e9, rel=1e-4)


def test_simulated_again_it_is_the_same() -> None:
    one = job(VALUES, MB, workers=8, method="pserver", servers=2, spread=0.1, server=REAL, network=network(1e9))
    assert simulate(one).step_s == simulate(one).step_s


METHODS = st.sampled_from(["collective", "pserver"])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1000, 8 * MB), min_size=1, max_size=6),
    *(st.integers(1, 12), st.integers(1, 4), st.floats(0.0, 0.2), st.floats(1e7, 1e10)),
)
def test_more_bandwidth_is_never_slower(
    sizes: list[int], workers: int, per_host: int, spread: float, nic: float
) -> None:
    shape: dict[str, Any] = {"workers": workers, "per_host": per_host, "method": "collective", "spread": spread}
    slow = job(*sizes, **shape, network=network(nic))
    assert simulate(slow.but(network=network(2 * nic)), 6).step_s <= simulate(slow, 6).step_s * (1 + 1e-9)


@pytest.mark.xfail(strict=True, reason="queues served in order of arrival are not monotone: docs/plan.md, The model")
def test_more_bandwidth_is_never_slower_with_servers() -> None:
    # Found by a property test: with faster links these workers stay in step and queue for the servers together.
    shape: dict[str, Any] = {"workers": 6, "method": "pserver", "servers": 2, "mode": "async", "server": REAL}
    slow = job(37553, 1011024, 3449041, **shape, network=network(413782594.0))
    fast = slow.but(network=network(2 * 413782594.0))
    assert simulate(fast, 48).step_s <= simulate(slow, 48).step_s * 1.01


@settings(max_examples=25, deadline=None)
@given(METHODS, st.integers(1, 12), st.floats(0.0, 0.2), st.floats(1e7, 1e10))
def test_no_step_is_shorter_than_computing(method: str, workers: int, spread: float, nic: float) -> None:
    one = job(MB, MB, workers=workers, method=method, spread=spread, server=REAL, network=network(nic))
    found = simulate(one)
    assert found.step_s >= 0.3 * (1 - 3 * spread) * 0.999
    assert all(seconds >= 0 for seconds in found.parts.values())
