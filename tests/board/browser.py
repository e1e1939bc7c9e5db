"""Debian's Chromium, without a window. What it writes to its console is kept."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from selenium import webdriver

_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


def require_chromium() -> None:
    """Skip the test where there is no Chromium; where all tools are required, tests/conftest.py lets it fail then."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("not installed: chromium; on Debian: apt install chromium chromium-driver")


@contextlib.contextmanager
def chromium(*, width: int = 1280, height: int = 900) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"), log_output=os.devnull)
        driver = webdriver.Chrome(options, service)
        try:
            yield driver
        finally:
            driver.quit()


def set_width(driver: webdriver.Chrome, width: int, height: int) -> None:
    """The width of the page: windows have a least one, screens of telephones do not."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def set_dark(driver: webdriver.Chrome, *, dark: bool) -> None:
    feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def console_errors(driver: webdriver.Chrome) -> list[str]:
    """What the page complained about since the last call: errors, refused requests, warnings."""
    entries: list[dict[str, Any]] = driver.get_log("browser")
    return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]


def requested(driver: webdriver.Chrome) -> list[str]:
    """The addresses that were asked over the network since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if not url.startswith(("about:", "blob:", "data:", "chrome:"))]
