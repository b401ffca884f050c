"""The report in a real browser: no network, no error, the models on one screen, values to point at, saved tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attncem.reporting import report
from browsing import CONTRAST, SCREENS, Opened, needs_browser, open_page
from made_runs import NOW, make_audit, make_run, rows, score
from made_sending import sent_run

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five models: three alone, one of three seeds, one without an audit."""
    folder = tmp_path_factory.mktemp("report")
    runs = [make_run(folder, name) for name in ("none", "kmeans")]
    for seed in range(3):
        subject = {"run": "gated", "surrogate": "gated", "seed": seed}
        audit = make_audit("gated", rows(0.03 + 0.002 * seed), accuracy=score(0.85 + 0.01 * seed), subject=subject)
        runs.append(make_run(folder, "gated", audits=[audit], seed=seed))
    runs.append(make_run(folder, "slot", audits=[]))
    report(runs, folder / "zh.html", now=NOW, lang="zh")
    return report(runs, folder / "report.html", csv=True, now=NOW)


WIDEST = """() => {
  const first = document.querySelectorAll('header.top *, #headline *, #plot *');
  const shown = [...first].filter((it) => it.getClientRects().length && !it.closest('svg'));
  return Math.max(document.documentElement.scrollWidth, ...shown.map((it) => it.getBoundingClientRect().right));
}"""


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_every_screen_holds_what_matters(browser: Any, file: Path, width: int, height: int, scheme: str) -> None:
    opened = open_page(browser, file, width, height, scheme)
    assert opened.page.evaluate(WIDEST) <= width, "nothing lies beside the screen"
    page, contrast = opened.page.evaluate(CONTRAST)
    assert (page > 0.5) == (scheme == "light") and contrast > 7
    models = opened.page.locator(".models > li")
    assert models.count() == 4
    told = models.nth(2).inner_text()
    assert "An attacker removes" in told and "86.0 %" in told and "±" in told and "reliable" in told
    if width > 1000:
        below = opened.page.locator(".facts").bounding_box()
        assert below["y"] + below["height"] < 800, "all models and the line below them are on the first screen"
    else:
        shown = opened.page.locator("#table-headline tbody tr").first.inner_text()
        assert "91.0" in shown and "0.0104" in shown and "λ" not in shown, "a card, without what is folded"
    assert opened.requests == [] and opened.said == []
    opened.page.context.close()


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_in_chinese_nothing_lies_beside_the_screen_either(
    browser: Any, file: Path, width: int, height: int, scheme: str
) -> None:
    opened = open_page(browser, file.with_name("zh.html"), width, height, scheme)
    assert opened.page.locator("html").get_attribute("lang") == "zh-CN"
    assert opened.page.evaluate(WIDEST) <= width
    told = opened.page.locator(".models > li").nth(2).inner_text()
    assert "攻击者消除了盲猜误差的" in told and "86.0 %" in told
    assert opened.requests == [] and opened.said == []
    opened.page.context.close()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [400, 1280])
def test_the_section_about_sent_images_fits_and_tells(browser: Any, tmp_path: Path, width: int, lang: str) -> None:
    opened = open_page(browser, report([sent_run(tmp_path)], tmp_path / "r.html", now=NOW, lang=lang), width)
    opened.page.locator('nav a[href="#sending"]').click()
    assert opened.page.evaluate(WIDEST.replace("#plot *", "#plot *, #sending *")) <= width
    shown = opened.page.locator("#sending figure:visible")
    assert shown.count() == 1 and shown.locator(".spot").count() == 3
    numbers = opened.page.locator("#table-sending tbody").inner_text()
    assert all(number in numbers for number in ("30.0", "0.825", "86.0", "81.0", "87.0", "6.13", "2.50"))
    assert opened.requests == [] and opened.said == []
    opened.page.context.close()


def test_a_point_tells_its_values_to_mouse_and_keyboard(opened: Opened) -> None:
    point = opened.page.locator("#plot .for-wide .spot").last
    point.hover()
    opened.shows("#hover", "gated: accuracy 86.0 ± 1.0 %, MSE 0.0320 ± 0.0020")
    opened.page.mouse.move(2, 2)
    opened.page.locator("#hover").wait_for(state="hidden")
    opened.page.locator("#plot .for-wide .spot").nth(3).focus()
    opened.shows("#hover", "none: accuracy 91.0 %, MSE 0.0104")
    opened.page.keyboard.press("Tab")
    opened.shows("#hover", "kmeans: accuracy 88.0 %, MSE 0.0243")


