"""What a user is told of a host."""

import pytest

from phalanx.errors import UserError
from phalanx.launch.channel import Loss
from phalanx.launch.code import digest_here, version_here
from phalanx.launch.hosts import Host
from phalanx.launch.messages import PROTOCOL
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
    station = Station(Host("b", user="ann"), loss=SAID[reason])
    told = explain_loss(station, SAID[reason])
    assert told.startswith(reason)
    assert SAID[reason].printed[0] in told  # the host's own words are kept
    with pytest.raises(UserError, match="b: starting the agent failed") as refused:
        refuse_lost([Station(Host("a")), station], "starting the agent")
    assert refused.value.remedy


def test_a_host_that_was_there_and_is_gone() -> None:
    station = Station(Host("b"), said={"hello": {}})
    assert "its agent or the line to it is gone (ssh ended with 255" in explain_loss(station, Loss(255))


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
