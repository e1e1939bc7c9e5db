"""Which tests `./check --fast` leaves out."""

from pathlib import Path

import pytest

from tests.slow import is_slow

TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    "path",
    [
        "exchange/test_modes.py",  # starts processes itself
        "exchange/pserver/test_pserver_async.py",  # by a helper
        "bench/test_scaling.py",  # by what it tests
    ],
)
def test_what_starts_processes_is_slow(path: str) -> None:
    assert is_slow(TESTS / path)


@pytest.mark.parametrize("path", ["config/test_resolve.py", "data/test_order.py", "exchange/compress/test_codecs.py"])
def test_the_rest_is_not(path: str) -> None:
    assert not is_slow(TESTS / path)


@pytest.fixture
def lab() -> None:
    """Stands in for the hosts, by its name."""


@pytest.mark.usefixtures("lab")
def test_what_uses_hosts_is_slow(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("slow")
