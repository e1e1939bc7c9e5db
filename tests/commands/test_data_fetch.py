"""Fetching from a real server on this machine, which goes away, lies, or knows no ranges when it is told to."""

import gzip
import hashlib
import io
import re
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.commands import data_download
from phalanx.commands.data_fetch import DATASETS, Dataset, Published, fetch_dataset
from phalanx.errors import UserError
from tests.data.samples import assert_helpful, noise

FOLDER = "tiny-batches-bin"


@dataclass
class Site:
    """Files that are served, how, and what was asked for."""

    files: dict[str, bytes]
    ranges: bool = True
    break_after: list[int] = field(default_factory=list)  # bytes after which the next answers end too early
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def served(site: Site) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            site.asked.append(f"{self.path} {wanted}".strip())
            data = site.files.get(self.path.lstrip("/"))
            if data is None:
                self.send_error(404)
                return
            start = int(match[1]) if site.ranges and (match := re.fullmatch(r"bytes=(\d+)-", wanted)) else 0
            if start >= len(data) > 0:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            end = start + site.break_after.pop(0) if site.break_after else len(data)
            self.wfile.write(data[start:end])

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    site.url = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()


def archive(*extra: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name in ("a.bin", "b.bin"):
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.size = 100_000
            tar.addfile(info, io.BytesIO(noise(100_000, seed=info.size + len(name)).tobytes()))
        for info in extra:
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    return out.getvalue()


def published(url: str, *files: tuple[str, bytes], unpacks_to: str | None = FOLDER) -> Dataset:
    entries = (Published(name, hashlib.md5(data).hexdigest(), len(data)) for name, data in files)
    return Dataset("Tiny", url, tuple(entries), unpacks_to, "phalanx train --data")


def fetched(dataset: Dataset, folder: Path, origin: str | None = None) -> str:
    text = io.StringIO()
    fetch_dataset(Console(file=text), dataset, folder, origin)
    return text.getvalue()


def refused(dataset: Dataset, folder: Path, origin: str | None = None) -> UserError:
    with pytest.raises(UserError) as caught:
        fetched(dataset, folder, origin)
    return caught.value


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_download, "PAUSE_S", 0.0)


def test_an_archive_is_fetched_and_unpacked(tmp_path: Path) -> None:
    data = archive()
    with served(Site({"tiny.tar.gz": data})) as site:
        dataset = published(site.url, ("tiny.tar.gz", data))
        text = fetched(dataset, tmp_path / "d")
        assert [path.name for path in (tmp_path / "d").iterdir()] == [FOLDER]
        assert sorted(path.name for path in (tmp_path / "d" / FOLDER).iterdir()) == ["a.bin", "b.bin"]
        assert f"phalanx train --data {tmp_path / 'd'}" in text
        assert "is there already" in fetched(dataset, tmp_path / "d")
        assert len(site.asked) == 1


def test_a_lost_connection_goes_on_where_it_was(tmp_path: Path) -> None:
    data = archive()
    with served(Site({"tiny.tar.gz": data}, break_after=[50_000, 0, 70_000])) as site:
        text = fetched(published(site.url, ("tiny.tar.gz", data)), tmp_path)
    assert [words.partition(" ")[2] for words in site.asked] == [
        "",
        "bytes=50000-",
        "bytes=50000-",
        "bytes=120000-",
    ]
    assert "trying again after 50,000 bytes" in text
    assert (tmp_path / FOLDER / "b.bin").stat().st_size == 100_000


def test_an_interrupted_fetch_is_resumed_by_the_next_one(tmp_path: Path) -> None:
    data = archive()
    with served(Site({"tiny.tar.gz": data}, break_after=[60_000, *([0] * 10)])) as site:
        dataset = published(site.url, ("tiny.tar.gz", data))
        assert_helpful(refused(dataset, tmp_path), "60,000 bytes that have arrived", "--from")
        assert not (tmp_path / FOLDER).exists()
        site.break_after.clear()
        site.asked.clear()
        fetched(dataset, tmp_path)
        assert site.asked == ["/tiny.tar.gz bytes=60000-"]


def test_a_server_without_ranges_sends_all_of_it_again(tmp_path: Path) -> None:
    data = archive()
    with served(Site({"tiny.tar.gz": data}, ranges=False, break_after=[60_000])) as site:
        fetched(published(site.url, ("tiny.tar.gz", data)), tmp_path)
    assert (tmp_path / FOLDER).is_dir()


