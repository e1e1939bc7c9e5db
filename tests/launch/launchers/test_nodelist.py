"""Slurm's short lists of hosts and numbers, without scontrol."""

import pytest

from phalanx.errors import UserError
from phalanx.launch.launchers.nodelist import counts, expand

LISTS = {
    "n1": ["n1"],
    "n[1-3,7],m0": ["n1", "n2", "n3", "n7", "m0"],
    "gpu[008-011]": ["gpu008", "gpu009", "gpu010", "gpu011"],
    "n[098-101]-ib": ["n098-ib", "n099-ib", "n100-ib", "n101-ib"],
    "r[1-2]n[3-4]": ["r1n3", "r1n4", "r2n3", "r2n4"],
    "a,b.example.org,c-1": ["a", "b.example.org", "c-1"],
    "b[2],a[1]": ["b2", "a1"],
}


@pytest.mark.parametrize(("text", "hosts"), LISTS.items(), ids=LISTS)
def test_lists_are_expanded_in_order(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize("text", ["", "n[1-", "n[3-1]", "n[a]", "n[]", "n]1", ",n1", "n1,,n2"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="not a list of hosts"):
        expand(text)


def test_numbers_per_node() -> None:
    assert counts("2(x3),1") == [2, 2, 2, 1]
    assert counts("4") == [4]
    with pytest.raises(UserError):
        counts("2x3")


@pytest.mark.parametrize("text", ["n[1-999999999999]", "n" + "[0-9]" * 12, "n[0-" + "9" * 5000 + "]"])
def test_lists_of_more_nodes_than_there_are(text: str) -> None:
    with pytest.raises(UserError):
        expand(text)
    with pytest.raises(UserError):
        counts("1(x999999999)")
