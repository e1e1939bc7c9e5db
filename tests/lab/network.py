"""What can happen to the network of a lab host: delay, loss, a partition of both or one direction, a narrow link.

Each is a context: the network is as before when it is left. iptables and tc are Debian's iptables and iproute2.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.lab.hosts import Lab, require_tools
from tests.waiting import until

_TOOLS = {"iptables": "iptables", "tc": "iproute2"}
_CHECKOUT = Path(__file__).parents[2]


@contextmanager
def partitioned(lab: Lab, host: str) -> Iterator[None]:
    """Nothing goes from or to the host, and nobody is told."""
    with deaf(lab, host), mute(lab, host):
        yield


@contextmanager
def mute(lab: Lab, host: str) -> Iterator[None]:
    """Nothing that the host sends arrives; it still hears the others."""
    with _rule(lab, host, ["OUTPUT", "-o", "eth0", "-j", "DROP"]):
        yield


@contextmanager
def deaf(lab: Lab, host: str) -> Iterator[None]:
    """Nothing arrives at the host; the others still hear it."""
    with _rule(lab, host, ["INPUT", "-i", "eth0", "-j", "DROP"]):
        yield


@contextmanager
def lossy(lab: Lab, host: str, share: float) -> Iterator[None]:
    """That share of the packets which it sends is lost."""
    by_chance = ["-m", "statistic", "--mode", "random", "--probability", str(share)]
    with _rule(lab, host, ["OUTPUT", "-o", "eth0", *by_chance, "-j", "DROP"]):
        yield


@contextmanager
def delayed(lab: Lab, host: str, milliseconds: float, jitter_ms: float = 0.0) -> Iterator[None]:
    """Each packet that it sends is on its way for so long."""
    argv = [sys.executable, "-m", "tests.lab.delay", str(milliseconds), str(jitter_ms)]
    holding = lab.start(host, argv, cwd=_CHECKOUT)
    with ExitStack() as stack:
        stack.callback(holding.wait)
        inner = lab.inner(holding)
        stack.callback(lab.run, host, ["kill", "-9", _inside(inner)], check=False)
        queues = f"/proc/{inner}/net/netfilter/nfnetlink_queue"
        until(lambda: Path(queues).exists() and Path(queues).read_text().strip(), timeout_s=10)
        stack.enter_context(_rule(lab, host, ["OUTPUT", "-o", "eth0", "-j", "NFQUEUE", "--queue-num", "1"]))
        yield


@contextmanager
def limited(lab: Lab, host: str, rate: str) -> Iterator[None]:
    """It sends at most at that rate, such as 10mbit."""
    require_tools(_TOOLS)
    shape = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "32kb", "latency", "50ms"]
    lab.run(host, shape)
    try:
        yield
    finally:
        lab.run(host, ["tc", "qdisc", "del", "dev", "eth0", "root"], check=False)


@contextmanager
def cut(lab: Lab, host: str) -> Iterator[None]:
    """Its cable is out."""
    lab.cut(host)
    try:
        yield
    finally:
        lab.mend(host)


@contextmanager
def _rule(lab: Lab, host: str, rule: Sequence[str]) -> Iterator[None]:
    require_tools(_TOOLS)
    lab.run(host, ["iptables", "-I", *rule])
    try:
        yield
    finally:
        lab.run(host, ["iptables", "-D", *rule], check=False)


def _inside(pid: int) -> str:
    """A process's id as its own host knows it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:"))
