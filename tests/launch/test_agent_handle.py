"""What a user is told of a host."""

import pytest

from phalanx.errors import UserError
from phalanx.launch.agent_handle import AgentHandle, check_versions, clock_warnings, explain_loss, refuse_lost
from phalanx.launch.channel import Loss
from phalanx.launch.code import digest_here, version_here
from phalanx.launch.hosts import Host
from phalanx.launch.launchers.mpirun import MpirunShell
from phalanx.launch.launchers.sge import QrshShell
from phalanx.launch.launchers.slurm import SrunShell
from phalanx.launch.messages import PROTOCOL
from phalanx.launch.remote_shell import RemoteShell, SshShell, Way

SAID = {
    "it cannot be reached": Loss(255, ("ssh: connect to host b port 22: Connection refused",)),
    "it refused every key": Loss(255, ("ann@b: Permission denied (publickey).",)),
    "its host key is unknown": Loss(255, ("Host key verification failed.",)),
    "it has no Python": Loss(127, ("no such interpreter: /x/python python3",)),
    "its Python has no phalanx": Loss(1, ("/usr/bin/python3: No module named phalanx",)),
    "its folder is not there": Loss(66, ("cd: can't cd to code",)),
    "its agent ended with code 1": Loss(1, ("MemoryError",)),
}


@pytest.mark.parametrize("reason", SAID)
def test_why_a_host_has_no_agent(reason: str) -> None:
    host = Host("b", user="ann")
    agent = AgentHandle(host, SshShell().way(host), loss=SAID[reason])
    told = explain_loss(agent, SAID[reason])
    assert told.startswith(reason)
    assert SAID[reason].printed[0] in told  # the host's own words are kept
    with pytest.raises(UserError, match="b: starting the agent failed") as refused:
        refuse_lost([AgentHandle(Host("a")), agent], "starting the agent")
    assert refused.value.remedy


def test_a_host_that_was_there_and_is_gone() -> None:
    agent = AgentHandle(Host("b"), SshShell(("ssh", "-F", "my config")).way(Host("b", port=2222)), said={"hello": {}})
    told = explain_loss(agent, Loss(255))
    assert "its agent or the line to it is gone (ssh ended with 255" in told
    assert told.endswith("`ssh -F 'my config' -p 2222 b true`")


CARRIERS: dict[str, RemoteShell] = {
    "mpirun --mca x y -np 1 -host b true": MpirunShell("mpirun", ("--mca", "x", "y")),
    "scontrol show node b": SrunShell(),
    "qhost -h b": QrshShell("a"),
}


@pytest.mark.parametrize("check", CARRIERS)
def test_the_advice_fits_the_way_to_the_host(check: str) -> None:
    way = CARRIERS[check].way(Host("b"))
    gone = explain_loss(AgentHandle(Host("b"), way, said={"hello": {}}), Loss(1))
    assert gone.endswith(f"({way.by} ended with 1, nothing was printed); see how the host is with `{check}`")
    denied = explain_loss(AgentHandle(Host("b"), way), Loss(1, ("Permission denied",)))
    assert denied.endswith(f"`{check}`")
    assert ("ssh-copy-id" in denied) == (way.by == "mpirun")


def test_the_advice_for_a_place_of_a_cluster() -> None:
    agent = AgentHandle(Host("b"), Way("Ray", "ray status"), said={"hello": {}})
    told = explain_loss(agent, Loss(None, ("the cluster told it to end",)))
    assert told.endswith("(the cluster told it to end); see how the host is with `ray status`")


def hello(**other: object) -> dict[str, object]:
    return {"protocol": PROTOCOL, "version": version_here(), "digest": digest_here(), "executable": "/p", **other}


def test_other_code_is_refused() -> None:
    check_versions([AgentHandle(Host("a"), said={"hello": hello()})])
    for other, what in (({"version": "0.0.1"}, "b has phalanx 0.0.1"), ({"digest": "x"}, "b has other files")):
        with pytest.raises(UserError, match=what) as refused:
            check_versions([AgentHandle(Host("b"), said={"hello": hello(**other)})])
        assert "--sync-dst-dir" in refused.value.remedy


def test_clocks_that_differ_are_told_and_not_refused() -> None:
    agents = [
        AgentHandle(Host("a"), skew_s=0.4),
        AgentHandle(Host("b"), skew_s=-90.0),
        AgentHandle(Host("c"), skew_s=7.0),
    ]
    behind, ahead = clock_warnings(agents)
    assert behind.startswith("the clock of b is 90 s behind")
    assert ahead.startswith("the clock of c is 7 s ahead")
