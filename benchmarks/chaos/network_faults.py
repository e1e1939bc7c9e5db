"""Faults of the network, at the host of the last worker; ports that are taken; strangers; another version there."""

import shutil
import threading
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from tests.lab import network

import phalanx
from benchmarks.chaos.cell import HIT, LAUNCHER, OTHER, Cell

DELAY_MS, JITTER_MS, LOSS_SHARE = 40.0, 20.0, 0.03
PORTS = (17000, 17011)
STRANGERS_MB = 150.0  # four of them at each port, with 256 MB each
_SOME_TAKEN, _ALL_TAKEN = "17000-17003", "17000-17011"


def _at_work(cell: Cell, fault: AbstractContextManager[None]) -> None:
    cell.relief.enter_context(fault)


def partition(cell: Cell) -> None:
    _at_work(cell, network.partitioned(cell.lab, HIT))


def one_way(cell: Cell) -> None:
    _at_work(cell, network.mute(cell.lab, HIT))


def delay(cell: Cell) -> None:
    _at_work(cell, network.delayed(cell.lab, HIT, DELAY_MS, JITTER_MS))


def loss(cell: Cell) -> None:
    _at_work(cell, network.lossy(cell.lab, HIT, LOSS_SHARE))


def cut(cell: Cell) -> None:
    _at_work(cell, network.cut(cell.lab, HIT))


def take_some_ports(cell: Cell) -> None:
    _take_ports(cell, _SOME_TAKEN)


def take_all_ports(cell: Cell) -> None:
    _take_ports(cell, _ALL_TAKEN)


def _take_ports(cell: Cell, ports: str) -> None:
    cell.options += ["--port-range", f"{PORTS[0]}-{PORTS[1]}"]
    for host in (OTHER, HIT):
        cell.run_aside(host, "taken_ports", ports)


def strangers(cell: Cell) -> None:
    """From another host, at every port at which the job listens. It takes seconds, in which the job goes on."""
    places = [f"{cell.lab.address(host)}:{port}" for host in (OTHER, HIT) for port in listening(cell, host)]
    if not places:
        return
    before = _resident_mb(cell)
    ended = threading.Event()
    watching = threading.Thread(target=_watch_memory, args=(cell, before, ended), daemon=True)
    watching.start()
    cell.relief.callback(watching.join)
    cell.relief.callback(ended.set)
    cell.run_aside(LAUNCHER, "stranger", *places)


def _watch_memory(cell: Cell, before: dict[int, float], ended: threading.Event) -> None:
    """What strangers make a process hold: once for each process that grows by more than work explains."""
    while before and not ended.wait(0.2):
        for pid, now in _resident_mb(cell).items():
            if pid in before and now > before[pid] + STRANGERS_MB:
                cell.problems.append(f"strangers made a process grow from {before.pop(pid):.0f} to {now:.0f} MB")


def _resident_mb(cell: Cell) -> dict[int, float]:
    found = {}
    for one in cell.lab.processes("PHALANX_NAME="):
        with suppress(OSError):
            found[one.pid] = int(Path(f"/proc/{one.pid}/statm").read_text().split()[1]) * 4096 / 1e6
    return found


def listening(cell: Cell, host: str) -> list[int]:
    """The ports at which processes of a host listen beyond loopback, its sshd left out."""
    ports = set()
    for line in cell.lab.run(host, ["ss", "-H", "-l", "-t", "-n", "-p"]).stdout.splitlines():
        address, _, port = line.split()[3].rpartition(":")
        if '"sshd"' not in line and not address.startswith(("127.", "[::1]")):
            ports.add(int(port))
    return sorted(ports)


def skew(cell: Cell) -> None:
    """One host has another version: a source file that differs by a comment, mounted over ours there alone."""
    source, other = Path(phalanx.__file__).parent, cell.folder / "other-version"
    shutil.copytree(source, other, ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "net" / "control.py").open("a") as file:
        file.write("# of another version\n")
    cell.lab.run(HIT, ["mount", "--bind", str(other), str(source)])
    cell.relief.callback(cell.lab.run, HIT, ["umount", "-l", str(source)], check=False)
