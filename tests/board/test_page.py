"""The page in a real Chromium: a live job with two workers, zoom, comparison, a killed worker, damage, markup."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.board.browser import chromium, console_errors, requested, require_chromium, set_dark, set_width
from tests.board.made_runs import add_evaluation, make_run
from tests.board.served import Served, served
from tests.conftest import LEAN
from tests.waiting import until

MARKUP = "<img src=x onerror=document.title='broken'>"


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    require_chromium()
    with chromium() as found:
        yield found


@pytest.fixture(autouse=True)
def _no_complaint(driver: webdriver.Chrome) -> Iterator[None]:
    set_width(driver, 1280, 900)
    set_dark(driver, dark=False)
    requested(driver)
    yield
    assert {urlsplit(each).hostname for each in requested(driver)} <= {"127.0.0.1"}, "nothing comes from elsewhere"
    # The board ends with the test, and the page may ask once more.
    assert [each for each in console_errors(driver) if "ERR_CONNECTION_REFUSED" not in each] == []
    driver.get("about:blank")


def text(driver: webdriver.Chrome) -> str:
    return str(driver.execute_script("return document.body.innerText"))


def enter(driver: webdriver.Chrome, board: Served, place: str = "") -> None:
    """Through the address with the token, as the terminal prints it."""
    driver.get(board.address)
    driver.get(f"http://127.0.0.1:{board.guard.port}/#/{place}")


def shows(driver: webdriver.Chrome, *words: str) -> None:
    until(lambda: all(word in text(driver) for word in words), 60, why=lambda: f"{words} in {text(driver)[:3000]}")


def test_a_live_job_and_a_killed_worker(driver: webdriver.Chrome, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "live"
    words = ("train", "digits", "--workers", "2", "--epochs", "400", "--out", str(run), *LEAN)
    argv = [sys.executable, "-m", "phalanx", *words, "train.log_every=2", "train.batch_size=64"]
    (tmp_path / "runs").mkdir()
    with served(tmp_path / "runs") as board:
        job = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: board.rows().get("live", {}).get("state") == "running")
            enter(driver, board)
            shows(driver, "live", "running")
            enter(driver, board, f"run/{board.key('live')}/job")
            shows(driver, "trainer-0", "trainer-1", "updating")

            def step() -> int:
                return int(driver.execute_script("return document.querySelectorAll('.figure b')[2].textContent") or 0)

            before = step()
            until(lambda: step() > before)  # without a reload
            roles = json.loads((run / "job.json").read_text())["roles"]
            os.kill(next(role["pid"] for role in roles if role["name"] == "trainer-1"), signal.SIGKILL)
            job.wait(120)
            shows(driver, "failed", "killed (SIGKILL)", "trainer-1 on localhost", "fault")
        finally:
            job.terminate()
            job.wait(60)


def test_zoom_axis_and_log(driver: webdriver.Chrome, tmp_path: Path) -> None:
    make_run(tmp_path / "one", steps=400)
    with served(tmp_path) as board:
        enter(driver, board, f"run/{board.key('one')}/curves")
        until(lambda: driver.find_elements(By.CSS_SELECTOR, "[data-panel=loss][data-points] .u-over"))
        over = driver.find_element(By.CSS_SELECTOR, "[data-panel=loss] .u-over")
        width = over.size["width"]
        drag = ActionChains(driver).move_to_element_with_offset(over, -width // 4, 0).click_and_hold()
        drag.move_by_offset(width // 4, 0).release().perform()
        until(lambda: driver.find_elements(By.CSS_SELECTOR, "[data-zoom]"))
        low, high = str(driver.find_element(By.CSS_SELECTOR, "[data-zoom]").get_attribute("data-zoom")).split(":")
        assert 80 < float(low) < 120
        assert 180 < float(high) < 220
        driver.find_element(By.CSS_SELECTOR, "button.reset").click()
        until(lambda: not driver.find_elements(By.CSS_SELECTOR, "[data-zoom]"))
        driver.find_element(By.CSS_SELECTOR, "[data-panel=loss] button.small").click()
        driver.find_element(By.CSS_SELECTOR, "button[data-value=epoch]").click()
        shows(driver, "epoch–")
        assert (
            driver.find_element(By.CSS_SELECTOR, "[data-panel=loss] button.small").get_attribute("aria-pressed")
            == "true"
        )


def test_compare(driver: webdriver.Chrome, tmp_path: Path) -> None:
    for name, seed in (("first", 1), ("second", 2)):
        config = make_run(tmp_path / name, steps=50) / "config.yaml"
        config.write_text(f"{config.read_text()}\nextra_setting: {seed}\n")
    with served(tmp_path) as board:
        enter(driver, board)
        until(lambda: len(driver.find_elements(By.CSS_SELECTOR, "td.pick input")) == 2)
        for box in driver.find_elements(By.CSS_SELECTOR, "td.pick input"):
            box.click()
        driver.find_element(By.CSS_SELECTOR, "button.primary").click()
        shows(driver, "Settings that differ", "extra_setting", "first train loss", "second train loss")


def test_the_slow_worker_and_the_confused_images(driver: webdriver.Chrome, tmp_path: Path) -> None:
    """What a newcomer looks for: who holds the job up, and which images are wrong."""
    run = make_run(tmp_path / "one", workers=2, slow=1)
    add_evaluation(run)
    with served(tmp_path) as board:
        key = board.key("one")
        enter(driver, board, f"run/{key}/job")
        shows(driver, "Worker 1 is slow", "most of it computing")
        assert "slowest" in driver.find_element(By.CSS_SELECTOR, "tr.slow").text
        enter(driver, board, f"run/{key}/results")
        shows(driver, "Worst mistakes", "cat-7.png", "dog-7.png")
        matrix = driver.find_element(By.CSS_SELECTOR, "canvas.matrix")
        width = matrix.size["width"]
        # The second column of the first row; names of classes are on the left and above.
        at = ActionChains(driver).move_to_element_with_offset(matrix, width // 2 - 20, -width // 4)
        at.perform()
        shows(driver, "cat taken for dog: 1 of 10 (10.0 %)")
        at.click().perform()
        until(lambda: "dog-7.png" not in text(driver))
        shows(driver, "cat taken for dog", "cat-7.png")


def test_by_keyboard_in_the_dark(driver: webdriver.Chrome, tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", steps=60)
    set_dark(driver, dark=True)
    with served(tmp_path) as board:
        enter(driver, board)
        shows(driver, "one", "finished")
        colours = driver.execute_script(
            "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
        )
        assert colours == ["rgb(230, 234, 239)", "rgb(15, 19, 24)"]
        press(driver, "j", Keys.ENTER)
        shows(driver, "smoothing")
        press(driver, "6")
        shows(driver, "step 60 of 60")
        press(driver, "/", "step 4")
        until(lambda: len(driver.find_elements(By.CSS_SELECTOR, "mark")) == 11)  # 4, 40 to 49
        press(driver, Keys.ESCAPE, "?")
        shows(driver, "next, previous row")
        press(driver, Keys.ESCAPE)
        driver.find_element(By.CSS_SELECTOR, ".tag-field").send_keys("good", Keys.ENTER)
        shows(driver, "good ×")
        assert json.loads((run / "notes.json").read_text())["tags"] == ["good"]
        press(driver, "u")
        shows(driver, "good", "since")


def press(driver: webdriver.Chrome, *keys: str) -> None:
    """To whatever has the focus."""
    ActionChains(driver).send_keys(*keys).perform()


def test_names_with_markup_and_a_damaged_run(driver: webdriver.Chrome, tmp_path: Path) -> None:
    run = make_run(tmp_path / MARKUP.replace("/", ""))
    add_evaluation(run, classes=(MARKUP, "<script>alert(1)</script>"))
    (run / "notes.json").write_text(json.dumps({"tags": [MARKUP], "note": MARKUP}))
    (run / "log.txt").write_text(f"error: {MARKUP}\n")
    damaged = make_run(tmp_path / "damaged")
    (damaged / "events.jsonl").write_bytes(b"\xff\n")
    with served(tmp_path) as board:
        enter(driver, board)
        shows(driver, MARKUP, "damaged")
        key = next(row["key"] for name, row in board.rows().items() if name != "damaged")
        for part, words in (
            ("results", "taken for"),
            ("log", "error: <img"),
            ("job", "Timeline"),
            ("settings", "from"),
        ):
            enter(driver, board, f"run/{key}/{part}")
            shows(driver, MARKUP, words)
        assert driver.title != "broken"
        assert not driver.find_elements(By.CSS_SELECTOR, "img[src=x]")
        enter(driver, board, f"run/{board.key('damaged')}/curves")
        shows(driver, "line 1 is not an event")


def test_narrow_screens_do_not_scroll_sideways(driver: webdriver.Chrome, tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", workers=2)
    add_evaluation(run)
    set_width(driver, 400, 850)
    with served(tmp_path) as board:
        key = board.key("one")
        for part in (
            "",
            *(f"run/{key}/{name}" for name in ("curves", "results", "job", "settings", "log", "checkpoints")),
        ):
            enter(driver, board, part)
            shows(driver, "one")
            assert driver.execute_script("return document.documentElement.scrollWidth") <= 400, part
