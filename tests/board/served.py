"""The board on a real socket, in a thread of the test; and a client that sends exactly what it is told."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from phalanx.board.app import Tools, make_app
from phalanx.board.guard import Guard
from phalanx.board.places import Places, Root
from tests.waiting import until


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        assert self.status == 200, self.body
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    """A running board."""

    guard: Guard
    places: Places
    said: str = ""  # at its start, where it is a process of its own
    pid: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.guard.port}/?token={self.guard.token}"

    def ask(self, path: str, method: str = "GET", *, body: bytes | None = None, **headers: str) -> Answer:
        """A request with the token, and the header of the board's own page, unless `headers` say otherwise."""
        given = {"Authorization": f"Bearer {self.guard.token}", "X-Phalanx-Board": "1"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.guard.port, timeout=180)
        try:
            connection.request(method, path, body, {name: value for name, value in given.items() if value})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.ask("/api/runs").json()["runs"]}

    def key(self, name: str) -> str:
        return str(self.rows()[name]["key"])


@contextlib.contextmanager
def served(*roots: Path, tools: Tools | None = None, host: str = "127.0.0.1") -> Iterator[Served]:
    """The board of these folders."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    guard = Guard(host, listener.getsockname()[1])
    places = Places([Root(root) for root in roots])
    app = make_app(places, guard, tools or Tools())
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        yield Served(guard, places)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
