"""The page of an explanation in a real browser: no network, no error, nothing off a small screen, values on hover."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import attncem
from attncem.base.progress import silent
from attncem.config.options.attacks import ClassMeanOptions, RidgeOptions
from attncem.config.options.suites import Suite
from browsing import SCREENS, Opened, needs_browser, open_page

pytestmark = [pytest.mark.slow, needs_browser]
FRONT_END = {"model.front_end": {"name": "local_contrast", "s": 3}}
HYBRID = {"surrogate.name": "hybrid", "surrogate.max_risk_classes": 9, "surrogate.slot.slot_dim": 8}
WIDEST = """() => {
  const shown = [...document.querySelectorAll('body *')].filter((it) => it.getClientRects().length);
  return Math.max(document.documentElement.scrollWidth, ...shown.map((it) => it.getBoundingClientRect().right));
}"""


@pytest.fixture(scope="module")
def file(small_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    run = small_run("demo", **FRONT_END, **HYBRID, **{"surrogate.slot.num_heads": 2, "training.warmup_epochs": 0})
    shutil.copytree(run, folder / "run")
    rows = {"class mean": ClassMeanOptions(), "ridge": RidgeOptions(num_releases=1)}
    attncem.audit(folder / "run", Suite(name="tiny", version=1, meaning="", rows=rows), progress=silent)
    attncem.explain(folder / "run", "test:17", out=folder / "page.html", progress=silent)
    return folder / "page.html"


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_nothing_lies_off_any_screen(browser: Any, file: Path, width: int, height: int, scheme: str) -> None:
    opened = open_page(browser, file, width, height, scheme)
    for details in opened.page.locator("summary").all():
        details.click()
    if width < 1000:
        assert opened.page.evaluate(WIDEST) <= width, "every table is a pile of cards"
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    for picture in opened.page.locator("#pictures figure").all():
        box = picture.bounding_box()
        assert box["y"] + box["height"] < height, "all four pictures are on the first screen"
    assert opened.page.locator("#pictures figure").count() == 4
    assert opened.requests == [] and opened.said == []
    opened.page.context.close()


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("#pictures figure >> nth=2", "SSIM"),
        (".tiles li >> nth=1", "channel 1"),
        ("#input .values li >> nth=0", "%"),
        (".ranks g.own >> nth=0", "this image"),
        (".ranks g:not(.own) >> nth=0", "another image of its class"),
        ("#shares li >> nth=0", "other images of its class"),
        (".tiles.large li >> nth=1", "MSE over all test images"),
    ],
)
def test_every_figure_tells_its_values(opened: Opened, selector: str, words: str) -> None:
    assert not opened.page.locator("#hover").is_visible()
    opened.page.locator(selector).hover()
    opened.shows("#hover", words)
    opened.page.mouse.move(1, 1)
    opened.page.locator("#hover").wait_for(state="hidden")


def test_values_are_reached_by_keyboard(opened: Opened) -> None:
    own = opened.page.locator(".ranks g.own").first
    own.focus()
    opened.shows("#hover", "this image")
    opened.page.keyboard.press("ArrowRight" if own.evaluate("it => it.nextElementSibling !== null") else "ArrowLeft")
    opened.shows("#hover", "another image of its class")
    opened.page.keyboard.press("Escape")
    opened.page.locator("#hover").wait_for(state="hidden")


def test_without_scripts_the_titles_are_there(browser: Any, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert "MSE" in page.locator("#pictures figure").nth(2).get_attribute("title")
    assert page.locator(".ranks g > title").count() > 2
    context.close()
