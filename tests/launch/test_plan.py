"""From the words of `phalanx launch` to a job: what is added, what is refused, and what --dry-run shows."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from phalanx.api.launch_options import LaunchOptions, add_to_flags
from phalanx.api.request import make_request
from phalanx.cli.launch import _parameters
from phalanx.cli.launch import parse_train as parse
from phalanx.cli.main import app, request_from
from phalanx.config.batch import samples_per_step
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError
from phalanx.launch.hosts import Host
from phalanx.launch.plan import find_hosts, parse_program
from phalanx.launch.remote_shell import SshShell, Sync, agent_command
from phalanx.net.interfaces import parse_ports
from phalanx.roles.request import Request, resume_words, with_workers


def asked(*typed: str, n: int | None = None, s: int | None = None) -> RunConfig:
    given = dict(_parameters(["train", *typed]))
    add_to_flags(given, LaunchOptions(), workers=n, servers=s)
    return request_from(given).config


def test_numbers_become_settings_of_the_run() -> None:
    assert (asked("digits", n=4).exchange.workers, asked("digits", n=4).exchange.method) == (4, "collective")
    served = asked("digits", n=4, s=2).exchange
    assert (served.workers, served.servers, served.method) == (4, 2, "pserver")
    assert asked("digits", "--workers", "4", n=4) == asked("digits", n=4)
    assert asked("digits", "exchange.method=pserver", s=2).exchange.servers == 2


@pytest.mark.parametrize(
    ("typed", "n", "s", "why"),
    [
        (["digits", "--workers", "3"], 4, None, "-n 4 contradicts --workers 3"),
        (["digits", "--update-method", "collective"], 4, 1, "-s 1 cannot be used with"),
    ],
)
def test_contradictions_are_refused(typed: list[str], n: int | None, s: int | None, why: str) -> None:
    with pytest.raises(UserError, match=why):
        asked(*typed, n=n, s=s)


def test_only_training_is_launched() -> None:
    with pytest.raises(UserError, match="'eval' cannot be launched"):
        _parameters(["eval", "run"])


def test_a_request_travels_as_json(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("extends: digits\noptim: {lr: 0.3}\n")
    request = make_request(str(tmp_path / "my.yaml"), ["train.length=3st"], {"workers": 2}, init_from=Path("w"))
    data = json.loads(json.dumps(request.to_data()))
    (tmp_path / "my.yaml").unlink()  # nobody reads it again
    there = Request.from_data(data, tmp_path / "run")
    assert (there.config, there.resolved.origins) == (request.config, request.resolved.origins)
    assert (there.out, there.resume, there.init_from) == (tmp_path / "run", None, Path("w"))
    fewer = Request.from_data(with_workers(request, None, 1).to_data(), tmp_path / "run").config
    assert (fewer.exchange.workers, samples_per_step(fewer)) == (1, samples_per_step(request.config))


def test_a_resumed_request_becomes_words_of_train(digits_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(digits_run, run)
    request = make_request(None, ["optim.lr=0.01"], {"epochs": 3.0}, resume=str(run))
    again = request_from(parse(resume_words(request, str(run))))
    assert again.config == request.config


def test_hosts_for_servers_alone(tmp_path: Path) -> None:
    hosts, alone = find_hosts(None, "a,b:2", "c,b")
    assert hosts == [Host("a"), Host("b", slots=2), Host("c")]
    assert alone == [2, 1]
    assert find_hosts(None, None, "c") == ([Host("localhost"), Host("c")], [1])
    with pytest.raises(UserError, match="-H and --ips exclude each other"):
        find_hosts(tmp_path, "a", None)
    with pytest.raises(UserError, match="a is named twice"):
        find_hosts(None, "a,a", None)


@pytest.mark.parametrize("text", ["17000", "9-8", "0-5", "1-70000", "a-b"])
def test_what_is_no_range_of_ports_is_refused(text: str) -> None:
    assert parse_ports("17000-17100") == (17000, 17100)
    with pytest.raises(UserError, match="is not a range of ports"):
        parse_ports(text)


def test_ssh_may_have_options() -> None:
    assert parse_program("ssh -F 'a b'", "--ssh") == ("ssh", "-F", "a b")
    for wrong in ("", "ssh 'a"):
        with pytest.raises(UserError, match="--ssh"):
            parse_program(wrong, "--ssh")


def test_every_command_keeps_what_was_typed_in_one_word() -> None:
    """Run by a real shell, as sshd would: the words come out as they went in."""
    awkward = ["it's", '"', "$HOME", "`id`", "a\nb", "ü", "*", ""]
    echo = ["printf", "%s\\0", *awkward]
    command = SshShell().command(Host("h", user="u", port=22), echo)
    assert command[:1] + command[-4:-1] == ["ssh", "-T", "u@h", "--"]
    assert command[command.index("-p") + 1] == "22"
    shell = subprocess.run(["/bin/sh", "-c", command[-1]], capture_output=True, text=True, check=True)
    assert shell.stdout.split("\0")[:-1] == awkward
    folder = "it's $HOME; `id`"
    agent = agent_command("/no/python", "", Sync(Path("/nowhere"), folder))
    refused = subprocess.run(agent, capture_output=True, text=True)
    assert refused.returncode == 66
    assert folder in refused.stderr


def test_rsync_is_told_the_port_and_the_brackets(tmp_path: Path) -> None:
    (tmp_path / "src/phalanx").mkdir(parents=True)
    (tmp_path / "src/phalanx/__main__.py").write_text("")
    sync = Sync(tmp_path, "a b")
    assert sync.package == "src"
    command = sync.command(SshShell(("ssh", "-F", "my config")), Host("fe80::1", user="u", port=2222))
    assert command[-2:] == [f"{tmp_path}/", "u@[fe80::1]:a b/"]
    assert any("-p 2222" in word and "'my config'" in word for word in command)


def run(cwd: Path, *typed: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "phalanx", "launch", *typed], cwd=cwd, capture_output=True, text=True)


def test_a_dry_run_says_everything_and_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("extends: digits\n")
    options = ["-n", "3", "-s", "2", "--ips", "a,ann@b:2222", "--sync-dst-dir", "code", "--setup", "make all"]
    said = run(tmp_path, *options, "--dry-run", "--", "train", "my.yaml", "name=a b", "--out", "out")
    assert said.returncode == 0, said.stderr
    assert "trainer-2\tb\t0 of 1" in said.stdout
    assert "server-1\tb\t0 of 1" in said.stdout
    assert said.stdout.count("here: rsync ") == 2
    assert "-p 2222 -T ann@b --" in said.stdout
    assert "a: /bin/sh -c 'make all'" in said.stdout
    assert "a: trainer-0: <python> -m phalanx.roles <input>" in said.stdout
    assert "would write here: out/logs/server-0.log" in said.stdout
    assert "would write on a: out/checkpoints/" in said.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["my.yaml"]
    here = run(tmp_path, "-n", "2", "--dry-run", "--", "train")
    assert "localhost: trainer-1: <python> -m phalanx.roles <input>" in here.stdout


REFUSED: Mapping[str, tuple[Sequence[str], str]] = {
    "slots": (["-n", "3", "--ips", "a:1,b:1", "--", "train"], "3 roles do not fit on 2 slots"),
    "recipe": (["-n", "1", "--ips", "a", "--", "train", "no.yaml"], "no.yaml cannot be read"),
    "launcher": (["--launcher", "shs", "--", "train"], "did you mean ssh"),
    "no ssh": (["--ssh", "no-such-ssh", "--ips", "a", "--", "train"], "no-such-ssh: not found"),
    "hosts": (["--launcher", "ssh", "--", "train"], "no hosts are named"),
    "other hosts": (["--launcher", "local", "--ips", "a", "--", "train"], "--launcher local has no --ips"),
    "nothing": (["--", "train", "--no-such-flag"], "No such option"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_work_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    typed, why = REFUSED[wrong]
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["launch", *typed])
    assert refused.exit_code != 0
    assert why in (str(refused.exception) if isinstance(refused.exception, UserError) else refused.output)
    assert list(tmp_path.iterdir()) == []


def test_parsing_is_trains_own() -> None:
    given: Mapping[str, Any] = parse(["digits", "--workers", "2", "optim.lr=1"])
    assert (given["settings"], given["workers"]) == (["digits", "optim.lr=1"], 2)
