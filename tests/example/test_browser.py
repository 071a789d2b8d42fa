"""The page in a real browser: Chromium, driven by Selenium."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.browser

REQUIRED = os.environ.get("ZRANK_REQUIRE_BROWSER") == "1"
"""Where a lane is there to run this test, missing parts fail it."""

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1000,1100",
]


def missing(what):
    (pytest.fail if REQUIRED else pytest.skip)(f"{what} is not installed")


@pytest.fixture(scope="module", autouse=True)
def programs():
    """Chromium and its driver. Looked for first: without them there is nothing to serve a site for."""
    if not find_spec("selenium"):
        missing("selenium")
    found = shutil.which("chromium"), shutil.which("chromedriver")
    if not all(found):
        missing("chromium with its driver")
    return found


@pytest.fixture
def browser(programs, tmp_path):
    from selenium import webdriver

    chromium, driver = programs
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield browser
    finally:
        browser.quit()


class Page:
    """The arena as a player sees it."""

    def __init__(self, browser):
        self.browser = browser

    def number(self, name):
        """The rank or the level shown."""
        return int(self.one(f"[data-{name}]").text.replace(",", ""))

    def opponents(self):
        return [row.get_attribute("data-opponent") for row in self.all("[data-opponent]")]

    def one(self, selector):
        return self.browser.find_element("css selector", selector)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def click(self, selector):
        """Click, and wait for the page that follows."""
        before = self.one("html")
        self.one(selector).click()
        self.wait_after(before)

    def wait_after(self, before):
        """Until the page that held ``before`` has gone."""
        from selenium.webdriver.support import expected_conditions
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.browser, 20).until(expected_conditions.staleness_of(before))


def test_play_draw_again_level_up(site, browser):
    browser.get(site.url)
    page = Page(browser)
    assert page.opponents() == []

    page.click("#play-as-middle")
    first = page.opponents()
    assert len(set(first)) == 10
    own = [row.text for row in page.all("tr.own")]
    assert len(own) == 1
    assert page.one("h1").text in own[0]

    draws = []
    for _ in range(3):
        page.click("#draw-again")
        draws.append(page.opponents())
        assert len(set(draws[-1])) == 10
    assert any(draw != first for draw in draws)

    level, rank = page.number("level"), page.number("rank")
    for _ in range(5):  # A level of the middle may be empty; five in a row are not.
        page.click("#level-up")
    assert page.number("level") == level + 5
    assert page.number("rank") < rank
    assert f"to {level + 5:,}" in page.one("[role=status]").text

    # Nothing sticks out at the width of a telephone, and nothing went wrong behind the page.
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True},
    )
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_with_the_keyboard_alone(site, browser):
    """Tab reaches the button, Enter presses it."""
    from selenium.webdriver.common.keys import Keys

    browser.get(site.url)
    page = Page(browser)
    for _ in range(20):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element.get_attribute("id") == "play-as-highest":
            break
    before = page.one("html")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    page.wait_after(before)
    assert page.number("rank") >= 1
