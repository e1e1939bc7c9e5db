"""Directories that are copied to hosts, and run folders on shared and separate disks: real sshd and rsync."""

import shlex
import shutil
from pathlib import Path

import pytest

import phalanx
from phalanx.launch.hosts import Host
from phalanx.launch.remote_shell import SshShell, Sync
from phalanx.launch.run_files import SMALL
from tests.conftest import LEAN
from tests.lab.hosts import Lab

pytestmark = pytest.mark.lab

TRAIN = ["train", "digits", "model.name=wrn10_1", "train.length=2st", *LEAN]
BROUGHT = {name for name in SMALL if "evaluator" not in name and name.endswith((".yaml", ".jsonl", ".txt", ".json"))}


def launch(lab: Lab, *words: str) -> list[str]:
    return [*lab.launch, *words]


def checkout(folder: Path) -> Path:
    """A folder to be sent: this very code, and many folders, so that sending takes a moment."""
    shutil.copytree(
        Path(phalanx.__file__).parent, folder / "src" / "phalanx", ignore=shutil.ignore_patterns("__pycache__")
    )
    for number in range(400):
        (folder / "many" / str(number)).mkdir(parents=True)
        (folder / "many" / str(number) / "file").write_text("x")
    return folder


def test_a_folder_inside_of_the_one_that_is_sent_on_a_disk_that_all_share(lab: Lab, tmp_path: Path) -> None:
    """Four hosts receive into one folder at once, which lies in the one that is sent: twice, for it is there then."""
    project = checkout(tmp_path / "project")
    for name in ("one", "two"):
        words = ["-n", "1", "--ips", "h1,h2,h3,h4", "--sync-dst-dir", str(project / "de[ploy")]
        lab.run("h1", launch(lab, *words, "--", *TRAIN, "--out", f"out/{name}"), cwd=project)
    assert sorted(path.name for path in (project / "de[ploy").iterdir()) == ["many", "out", "src"]
    assert len(list((project / "de[ploy" / "many").iterdir())) == 400
    assert {path.name for path in (project / "out" / "two").iterdir()} >= BROUGHT


@pytest.mark.parametrize("first", ["h1", "localhost"])
def test_the_run_has_what_dry_run_promises_where_the_first_host_is_the_launching_one(lab: Lab, first: str) -> None:
    """Hosts that share no disk; the run folder is inside the copied directory."""
    checkout(lab.own_of("h1") / f"project-{first}")
    project, run = lab.own / f"project-{first}", lab.own_of("h1") / f"project-{first}" / "run"
    words = ["-n", "2", "--ips", f"{first},h2", "--sync-dst-dir", str(lab.own / f"there-{first}")]
    promised = lab.run("h1", launch(lab, *words, "--dry-run", "--", *TRAIN, "--out", "run"), cwd=project).stdout
    assert promised.count("here: rsync ") == (1 if first == "localhost" else 2)
    lab.run("h1", launch(lab, *words, "--", *TRAIN, "--out", "run"), cwd=project)
    for name in BROUGHT:
        assert f"would write here: run/{name}" in promised
        assert (run / name).is_file(), name
    elsewhere = lab.own_of("h2") / f"there-{first}" / "run"
    assert {path.name for path in elsewhere.iterdir()} <= {"logs"}, "it was sent along"
    assert not [path for folder in (run, elsewhere) for path in folder.glob(".*")]


def test_what_rsync_says_is_told_with_what_helps(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ["-n", "1", "--ips", "h2", "--sync-dst-dir", str(tmp_path / "file" / "there"), "--", *TRAIN]
    refused = lab.run("h1", launch(lab, *words, "--out", str(tmp_path / "run")), cwd=tmp_path, check=False)
    assert refused.returncode == 2
    for part in (f"{tmp_path} was not sent to {tmp_path}/file/there", "rsync ended with code", "try it by hand: rsync"):
        assert part in refused.stderr
    lab.run("h2", ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(lab.own)])
    words[5] = str(lab.own / "there")
    refused = lab.run("h1", launch(lab, *words, "--out", str(tmp_path / "run-2")), cwd=tmp_path, check=False)
    lab.run("h2", ["umount", str(lab.own)])
    assert "choose a folder that you may write to with --sync-dst-dir" in refused.stderr


def test_what_is_left_out_is_what_lies_inside(tmp_path: Path) -> None:
    def left_out(folder: str, run: Path | None) -> list[str]:
        argv = Sync(tmp_path, folder, run).command(SshShell(), Host("a"))
        assert shlex.split(shlex.join(argv)) == argv
        return [word.removeprefix("--exclude=") for word in argv if word.startswith("--exclude=")][4:]

    assert left_out("/elsewhere", tmp_path / "runs-2" / "x") == ["/runs-2/x"]
    assert left_out(f"{tmp_path}/a*b/../c?", None) == ["/c\\?"]
    assert left_out(str(tmp_path), Path("/other/run")) == []
