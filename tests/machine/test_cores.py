"""How many cores this process may use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.machine import cores as module
from phalanx.machine.cores import cores, is_limited


def pretend(folder: Path, patch: pytest.MonkeyPatch, groups: str, files: dict[str, str]) -> None:
    """Eight cores, in control groups as given."""
    patch.setattr(module, "_cores_to_run_on", lambda: 8)
    patch.setattr(module, "_GROUPS", folder)
    patch.setattr(module, "_OWN_GROUPS", folder / "own")
    (folder / "own").write_text(groups)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "300000 100000\n"}, 3),
        ("0::/pod/box\n", {"pod/cpu.max": "150000 100000\n", "pod/box/cpu.max": "max 100000\n"}, 2),
        ("0::/not/seen/from/here\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "6400000 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "broken\n"}, 8),
        (
            "3:cpuset:/\n2:cpu,cpuacct:/a\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            8,
        ),
        (
            "2:cpu,cpuacct:/a\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "200000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            2,
        ),
        ("", {}, 8),
    ],
)
def test_a_containers_limit_counts(
    groups: str, files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, monkeypatch, groups, files)
    assert cores() == expected
    assert is_limited() == (expected < 8)


def test_a_limit_that_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, monkeypatch, "0::/\n", {"cpu.max": "750000 100000\n"})
    assert cores() == 8
    assert is_limited()


def test_no_control_groups_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, monkeypatch, "", {})
    (tmp_path / "own").unlink()
    assert cores() == 8


PROGRAM = """
import os, sys
from pathlib import Path
from phalanx.machine.cores import cores
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
print(cores())
"""


def test_in_a_real_group() -> None:
    begin, groups = Path("/sys/fs/cgroup/cpu"), Path("/proc/self/cgroup")
    own = groups.read_text() if groups.exists() else ""
    if ":cpu:/\n" not in own and ":cpu,cpuacct:/\n" not in own:
        pytest.skip("needs control groups of version 1, and this process in the topmost")
    group = begin / f"phalanx-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (group / "cpu.cfs_quota_us").write_text("100000")
        (group / "cpu.cfs_period_us").write_text("100000")
        done = subprocess.run([sys.executable, "-c", PROGRAM, str(group)], capture_output=True, text=True)
    finally:
        group.rmdir()
    assert done.stdout == "1\n", done.stderr
