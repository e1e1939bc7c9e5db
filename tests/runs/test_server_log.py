"""The log of a server process: whole lines, whatever happened to the process before."""

import json
from pathlib import Path

from phalanx.runs.server_log import ServerLog


def test_half_a_line_of_a_process_that_was_killed_does_not_damage_the_next(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "server-0.jsonl"
    for torn in ("", '{"kind": "upd'):
        log = ServerLog(path)
        log.write("start", {"address": "somewhere"})
        log.close()
        with path.open("a") as file:
            file.write(torn)
    ServerLog(path).close()
    lines = path.read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines if line != '{"kind": "upd'] == ["start", "start"]
    assert lines[2:] == ['{"kind": "upd']
    assert path.read_text().endswith("\n")
