"""Over real sshd on hosts of namespaces: the same result as on one machine, and nothing left behind."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
import yaml

import phalanx
from phalanx.launch.record import load_record
from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from tests.conftest import LEAN, train_digits
from tests.lab.hosts import Lab, Process
from tests.waiting import until

pytestmark = pytest.mark.lab

SMALL = ["train.length=4st", *LEAN, "model.name=wrn10_1"]
# No batch norm: its statistics are each worker's own, and after a few steps accuracy hangs on them.
EVEN = ["train.length=8st", *LEAN, "model.name=test_vit", "data.image_size=32", "optim.lr=0.01"]
ROOT = Path(__file__).parents[3]
SLEEPERS = Path(__file__).parents[1] / "sleepers.py"


def launch(lab: Lab, *words: str) -> list[str]:
    """`phalanx launch` with the lab's ssh."""
    return [*lab.launch, *words]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load_newest(run / "checkpoints")[0].tensors["model"]


def accuracy(run: Path) -> float:
    return float([record for record in read_events(run) if record["kind"] == "eval"][-1]["top1"])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same training in one process, four micro-batches a step."""
    return train_digits(tmp_path_factory.mktemp("alone") / "run", *EVEN, "train.batch_size=24", "optim.accumulate=4")


@pytest.mark.parametrize("servers", [["-s", "4"], []], ids=["4 servers and 4 trainers", "4 trainers collective"])
def test_four_hosts_learn_what_one_does(lab: Lab, tmp_path: Path, alone: Path, servers: list[str]) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("h1 slots=1\nh2:1\nroot@h3  # by name\n10.77.0.4\n")
    words = ["-n", "4", *servers, "-H", str(hosts), "--port-range", "17000-17020", "--", "train", "digits", *EVEN]
    said = lab.run("h1", launch(lab, *words, "--global-batch-size", "96", "--out", str(tmp_path / "run")))
    assert "4 hosts ready" in said.stderr
    assert "trainer-0@h1 | done" in said.stdout
    one, many = weights(alone), weights(tmp_path / "run")
    for name in one:
        assert float((one[name] - many[name]).norm() / one[name].norm().clamp_min(1e-12)) < 1e-4, name
    assert accuracy(tmp_path / "run") == accuracy(alone)
    logs = {path.stem for path in (tmp_path / "run" / "logs").glob("*.log")}
    assert logs >= {f"trainer-{rank}" for rank in range(4)}
    assert not lab.processes("PHALANX_JOB")


@pytest.mark.parametrize("servers", [[], ["-s", "1"]], ids=["collective", "pserver"])
def test_hosts_of_different_kinds_compute_alike(lab: Lab, tmp_path: Path, servers: list[str]) -> None:
    """h1 has AVX512-BF16, as far as it knows, and h2 only AVX2: by the interpreter that each of them starts."""
    for host, level in (("h1", "avx512-bf16"), ("h2", "avx2")):
        python = lab.own_of(host) / "python"
        python.write_text(f'#!/bin/sh\nPHALANX_CPU={level} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
    run = tmp_path / "run"
    words = ["-n", "2", *servers, "--ips", "h1,h2", "--python", str(lab.own / "python"), "--", "train", "digits"]
    lab.run("h1", launch(lab, *words, *SMALL, "machine.precision=auto", "--out", str(run)))
    logs = [(run / name).read_text() for name in ("log.txt", "logs/trainer-1.log")]
    why = "precision: fp32 (the CPU of h2 (worker 1) has neither AMX nor AVX512-BF16)"
    assert all(why in log for log in logs)
    assert yaml.safe_load((run / "config.yaml").read_text())["machine"]["precision"] == "fp32"
    # A run that began with bf16 keeps it where that is slow, and says so.
    alone = tmp_path / "alone"
    train = [str(lab.own / "python"), "-m", "phalanx", "train"]
    lab.run("h1", [*train, "digits", *SMALL, "machine.precision=auto", "--out", str(alone)])
    assert "precision: bf16 (AVX512-BF16 present; " in (alone / "log.txt").read_text()
    lab.run("h2", [*train, "--resume", str(alone), "train.length=6st"])
    log = (alone / "log.txt").read_text()
    assert "precision: bf16 (kept from the run's beginning)" in log
    assert "bf16 is slow on h2: its CPU has neither AMX nor AVX512-BF16; --precision fp32 changes it" in log


TAKE_PORT = """
import signal, socket
held = socket.create_server(("0.0.0.0", 17000))
print("taken", flush=True)
signal.pause()
"""


def test_a_trainer_alone_on_its_host_needs_no_port(lab: Lab, tmp_path: Path) -> None:
    """Its rendezvous is a file, although the job has two hosts: a port range that is taken does not matter."""
    taking = lab.start("h2", [sys.executable, "-c", TAKE_PORT])
    assert taking.stdout is not None
    assert taking.stdout.readline() == "taken\n"
    words = ["-n", "1", "--ips", "h2,h3", "--port-range", "17000-17000", "--", "train", "digits", *SMALL]
    try:
        said = lab.run("h1", launch(lab, *words, "--out", str(tmp_path / "run")))
    finally:
        os.kill(lab.inner(taking), signal.SIGKILL)
        taking.communicate()
    assert "2 hosts ready" in said.stderr
    assert "trained: " in said.stdout


def test_one_worker_elsewhere_is_local_bit_for_bit_and_words_arrive_unchanged(lab: Lab, tmp_path: Path) -> None:
    """The recipe is on the launching host only, the run folder on the other only: they share no disk."""
    awkward = 'it\'s "$HOME" `id` $(id)\nü & ; \\ *'
    recipe = "my $HOME recipe.yaml"
    (lab.own_of("h1") / recipe).write_text("extends: digits\noptim: {lr: 0.02}\n")
    words = [
        "--ips",
        "h2",
        "--",
        "train",
        recipe,
        *SMALL,
        f"name={json.dumps(awkward)}",
        "--out",
        f"runs/{awkward}",
    ]
    lab.run("h1", launch(lab, *words), cwd=lab.own)
    here, there = (lab.own_of(host) / "runs" / awkward for host in ("h1", "h2"))
    train_digits(tmp_path / "run", *SMALL, "optim.lr=0.02")
    one, other = weights(tmp_path / "run"), weights(there)
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    config = yaml.safe_load((there / "config.yaml").read_text())
    assert (config["name"], config["optim"]["lr"]) == (awkward, 0.02)
    assert accuracy(here) == accuracy(there)  # what is small comes home, checkpoints stay
    assert (here / "summary.json").read_bytes() == (there / "summary.json").read_bytes()
    assert not (here / "checkpoints").exists()


def test_other_code_is_refused_and_sent_along(lab: Lab, tmp_path: Path) -> None:
    """A checkout with a version of its own, on the launching host alone."""
    checkout = lab.own_of("h1") / "check out"
    shutil.copytree(Path(phalanx.__file__).parent, checkout / "src" / "phalanx")
    (checkout / "src/phalanx/__init__.py").write_text('__version__ = "9.9"\n')
    (checkout / "src/phalanx/recipes/only-here.yaml").write_text("extends: digits\n")
    own = {"PYTHONPATH": str(lab.own / "check out" / "src")}
    last = ["--", "train", "only-here", *SMALL, "--out", str(tmp_path / "run")]
    inside = lab.own / "check out"
    refused = lab.run("h1", launch(lab, "-n", "1", "--ips", "h2", *last), cwd=inside, env=own, check=False)
    assert refused.returncode == 2
    assert f"h2 has phalanx {phalanx.__version__}, and this host 9.9" in refused.stderr
    assert "--sync-dst-dir" in refused.stderr
    folder = str(lab.own / "a folder")
    setup = f"pwd > '{lab.own}/where'"
    last[-1] += "-2"
    sent = [*launch(lab, "-n", "1", "--ips", "h2", "--sync-dst-dir", folder, "--setup", setup), *last]
    lab.run("h1", sent, cwd=inside, env=own)
    assert (lab.own_of("h2") / "where").read_text() == f"{folder}\n"
    assert read_events(tmp_path / "run-2")[-1]["kind"] == "end"


@pytest.mark.parametrize("fault", ["ctrl-c", "launcher", "role", "agent", "link"])
def test_nothing_is_left_behind(lab: Lab, tmp_path: Path, fault: str) -> None:
    run = tmp_path / "run"
    argv = [sys.executable, str(SLEEPERS), "launch", str(run), str(lab.ssh_config), "h2,h3", "stubborn"]
    process = lab.start("h1", argv[: -1 if fault == "ctrl-c" else None], env={"PYTHONPATH": str(ROOT)})
    logs = [run / "logs" / f"{role}.log" for role in ("server-0", "trainer-0", "trainer-1")]
    until(lambda: all(log.exists() for log in logs) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    job = load_record(run).id
    roles = [one for one in lab.processes(f"PHALANX_JOB={job}") if "role" in one.words]
    assert {one.host for one in roles} == {"h2", "h3"}
    cause = "trainer-1 on h3 "
    match fault:
        case "ctrl-c":
            os.kill(lab.inner(process), signal.SIGINT)
        case "launcher":
            os.kill(lab.inner(process), signal.SIGKILL)
        case "role":
            os.kill(next(one.pid for one in roles if one.host == "h3"), signal.SIGKILL)
            cause += "was killed by SIGKILL; the job ends"
        case "agent":
            os.kill(next(one.pid for one in lab.processes("agent") if one.host == "h3" and one.words[-1] == "agent"), 9)
            cause += "was lost with its host: the connection to its agent was lost"
        case "link":
            lab.cut("h3")
            cause += "was lost with its host: the connection to its agent was lost"
    until(lambda: not lab.processes(f"PHALANX_JOB={job}") and not agents(lab))
    said, _ = process.communicate(timeout=120)
    if fault == "link":
        lab.mend("h3")
    if fault == "ctrl-c":
        assert process.returncode == 130, said
    elif fault != "launcher":
        assert process.returncode == 1
        assert cause in said
        assert f"last lines of {run}/logs/trainer-1.log:" in said


@pytest.mark.parametrize("source", ["h1", "h2"], ids=["launching host", "first trainer's host"])
def test_a_resumed_job_finds_the_newest_checkpoint_on_every_host(lab: Lab, source: str) -> None:
    """The hosts share no disk there, and one of them alone has it."""
    name, content = f"from-{source}", os.urandom(2_500_000)  # several pieces, the last one short
    saved = Path(name) / "checkpoints" / "step-00000007" / "model.safetensors"
    place = lab.own_of(source) / saved
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    (lab.own_of(source) / name / "config.yaml").write_text("name: x\n")
    argv = [sys.executable, str(SLEEPERS), "launch", name, str(lab.ssh_config), "h2,h3", "resumed", "end"]
    lab.run("h1", argv, cwd=lab.own, env={"PYTHONPATH": str(ROOT)})
    for host in ("h2", "h3"):
        assert (lab.own_of(host) / saved).read_bytes() == content
        assert (lab.own_of(host) / name / "config.yaml").read_text() == "name: x\n"
        assert not list((lab.own_of(host) / saved).parent.glob(".*"))


def test_hosts_that_share_no_disk_go_back_to_the_same_checkpoint(lab: Lab) -> None:
    """It is on the first trainer's host alone; what a host saved later, here a stray one of h3, is no longer used."""
    folder = Path("back/checkpoints")
    often = [*EVEN, "train.length=8st", "checkpoint.every=2st", "checkpoint.keep_last=9", "machine.precision=fp32"]
    two = ["-n", "2", "--ips", "h2,h3", "--", "train"]
    lab.run("h1", launch(lab, *two, "digits", *often, "--global-batch-size", "96", "--out", "back"), cwd=lab.own)
    stray = lab.own_of("h3") / folder / "step-00000007"
    stray.mkdir(parents=True)
    refused = lab.run("h1", launch(lab, *two, "--resume", "back", "--at", "3st"), cwd=lab.own, check=False)
    assert refused.returncode == 2
    assert "h2: verify failed" in refused.stderr
    assert "there are those of steps 2 (" in refused.stderr
    assert stray.is_dir()
    said = lab.run("h1", launch(lab, *two, "--resume", f"{folder}/step-4"), cwd=lab.own)
    assert "trainer-0@h2 | resumed at step 4" in said.stdout
    (aside,) = (lab.own_of("h2") / folder).glob("after-step-00000004-*")
    before, now = (checkpoint.load(there / "step-00000008") for there in (aside, lab.own_of("h2") / folder))
    assert all(torch.equal(tensor, now.tensors["model"][name]) for name, tensor in before.tensors["model"].items())
    assert [path.name for path in (lab.own_of("h3") / folder).glob("step-*")] == ["step-00000004"]
    assert len(list((lab.own_of("h3") / folder).glob("after-step-00000004-*/step-00000007"))) == 1