@pytest.mark.parametrize("held", [0, 10, -10])
def test_what_was_fetched_before(tmp_path: Path, held: int) -> None:
    """All of it, more than it, or all but the end."""
    data = archive()
    (tmp_path / ".tiny.tar.gz.part").write_bytes((data + bytes(10))[: len(data) + held])
    with served(Site({"tiny.tar.gz": data})) as site:
        fetched(published(site.url, ("tiny.tar.gz", data)), tmp_path)
    assert (tmp_path / FOLDER).is_dir()


def test_a_file_that_is_not_the_published_one(tmp_path: Path) -> None:
    data = archive()
    with served(Site({"tiny.tar.gz": data[:-1] + b"x"})) as site:
        error = refused(published(site.url, ("tiny.tar.gz", data)), tmp_path)
    assert_helpful(error, "tiny.tar.gz", "MD5", hashlib.md5(data).hexdigest())
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_served(tmp_path: Path) -> None:
    with served(Site({})) as site:
        dataset = published(site.url, ("tiny.tar.gz", b"x"))
        assert_helpful(refused(dataset, tmp_path), "404", site.url)
        assert len(site.asked) == 1
    assert_helpful(refused(dataset, tmp_path), "refused")
    assert_helpful(refused(dataset, tmp_path, "ftp://somewhere/x"), "http://")


def strange(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "member",
    [
        strange("../outside.bin"),
        strange(f"{FOLDER}/../../outside.bin"),
        strange("/tmp/outside.bin"),
        strange("elsewhere/x.bin"),
        strange(f"{FOLDER}/link", tarfile.SYMTYPE, "/etc/passwd"),
        strange(f"{FOLDER}/hard", tarfile.LNKTYPE, "/etc/passwd"),
        strange(f"{FOLDER}/device", tarfile.CHRTYPE),
    ],
    ids=lambda member: member.name,
)
def test_archives_that_reach_out_of_their_folder(tmp_path: Path, member: tarfile.TarInfo) -> None:
    data = archive(member)
    (tmp_path / "tiny.tar.gz").write_bytes(data)
    dataset = published("http://unused/", ("tiny.tar.gz", data))
    error = refused(dataset, tmp_path / "d", str(tmp_path / "tiny.tar.gz"))
    assert_helpful(error, "cannot be unpacked", member.name)
    assert not (tmp_path / "d" / FOLDER).exists()
    assert not list(tmp_path.rglob("outside.bin"))


def test_a_local_copy(tmp_path: Path) -> None:
    data = archive()
    (tmp_path / "tiny.tar.gz").write_bytes(data)
    dataset = published("http://unused/", ("tiny.tar.gz", data))
    fetched(dataset, tmp_path / "1", str(tmp_path / "tiny.tar.gz"))
    fetched(dataset, tmp_path / "2", str(tmp_path))
    assert all((tmp_path / number / FOLDER / "a.bin").is_file() for number in "12")
    assert (tmp_path / "tiny.tar.gz").read_bytes() == data
    assert_helpful(refused(dataset, tmp_path / "3", str(tmp_path / "none")), "no file", "--from")
    (tmp_path / "tiny.tar.gz").write_bytes(data + b"x")
    assert_helpful(refused(dataset, tmp_path / "3", str(tmp_path)), "MD5", "--data")
    assert (tmp_path / "tiny.tar.gz").exists()


def test_files_that_are_kept_as_they_are(tmp_path: Path) -> None:
    files = {name: gzip.compress(name.encode()) for name in ("train.gz", "test.gz")}
    with served(Site({f"mirror/{name}": data for name, data in files.items()})) as site:
        dataset = published("http://unused/", *files.items(), unpacks_to=None)
        fetched(dataset, tmp_path, f"{site.url}mirror")
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == files
        assert "is there already" in fetched(dataset, tmp_path)
        (tmp_path / "train.gz").write_bytes(b"mine")
        assert_helpful(refused(dataset, tmp_path), "train.gz", "not the published file")


def test_official_names_are_held_to_their_published_checksums(tmp_path: Path) -> None:
    """Whatever is offered in their place."""
    for name, dataset in DATASETS.items():
        for file in dataset.files:
            (tmp_path / file.name).write_bytes(b"something else")
        error = refused(dataset, tmp_path / name, str(tmp_path))
        assert_helpful(error, dataset.files[0].md5, hashlib.md5(b"something else").hexdigest())
        assert len(dataset.files) == (1 if name.startswith("cifar") else 4)
        assert all(re.fullmatch("[0-9a-f]{32}", file.md5) for file in dataset.files)
