"""Limits of memory, and the kernel's counters."""

from pathlib import Path

from phalanx.machine.memory import MemoryGroup, OomCounts, describe_limits


def test_counters_and_limits_of_both_versions_of_cgroups(tmp_path: Path) -> None:
    inner = tmp_path / "slice" / "job"
    inner.mkdir(parents=True)
    (inner / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    (inner / "memory.max").write_text("max\n")
    (tmp_path / "slice" / "memory.max").write_text(f"{512 << 20}\n")  # limits of those around it hold too
    group = MemoryGroup(inner, tmp_path, "memory.events", "memory.max")
    assert (group.oom_kills(), group.limit_mb()) == (1, 512)
    (inner / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (inner / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    group = MemoryGroup(inner, tmp_path, "memory.oom_control", "memory.limit_in_bytes")
    assert (group.oom_kills(), group.limit_mb()) == (3, None)


def test_a_kill_shows_in_the_counter_of_the_cgroup_or_of_the_machine() -> None:
    assert OomCounts(7, 1).kills_since(OomCounts(7, 1)) == ""
    assert OomCounts(8, 2).kills_since(OomCounts(7, 1)) == "in its cgroup, oom_kill 1 → 2"
    assert OomCounts(8, None).kills_since(OomCounts(7, None)) == "oom_kill 7 → 8"
    assert OomCounts(None, None).kills_since(OomCounts(None, None)) == ""


def test_limits_are_described() -> None:
    assert "MB left" in describe_limits()
