"""Hosts for the tests of launching, up for as long as the tests of this folder run."""

from collections.abc import Iterator

import pytest

from tests.lab.hosts import Lab, hosts_up


@pytest.fixture(scope="package")
def lab() -> Iterator[Lab]:
    """Four hosts with sshd."""
    with hosts_up(4) as up:
        yield up