def test_every_figure_tells_its_values(opened: Opened) -> None:
    figures = opened.page.locator("figure svg:visible")
    assert figures.count() > 9
    for place in range(figures.count()):
        figure = figures.nth(place)
        assert figure.locator(".spot").count() or figure.get_attribute("data-lines")


def test_curves_tell_the_values_at_an_epoch(opened: Opened) -> None:
    curve = opened.page.locator("#curves svg").first
    curve.scroll_into_view_if_needed()
    box = curve.bounding_box()
    opened.page.mouse.move(box["x"] + 0.98 * box["width"], box["y"] + box["height"] / 2)
    opened.shows("#hover", "epoch 10")
    assert opened.page.locator("#hover b").all_inner_texts() == ["0.85"] * 6, "six runs"
    opened.page.mouse.move(2, 2)
    curve.focus()
    opened.shows("#hover", "epoch 10")
    opened.page.keyboard.press("ArrowLeft")
    opened.shows("#hover", "epoch 9")


def test_every_table_is_saved_as_csv(opened: Opened, tmp_path: Path) -> None:
    tables = opened.page.locator("table").all()
    buttons = opened.page.locator('button[data-ending="csv"]')
    assert len(tables) == buttons.count() >= 5
    with opened.page.expect_download() as waiting:
        opened.page.click('#headline button[data-save="headline"]')
    waiting.value.save_as(saved := tmp_path / "saved.csv")
    lines = saved.read_text().splitlines()
    assert waiting.value.suggested_filename == "headline.csv"
    assert lines[0].startswith("run,accuracy,accuracy_sd,") and len(lines) == 1 + 4
    assert lines[1].startswith("none,0.91,,")


def test_folded_columns_are_shown_when_asked(opened: Opened) -> None:
    titles = opened.page.locator("#table-headline thead th:visible")
    before = titles.count()
    opened.page.locator("#headline .extras").first.check()
    assert titles.count() == before + 7
    opened.page.locator("#table-headline thead th", has_text="Accuracy").locator("button").click()
    names = opened.page.locator("#table-headline tbody th").all_inner_texts()
    assert names == ["gated", "kmeans", "none", "slot"], "by accuracy; what has none comes last"


LANGUAGES = ["report.html", "zh.html"]


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS[2:])
def test_on_a_phone_an_attack_is_one_line_that_opens(
    browser: Any, file: Path, name: str, width: int, height: int, scheme: str
) -> None:
    opened = open_page(browser, file.with_name(name), width, height, scheme)
    opened.page.locator('nav a[href="#attacks"]').click()
    opened.page.locator("#table-attacks .of").first.wait_for(state="visible")
    lines = opened.page.locator("#table-attacks tbody tr")
    assert lines.count() == 5 * 6 and opened.page.locator("#table-attacks details[open]").count() == 5, "the strongest"
    named = opened.page.locator("#table-attacks .of:visible").all_inner_texts()
    assert len(named) == len(set(named)) == 5, "a run is named once"
    assert lines.nth(0).locator("td:visible").count() > 6, "whole"
    ridge = lines.nth(1)
    shown = {"report.html": "ridge", "zh.html": "岭回归"}[name]
    assert ridge.inner_text().split() == [shown, "MSE", "0.0156", "SSIM", "0.744"]
    assert ridge.bounding_box()["height"] < 45 and not ridge.locator("td:visible").count()
    ridge.locator("summary").click()
    assert ridge.locator("td:visible").count() == lines.nth(0).locator("td:visible").count()
    ridge.locator("summary").press("Enter")
    assert not ridge.locator("td:visible").count()
    opened.page.locator("#attacks .extras").check()
    assert not ridge.locator("td:visible").count(), "more columns are for rows that are open"
    for summary in opened.page.locator("#table-attacks tr:not(.strongest) summary").all():
        summary.click()
    opened.page.locator("#classes > details > summary").click()
    assert opened.page.evaluate(WIDEST.replace("#plot *", "#attacks *, #classes *")) <= width
    assert opened.requests == [] and opened.said == []
    opened.page.context.close()


