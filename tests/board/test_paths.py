"""Files outside of the runs, and files of a run that are nobody's business, are never served."""

import os
import socket
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.board.made_runs import add_evaluation, make_run
from tests.board.served import Served, served

SECRET = b"only-for-the-owner"
STATUSES = {200, 303, 307, 400, 401, 403, 404, 405, 409, 413, 421}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A run with links that lead out of it, and with files that hold a secret, inside and outside."""
    base = tmp_path_factory.mktemp("base")
    run = make_run(base / "runs" / "one")
    add_evaluation(run)
    outside = base / "outside"
    (outside / "checkpoints" / "step-1").mkdir(parents=True)
    for secret in (
        *(outside / "secret.txt", outside / "eval.json", outside / "checkpoints" / "step-1" / "model.safetensors"),
        *(run / ".key", run / "job.key", run / "code.py"),
    ):
        secret.write_bytes(SECRET)
    (run / "code").mkdir()
    (run / "code" / "mine.py").write_bytes(SECRET)
    (run / "logs").mkdir()
    (run / "logs" / "trainer-0.log").symlink_to(outside / "secret.txt")
    (run / "summary.json").symlink_to(outside / "secret.txt")
    (run / "checkpoints").symlink_to(outside / "checkpoints")
    (run / "eval-linked").symlink_to(outside)
    (base / "runs" / "linked").symlink_to(outside)
    os.mkfifo(run / "quarantine.tsv")
    with served(base / "runs") as found:
        yield found


OFFERED = ("config.yaml", "events.jsonl", "log.txt", "eval/eval.json", "eval/mistakes/0.png")
REFUSED = (
    *("logs/trainer-0.log", "summary.json", "checkpoints/step-1/model.safetensors", "eval-linked/eval.json"),
    *("quarantine.tsv", ".key", "job.key", "code.py", "code/mine.py", "notes.json", ".lock"),
    *("../../outside/secret.txt", "%2e%2e/%2e%2e/outside/secret.txt", "eval/../../../outside/secret.txt"),
    *("/etc/passwd", "//etc/passwd", "eval%2f..%2f..%2f..%2foutside%2fsecret.txt", "log.txt%00", "log.txt/", "."),
)


@pytest.mark.parametrize("name", OFFERED)
def test_files_that_are_offered(board: Served, name: str) -> None:
    answer = board.ask(f"/api/run/{board.key('one')}/file/{name}")
    assert answer.status == 200
    assert int(answer.headers["content-length"]) == len(answer.body) > 0


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_are_not(board: Served, name: str) -> None:
    answer = board.ask(f"/api/run/{board.key('one')}/file/{name}")
    assert answer.status == 404
    assert SECRET not in answer.body


@pytest.mark.parametrize("name", ["logs/trainer-0.log", "../../outside/secret.txt", "config.yaml", "logs/../.key", ""])
def test_logs_are_logs(board: Served, name: str) -> None:
    answer = board.ask(f"/api/run/{board.key('one')}/log?file={name}")
    assert answer.status == 404
    assert SECRET not in answer.body


def test_links_are_not_runs(board: Served) -> None:
    assert list(board.rows()) == ["one"]
    assert board.ask(f"/api/run/{board.key('one')}").json()["evaluations"] == ["eval"]
    assert board.ask(f"/api/run/{board.key('one')}").json()["checkpoints"] == []


def test_assets_are_the_packages_own(board: Served) -> None:
    assert board.ask("/assets/main.js").status == 200
    for path in ("/assets/../app.py", "/assets/%2e%2e/app.py", "/assets//etc/passwd", "/assets/"):
        assert board.ask(path).status == 404


def test_pictures_are_shown_and_the_rest_is_saved(board: Served) -> None:
    """A file of a run is never a page of the board: its scripts would be the board's."""
    base = f"/api/run/{board.key('one')}/file"
    assert "content-disposition" not in board.ask(f"{base}/eval/mistakes/0.png").headers
    assert board.ask(f"{base}/log.txt").headers["content-disposition"].startswith("attachment")


def test_names_in_any_script_are_downloaded(board: Served) -> None:
    """The evaluation of data in a folder with such a name."""
    place = board.places.list()[0]
    (place.path / "eval-данные").mkdir(exist_ok=True)
    (place.path / "eval-данные" / "per_class.tsv").write_text("class\n")
    answer = board.ask(f"/api/run/{place.key}/file/{quote('eval-данные/per_class.tsv')}")
    assert answer.body == b"class\n"
    assert quote("eval-данные-per_class.tsv") in answer.headers["content-disposition"]


_words = st.sampled_from(
    [
        *("api", "run", "runs", "KEY", "file", "log", "job", "config", "curves", "notes", "stop", "samples", "assets"),
        *("evaluation", "eval", "eval-linked", "metrics", "..", ".", "", "%2e%2e", "%2f", "%00", "%", "%zz", "~", "\\"),
        *(
            "secret.txt",
            "outside",
            "code",
            "mine.py",
            ".key",
            "checkpoints",
            "step-1",
            "model.safetensors",
            "eval.json",
        ),
    ]
)
_strange = st.text(st.characters(codec="latin-1", exclude_characters="\r\n \0"), max_size=30)
_paths = st.lists(_words | _strange, max_size=9).map("/".join)
_queries = st.dictionaries(
    st.sampled_from(["axis", "from", "to", "points", "smooth", "file", "search", "against", "token"]),
    st.sampled_from(["KEY", "nan", "inf", "-1", "1e999", "99999999999999999999", "epoch", "time"]) | _strange,
    max_size=4,
).map(lambda query: "&".join(f"{name}={value}" for name, value in query.items()))


@settings(max_examples=200, deadline=None)
@given(
    method=st.sampled_from(["GET", "GET", "GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"]),
    path=_paths,
    prefix=st.sampled_from(["/", "/api/run/KEY/", "/api/run/KEY/file/", "/api/run/KEY/curves?x&", "/assets/"]),
    query=_queries,
    body=st.binary(max_size=200) | st.sampled_from([b"[]", b"{}", b'{"tags": [1], "note": 1}', b"[" * 200_000]),
    known=st.booleans(),
)
def test_any_request_gets_an_answer_without_a_secret(
    board: Served, method: str, path: str, prefix: str, query: str, body: bytes, known: bool
) -> None:
    key = board.places.list()[0].key
    target = f"{prefix}{path}{'&' if '?' in prefix else '?'}{query}".replace("KEY", key)
    status, answer = raw(board, method, target.encode("latin-1"), body, known=known)
    assert status in STATUSES, answer
    assert SECRET not in answer
    assert board.guard.token.encode() not in answer
    assert known or status in (400, 401, 421), answer


def raw(board: Served, method: str, target: bytes, body: bytes, *, known: bool) -> tuple[int, bytes]:
    """The status and the answer to a request of these very bytes."""
    key = f"Authorization: Bearer {board.guard.token}\r\nX-Phalanx-Board: 1\r\n" if known else ""
    host = f"Host: 127.0.0.1:{board.guard.port}\r\n"
    head = f" HTTP/1.1\r\n{host}{key}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = b""
    with socket.create_connection(("127.0.0.1", board.guard.port), timeout=60) as connection:
        try:
            connection.sendall(method.encode() + b" " + target + head.encode() + body)
            while chunk := connection.recv(1 << 16):
                answer += chunk
        except ConnectionError:  # refused before all of the body was sent
            pass
    return int(answer.split(b" ", 2)[1]) if answer else 400, answer