def small_disk(lab: Lab, host: str, limit: str) -> Path:
    """A folder that every host has, and that has a small disk of its own on one of them; its name from `own`."""
    folder = Path(f"disk-{limit}")
    for name in lab.names:
        (lab.own_of(name) / folder).mkdir()
    lab.run(host, ["mount", "-t", "tmpfs", "-o", limit, "tmpfs", str(lab.own / folder)])
    return folder


def test_a_disk_that_is_full_before_anything_starts(lab: Lab) -> None:
    out = small_disk(lab, "h3", "nr_inodes=1") / "run"
    words = ["-n", "2", "--ips", "h2,h3", "--", "train", "digits", "--out", str(out)]
    refused = lab.run("h1", launch(lab, *words), cwd=lab.own, check=False)
    assert refused.returncode == 2
    for part in ("h3: preparing failed", f"No space left on device: {lab.own / out}", "free disk space"):
        assert part in refused.stderr
    until(lambda: not agents(lab))


def test_a_disk_that_fills_with_checkpoints(lab: Lab) -> None:
    out = small_disk(lab, "h3", "size=3500k") / "run"
    often = ["train.length=40st", "checkpoint.every=1st", "checkpoint.keep_last=50"]
    words = ["-n", "1", "--ips", "h3", "--", "train", "digits", *SMALL, *often, "--out", str(out)]
    refused = lab.run("h1", launch(lab, *words), cwd=lab.own, check=False)
    assert refused.returncode == 2
    assert "trainer-0 on h3 ended with code 2: the checkpoint of step " in refused.stderr
    assert f"cannot be written to {lab.own / out}/checkpoints; the job ends" in refused.stderr
    _, _, log = refused.stderr.partition(f"last lines of {out}/logs/trainer-0.log:\n")
    for part in ("No space left on device", "free some space", "is complete"):
        assert part in log
    until(lambda: not agents(lab))