def test_attacks_that_were_sorted_apart_name_their_runs_on_a_phone(opened: Opened) -> None:
    opened.page.locator("#table-attacks thead th", has_text="MSE").locator("button").click()
    opened.page.set_viewport_size({"width": 400, "height": 800})
    assert opened.page.locator("#table-attacks .of:visible").count() == 5 * 6


FOLDED = "section > details.fold"
HEIGHT = "() => document.documentElement.scrollHeight"


def test_on_a_phone_long_sections_are_folded(browser: Any, file: Path) -> None:
    """A page of four models was 24,456 px long on a phone."""
    opened = open_page(browser, file, 400, 800)
    page = opened.page
    folds = page.locator(FOLDED)
    assert folds.count() >= 6 and not page.locator(f"{FOLDED}[open]").count()
    assert page.evaluate(HEIGHT) < 6500 and not page.locator("#gallery img:visible").count()
    assert page.locator("#table-headline tbody tr").first.is_visible() and page.locator("#plot svg:visible").count()
    page.locator('nav a[href="#gallery"]').click()
    page.locator("#gallery img").first.wait_for(state="visible")
    assert page.locator("#gallery img:visible").count() and page.locator(f"{FOLDED}[open]").count() == 1
    page.locator("#gallery > details > summary").click()
    assert not page.locator("#gallery img:visible").count()
    page.locator('nav a[href="#gallery"]').click()
    page.locator("#gallery img").first.wait_for(state="visible")
    assert page.locator("#gallery img:visible").count(), "the same link once more"
    page.set_viewport_size({"width": 1280, "height": 900})
    page.locator(f"{FOLDED}:not([open])").first.wait_for(state="detached")
    assert opened.requests == [] and opened.said == []
    page.context.close()


def test_on_a_wide_screen_nothing_is_folded(opened: Opened) -> None:
    assert not opened.page.locator(FOLDED).count() and opened.page.locator("#gallery img:visible").count()


def test_without_scripts_attacks_open_and_on_paper_all_are(browser: Any, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 400, "height": 800})
    page = context.new_page()
    page.goto(file.as_uri())
    ridge = page.locator("#table-attacks tbody tr").nth(1)
    ridge.locator("summary").click()
    assert "0.0156" in ridge.locator('td[data-title="MSE"]').inner_text()
    ridge.locator("summary").click()
    assert not ridge.locator("td:visible").count()
    page.emulate_media(media="print")
    assert ridge.locator("td:visible").count() > 6 and not page.locator("details.line:visible").count()
    context.close()


def test_on_a_wide_screen_no_attack_is_folded(opened: Opened) -> None:
    assert not opened.page.locator("details.line:visible").count()
    assert opened.page.locator("#table-attacks tbody td:not(.extra):visible").count() >= 5 * 6 * 8


def test_classes_are_sorted_below_the_name_of_each_model(opened: Opened) -> None:
    table = opened.page.locator("#table-classes-0")
    assert table.locator('th[scope="colgroup"]').all_inner_texts() == ["none", "kmeans", "gated"]
    assert not table.locator('th[scope="colgroup"] button').count(), "three numbers have no one order"
    edges = [table.locator("thead tr").nth(1).locator("th").nth(place).bounding_box()["x"] for place in (0, 2, 4)]
    assert edges == [box.bounding_box()["x"] for box in table.locator('th[scope="colgroup"]').all()], (
        "each above its own"
    )
    table.locator("thead tr").nth(1).locator("th").nth(3).locator("button").click()
    errors = [float(str(cell).strip("▼ ")) for cell in table.locator("tbody td:nth-child(5)").all_inner_texts()]
    assert errors == sorted(errors), "kmeans' error, the fifth cell of a row"


def test_on_a_phone_a_model_is_named_once_in_each_class(browser: Any, file: Path) -> None:
    opened = open_page(browser, file, 400, 800)
    cells = opened.page.locator("#table-classes-0 tbody tr").first.locator("td")
    before = cells.evaluate_all("all => all.map((it) => getComputedStyle(it, '::before').content)")
    assert before == ['"none"', '"MSE"', '"kmeans"', '"MSE"', '"gated"', '"MSE"']
    opened.page.context.close()


def test_without_scripts_the_page_still_tells(browser: Any, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert "An attacker removes" in page.locator(".models > li").first.inner_text()
    assert not page.locator("button[data-save]").first.is_visible()
    context.close()
