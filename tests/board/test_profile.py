"""The tab Profile: its route, damaged files, and the flame graph in a real browser."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from phalanx.engine.profile.advice import advise
from phalanx.runs.profile_file import PROFILE_FILE, write_profile
from tests.board.browser import chromium, console_errors, require_chromium, set_width
from tests.board.made_runs import make_run
from tests.board.served import Served, served
from tests.engine.profile.made import profile, recording
from tests.waiting import until

MARKUP = "<b>net</b>"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A profile of two workers, runs whose profiles are damaged, and one without."""
    runs = tmp_path_factory.mktemp("runs")
    found = profile(recording(exchange_ms=40), recording(extra_ms=38, exchange_ms=2))
    found["model"], found["advice"] = MARKUP, [one.to_data() for one in advise(found)]
    write_profile(make_run(runs / "profiled"), found, {"traceEvents": []})
    make_run(runs / "plain")
    tree = found["workers"][0]["tree"]
    damaged: dict[str, Any] = {
        "no-object": [],
        "other-version": {**found, "version": 2},
        "no-workers": {"version": 1, "model": "net"},
        "negative": {"version": 1, **found, "workers": [{**found["workers"][0], "tree": {**tree, "ms": -1}}]},
        "deep": {"version": 1, **found, "workers": [{**found["workers"][0], "tree": nested(tree, 400)}]},
    }
    for name, content in damaged.items():
        (make_run(runs / name) / PROFILE_FILE).write_text(json.dumps(content))
    with served(runs) as running:
        yield running


def nested(node: dict[str, Any], levels: int) -> dict[str, Any]:
    for _ in range(levels):
        node = {**node, "children": [node]}
    return node


def test_the_profile_is_served_as_the_page_needs_it(board: Served) -> None:
    key = board.key("profiled")
    assert board.ask(f"/api/run/{key}").json()["has_profile"] is True
    found = board.ask(f"/api/run/{key}/profile").json()
    assert found["slowest"] == 1
    assert [child["name"] for child in found["workers"][0]["tree"]["children"]] == [
        "data",
        "forward",
        "backward",
        "update",
    ]
    assert board.ask(f"/api/run/{key}/file/trace.json").json() == {"traceEvents": []}
    assert board.ask(f"/api/run/{board.key('plain')}").json()["has_profile"] is False
    assert board.ask(f"/api/run/{board.key('plain')}/profile").status == 404


@pytest.mark.parametrize("name", ["no-object", "other-version", "no-workers", "negative", "deep"])
def test_a_damaged_profile_is_named(board: Served, name: str) -> None:
    answer = board.ask(f"/api/run/{board.key(name)}/profile")
    assert (answer.status, b"damaged" in answer.body) == (409, True)


def test_the_flame_graph_opens_closes_and_fits_a_telephone(board: Served) -> None:
    require_chromium()
    with chromium() as driver:
        driver.get(board.address)
        driver.get(f"http://127.0.0.1:{board.guard.port}/#/run/{board.key('profiled')}/profile")

        def boxes() -> list[str]:
            script = "return [...document.querySelectorAll('.flame button')].map((box) => box.textContent)"
            found: list[str] = driver.execute_script(script)
            return found

        def detail() -> str:
            return driver.find_element(By.CSS_SELECTOR, ".flame-detail").text

        until(lambda: len(boxes()) > 10)
        assert "backward" in boxes()
        assert MARKUP in driver.find_element(By.CSS_SELECTOR, ".facts-line").text
        assert "trainer-1" in driver.find_element(By.CSS_SELECTOR, ".profile ol").text
        driver.find_element(By.CSS_SELECTOR, ".flame button").send_keys(Keys.ARROW_DOWN)
        for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER):
            driver.switch_to.active_element.send_keys(key)
        assert detail().startswith("backward:")
        assert "% of a step" in detail()
        assert "forward" not in boxes()
        driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        assert "forward" in boxes()
        set_width(driver, 400, 800)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 400
        assert console_errors(driver) == []