def test_a_disk_that_has_no_room_for_a_checkpoint_that_is_sent(lab: Lab) -> None:
    run = small_disk(lab, "h3", "size=1m") / "run"
    saved = lab.own_of("h1") / run / "checkpoints" / "step-00000007" / "model.safetensors"
    saved.parent.mkdir(parents=True)
    saved.write_bytes(os.urandom(2_500_000))
    argv = [sys.executable, str(SLEEPERS), "launch", str(run), str(lab.ssh_config), "h2,h3", "resumed", "end"]
    refused = lab.run("h1", argv, cwd=lab.own, env={"PYTHONPATH": str(ROOT)}, check=False)
    assert refused.returncode != 0
    for part in ("h3: sending checkpoints/step-00000007/model.safetensors failed", "No space left", "free disk space"):
        assert part in refused.stderr
    until(lambda: not agents(lab))


def agents(lab: Lab) -> list[Process]:
    return [one for one in lab.processes("agent") if one.words[-1] == "agent"]


def test_hosts_that_cannot_be_reached_are_all_named_with_their_reasons(lab: Lab, tmp_path: Path) -> None:
    bad = {
        "h9": ("it cannot be reached", f"ssh -F {lab.ssh_config} h9 true"),
        "h2": ("it refused every key", "ssh-copy-id stranger@h2"),
        "h4.lab": ("its host key is unknown", "log in once by hand"),
    }
    words = ["-n", "4", "--ips", "h3,h9,stranger@h2,h4.lab", "--", "train", "digits", "--out", str(tmp_path / "run")]
    refused = lab.run("h1", launch(lab, *words), check=False)
    assert refused.returncode == 2, refused.stdout
    assert "starting the agent failed on 3 of 4 hosts" in refused.stderr
    for host, (why, remedy) in bad.items():
        line = next(line for line in refused.stderr.splitlines() if f"{host}: " in line)
        assert why in line
        assert remedy in line
    until(lambda: not agents(lab))
    assert load_record(tmp_path / "run").exit_code == 2


BAD = {
    "no python": (["--python", "/no/python"], "it has no Python", "--python"),
    "no phalanx": (["--python", "BARE"], "its Python has no phalanx", "--sync-dst-dir"),
    "no interface": (["--iface", "no-such0"], "no-such0", "one of: "),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_host_that_cannot_be_used_is_named_with_the_reason(lab: Lab, tmp_path: Path, bad: str) -> None:
    options, why, remedy = BAD[bad]
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -S -I "$@"\n')
    bare.chmod(0o755)
    options = [str(bare) if option == "BARE" else option for option in options]
    words = [*options, "-n", "1", "--ips", "h2", "--", "train", "digits", "--out", str(tmp_path / "run")]
    refused = lab.run("h1", launch(lab, *words), check=False)
    assert refused.returncode == 2, refused.stdout
    for part in ("h2: ", why, remedy):
        assert part in refused.stderr
    assert "Traceback" not in refused.stderr
    until(lambda: not agents(lab))
