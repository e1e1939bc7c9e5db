"""Who may join."""

import pytest

from phalanx.exchange.pserver.members import Members
from phalanx.net.seal import Refused


def test_a_hello_said_twice_has_one_answer_which_is_good_once() -> None:
    """A worker that is up before its server repeats its hello; all of them arrive when the server is there."""
    members = Members()
    first = members.challenge(b"worker")
    assert members.challenge(b"worker") == first
    assert members.challenge(b"other") != first
    members.answered(b"worker", first)
    with pytest.raises(Refused):
        members.answered(b"worker", first)
    assert members.challenge(b"worker") != first
