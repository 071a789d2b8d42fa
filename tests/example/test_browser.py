"""The arena and the admin in a real browser: Chromium, driven by Selenium, looked over by axe-core."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

REQUIRED = os.environ.get("ZRANK_REQUIRE_BROWSER") == "1"
"""True in the lane for these tests: missing parts fail them."""

AXE = os.environ.get("ZRANK_AXE", "")
"""The file axe.min.js of axe-core."""

SHOTS = os.environ.get("ZRANK_SCREENSHOTS", "")
"""A folder for screenshots, to be looked at."""

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
]

VIEWS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


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
    if not AXE:
        missing("axe-core (ZRANK_AXE)")
    return found


@pytest.fixture(scope="module")
def browser(programs, tmp_path_factory):
    from selenium import webdriver

    chromium, driver = programs
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    browser.set_script_timeout(120)  # axe-core reads the whole page, on a machine that may be busy
    try:
        yield browser
    finally:
        browser.quit()


class Page:
    """The site as a person sees it."""

    def __init__(self, browser, site):
        self.browser, self.site = browser, site

    def open(self, path="/"):
        self.browser.get(self.site.url + path)

    def view(self, width=1280, scheme="light", height=900):
        """Look through a window of this size, in light or dark."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def number(self, name):
        """The rank or the level shown."""
        return int(self.one(f"[data-{name}]").text.replace(",", ""))

    def opponents(self):
        return self.browser.execute_script(
            "return [...document.querySelectorAll('[data-opponent]')].map(row => row.dataset.opponent)"
        )

    def one(self, selector):
        return self.browser.find_element("css selector", selector)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def click(self, selector, gone="html"):
        """Click, and wait until what ``gone`` names was replaced: the page, or a part of it."""
        before = self.one(gone)
        element = self.one(selector)
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()
        self.wait_after(before)

    def swap(self, selector, part="#show"):
        """Click, and wait for the part of the page that htmx replaces. The page stays."""
        self.browser.execute_script("window.stays = true")
        self.click(selector, part)
        assert self.browser.execute_script("return window.stays") is True

    def wait_after(self, before):
        """Until the page that held ``before`` has gone."""
        from selenium.webdriver.support import expected_conditions

        self.wait(expected_conditions.staleness_of(before))
        self.wait(lambda browser: browser.execute_script("return document.readyState") == "complete")

    def wait_for(self, selector):
        self.wait(lambda _: self.all(selector))

    def wait(self, condition):
        from selenium.common import WebDriverException
        from selenium.webdriver.support.wait import WebDriverWait

        # While one page gives way to the next, Chromium's driver has errors of its own for what is gone.
        WebDriverWait(self.browser, 60, ignored_exceptions=[WebDriverException]).until(condition)

    def check(self, name):
        """Nothing sticks out at the width of a desk or a phone, and axe-core has nothing to say, in light and dark."""
        for width, scheme in VIEWS:
            self.view(width, scheme)
            assert self.browser.execute_script("return document.documentElement.scrollWidth") <= width, name
            if SHOTS:
                self.save(Path(SHOTS) / f"{name}-{width}-{scheme}.png", width)
            assert self.violations() == [], (name, width, scheme)
        self.view()

    def violations(self):
        # What moves in or fades has not yet its colours.
        self.browser.execute_script("document.getAnimations().forEach(one => one.finish())")
        self.browser.execute_script(Path(AXE).read_text())
        return self.browser.execute_async_script(
            "const done = arguments[0]; axe.run().then(found => done("
            "found.violations.map(one => [one.id, one.nodes.map(node => node.html)])))"
        )

    def save(self, path, width):
        import base64

        height = self.browser.execute_script("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.browser.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def errors(self):
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture
def page(browser, site):
    """A new visitor. Fails if the browser logs an error."""
    page = Page(browser, site)
    page.view()
    page.open()
    browser.delete_all_cookies()
    page.errors()
    page.open()
    yield page
    assert page.errors() == []


def test_a_visitor_sees_a_roll(page):
    assert len(set(page.opponents())) == 10
    assert "Of the 10, half rank above this player, half below" in page.one("#show").text
    page.check("visitor")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_comparison_follows_the_roll(page, width):
    page.view(width)
    page.click("#play-as-middle")
    for _ in range(2):
        page.wait_for("[data-sql-rank]")  # by itself
        for name in ("redis-draw", "sql-draw", "redis-rank", "sql-rank"):
            assert float(page.one(f"[data-{name}]").get_attribute(f"data-{name}")) > 0
        page.swap("#draw-again")
    page.view()


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_roll_match_and_outage_are_on_the_first_screen(page, width, height):
    page.click("#play-as-middle")
    page.view(width, height=height)
    for selector in ("h1", ".dot b", "#draw-again", "#play-nearest", "#level-up", "#kill", "#save"):
        # Nothing lies over it, either: the bar at the end of the window, for one.
        assert page.browser.execute_script(
            "const one = document.querySelector(arguments[0]), at = one.getBoundingClientRect();"
            "return one.contains(document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2))",
            selector,
        ), selector
    page.view()


def test_roll(page):
    page.click("#play-as-middle")
    first = page.opponents()
    own = [row.text for row in page.all("tr.own")]
    assert len(own) == 1
    draws = []
    for _ in range(3):
        page.swap("#draw-again")
        draws.append(page.opponents())
        assert len(set(draws[-1])) == 10
        assert page.browser.switch_to.active_element.get_attribute("id") == "draw-again"
    assert any(draw != first for draw in draws)
    assert len(page.all(".dot")) == 10
    assert "10 opponents drawn in" in page.one("#said").get_attribute("textContent")
    page.check("roll")


def test_filters(page):
    page.click("#play-as-middle")
    page.one("#roll-seed").send_keys("luck")
    page.swap("#draw-again")
    drawn = page.opponents()
    page.swap("#draw-again")
    assert page.opponents() == drawn

    page.one(f'[data-opponent="{drawn[0]}"] [name=exclude]').click()
    page.swap("#draw-again")
    assert drawn[0] not in page.opponents()
    assert len(page.all(".chip")) == 1
    page.swap("#draw-again")
    assert drawn[0] not in page.opponents()  # it stays left out
    page.one(".chip input").click()
    page.swap("#draw-again")
    assert page.opponents() == drawn

    page.one("#roll-band").send_keys("200")
    page.one("#roll-region option[value=kanto]").click()
    page.swap("#draw-again")
    regions = {row.text for row in page.all("[data-opponent] .region")}
    assert regions == {"Kanto"}


def test_a_match(page):
    page.click("#play-as-middle")
    level = page.number("level")
    page.swap("[data-play]")
    said = page.one("#show [data-said]").text
    assert page.number("level") == level + (3 if said.startswith("You beat") else -1)
    level = page.number("level")
    page.swap("#level-up")
    assert page.number("level") == level + 1 == int(page.one("#own-level").text)
    assert f"to {level + 1:,}" in page.one("#show [data-said]").text
    page.check("match")


def test_an_audience(page):
    page.click("#play-as-middle")
    page.swap("#join", "#audience")
    joined = page.number("audience")
    assert joined >= 200
    page.wait(lambda _: sum(int(one.text.replace(",", "")) for one in page.all(".bars .number")) == joined)
    page.one("#roll-band").send_keys("5000")
    page.one("#roll-region option[value=kanto]").click()
    page.one("#roll-audience").click()
    page.swap("#draw-again")
    assert "from Kanto in the audience within 5,000 levels" in page.one("#show").text
    assert {row.text for row in page.all("[data-opponent] .region")} == {"Kanto"}
    page.wait_for("[data-sql-rank]")
    assert "SQL can't draw from an audience" in page.one("#race").text
    page.check("audience")
    page.swap("#leave", "#audience")
    assert page.number("audience") < joined


def test_an_outage(page):
    page.click("#play-as-middle")
    page.swap("#kill", "#outage")
    assert not page.site.arena.valkey_answers(page.site.valkey_port)
    page.swap("#draw-again")
    assert "is unavailable" in page.one("h1").text
    page.swap("#save", "#outage")
    assert "none failed" in page.one("#outage [data-said]").text
    assert page.number("marks") >= 100
    page.check("outage")
    page.swap("#start", "#outage")  # answers before the verification ends
    assert not page.all(".state.down")
    page.wait_for("[data-recovery=ended]")  # by itself
    assert "no difference" in page.one("[data-recovery]").text
    assert page.number("marks") == 0
    page.wait_for("[data-opponent]")  # by itself
    page.check("restarted")


def test_the_leaderboard_and_the_api(page):
    page.click("#play-as-middle")
    page.open("/leaderboard/?region=kanto")
    assert len(page.all(".podium [data-player]")) == 3
    page.check("podium")
    page.click("[rel=next]")
    assert page.all("[rel=prev]")
    assert not page.all(".podium")
    page.check("leaderboard")
    for path in ("", "recommendations/?n=5", "players/", "opponents/", "leaderboard/me/around/?n=5"):
        page.open(f"/api/{path}")
        page.check(f"api-{path.partition('/')[0]}")


def test_with_the_keyboard_alone(page):
    """Tab reaches the button, Enter presses it."""
    from selenium.webdriver.common.keys import Keys

    for _ in range(60):
        page.browser.switch_to.active_element.send_keys(Keys.TAB)
        if page.browser.switch_to.active_element.get_attribute("id") == "play-as-highest":
            break
    before = page.one("html")
    page.browser.switch_to.active_element.send_keys(Keys.ENTER)
    page.wait_after(before)
    assert page.number("rank") >= 1


def test_without_javascript(page):
    page.browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.open()
        page.click("#play-as-middle")
        page.one("#roll-seed").send_keys("luck")
        page.click("#draw-again")
        assert "seed=luck" in page.browser.current_url
        assert len(page.all("[data-opponent]")) == 10
        page.click("[data-play]")
        assert page.one(".message").text.startswith("You ")
        page.click("#join")
        assert "joined the audience" in page.one(".message").text
        page.click("#race a")
        assert page.all("[data-sql-draw]")
    finally:
        page.browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_admin(page):
    page.open("/admin/login/?next=/admin/zrank/ranking/")
    page.one("[name=username]").send_keys("admin")
    page.one("[name=password]").send_keys("admin")
    page.click("[type=submit]")
    page.check("admin-list")
    page.click("[data-index=player] a")
    page.one("#id_band").send_keys("20")
    page.one("#id_seed").send_keys("luck")
    page.click("#zrank-draw")
    assert len(page.all("[data-drawn]")) == 10
    assert len(page.all(".zrank-drawn")) == 20  # in both histograms
    page.check("admin")
    page.click(".zrank-scales a[href*=log]")
    assert "Logarithmic" in page.one(".zrank-scales [aria-current]").text
    assert len(page.all("[data-drawn]")) == 10  # the same draw
    page.check("admin-logarithmic")

    for kind, said in (("rebuild", "2,000 members ranked."), ("verify", "no difference.")):
        page.click(f"button[value={kind}]")
        page.wait_for(f"[data-kind={kind}][data-state=finished]")  # nobody has reloaded the page
        assert said in page.one(f"[data-kind={kind}]").text
    page.check("admin-jobs")

    page.open("/admin/players/player/")
    page.click(".column-zrank_rank a")
    ranks = [cell.text for cell in page.all(".field-zrank_rank")]
    assert ranks == [str(rank) for rank in range(1, 101)]
    page.open("/admin/zrank/ranking/atp/change/")
    assert "No member is ranked yet" in page.one("#content").text
    page.check("admin-empty")
