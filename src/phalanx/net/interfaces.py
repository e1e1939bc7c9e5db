"""Addresses, network interfaces and ports of this machine."""

import fcntl
import os
import random
import socket
import struct
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

from phalanx.errors import UserError

PORT_RANGE = "PHALANX_PORT_RANGE"  # of all listeners of a job, except for gloo's, whose ports cannot be chosen
LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # Linux: an interface's IPv4 address


def is_loopback(host: str) -> bool:
    return host.strip("[]") in ("localhost", "::1") or host.startswith("127.")


def address_towards(host: str) -> str:
    """This machine's address on the way to another host. Nothing is sent: a datagram socket only picks a route."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host.strip("[]"), 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UserError(
            f"there is no route to the host {host}",
            why=error.strerror or str(error),
            remedy="check the name and the network, or set MASTER_ADDR to an address that every host reaches",
        ) from error


def is_own(address: str) -> bool:
    """Whether an address is one of this machine's: only those can be bound."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
        return True
    except OSError:
        return False


def own_address_of(host: str, *, one_machine: bool = False) -> str | None:
    """The address of this machine that a host name or address means to others; None where that is not known here.

    Some machines resolve their own name to a loopback address, which others cannot use; and behind a translation of
    addresses a name means none of this machine's.
    """
    try:
        found = [str(each[4][0]) for each in socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)]
    except OSError:
        return None
    usable = [one for one in found if one_machine or is_loopback(host) or not is_loopback(one)]
    return next(filter(is_own, usable), None)


def interface_address(interface: str) -> str:
    """A network interface's IPv4 address."""
    address = _address_of(interface)
    if address is None:
        known = [name for _, name in socket.if_nameindex() if _address_of(name)]
        raise UserError(
            f"the network interface {interface} has no address on {socket.gethostname()}",
            why="there is none of that name, it is down, or it has no IPv4 address",
            remedy=f"one of: {', '.join(known)}",
        )
    return address


def _address_of(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def interface_with(address: str) -> str | None:
    """The network interface that has an IPv4 address, if any."""
    return next((name for _, name in socket.if_nameindex() if _address_of(name) == address), None)


def bind_gloo_towards(host: str, *, one_machine: bool) -> None:
    """Have gloo use the interface towards a host. By itself it takes the one of the hostname's address, if any."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    here = one_machine or is_loopback(host)
    address = LOOPBACK if here else address_towards(host)
    interface = interface_with(address) if here or not is_loopback(address) else None
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface


def free_port(address: str) -> int:
    """A port that is free at this moment."""
    with closing(bound_socket(address)) as probe:
        return int(probe.getsockname()[1])


def bound_socket(address: str) -> socket.socket:
    """A socket at a free port.

    The caller may close it and use its port. No other program should take the port in between: so it is one of the
    allowed range, or none of those that the system gives to outgoing connections.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    allowed = allowed_ports()
    ports = candidate_ports() if allowed else [*random.SystemRandom().sample(_ports_not_given_away(), 20), 0]
    for port in ports:
        probe = socket.socket(family)
        try:
            probe.bind((address, port))
            return probe
        except OSError:
            probe.close()
            if port == 0:
                raise
    raise UserError(
        f"no port of {PORT_RANGE}={os.environ[PORT_RANGE]} is free at {address}",
        why="other programs use them",
        remedy="give a wider range, or leave it out: any free port is then taken",
    )


def parse_ports(text: str, option: str = "--port-range") -> tuple[int, int]:
    """`17000-17100`."""
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65536):
        why = "a range is FIRST-LAST"
        raise UserError(f"{text!r} is not a range of ports", why=why, remedy=f"{option} 17000-17100")
    return int(first), int(last)


def allowed_ports(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """The ports that processes of this job may listen at: from a launcher's --port-range or the user's variable."""
    text = environment.get(PORT_RANGE)
    return parse_ports(text, f"{PORT_RANGE}=") if text else None


def candidate_ports(taken: Collection[int] = ()) -> list[int]:
    """Ports to try one after another: the range in random order, without `taken`; 0 where there is no range."""
    allowed = allowed_ports()
    if allowed is None:
        return [0]
    ports = [port for port in range(allowed[0], allowed[1] + 1) if port not in taken]
    random.SystemRandom().shuffle(ports)
    return ports


def _ports_not_given_away() -> list[int]:
    try:
        first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        first, last = 32768, 65535
    left = [port for port in range(10_000, 65_536) if not first <= port <= last]
    return left if len(left) >= 1000 else list(range(10_000, 65_536))
