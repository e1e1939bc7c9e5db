"""Lines of several roles stay lines, however they arrive."""

import io
import json
import os
import platform
import threading
from pathlib import Path

from phalanx.commands.logs import logs_of, print_logs
from phalanx.launch.record import JobRecord, RecordFile, load_record
from phalanx.machine.processes import start_time
from tests.waiting import until


def test_a_line_that_arrives_in_parts_is_one(tmp_path: Path) -> None:
    record = JobRecord("id", "command", "local", str(tmp_path), state="running", logs=str(tmp_path / "words"))
    assert (record.pid, record.host, record.pid_start) == (os.getpid(), platform.node(), start_time(os.getpid()))
    RecordFile(record).write()
    (tmp_path / "words").mkdir()
    out = io.StringIO()
    with (tmp_path / "words" / "trainer-1.log").open("w") as log:
        following = threading.Thread(target=print_logs, args=(tmp_path, None), kwargs={"follow": True, "out": out})
        following.start()
        log.write("one\nbeg")
        log.flush()
        until(lambda: "one" in out.getvalue())
        log.write("un\nlast words")
        log.flush()
        until(lambda: "begun" in out.getvalue())
        record.state = "ended"
        RecordFile(record).write()
    following.join(120)
    assert out.getvalue() == "trainer-1 | one\ntrainer-1 | begun\ntrainer-1 | last words\n"


def test_where_logs_are(tmp_path: Path) -> None:
    assert logs_of(tmp_path) == tmp_path / "logs"
    (tmp_path / "config.yaml").write_text("train: {log_dir: words}\n")
    assert logs_of(tmp_path) == Path("words")
    record = JobRecord("id", "command", "local", str(tmp_path)).to_data()
    for role in record["roles"]:
        role.pop("times")
    record.pop("logs")  # as earlier versions wrote it
    (tmp_path / "job.json").write_text(json.dumps(record))
    assert load_record(tmp_path).logs == ""
    assert logs_of(tmp_path) == tmp_path / "logs"
