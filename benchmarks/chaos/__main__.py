"""Faults × update methods: what follows, after how long, what is lost, and what the message names.

    python -m benchmarks.chaos [FAULT]... [--modes local,collective,sync,async,ssp] [--restarts 0,1]
                               [--json FILE] [--resume FILE] [--jobs 2] [--silence 6]

Needs root, Debian's openssh-server and iptables, and a C compiler: the hosts are namespaces with a real sshd. FAULT is
(a part of) a fault's name; default: all. Prints a Markdown table. Exit code 1 if a cell is not as promised
(`expected.py`). With --resume, cells in FILE are kept and only the others run.
"""

import argparse
import json
import queue
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.lab.hosts import Lab, hosts_up

from benchmarks.chaos.expected import TABLE
from benchmarks.chaos.faults import FAULTS, NONE, NONE_JPEG, Fault
from benchmarks.chaos.modes import MODES, Mode
from benchmarks.chaos.run_cell import Measured, Terms, run_cell
from benchmarks.chaos.table import HEAD, missing_row, row, summary

Asked = tuple[Fault, Mode, int]


class Results:
    """The cells that are done, by key; on disk as well, where a file is named."""

    def __init__(self, file: Path | None, earlier: Path | None) -> None:
        self._file, self._lock = file, threading.Lock()
        self.cells: dict[str, Measured] = {}
        if earlier is not None and earlier.exists():
            for data in json.loads(earlier.read_text()):
                cell = Measured(**{**data, "deviations": tuple(data["deviations"])})
                self.cells[cell.key] = cell

    def add(self, cell: Measured) -> None:
        with self._lock:
            self.cells[cell.key] = cell
            if self._file is not None:
                aside = self._file.with_suffix(".new")
                aside.write_text(json.dumps([one.to_data() for one in self.cells.values()], indent=1))
                aside.replace(self._file)

    def undisturbed(self, fault: Fault, mode: Mode) -> Measured | None:
        """With the same images; those of JPEGs in one mode alone."""
        if fault.jpegs:
            return self.cells.get(f"{NONE_JPEG.name} | local | 0")
        return self.cells.get(f"{NONE.name} | {mode.name} | 0")


def main() -> int:
    asked = _arguments()
    results = Results(asked.json or asked.resume, asked.resume)
    chosen = [fault for name, fault in FAULTS.items() if not asked.fault or any(one in name for one in asked.fault)]
    modes = [MODES[name] for name in asked.modes.split(",")]
    restarts = [int(one) for one in asked.restarts.split(",")]
    wanted: list[Asked] = [(f, m, r) for f in chosen for m in modes for r in restarts if not f.why_not(m)]
    first: list[Asked] = [(NONE, mode, 0) for mode in modes]
    if any(fault.jpegs for fault in chosen):
        first.append((NONE_JPEG, MODES["local"], 0))
    assert FAULTS.keys() < TABLE.keys(), "every fault has its line in expected.py"
    try:
        for cells in (first, wanted):
            _run_all([one for one in cells if _key(one) not in results.cells], results, asked)
    except pytest.skip.Exception as missing:
        sys.exit(str(missing))
    print("\n".join(HEAD))
    for cell_key in map(_key, first):
        print(row(results.cells[cell_key]))
    for fault in chosen:
        for mode in modes:
            if why := fault.why_not(mode):
                print(missing_row(fault.name, mode.name, why))
            for number in restarts if not why else []:
                print(row(results.cells[_key((fault, mode, number))]))
    print(f"\n{summary(shown := [results.cells[_key(one)] for one in first + wanted])}")
    return 1 if any(cell.deviations for cell in shown) else 0


def _key(asked: Asked) -> str:
    return Measured(asked[0].name, asked[1].name, asked[2]).key


def _run_all(cells: list[Asked], results: Results, asked: argparse.Namespace) -> None:
    """Several at a time, each on hosts of its own."""
    waiting: queue.SimpleQueue[Asked] = queue.SimpleQueue()
    for one in cells:
        waiting.put(one)
    failed: list[BaseException] = []
    terms = Terms(asked.silence, asked.patience)

    def work(lab: Lab) -> None:
        while not failed:
            try:
                fault, mode, restarts = waiting.get_nowait()
            except queue.Empty:
                return
            keep = asked.keep and asked.keep / _key((fault, mode, restarts)).replace(" | ", "-").replace(" ", "_")
            cell = run_cell(lab, fault, mode, restarts, terms, results.undisturbed(fault, mode), keep)
            results.add(cell)
            print(f"{time.strftime('%H:%M:%S')} {cell.took_s:5.1f} s  {row(cell)}", file=sys.stderr, flush=True)

    def slot() -> None:
        try:
            with hosts_up(3) as lab:
                work(lab)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=slot) for _ in range(min(asked.jobs, len(cells)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fault", nargs="*", help="; ".join(FAULTS).replace("%", "%%"))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--restarts", default="0,1")
    parser.add_argument("--json", type=Path, help="write each cell there when it is done")
    parser.add_argument("--resume", type=Path, help="keep the cells of this file")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time")
    parser.add_argument("--silence", type=float, default=6.0, help="exchange.silence_s; its default is 30")
    parser.add_argument("--patience", type=float, default=1.0, help="a factor of all bounds, for busy cores")
    parser.add_argument("--keep", type=Path, help="a folder for what each cell printed")
    asked = parser.parse_args()
    unknown = [one for one in asked.fault if not any(one in name for name in FAULTS)]
    if unknown:
        parser.error(f"no fault is called {unknown[0]}: {'; '.join(FAULTS)}")
    return asked


if __name__ == "__main__":
    sys.exit(main())
