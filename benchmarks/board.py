"""How fast and how large the board is: a table of 200 runs, and one run of 100,000 steps, in a real Chromium.

    python -m benchmarks.board [--runs 200] [--steps 100000]

Times are the page's own (its performance API), from the navigation on. Each step has an event, and one of the machine's
figures, as in real runs. It needs Debian's chromium and chromium-driver.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from tests.board.browser import chromium
from tests.board.made_runs import make_run
from tests.board.served import Served
from tests.board.started import started

_LONGEST_S = 120.0
# Pieces of work that keep the page from answering; those below 50 ms are not reported by browsers.
_STALLS = """
const done = arguments[arguments.length - 1];
const seen = (list) => done(list.getEntries().map((one) => one.duration));
new PerformanceObserver(seen).observe({type: "longtask", buffered: true});
setTimeout(() => done([]), 500);
"""


def main() -> None:
    asked = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    asked.add_argument("--runs", type=int, default=200)
    asked.add_argument("--steps", type=int, default=100_000)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        make_runs(root, options.runs, options.steps)
        with started(str(root)) as board, chromium() as driver:
            table(driver, board, options.runs)
            curves(driver, board, options.steps)
            print(f"memory of the server: {peak_mb(board.pid):.0f} MB at most")


def make_runs(root: Path, runs: int, steps: int) -> None:
    """Runs of 1,000 steps, and the long one."""
    begun = time.perf_counter()
    make_run(root / "run-0", steps=1000, workers=2, figures=True)
    content = {path.name: path.read_bytes() for path in (root / "run-0").iterdir()}
    for number in range(1, runs):
        (root / f"run-{number}").mkdir()
        for name, each in content.items():
            (root / f"run-{number}" / name).write_bytes(each)
    make_run(root / "long", steps=steps, workers=2, figures=True)
    print(f"{runs} runs and one of {steps:,} steps, made in {time.perf_counter() - begun:.0f} s")


def table(driver: webdriver.Chrome, board: Served, runs: int) -> None:
    for which in ("the first time", "again"):
        driver.get(board.address)
        shown = shown_ms(driver)
        rows = driver.execute_script("return document.querySelectorAll('tbody tr').length")
        assert rows == runs + 1, rows
        print(f"table of {rows} runs, {which}: first paint {first_paint_ms(driver):.0f} ms, all rows {shown:.0f} ms")
    begun = time.perf_counter()
    board.ask("/api/runs")
    print(f"the table asked for again, as every two seconds: {1000 * (time.perf_counter() - begun):.0f} ms")


def curves(driver: webdriver.Chrome, board: Served, steps: int) -> None:
    key = board.key("long")
    for which in ("the first time", "again"):
        driver.get("about:blank")
        driver.get(f"http://127.0.0.1:{board.guard.port}/#/run/{key}/curves")
        shown = shown_ms(driver)
        panels = driver.execute_script("return document.querySelectorAll('[data-panel][data-points]').length")
        stalls = driver.execute_async_script(_STALLS)
        print(
            f"{panels} pictures of {steps:,} steps, {which}: first paint {first_paint_ms(driver):.0f} ms, "
            f"drawn after {shown:.0f} ms, longest stall of the page {max(stalls, default=0):.0f} ms"
        )
    path = f"/api/run/{key}/curves?points=1200"
    for name, query in (
        ("whole", ""),
        ("smoothed", "&smooth=0.9"),
        ("zoomed", f"&from={steps // 2}&to={steps // 2 + 900}"),
    ):
        begun = time.perf_counter()
        answer = board.ask(path + query)
        took = 1000 * (time.perf_counter() - begun)
        print(f"the server's answer, {name}: {took:.0f} ms, {len(answer.body) / 1000:.0f} kB")
    state = json.loads(answer.body)["state"]
    begun = time.perf_counter()
    board.ask(f"{path}&have={state}")
    print(f"the same when nothing is new, as every two seconds: {1000 * (time.perf_counter() - begun):.0f} ms")


def shown_ms(driver: webdriver.Chrome) -> float:
    """When the page had shown its content for the first time."""
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        found = driver.execute_script("return performance.getEntriesByName('shown')[0]?.startTime")
        if found is not None:
            return float(found)
        time.sleep(0.1)
    raise TimeoutError(f"nothing was shown within {_LONGEST_S:.0f} s")


def first_paint_ms(driver: webdriver.Chrome) -> float:
    return float(
        driver.execute_script("return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN")
    )


def peak_mb(pid: int) -> float:
    """The largest resident memory of a process so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


if __name__ == "__main__":
    main()
