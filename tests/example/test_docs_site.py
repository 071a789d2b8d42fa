"""The documentation as a built site, in a real browser, as wide as a desk and as a phone."""

from __future__ import annotations

import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.example.test_browser import Page, browser, missing, programs  # noqa: F401 - fixtures

pytestmark = pytest.mark.browser

SITE = os.environ.get("ZRANK_SITE", "")
"""The folder that mkdocs has built."""

CLIPPED = """
const phone = innerWidth < 500, found = [];
if (document.documentElement.scrollWidth > innerWidth) found.push("the page");
for (const one of document.querySelectorAll("article pre > code, article .md-typeset__scrollwrap"))
    // On a phone they scroll.
    if (one.scrollWidth > one.clientWidth + 1 && !(phone && getComputedStyle(one).overflowX === "auto"))
        found.push(one.textContent.trim().slice(0, 80));
for (const one of document.querySelectorAll("article td code, article th code"))
    if (one.getClientRects().length > 1 && !/\\s/.test(one.textContent)) found.push(one.textContent);
for (const one of document.querySelectorAll("article p"))
    if (/\\n\\s*([-*|]|\\d+\\.) /.test(one.textContent)) found.push(one.textContent.trim().slice(0, 80));
return found;
"""
"""What can't be read as it was meant: blocks that are cut off, identifiers in tables that are broken into lines, lists
and tables that became part of a paragraph."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class Served:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def site():
    if not SITE:
        missing("the documentation's site (ZRANK_SITE)")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Served(server.server_port)
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser, site):  # noqa: F811
    return Page(browser, site)


@pytest.mark.timeout(3000)
def test_every_page_can_be_read_by_everybody(page):
    wrong = {}
    paths = sorted(path.relative_to(SITE).as_posix() for path in Path(SITE).rglob("index.html"))
    assert len(paths) > 40
    for path in paths:
        for width, scheme in ((1280, "light"), (390, "dark")):
            page.view(width, scheme)
            page.open(f"/{path}")
            page.browser.execute_script(
                "document.body.dataset.mdColorScheme = arguments[0]",
                {"light": "default", "dark": "slate"}[scheme],
            )
            found = page.browser.execute_script(CLIPPED) + page.violations()
            if found:
                wrong[path, width] = found
    assert wrong == {}


def test_the_header_and_the_footer(page):
    page.view()
    page.open("/leaderboards/")
    assert "0." in page.one(".md-header__title").get_attribute("textContent")  # the version
    assert page.all(".md-footer__link--prev")
    assert page.all(".md-footer__link--next")
    assert page.all(".md-header__source")  # the repository
