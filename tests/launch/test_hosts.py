"""Every way to write a host, and what is refused."""

from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.launch.hosts import Host, parse_host, parse_hosts, read_hostfile

WRITTEN = {
    "node1": Host("node1"),
    "node1 slots=8": Host("node1", slots=8),
    "node1:8": Host("node1", slots=8),
    "ann@node1": Host("node1", user="ann"),
    "ann@node1:2222": Host("node1", user="ann", port=2222),
    "ann@node1:2222 slots=4": Host("node1", user="ann", port=2222, slots=4),
    "node1 port=2222 slots=2": Host("node1", port=2222, slots=2),
    "10.0.0.1:4": Host("10.0.0.1", slots=4),
    "[fe80::1]": Host("fe80::1"),
    "[fe80::1]:8": Host("fe80::1", slots=8),
    "ann@[fe80::1%eth0]:2222": Host("fe80::1%eth0", user="ann", port=2222),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_every_form(text: str) -> None:
    assert parse_host(text, "here") == WRITTEN[text]


@pytest.mark.parametrize(
    "text",
    [
        "node1:",
        "node1:x",
        "node1 slot=8",
        "node1 8",
        "fe80::1",
        "a@b@c",
        "node1:0",
        "ann@node1:70000",
        "-oProxy=x",
        "-oProxyCommand=id@h",
    ],
)
def test_what_is_no_host_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UserError, match="hosts, line 3") as refused:
        parse_host(text, "hosts, line 3")
    assert "host:SLOTS" in refused.value.remedy


def test_a_file_has_comments_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# my cluster\n\nnode1 slots=2   # the fast one\n  node2:1\n")
    assert read_hostfile(path) == [Host("node1", slots=2), Host("node2", slots=1)]


def test_a_file_without_hosts_or_with_one_twice_or_missing(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    with pytest.raises(UserError, match="cannot be read"):
        read_hostfile(path)
    path.write_text("# nobody\n")
    with pytest.raises(UserError, match="names no host"):
        read_hostfile(path)
    path.write_text("node1\nann@node1\n")
    with pytest.raises(UserError, match="node1 is named twice"):
        read_hostfile(path)
    path.write_text("ok\nnot a host\n")
    with pytest.raises(UserError, match="line 2"):
        read_hostfile(path)


def test_ports_tell_hosts_apart() -> None:
    assert len(parse_hosts(["a@h:1", "a@h:2"], "--ips")) == 2
