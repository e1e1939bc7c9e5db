"""The lease table: every step once and in order, whichever server makes it, however often."""

from itertools import count

import numpy as np

from phalanx.data.order import Work
from phalanx.data.service.leases import Leases
from phalanx.errors import UserError


def table() -> Leases[str, str]:
    return Leases(Work(0, number, ((0, np.arange(2)),), 2, last=False) for number in count())


def test_what_a_lost_holder_owed_is_open_again_and_its_late_answer_is_not_wanted() -> None:
    leases = table()
    for lease, holder in zip(leases.open(4), "abab", strict=True):
        lease.holders.add(holder)
    assert list(leases.open(4)) == []
    assert leases.release("a") == 2
    assert [lease.number for lease in leases.open(4)] == [0, 2]
    assert leases.arrive(0, "made by b")
    assert not leases.arrive(0, "made by a, late")
    assert leases.head.made == "made by b"
    leases.pop()
    assert not leases.arrive(0, "made by a, even later")
    assert leases.head.number == 1


def test_answers_in_any_order_are_handed_out_in_order() -> None:
    leases = table()
    assert len(list(leases.open(5))) == 5
    for number in (3, 1, 4, 0, 2):
        assert leases.arrive(number, str(number))
    handed = []
    while leases.head.made is not None:
        handed.append((leases.head.work.start, leases.head.made))
        leases.pop()
    assert handed == [(number, str(number)) for number in range(5)]


def test_work_that_one_cannot_make_is_open_to_others() -> None:
    leases = table()
    leases.head.holders.add("a")
    leases.fail(0, "a", UserError("no disk"))
    assert list(leases.open(1)) == [leases.head]
    assert "a" in leases.head.failed
    leases.fail(99, "a", UserError("of a step that nobody knows"))
