"""Local servers for tests of remote data: http with index pages and ranges, and a small one of GCS's JSON interface."""

import functools
import http.server
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Behaviour:
    """How a server behaves, and what it was asked for."""

    ranges: bool = True
    fail_first: dict[str, int] = field(default_factory=dict)  # path → status of the first answer
    cut_first: set[str] = field(default_factory=set)  # paths whose first answer ends in the middle
    denied: bool = False
    asked: Counter[str] = field(default_factory=Counter)


class _Folder(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, behaviour: Behaviour, **others: Any) -> None:
        self.behaviour = behaviour
        super().__init__(*args, **others)

    def do_HEAD(self) -> None:
        file = Path(self.translate_path(self.path))
        if self.behaviour.denied or not file.is_file():
            super().do_HEAD()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(file.stat().st_size))
        self.send_header("ETag", f'"{file.stat().st_mtime_ns:x}"')
        self.end_headers()

    def do_GET(self) -> None:
        path, behaviour = unquote(urlsplit(self.path).path), self.behaviour
        behaviour.asked[path] += 1
        status = 403 if behaviour.denied else behaviour.fail_first.pop(path, 0)
        if status:
            self.send_error(status)
            return
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            super().do_GET()
            return
        data, start = file.read_bytes(), 0
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted and behaviour.ranges:
            start, end = int(wanted[1]), int(wanted[2] or len(data) - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
            data = data[start : end + 1]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{file.stat().st_mtime_ns:x}"')
        self.end_headers()
        if path in behaviour.cut_first:
            behaviour.cut_first.discard(path)
            data = data[: len(data) // 2]
            self.close_connection = True
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(handler: Any) -> Iterator[str]:
    """A server for the block; yields its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serving_folder(folder: Path) -> Iterator[tuple[str, Behaviour]]:
    """A folder over http, with index pages."""
    behaviour = Behaviour()
    with serving(functools.partial(_Folder, directory=str(folder), behaviour=behaviour)) as url:
        yield url, behaviour


class _Bucket(http.server.BaseHTTPRequestHandler):
    """What gcsfs asks of GCS to list and to read; objects by bucket and name."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *args: Any, objects: dict[str, dict[str, bytes]], **others: Any) -> None:
        self.objects = objects
        super().__init__(*args, **others)

    def do_GET(self) -> None:
        parts, query = urlsplit(self.path), parse_qs(urlsplit(self.path).query)
        found = re.fullmatch(r"(?:/download)?/storage/v1/b/([^/]+)(?:/o(?:/(.+))?)?", parts.path)
        bucket = self.objects.get(unquote(found[1])) if found else None
        if found is None or bucket is None:
            self._answer(404, b'{"error": {"code": 404, "message": "not found"}}')
        elif found[2] is None and not parts.path.endswith("/o"):
            self._answer(200, json.dumps({"kind": "storage#bucket", "name": found[1]}).encode())
        elif found[2] is None:
            self._list(found[1], bucket, query.get("prefix", [""])[0], query.get("delimiter", [""])[0])
        elif unquote(found[2]) not in bucket:
            self._answer(404, b'{"error": {"code": 404, "message": "No such object"}}')
        elif query.get("alt") == ["media"]:
            self._media(bucket[unquote(found[2])])
        else:
            self._answer(200, json.dumps(_about(found[1], unquote(found[2]), bucket[unquote(found[2])])).encode())

    def _list(self, name: str, bucket: dict[str, bytes], prefix: str, delimiter: str) -> None:
        below = [key for key in sorted(bucket) if key.startswith(prefix)]
        inner = {key: key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "") for key in below}
        items = [_about(name, key, bucket[key]) for key in below if not inner[key][1]]
        folders = sorted({prefix + inner[key][0] + delimiter for key in below if inner[key][1]})
        self._answer(200, json.dumps({"kind": "storage#objects", "items": items, "prefixes": folders}).encode())

    def _media(self, data: bytes) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._answer(200, data)
            return
        start, end = int(wanted[1]), min(int(wanted[2] or len(data) - 1), len(data) - 1)
        self._answer(206, data[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{len(data)}"})

    def _answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _about(bucket: str, name: str, data: bytes) -> dict[str, str]:
    version = str(len(data))
    return {
        "kind": "storage#object",
        "name": name,
        "bucket": bucket,
        "size": str(len(data)),
        "etag": version,
        "generation": version,
        "updated": "2026-01-01T00:00:00.000Z",
        "timeCreated": "2026-01-01T00:00:00.000Z",
        "storageClass": "STANDARD",
    }


@contextmanager
def serving_gcs(objects: dict[str, dict[str, bytes]]) -> Iterator[str]:
    with serving(functools.partial(_Bucket, objects=objects)) as url:
        yield url
