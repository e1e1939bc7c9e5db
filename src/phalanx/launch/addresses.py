"""Addresses of an agent's roles: the one that other hosts connect to, and ports that are held until roles start."""

import contextlib
import socket

from phalanx.errors import UserError
from phalanx.net.interfaces import (
    LOOPBACK,
    address_towards,
    bound_socket,
    interface_address,
    interface_with,
    is_loopback,
)


def own_address(peers: list[str], interface: str | None) -> tuple[str, str | None]:
    """(address, interface) that the peers can connect to; loopback if there are no peers."""
    if interface is not None:
        return interface_address(interface), interface
    for peer in peers:
        with contextlib.suppress(UserError):
            address = address_towards(peer)
            if not is_loopback(address):
                return address, interface_with(address)
    if peers:
        raise UserError(
            "the other hosts cannot be reached from here",
            why=f"no route to any of {', '.join(peers[:4])}",
            remedy="use host names that all hosts can resolve, or name the network interface with --iface",
        )
    return LOOPBACK, interface_with(LOOPBACK)


def hold_ports(address: str, count: int, allowed: tuple[int, int] | None) -> list[socket.socket]:
    """Bound sockets. They hold their ports until just before the roles that use them start."""
    held: list[socket.socket] = []
    if allowed is None:
        return [bound_socket(address) for _ in range(count)]
    for port in range(allowed[0], allowed[1] + 1):
        if len(held) == count:
            break
        probe = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            probe.bind((address, port))
            held.append(probe)
        except OSError:
            probe.close()
    if len(held) < count:
        for probe in held:
            probe.close()
        first, last = allowed
        raise UserError(
            f"{count} free ports are needed, but only {len(held)} of {first}-{last} are free",
            why="other programs use the rest",
            remedy="give a wider --port-range, or leave it out to use any free port",
        )
    return held


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
