"""A ResourceManager by its documented service interface: it starts a service's containers as processes of its host.

    python resource_manager.py ADDRESS PORT FOLDER

FOLDER gets `requests.jsonl`, and what each container prints. No YARN can be had on a test machine.
"""

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

SERVICES: dict[str, dict[str, Any]] = {}
CONTAINERS: dict[str, list["subprocess.Popen[bytes]"]] = {}
FOLDER = Path(sys.argv[3])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        service = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.note(service)
        if not self.path.startswith("/app/v1/services?"):
            return self.answer(404, {})
        missing = {"name", "version", "components"} - service.keys()
        if missing or not service["components"]:
            return self.answer(400, {"diagnostics": f"missing {missing}"})
        if service.get("queue") == "nowhere":
            return self.answer(400, {"diagnostics": "queue nowhere does not exist"})
        name = service["name"]
        SERVICES[name] = {**service, "id": "application_1_0001"}
        CONTAINERS[name] = [start(part, n) for part in service["components"] for n in range(count(part))]
        return self.answer(202, {"uri": f"/v1/services/{name}"})

    def do_GET(self) -> None:
        name = urlsplit(self.path).path.removeprefix("/app/v1/services/")
        if name not in SERVICES:
            return self.answer(404, {"diagnostics": f"Service {name} not found"})
        codes = [process.poll() for process in CONTAINERS[name]]
        state = "STABLE" if None in codes else "FAILED" if any(codes) else "SUCCEEDED"
        return self.answer(200, {**SERVICES[name], "state": state})

    def do_DELETE(self) -> None:
        name = urlsplit(self.path).path.removeprefix("/app/v1/services/")
        self.note({})
        for process in CONTAINERS.pop(name, []):  # as a NodeManager does it: the container's session
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        return self.answer(200 if SERVICES.pop(name, None) else 404, {})

    def answer(self, code: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def note(self, content: dict[str, Any]) -> None:
        parts = urlsplit(self.path)
        record = {"method": self.command, "path": parts.path, "user": parse_qs(parts.query)["user.name"]}
        with (FOLDER / "requests.jsonl").open("a") as file:
            file.write(json.dumps({**record, "content": content}) + "\n")


def count(component: dict[str, Any]) -> int:
    return int(component["number_of_containers"])


def start(component: dict[str, Any], number: int) -> "subprocess.Popen[bytes]":
    """A NodeManager runs the command by a shell, in a session and a folder of its own."""
    assert component["restart_policy"] == "NEVER"
    assert component["resource"]["cpus"] > 0
    assert int(component["resource"]["memory"]) > 0
    folder = FOLDER / f"container-{number}"
    folder.mkdir()
    with (folder / "stderr").open("wb") as log:
        return subprocess.Popen(
            ["/bin/bash", "-c", component["launch_command"]],
            env={**os.environ, **component["configuration"]["env"]},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
