"""Listed addresses are accepted; others are not, except for private ones before the list is closed."""

from phalanx.net.allowlist import Allowlist

OTHERS = ("10.0.0.9", "192.168.7.1", "100.64.0.5", "172.20.1.1", "fd00::9", "fe80::9%eth0")
PUBLIC = ("8.8.8.8", "1.1.1.1", "2600::1")
LOOPBACK = ("127.0.0.1", "127.0.1.1", "::1")


def admitted(allowlist: Allowlist, *addresses: str) -> set[bool]:
    return {allowlist.admits(address) for address in addresses}


def test_only_those_listed_come_in() -> None:
    allowlist = Allowlist(["10.0.0.1", "9.9.9.9", "fd00::1"])
    assert admitted(allowlist, "10.0.0.1", "::ffff:10.0.0.1", "9.9.9.9", "fd00::1", *LOOPBACK) == {True}
    assert admitted(allowlist, *OTHERS, *PUBLIC) == {False}


def test_the_first_may_come_from_private_networks_until_all_are_there() -> None:
    allowlist = Allowlist(["10.0.0.1"], first_come=True)
    assert admitted(allowlist, "10.0.0.1", *OTHERS, *LOOPBACK) == {True}
    assert admitted(allowlist, *PUBLIC) == {False}
    allowlist.add("10.0.0.9")
    allowlist.close()
    assert admitted(allowlist, "10.0.0.1", "10.0.0.9", *LOOPBACK) == {True}
    assert admitted(allowlist, *OTHERS[1:], *PUBLIC) == {False}
