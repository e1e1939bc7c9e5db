"""The supervisor's view of one agent: its host, its connection and its events; and errors about hosts."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.errors import UserError
from phalanx.launch.channel import Channel, Disconnect
from phalanx.launch.hosts import Host
from phalanx.launch.messages import PROTOCOL, Message
from phalanx.launch.remote_shell import LOCAL_CHECK, NO_FOLDER, NO_PYTHON, HostCheck
from phalanx.net.code import digest_here, version_here

CLOCK_SKEW_S = 5.0
SSH_FAILED = 255
_KEY_ERRORS = ("host key verification failed", "no matching host key", "identification has changed")


@dataclass(eq=False)
class AgentHandle:
    """A host, the channel to its agent, and the agent's last event of each kind."""

    host: Host
    check: HostCheck = LOCAL_CHECK
    in_process: bool = False  # the agent runs inside the launcher
    channel: Channel | None = None
    events: dict[str, Message] = field(default_factory=dict)
    reading: tuple[str, int] | None = None  # the path and the offset of the chunk that was asked for last
    disconnect: Disconnect | None = None
    error: UserError | None = None
    last_message: float = field(default_factory=time.monotonic)
    skew_s: float = 0.0
    system: dict[str, Any] = field(default_factory=dict)  # the host's cpu, memory, memory_total, and `t`

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def live(self) -> bool:
        return self.disconnect is None

    @property
    def shared(self) -> bool:
        """Whether its run folder is the launching host's own, on a shared disk."""
        return bool(self.events.get("ready", {}).get("shared"))

    def send(self, message: Message) -> None:
        if self.live and self.channel is not None:
            self.channel.send(message)


def explain_disconnect(agent: AgentHandle, disconnect: Disconnect) -> str:
    """One line: why there is no agent, what the host or ssh printed, and what to try."""
    printed = " / ".join(disconnect.printed[-3:]) or "nothing was printed"
    low = printed.lower()
    target, check, code = agent.host.target, agent.check, disconnect.code
    by_ssh = check.via in ("ssh", "mpirun")  # mpirun uses ssh
    if "hello" in agent.events:
        ended = "" if code is None else f"{check.via or 'it'} ended with {code}, "
        return f"the connection to its agent was lost ({ended}{printed}); check the host with `{check.command}`"
    if code == NO_FOLDER:
        return f"its folder does not exist ({printed}); check --sync-dst-dir"
    if code == NO_PYTHON:
        return f"it has no Python ({printed}); name the interpreter there with --python"
    if "no module named" in low:
        return f"its Python has no phalanx ({printed}); install it there, or send it with --sync-dst-dir DIR"
    if "no such command" in low:
        return f"its phalanx is older and has no agent ({printed}); install {version_here()}, or --sync-dst-dir DIR"
    if by_ssh and any(part in low for part in _KEY_ERRORS):
        return f"its host key is unknown or has changed ({printed}); check it, then log in once by hand: ssh {target}"
    if by_ssh and "permission denied" in low:
        return f"it refused every key ({printed}); add yours with ssh-copy-id {target}, then try `{check.command}`"
    if (check.via == "ssh" and code == SSH_FAILED) or code is None:
        return f"it cannot be reached ({printed}); try `{check.command}`"
    return f"its agent ended with code {code} ({printed}); try `{check.command}`"


def refuse_failed(agents: Sequence[AgentHandle], action: str) -> None:
    """Raise one error that names all hosts that failed, so that a user can fix all of them at once."""
    failed = [(agent, explain_disconnect(agent, agent.disconnect)) for agent in agents if agent.disconnect is not None]
    failed += [
        (agent, f"{agent.error.what}: {agent.error.why}; {agent.error.remedy}")
        for agent in agents
        if agent.disconnect is None and agent.error is not None
    ]
    if not failed:
        return
    if len(failed) == 1:
        agent, why = failed[0]
        reason, _, remedy = why.rpartition("; ")
        raise UserError(f"{agent.name}: {action} failed", why=reason or why, remedy=remedy if reason else "see above")
    shown = [f"{agent.name}: {why}" for agent, why in failed[:10]]
    more = [f"and {len(failed) - 10} more"] if len(failed) > 10 else []
    raise UserError(
        f"{action} failed on {len(failed)} of {len(agents)} hosts",
        why="\n       ".join([*shown, *more]),
        remedy="fix them, or remove them from the list of hosts",
    )


def check_versions(agents: Sequence[AgentHandle]) -> None:
    """Refuse hosts with other code: a run's result would depend on where it ran."""
    version, digest = version_here(), digest_here()
    for agent in agents:
        hello = agent.events["hello"]
        if hello.get("protocol") != PROTOCOL or hello.get("version") != version:
            what = f"{agent.name} has phalanx {hello.get('version')}, and this host {version}"
        elif hello.get("digest") != digest:
            what = f"{agent.name} has other files in its phalanx {version} than this host"
        else:
            continue
        raise UserError(
            what,
            why=f"there: {hello.get('executable')}, code {hello.get('digest')}; here: code {digest}",
            remedy="install the same version there, or send this code: --sync-dst-dir DIR from the checkout",
        )


def clock_warnings(agents: Sequence[AgentHandle]) -> list[str]:
    return [
        f"the clock of {agent.name} is {abs(agent.skew_s):.0f} s {'ahead' if agent.skew_s > 0 else 'behind'}; "
        "times in its logs are off by that"
        for agent in agents
        if abs(agent.skew_s) > CLOCK_SKEW_S
    ]
