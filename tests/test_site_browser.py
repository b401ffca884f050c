"""The built site in a browser: sizes, colours, the colour switch and the search, from this machine alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from browsing import CONTRAST, SCREENS, needs_browser

pytestmark = [pytest.mark.slow, needs_browser]
ROOT = Path(__file__).parent.parent
LOOKED_AT = (
    "index",
    "tutorial",
    "choosing",
    "adding",
    "glossary",
    "formats",
    "options",
    "api",
    "results",
    "index.zh-CN",
)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the built site is, on the loopback interface."""
    site = tmp_path_factory.mktemp("seen") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def watched(browser: Any, width: int, height: int, scheme: str) -> tuple[Any, list[str], list[str]]:
    """A page, the addresses that it asks for, and its errors."""
    page = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme).new_page()
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    return page, asked, errors


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_pages_fit_every_screen_and_ask_no_other_host(
    browser: Any, address: str, width: int, height: int, scheme: str
) -> None:
    page, asked, errors = watched(browser, width, height, scheme)
    for name in LOOKED_AT:
        page.goto(f"{address}/{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        brightness, contrast = page.evaluate(CONTRAST)
        assert (brightness < 0.1) == (scheme == "dark") and contrast > 4.5, name
    assert errors == [] and [url for url in asked if not url.startswith((f"{address}/", "data:"))] == []


def test_the_colour_switch_changes_the_page(browser: Any, address: str) -> None:
    page, _, errors = watched(browser, 1280, 900, "light")
    page.goto(f"{address}/index.html")
    page.locator("#theme-menu").click()
    page.locator("[data-bs-theme-value=dark]").click()
    assert page.evaluate(CONTRAST)[0] < 0.1 and errors == []


def test_the_search_finds_a_section(browser: Any, address: str) -> None:
    page, _, errors = watched(browser, 1280, 900, "light")
    page.goto(f"{address}/index.html")
    page.locator("[data-bs-target='#mkdocs_search_modal']").click()
    page.locator("#mkdocs-search-query").fill("variance floor")
    results = page.locator("#mkdocs-search-results h3", has_text="The variance floor")
    for _ in range(100):  # the index is loaded in the background, and a key starts the search
        page.locator("#mkdocs-search-query").press("End")
        if results.count():
            break
        page.wait_for_timeout(100)
    assert results.first.is_visible()
    assert errors == []
