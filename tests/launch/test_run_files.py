"""Files that another host names stay inside of the run's folder."""

from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.launch.run_files import read_chunk, write_chunk


@pytest.mark.parametrize("name", ["../secret", "a/../../secret", "/etc/hostname", "", "a\0b"])
def test_a_file_outside_of_the_run_is_neither_read_nor_written(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "secret").write_text("not yours")
    with pytest.raises(UserError, match="another host named the file"):
        read_chunk(run, name, 0)
    with pytest.raises(UserError, match="another host named the file"):
        write_chunk(run, name, 0, "")
    assert (tmp_path / "secret").read_text() == "not yours"


def test_files_of_a_run_are_copied_in_chunks(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "log.txt").write_text("line")
    chunk = read_chunk(tmp_path / "from", "log.txt", 0)
    assert chunk
    write_chunk(tmp_path / "to", "checkpoints/step-1/log.txt", 0, chunk)
    write_chunk(tmp_path / "to", "checkpoints/step-1/log.txt", 4, "")
    assert (tmp_path / "to" / "checkpoints" / "step-1" / "log.txt").read_text() == "line"
