"""The campaign's page in a real browser: no network, no error, sorting, filtering, hovering, details, saved tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from attncem.reporting.campaign.page import write_campaign_report, write_tables
from browsing import CONTRAST, SCREENS, Opened, needs_browser, open_page
from made_campaigns import ARMS, Made, make_campaign

EVIL = "Is <script>document.title='hit'</script> & <b>bold</b> shown as it is?"

pytestmark = needs_browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Made(ARMS, seeds=4, grid={"training.penalty_weight": [1.0, 4.0]}, meaning=EVIL)
    return make_campaign(tmp_path_factory.mktemp("browser") / "campaign", made).path


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    return write_campaign_report(folder, folder.parent / "page.html", now=datetime(2030, 1, 2, tzinfo=UTC))


def test_what_a_user_wrote_is_shown_and_not_run(opened: Opened) -> None:
    assert opened.page.locator("header .verdict").first.inner_text() == EVIL
    assert opened.page.title() == "attncem campaign: made-up"


def test_tables_are_sorted(opened: Opened) -> None:
    before = opened.row_names("headline")
    header = opened.page.locator("#table-headline thead th", has_text="MSE")
    header.locator("button").click()
    assert opened.row_names("headline") == before, "the arms are made with rising errors"
    header.locator("button").click()
    assert opened.row_names("headline") == before[::-1]
    assert header.get_attribute("aria-sort") == "descending"


def test_tables_are_filtered(opened: Opened) -> None:
    all_rows = opened.row_names("cells")
    assert len(all_rows) == 20
    opened.page.fill('input[data-filter="cells"]', "GATED weight=4")
    assert opened.row_names("cells") == [name for name in all_rows if name.startswith("gated_penalty_weight-4")]
    assert opened.page.locator('output[data-shown="cells"]').inner_text() == "4 of 20 rows"
    opened.page.fill('input[data-filter="cells"]', "")
    assert opened.row_names("cells") == all_rows


def test_the_plot_tells_its_values_and_leads_to_a_cell(opened: Opened) -> None:
    point = opened.page.locator('#pareto .point[data-label="gated (penalty_weight=4)"]')
    point.locator(".hit").hover()
    opened.shows("#hover", "gated (penalty_weight=4)")
    told = opened.page.locator("#hover").inner_text()
    assert "gated (penalty_weight=4)" in told and "95\u00a0% over seeds" in told and "95\u00a0% over images" in told
    assert "MSE" in told and "±" in told
    point.locator(".hit").click()
    opened.shows("#details-title", "gated_penalty_weight-4.0-s0")
    assert "decoder small" in opened.page.locator("#details-body").inner_text()
    opened.page.keyboard.press("Escape")
    opened.page.locator("#details").wait_for(state="hidden")


def test_the_plot_shows_other_errors_and_works_by_keyboard(opened: Opened) -> None:
    def heights() -> dict[str, float]:
        marks = opened.page.locator("#pareto .point").all()
        return {mark.get_attribute("data-label"): mark.locator(".hit").bounding_box()["y"] for mark in marks}

    before = heights()
    opened.page.select_option("#choose-measure", "ssim")
    after = heights()
    order = sorted(before, key=before.__getitem__)
    assert sorted(after, key=after.__getitem__) == order, "more private is up, whichever way the measure points"
    point = opened.page.locator("#pareto .point").first
    point.focus()
    opened.shows("#hover", "SSIM")
    opened.page.keyboard.press("Enter")
    opened.shows("#details-title", "none-s0")
    opened.page.click("#details-close")
    opened.page.locator("#details").wait_for(state="hidden")


def test_a_cell_has_an_address(browser: Any, file: Path) -> None:
    opened = open_page(browser, file)
    opened.page.locator("#table-cells a", has_text="kmeans_penalty_weight-1.0-s2").click()
    opened.shows("#details-title", "kmeans_penalty_weight-1.0-s2")
    assert opened.page.url.endswith("#cell-kmeans_penalty_weight-1.0-s2")
    opened.page.context.close()


@pytest.mark.parametrize("ending", ["csv", "md", "tex"])
def test_a_table_is_saved(opened: Opened, folder: Path, tmp_path: Path, ending: str) -> None:
    with opened.page.expect_download() as waiting:
        opened.page.click(f'button[data-save="attacks"][data-ending="{ending}"]')
    waiting.value.save_as(saved := tmp_path / "saved")
    assert waiting.value.suggested_filename == f"attacks.{ending}"
    write_tables(folder, tmp_path / "tables")
    assert saved.read_bytes() == (tmp_path / "tables" / f"attacks.{ending}").read_bytes()


def test_another_reference_gives_other_tests(opened: Opened) -> None:
    marks = opened.page.locator("#table-headline small.mark:visible")
    assert marks.count() == 16, "four arms and points, four measures"
    assert set(opened.row_names("tests")) == {"none"}
    opened.page.select_option("#choose-reference", "gated")
    assert marks.count() == 12
    assert set(opened.row_names("tests")) == {"gated (penalty_weight=1)", "gated (penalty_weight=4)"}


def test_portraits_are_drawn(opened: Opened) -> None:
    figures = opened.page.locator("#portrait .clouds figure")
    assert figures.count() == 3
    assert "Before the defence: releases of none" in figures.first.inner_text()
    assert opened.page.locator("#portrait .clouds circle").count() == 900
    assert opened.page.locator("#portrait .faces img").count() == 18
    for place, slots in enumerate((True, True, False)):
        said = opened.page.locator(".portrait-classes > div").nth(place).inner_text()
        assert ("SNR gate of the slots" in said) == slots and ("it has no slots" in said) != slots
    opened.page.select_option("#choose-method", "tsne")
    assert figures.count() == 3, "two of its own and one of the undefended arm"
    opened.page.select_option("#choose-portrait", label="none")
    assert "it has no attention, slots or gates to show" in opened.page.locator("#portrait").inner_text()


WIDEST = """() => {
  const shown = [...document.querySelectorAll('header.top *, #headline *')].filter((it) => it.getClientRects().length);
  return Math.max(document.documentElement.scrollWidth, ...shown.map((it) => it.getBoundingClientRect().right));
}"""


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_every_screen_holds_the_first_screen(browser: Any, file: Path, width: int, height: int, scheme: str) -> None:
    opened = open_page(browser, file, width, height, scheme)
    assert opened.page.evaluate(WIDEST) <= width
    page, contrast = opened.page.evaluate(CONTRAST)
    assert (page > 0.5) == (scheme == "light") and contrast > 7
    assert opened.page.locator("h1").bounding_box()["y"] < height / 4
    if width > 1000:
        assert opened.page.locator("#table-headline tbody tr").first.bounding_box()["y"] < height
    assert opened.requests == [] and opened.said == []
    opened.page.context.close()


def test_without_scripts_the_page_still_tells(browser: Any, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.locator("#table-headline tbody tr").count() == 5
    assert page.locator("#pareto svg").is_visible()
    assert not page.locator("#choose-measure").is_visible()
    context.close()
