"""Pages in a real browser: opened without a network, and watched for whatever goes wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium")
SCREENS = [(1280, 900, "light"), (1280, 900, "dark"), (400, 800, "light"), (400, 800, "dark")]


def lacking() -> str:
    """Why there is no browser here; in continuous integration there must be one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return "" if BROWSER else "chromium is not installed"


needs_browser = pytest.mark.skipif(
    bool(lacking()) and os.environ.get("CI") != "true", reason=lacking() or "there is a browser"
)
"""For tests that look at a page."""


CONTRAST = """() => {
  const light = (color) => {
    const linear = (it) => it <= .03928 ? it / 12.92 : ((it + .055) / 1.055) ** 2.4;
    const [r, g, b] = color.match(/[\\d.]+/g).map((it) => linear(Number(it) / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const style = getComputedStyle(document.body);
  const [ink, page] = [style.color, style.backgroundColor].map(light);
  return [page, (Math.max(ink, page) + .05) / (Math.min(ink, page) + .05)];
}"""


@dataclass
class Opened:
    """A page, with what went over the network and what the console said."""

    page: Any
    requests: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def row_names(self, table: str) -> list[str]:
        """The first words of every row that is shown, in order."""
        rows = self.page.locator(f"#table-{table} tbody tr:visible th")
        return [str(name).split("\n")[0] for name in rows.all_inner_texts()]

    def shows(self, selector: str, words: str) -> None:
        """Wait until these words are visible there: a browser follows an address in its own time."""
        self.page.locator(f"{selector}:visible", has_text=words).wait_for()


@contextmanager
def start_browser() -> Iterator[Any]:
    """The browser of this machine, without a window."""
    assert lacking() == "", "continuous integration installs it: .ci/run"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        started = player.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


def open_page(browser: Any, file: Path, width: int = 1280, height: int = 900, scheme: str = "light") -> Opened:
    """The page in a window of this size."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True, offline=True
    )
    opened = Opened(context.new_page())

    def judge(route: Any) -> None:
        address = route.request.url
        if address == file.as_uri() or address.startswith(("data:", "blob:")):
            route.continue_()
        else:
            opened.requests.append(address)
            route.abort()

    context.route("**/*", judge)
    opened.page.on("console", lambda message: opened.said.append(f"{message.type}: {message.text}"))
    opened.page.on("pageerror", lambda error: opened.said.append(str(error)))
    opened.page.goto(file.as_uri())
    return opened
