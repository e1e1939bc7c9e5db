"""CPU seconds of each test, whatever else the machine does.

    python -m pytest -p dev.cpu_times tests/runs
    python -m dev.cpu_times

A test's processes are counted too, also those that it does not wait for, where a control group can be made (as root).
Elsewhere only the processes that it waited for are. What a shared fixture costs counts for the test that came first.
The lines go to the file PHALANX_CPU_TIMES (cpu_times.jsonl): the test, CPU seconds, seconds.
"""

import contextlib
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

RESULTS = Path(os.environ.get("PHALANX_CPU_TIMES", "cpu_times.jsonl"))
CGROUP_1, CGROUP_2 = Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup")


def own_and_waited_for_s() -> float:
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def join_cgroup(folder: Path) -> None:
    folder.mkdir()
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def make_clock() -> Callable[[], float]:
    """CPU seconds of this process and of all that come from it."""
    name = f"pytest-{os.getpid()}"
    try:
        if CGROUP_1.is_dir():
            join_cgroup(CGROUP_1 / name)
            return lambda: int((CGROUP_1 / name / "cpuacct.usage").read_text()) / 1e9
        join_cgroup(CGROUP_2 / name)
        return lambda: int((CGROUP_2 / name / "cpu.stat").read_text().split()[1]) / 1e6
    except OSError:
        return own_and_waited_for_s


def leave_cgroup() -> None:
    """Remove the group, unless a process of a test still runs in it."""
    for parent in (CGROUP_1, CGROUP_2):
        folder = parent / f"pytest-{os.getpid()}"
        with contextlib.suppress(OSError):
            if folder.is_dir():
                (parent / "cgroup.procs").write_text(str(os.getpid()))
                folder.rmdir()


class CpuTimes:
    def __init__(self) -> None:
        self.clock = make_clock()

    def write(self, test: str, cpu_s: float, wall_s: float) -> None:
        # One short write in append mode: several workers share the file.
        with RESULTS.open("a") as file:
            file.write(json.dumps([test, round(cpu_s, 3), round(wall_s, 3)]) + "\n")

    def pytest_unconfigure(self) -> None:
        leave_cgroup()

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        began = self.clock(), time.perf_counter()
        try:
            return (yield)
        finally:
            self.write("(collection)", self.clock() - began[0], time.perf_counter() - began[1])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began = self.clock(), time.perf_counter()
        try:
            return (yield)
        finally:
            self.write(item.nodeid, self.clock() - began[0], time.perf_counter() - began[1])


def pytest_configure(config: pytest.Config) -> None:
    is_controller = not hasattr(config, "workerinput") and bool(config.getoption("numprocesses", None))
    if not is_controller:
        config.pluginmanager.register(CpuTimes())


def table(title: str, costs: Counter[str], counts: Counter[str], num_lines: int = 40) -> None:
    print(f"\n{title}: {sum(costs.values()):.0f} CPU s")
    for name, cpu_s in costs.most_common(num_lines):
        print(f"{cpu_s:8.1f} {counts[name]:6} {name}")


def main(path: Path) -> None:
    """Tests and files by CPU seconds, largest first."""
    tests: Counter[str] = Counter()
    files: Counter[str] = Counter()
    num_tests: Counter[str] = Counter()
    num_in_files: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        test, cpu_s, _ = json.loads(line)
        for costs, counts, name in ((tests, num_tests, test), (files, num_in_files, test.split("::")[0])):
            costs[name] += cpu_s
            counts[name] += 1
    table("files", files, num_in_files)
    table("tests", tests, num_tests)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
