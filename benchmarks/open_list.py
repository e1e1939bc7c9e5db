"""How long a list of as many files as ImageNet's training images takes to open, and how much memory.

    python benchmarks/open_list.py [ROWS]

The list names 10,000 files in 1,000 folders over and over. Times are of the process's own CPU time, so that other work
on the machine does not count.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

CLASSES, FILES_PER_CLASS = 1000, 10
OPEN = """
import resource, sys, time
from pathlib import Path
from phalanx.data.sources.lists.open import open_list
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
source = open_list(Path(sys.argv[1]), None, channels=None, pool=None)
took, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(f"{Path(sys.argv[1]).name}: {len(source):,} rows, {took:.2f} s, {peak / 1024:.0f} MB more at most")
"""


def write_lists(folder: Path, rows: int) -> list[Path]:
    """`path label` lines; a table with a header and columns that are not used; a table of ids."""
    (folder / "train").mkdir()
    (folder / "one.jpg").write_bytes(b"")
    for number in range(CLASSES):
        (folder / f"n{number:08d}").mkdir()
        for i in range(FILES_PER_CLASS):
            os.link(folder / "one.jpg", folder / f"n{number:08d}" / f"n{number:08d}_{i}.JPEG")
            os.link(folder / "one.jpg", folder / "train" / f"n{number:08d}_{i}.jpg")
    lists = [folder / "lines.txt", folder / "table.csv", folder / "ids.csv"]
    with lists[0].open("w") as lines, lists[1].open("w") as table, lists[2].open("w") as ids:
        table.write("path,label,width,height,licence\n")
        ids.write("id,label\n")
        for row in range(rows):
            number = row * CLASSES // rows
            name = f"n{number:08d}_{row % FILES_PER_CLASS}"
            lines.write(f"n{number:08d}/{name}.JPEG {number}\n")
            table.write(f"n{number:08d}/{name}.JPEG,n{number:08d},500,375,cc-by\n")
            ids.write(f"{name},n{number:08d}\n")
    return lists


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_281_167
    with tempfile.TemporaryDirectory() as folder:
        for path in write_lists(Path(folder), rows):
            subprocess.run([sys.executable, "-c", OPEN, str(path)], check=True)


if __name__ == "__main__":
    main()
