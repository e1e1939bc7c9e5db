"""Errors and warnings about hosts."""

import pytest

from phalanx.errors import UserError
from phalanx.launch.agent_handle import AgentHandle, check_versions, clock_warnings, explain_disconnect, refuse_failed
from phalanx.launch.channel import Disconnect
from phalanx.launch.hosts import Host
from phalanx.launch.launchers.mpi import MpirunShell
from phalanx.launch.launchers.sge import QrshShell
from phalanx.launch.launchers.slurm import SrunShell
from phalanx.launch.messages import PROTOCOL
from phalanx.launch.remote_shell import HostCheck, RemoteShell, SshShell
from phalanx.net.code import digest_here, version_here

REASONS = {
    "it cannot be reached": Disconnect(255, ("ssh: connect to host b port 22: Connection refused",)),
    "it refused every key": Disconnect(255, ("ann@b: Permission denied (publickey).",)),
    "its host key is unknown": Disconnect(255, ("Host key verification failed.",)),
    "it has no Python": Disconnect(127, ("no such interpreter: /x/python python3",)),
    "its Python has no phalanx": Disconnect(1, ("/usr/bin/python3: No module named phalanx",)),
    "its folder does not exist": Disconnect(66, ("cd: can't cd to code",)),
    "its agent ended with code 1": Disconnect(1, ("MemoryError",)),
}


@pytest.mark.parametrize("reason", REASONS)
def test_why_a_host_has_no_agent(reason: str) -> None:
    host = Host("b", user="ann")
    agent = AgentHandle(host, SshShell().check(host), disconnect=REASONS[reason])
    text = explain_disconnect(agent, REASONS[reason])
    assert text.startswith(reason)
    assert REASONS[reason].printed[0] in text  # with what the host printed
    with pytest.raises(UserError, match="b: starting the agent failed") as refused:
        refuse_failed([AgentHandle(Host("a")), agent], "starting the agent")
    assert refused.value.remedy


def test_a_host_that_was_lost() -> None:
    agent = AgentHandle(
        Host("b"), SshShell(("ssh", "-F", "my config")).check(Host("b", port=2222)), events={"hello": {}}
    )
    text = explain_disconnect(agent, Disconnect(255))
    assert "the connection to its agent was lost (ssh ended with 255" in text
    assert text.endswith("`ssh -F 'my config' -p 2222 b true`")


SHELLS: dict[str, RemoteShell] = {
    "mpirun --mca x y -np 1 -host b true": MpirunShell("mpirun", ("--mca", "x", "y")),
    "scontrol show node b": SrunShell(),
    "qhost -h b": QrshShell("a"),
}


@pytest.mark.parametrize("command", SHELLS)
def test_the_advice_fits_the_remote_shell(command: str) -> None:
    check = SHELLS[command].check(Host("b"))
    gone = explain_disconnect(AgentHandle(Host("b"), check, events={"hello": {}}), Disconnect(1))
    assert gone.endswith(f"({check.via} ended with 1, nothing was printed); check the host with `{command}`")
    denied = explain_disconnect(AgentHandle(Host("b"), check), Disconnect(1, ("Permission denied",)))
    assert denied.endswith(f"`{command}`")
    assert ("ssh-copy-id" in denied) == (check.via == "mpirun")


def test_the_advice_for_a_host_of_a_cluster() -> None:
    agent = AgentHandle(Host("b"), HostCheck("Ray", "ray status"), events={"hello": {}})
    text = explain_disconnect(agent, Disconnect(None, ("the cluster ended it",)))
    assert text.endswith("(the cluster ended it); check the host with `ray status`")


def hello(**other: object) -> dict[str, object]:
    return {"protocol": PROTOCOL, "version": version_here(), "digest": digest_here(), "executable": "/p", **other}


def test_other_code_is_refused() -> None:
    check_versions([AgentHandle(Host("a"), events={"hello": hello()})])
    for other, what in (({"version": "0.0.1"}, "b has phalanx 0.0.1"), ({"digest": "x"}, "b has other files")):
        with pytest.raises(UserError, match=what) as refused:
            check_versions([AgentHandle(Host("b"), events={"hello": hello(**other)})])
        assert "--sync-dst-dir" in refused.value.remedy


def test_clocks_that_differ_give_warnings() -> None:
    agents = [
        AgentHandle(Host("a"), skew_s=0.4),
        AgentHandle(Host("b"), skew_s=-90.0),
        AgentHandle(Host("c"), skew_s=7.0),
    ]
    behind, ahead = clock_warnings(agents)
    assert behind.startswith("the clock of b is 90 s behind")
    assert ahead.startswith("the clock of c is 7 s ahead")
