"""Notifications: a real command, a real web server, and values that look like shell commands."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.errors import UserError
from phalanx.observe.notify import FIELDS, Notifier, check_target, words_of
from phalanx.runs import events as ev
from tests.observe.loggers.test_loggers import SMALL

END, STOP, BEST = ev.End(8, 1.0), ev.Stop(4, "SIGTERM"), ev.Eval(8, 1, 0.5, 0.9, 0.99, 5, 9, 1.0, True)


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A web server, and what was posted to it."""
    posted: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{web.server_port}/hook", posted
        web.shutdown()


def test_a_webhook_gets_json(server: tuple[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    address, posted = server
    told: list[str] = []
    notifier = Notifier(address, tmp_path, told.append)
    for event in (BEST, ev.Note(1, "not told"), STOP, END):
        notifier.take(event)
    notifier.close()
    assert [(one["event"], one["step"]) for one in posted] == [("best", 8), ("failure", 4), ("end", 8)]
    assert posted[0]["text"] == "top-1 90.00 %, top-5 99.00 %"
    assert (set(posted[0]), told) == (set(FIELDS), [])


def test_a_run_notifies_a_command(tmp_path: Path) -> None:
    out, words = tmp_path / "a run; touch harm $(touch harm)", tmp_path / "words"
    command = f"""sh -c 'printf "%s|%s\\n" "$1" "$2" >> "$0"' '{words}' {{event}} {{run}}"""
    phalanx.train("digits", settings=SMALL | {"train.length": "4st"}, out=out, notify=command)
    assert words.read_text().splitlines() == [f"best|{out}", f"end|{out}"]
    assert not list(tmp_path.rglob("harm"))


def test_values_add_no_words() -> None:
    fields = dict.fromkeys(FIELDS, "x") | {"run": "a b; {event} 'c"}
    assert words_of("say '{event}: {run}' {step}", fields) == ["say", "x: a b; {event} 'c", "x"]


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/", "false", "/no/such/program {event}"])
def test_a_failure_is_told_once(target: str, tmp_path: Path) -> None:
    told: list[str] = []
    notifier = Notifier(target, tmp_path, told.append)
    notifier.take(BEST)
    notifier.take(END)
    notifier.close()
    assert len(told) == 1


@pytest.mark.parametrize("target", ["say 'x", "say {colour}", " "])
def test_what_cannot_be_sent_is_refused_at_the_start(target: str) -> None:
    with pytest.raises(UserError, match="--notify cannot be"):
        check_target(target)
