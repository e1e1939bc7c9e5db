"""Nothing is answered without the token, for another Host, or, where it changes something, for another page."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.board.app import Tools
from phalanx.board.guard import Guard
from tests.board.made_runs import make_run
from tests.board.served import Served, served

PATHS = ("/", "/api/runs", "/metrics", "/assets/main.js", "/api/run/none", "/nothing")


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "one")
    with served(root, tools=Tools(stop=lambda run: f"stopped {run.name}")) as found:
        yield found


@pytest.mark.parametrize("path", PATHS)
def test_no_token_no_answer(board: Served, path: str) -> None:
    answer = board.ask(path, Authorization="")
    assert answer.status == 401
    assert b"token" in answer.body
    assert board.ask(path, Authorization="Bearer wrong").status == 401
    assert board.ask(path, Authorization="", Cookie=f"{board.guard.cookie}=wrong").status == 401


def test_the_token_becomes_a_cookie_and_leaves_the_address(board: Served) -> None:
    entered = board.ask(f"/?token={board.guard.token}", Authorization="")
    assert entered.status == 303
    assert entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert board.guard.token not in cookie
    assert board.ask("/api/runs", Authorization="", Cookie=cookie.partition(";")[0]).status == 200


def test_the_token_of_the_address_counts_for_the_first_page_only(board: Served) -> None:
    assert board.ask(f"/api/runs?token={board.guard.token}", Authorization="").status == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.1", "127.0.0.1.evil.example", "", "["])
def test_other_hosts_are_refused(board: Served, host: str) -> None:
    answer = board.ask("/api/runs", Host=host or " ")
    assert answer.status in (400, 421)
    assert b"runs" not in answer.body


@pytest.mark.parametrize(
    ("listens", "given", "known"),
    [
        ("127.0.0.1", "localhost:8000", True),
        ("127.0.0.1", "[::1]:8000", True),
        ("127.0.0.1", "localhost:9000", True),  # the beginning of a tunnel
        ("127.0.0.1", "localhost.evil.example:8000", False),
        ("127.0.0.1", "192.168.0.7:8000", False),
        ("0.0.0.0", "192.168.0.7:8000", True),
        ("0.0.0.0", "192.168.0.7:8001", False),
        ("0.0.0.0", "evil.example:8000", False),
        ("192.168.0.7", "192.168.0.7:8000", True),
    ],
)
def test_which_hosts_are_known(listens: str, given: str, known: bool) -> None:
    assert Guard(listens, 8000).is_known_host(given) is known


def test_other_pages_cannot_change_anything(board: Served) -> None:
    key = board.key("one")
    for path, method in ((f"/api/run/{key}/notes", "PUT"), (f"/api/run/{key}/stop", "POST")):
        body = b'{"tags": [], "note": ""}'
        assert board.ask(path, method, body=body, X_Phalanx_Board="").status == 403
        assert board.ask(path, method, body=body, Origin="http://evil.example").status == 403
        assert board.ask(path, method, body=body, Origin=f"http://127.0.0.1:{board.guard.port}").status == 200


@pytest.mark.parametrize(
    ("site", "mode", "path", "status"),
    [
        ("cross-site", "navigate", "/", 200),  # a link to the board
        ("cross-site", "no-cors", "/api/runs", 403),
        ("same-site", "cors", "/api/runs", 403),  # another port of this machine: its pages' requests have our cookie
        ("cross-site", "navigate", "/api/runs", 403),
        ("same-origin", "cors", "/api/runs", 200),
        ("none", "navigate", "/api/runs", 200),
    ],
)
def test_pages_of_other_origins_may_lead_to_the_board_and_no_more(
    board: Served, site: str, mode: str, path: str, status: int
) -> None:
    assert board.ask(path, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode).status == status


def test_the_stop_button_exists_with_control_only(board: Served, tmp_path: Path) -> None:
    make_run(tmp_path / "one")
    assert board.ask(f"/api/run/{board.key('one')}/stop", "POST").json() == {"said": "stopped one"}
    with served(tmp_path) as readonly:
        assert readonly.ask(f"/api/run/{readonly.key('one')}/stop", "POST").status in (404, 405)
        assert readonly.ask("/api/runs").json()["control"] is False


@pytest.mark.parametrize("path", PATHS)
def test_nothing_comes_from_elsewhere_and_nothing_is_kept(board: Served, path: str) -> None:
    headers = board.ask(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


def test_two_boards_have_different_tokens() -> None:
    assert Guard("127.0.0.1", 1).token != Guard("127.0.0.1", 1).token
