"""What a user is told of a host."""

import pytest

from phalanx.errors import UserError
from phalanx.launch.carrier import Carrier, SshCarrier, Way
from phalanx.launch.channel import Loss
from phalanx.launch.code import digest_here, version_here
from phalanx.launch.hosts import Host
from phalanx.launch.messages import PROTOCOL
from phalanx.launch.mpi import MpirunCarrier
from phalanx.launch.sge import QrshCarrier
from phalanx.launch.slurm import SrunCarrier
from phalanx.launch.stations import Station, check_versions, clock_warnings, explain_loss, refuse_lost

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
    station = Station(host, SshCarrier().way(host), loss=SAID[reason])
    told = explain_loss(station, SAID[reason])
    assert told.startswith(reason)
    assert SAID[reason].printed[0] in told  # the host's own words are kept
    with pytest.raises(UserError, match="b: starting the agent failed") as refused:
        refuse_lost([Station(Host("a")), station], "starting the agent")
    assert refused.value.remedy


def test_a_host_that_was_there_and_is_gone() -> None:
    station = Station(Host("b"), SshCarrier(("ssh", "-F", "my config")).way(Host("b", port=2222)), said={"hello": {}})
    told = explain_loss(station, Loss(255))
    assert "its agent or the line to it is gone (ssh ended with 255" in told
    assert told.endswith("`ssh -F 'my config' -p 2222 b true`")


CARRIERS: dict[str, Carrier] = {
    "mpirun --mca x y -np 1 -host b true": MpirunCarrier("mpirun", ("--mca", "x", "y")),
    "scontrol show node b": SrunCarrier(),
    "qhost -h b": QrshCarrier("a"),
}


@pytest.mark.parametrize("check", CARRIERS)
def test_the_advice_fits_the_way_to_the_host(check: str) -> None:
    way = CARRIERS[check].way(Host("b"))
    gone = explain_loss(Station(Host("b"), way, said={"hello": {}}), Loss(1))
    assert gone.endswith(f"({way.by} ended with 1, nothing was printed); see how the host is with `{check}`")
    denied = explain_loss(Station(Host("b"), way), Loss(1, ("Permission denied",)))
    assert denied.endswith(f"`{check}`")
    assert ("ssh-copy-id" in denied) == (way.by == "mpirun")


def test_the_advice_for_a_place_of_a_cluster() -> None:
    station = Station(Host("b"), Way("Ray", "ray status"), said={"hello": {}})
    told = explain_loss(station, Loss(None, ("the cluster told it to end",)))
    assert told.endswith("(the cluster told it to end); see how the host is with `ray status`")


def hello(**other: object) -> dict[str, object]:
    return {"protocol": PROTOCOL, "version": version_here(), "digest": digest_here(), "executable": "/p", **other}


def test_other_code_is_refused() -> None:
    check_versions([Station(Host("a"), said={"hello": hello()})])
    for other, what in (({"version": "0.0.1"}, "b has phalanx 0.0.1"), ({"digest": "x"}, "b has other files")):
        with pytest.raises(UserError, match=what) as refused:
            check_versions([Station(Host("b"), said={"hello": hello(**other)})])
        assert "--sync-dst-dir" in refused.value.remedy


def test_clocks_that_differ_are_told_and_not_refused() -> None:
    stations = [Station(Host("a"), skew_s=0.4), Station(Host("b"), skew_s=-90.0), Station(Host("c"), skew_s=7.0)]
    behind, ahead = clock_warnings(stations)
    assert behind.startswith("the clock of b is 90 s behind")
    assert ahead.startswith("the clock of c is 7 s ahead")
