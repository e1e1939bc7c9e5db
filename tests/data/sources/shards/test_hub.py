"""Datasets of the hub by name: from a hub of our own on this machine, then from the cache, without any network."""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from phalanx.data.sources.formats import recognise
from phalanx.data.sources.shards.hub import HubName, hub_name, open_hub
from phalanx.errors import UserError
from tests.data.samples import assert_helpful
from tests.data.shard_files import pictures, wanted

needs_datasets = pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="datasets is not installed")
NAME, COMMIT = "some/pets", "a" * 40
READ = """
import hashlib, json, sys
from phalanx.config.schema import DataConfig
from phalanx.data.sources.open import open_data, open_split
from phalanx.errors import UserError

said = []
for name in sys.argv[1:]:
    try:
        splits = open_data(DataConfig(source=name), threads=0)
        alone = open_split(name, DataConfig(), splits.train.classes, threads=0)
        digests = [hashlib.sha1(splits.train.encoded(i)).hexdigest() for i in range(len(splits.train))]
        said.append([digests, splits.train.labels.tolist(), splits.train.classes, len(splits.val), len(alone),
                     splits.notes])
    except UserError as error:
        said.append(str(error))
print(json.dumps(said))
"""


class Hub(BaseHTTPRequestHandler):
    """The few requests of the hub's interface that `datasets` makes for a repository of files."""

    protocol_version = "HTTP/1.1"
    root: Path

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        interface, files = f"/api/datasets/{NAME}", f"/datasets/{NAME}/resolve/"
        if path == interface or path.startswith(f"{interface}/revision/"):
            found = [{"rfilename": str(file.relative_to(self.root))} for file in self.root.rglob("*") if file.is_file()]
            self._json({"id": NAME, "sha": COMMIT, "private": False, "tags": [], "siblings": found})
        elif path.startswith(f"{interface}/tree/"):
            self._tree(self.root / path.removeprefix(f"{interface}/tree/").partition("/")[2])
        elif path.startswith(files) and (file := self.root / path.removeprefix(files).partition("/")[2]).is_file():
            data = file.read_bytes()
            self._reply(200, data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT})
        else:
            self._reply(404, b"", {"X-Error-Code": "EntryNotFound" if NAME in path else "RepoNotFound"})

    def _tree(self, folder: Path) -> None:
        if not folder.is_dir():
            self._reply(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        self._json(
            [
                {
                    "type": "directory" if entry.is_dir() else "file",
                    "oid": hashlib.sha1(entry.name.encode()).hexdigest(),
                    "size": entry.stat().st_size,
                    "path": str(entry.relative_to(self.root)),
                }
                for entry in sorted(folder.iterdir())
            ]
        )

    def _json(self, value: Any) -> None:
        self._reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _reply(self, code: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    import datasets

    (tmp_path / "repository" / "data").mkdir(parents=True)
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["ape", "cat", "dog"])})
    for split, count in (("train", 6), ("test", 3)):
        samples = pictures(count)
        rows = {"image": [{"bytes": image} for image, _ in samples], "label": [label for _, label in samples]}
        made = datasets.Dataset.from_dict(rows, features=kinds)
        made.to_parquet(tmp_path / "repository" / "data" / f"{split}-00000-of-00001.parquet")
    handler = type("Handler", (Hub,), {"root": tmp_path / "repository"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def read(names: list[str], **environment: str) -> list[Any]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", READ, *names], env={**clean, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@needs_datasets
def test_loaded_once_and_then_without_a_network(tmp_path: Path, hub: str) -> None:
    home = str(tmp_path / "home")
    (online,) = read([f"hf://{NAME}"], HF_HOME=home, HF_ENDPOINT=hub, HF_HUB_DISABLE_TELEMETRY="1")
    digests, labels, classes, val, alone, notes = online
    assert digests == [hashlib.sha1(image).hexdigest() for image, _ in pictures(6)]
    assert (labels, classes, val, alone) == ([0, 0, 1, 1, 2, 2], ["ape", "cat", "dog"], 3, 3)
    assert any(note.startswith(f"hf://{NAME} is read from {home}") for note in notes)
    assert f"validation: the split test of hf://{NAME} (there is no other)" in notes
    again, missing, private = read(
        [f"hf://datasets/{NAME}", "hf://no/such", f"hf://{NAME}:other"], HF_HOME=home, HF_HUB_OFFLINE="1"
    )
    assert again[:5] == online[:5]
    for word in ("hf://no/such is not in the cache here", "HF_HUB_OFFLINE is set", home, "save_to_disk", "HF_HOME"):
        assert word in missing
    assert "other" in private


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub_name("hf://mnist") == HubName("mnist")
    assert hub_name("hf://datasets/ylecun/mnist") == HubName("ylecun/mnist")
    assert hub_name("hf:/a/b@v1.0?fine") == HubName("a/b", "fine", "v1.0")
    assert hub_name("hf://a/b@refs/convert/parquet:fine") == HubName("a/b", "fine", "refs/convert/parquet")
    assert hub_name("hf://a/b?config=fine") == HubName("a/b", "fine")
    assert str(HubName("a/b", "fine", "v1")) == "hf://a/b@v1:fine"
    assert recognise("hf://a/b") == ("hf", Path("hf:/a/b"))
    for text in ("hf://", "hf://a/b/c", "hf://a b"):
        with pytest.raises(UserError) as caught:
            recognise(text)
        assert_helpful(caught.value, text, "hf://USER/NAME")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # what Python does for a package that is not there
    with pytest.raises(UserError) as caught:
        open_hub(Path("hf:/a/b"), "train", wanted())
    assert_helpful(caught.value, "`datasets` is not installed", "pip install 'phalanx[hub]'", "save_to_disk")
