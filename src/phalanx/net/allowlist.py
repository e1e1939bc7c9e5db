"""Addresses that may connect, for jobs without a key."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address


class Allowlist:
    """The addresses that are accepted, and always this machine's loopback.

    With `first_come` also every address that is not of the public internet, until `close`.
    """

    def __init__(self, addresses: Iterable[str], *, first_come: bool = False) -> None:
        self._addresses = {_parsed(address) for address in addresses}
        self.first_come = first_come

    def admits(self, address: str) -> bool:
        parsed = _parsed(address)
        return parsed.is_loopback or parsed in self._addresses or (self.first_come and not parsed.is_global)

    def add(self, address: str) -> None:
        self._addresses.add(_parsed(address))

    def close(self) -> None:
        """From now on accept only listed addresses."""
        self.first_come = False


def _parsed(address: str) -> IPv4Address | IPv6Address:
    parsed = ip_address(address)
    return getattr(parsed, "ipv4_mapped", None) or parsed  # ::ffff:10.0.0.1 is 10.0.0.1
