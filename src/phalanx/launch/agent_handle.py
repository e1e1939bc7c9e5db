"""Stations: the hosts of a job as the conductor sees them, and what to tell a user when one cannot be used."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from phalanx.errors import UserError
from phalanx.launch.channel import Channel, Loss
from phalanx.launch.code import digest_here, version_here
from phalanx.launch.hosts import Host
from phalanx.launch.messages import PROTOCOL, Message
from phalanx.launch.remote_shell import HERE, NO_FOLDER, NO_PYTHON, Way

CLOCK_SKEW_S = 5.0
SSH_FAILED = 255
_KEY_TROUBLE = ("host key verification failed", "no matching host key", "identification has changed")


@dataclass(eq=False)
class AgentHandle:
    """A host, the channel to its agent, and what the agent said last of each kind."""

    host: Host
    way: Way = HERE
    inner: bool = False  # its agent is inside of this process
    channel: Channel | None = None
    said: dict[str, Message] = field(default_factory=dict)
    loss: Loss | None = None
    trouble: UserError | None = None
    heard: float = field(default_factory=time.monotonic)
    skew_s: float = 0.0

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def live(self) -> bool:
        return self.loss is None

    @property
    def shared(self) -> bool:
        """Whether the run's folder there is the launching host's own."""
        return bool(self.said.get("ready", {}).get("shared"))

    def send(self, message: Message) -> None:
        if self.live and self.channel is not None:
            self.channel.send(message)

    def has_said(self, kind: str) -> bool:
        return kind in self.said


def explain_loss(agent: AgentHandle, loss: Loss) -> str:
    """Why there is no agent, in a line: what the way there or the host said, and what to try."""
    printed = " / ".join(loss.printed[-3:]) or "nothing was printed"
    low = printed.lower()
    target, way = agent.host.target, agent.way
    by_ssh = way.by in ("ssh", "mpirun")  # mpirun reaches hosts by ssh too
    if agent.has_said("hello"):
        ended = "" if loss.code is None else f"{way.by or 'it'} ended with {loss.code}, "
        return f"its agent or the line to it is gone ({ended}{printed}); see how the host is with `{way.check}`"
    if loss.code == NO_FOLDER:
        return f"its folder is not there ({printed}); check --sync-dst-dir"
    if loss.code == NO_PYTHON:
        return f"it has no Python ({printed}); name the interpreter there with --python"
    if "no module named" in low:
        return f"its Python has no phalanx ({printed}); install it there, or send it with --sync-dst-dir DIR"
    if "no such command" in low:
        return f"its phalanx is older and has no agent ({printed}); install {version_here()}, or --sync-dst-dir DIR"
    if by_ssh and any(part in low for part in _KEY_TROUBLE):
        return f"its host key is unknown or has changed ({printed}); check it, then log in once by hand: ssh {target}"
    if by_ssh and "permission denied" in low:
        return f"it refused every key ({printed}); let this host in with ssh-copy-id {target}, then try `{way.check}`"
    if (way.by == "ssh" and loss.code == SSH_FAILED) or loss.code is None:
        return f"it cannot be reached ({printed}); try `{way.check}`"
    return f"its agent ended with code {loss.code} ({printed}); try `{way.check}`"


def refuse_lost(agents: Sequence[AgentHandle], doing: str) -> None:
    """One error for all hosts that failed, so that they can be mended in one go."""
    lost = [(agent, explain_loss(agent, agent.loss)) for agent in agents if agent.loss is not None]
    lost += [
        (agent, f"{agent.trouble.what}: {agent.trouble.why}; {agent.trouble.remedy}")
        for agent in agents
        if agent.loss is None and agent.trouble is not None
    ]
    if not lost:
        return
    if len(lost) == 1:
        agent, why = lost[0]
        reason, _, remedy = why.rpartition("; ")
        raise UserError(f"{agent.name}: {doing} failed", why=reason or why, remedy=remedy if reason else "see above")
    shown = [f"{agent.name}: {why}" for agent, why in lost[:10]]
    more = [f"and {len(lost) - 10} more"] if len(lost) > 10 else []
    raise UserError(
        f"{doing} failed on {len(lost)} of {len(agents)} hosts",
        why="\n       ".join([*shown, *more]),
        remedy="mend them, or leave them out of the list of hosts",
    )


def check_versions(agents: Sequence[AgentHandle]) -> None:
    """All hosts must run the same code, or a run's result would depend on where it ran."""
    version, digest = version_here(), digest_here()
    for agent in agents:
        hello = agent.said["hello"]
        if hello.get("protocol") != PROTOCOL or hello.get("version") != version:
            what = f"{agent.name} has phalanx {hello.get('version')}, and this host {version}"
        elif hello.get("digest") != digest:
            what = f"{agent.name} has other files in its phalanx {version} than this host"
        else:
            continue
        raise UserError(
            what,
            why=f"there: {hello.get('executable')}, code {hello.get('digest')}; here: code {digest}",
            remedy="install the same there, or send this code along: --sync-dst-dir DIR from the checkout",
        )


def clock_warnings(agents: Sequence[AgentHandle]) -> list[str]:
    return [
        f"the clock of {agent.name} is {abs(agent.skew_s):.0f} s {'ahead' if agent.skew_s > 0 else 'behind'}; "
        "times in its logs are off by that"
        for agent in agents
        if abs(agent.skew_s) > CLOCK_SKEW_S
    ]
