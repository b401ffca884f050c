"""The site: its navigation and texts as they are written, and in the slow tests the pages as they are built."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import attncem
import attncem_edge

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
HOOKS = runpy.run_path(str(ROOT / "scripts/site_hooks.py"))
GROUPS = ["Start", "Use", "Understand", "Extend", "Internals"]
LOADED = {"script": "src", "link": "href", "img": "src", "source": "src", "iframe": "src"}
"""What a browser loads by itself, and the attribute that names it."""
MOST_REPEATED = 20
"""Words of a paragraph that two pages may share."""
FORMATS = runpy.run_path(str(ROOT / "scripts/write_format_tables.py"))


def navigation() -> dict[str, list[str]]:
    """The pages of each group."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return {
        group: [page for it in items for page in it.values()] for it in settings["nav"] for group, items in it.items()
    }


def paragraphs(page: Path) -> list[str]:
    """The sentences of a page without code and tables, a paragraph or item each."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) )", text)
    return [" ".join(part.split()) for part in parts if not part.lstrip().startswith(("|", "#", "<!--"))]


def test_every_page_is_in_the_navigation_once() -> None:
    groups = navigation()
    assert list(groups) == GROUPS
    listed = [page for pages in groups.values() for page in pages]
    assert sorted(listed) == sorted([page.name for page in PAGES] + list(HOOKS["BORROWED"]))


def test_no_page_repeats_a_paragraph_of_another() -> None:
    counts = Counter(text for page in PAGES for text in set(paragraphs(page)) if len(text.split()) > MOST_REPEATED)
    assert len(counts) > 500
    assert [text for text, number in counts.items() if number > 1] == []


def test_the_page_of_formats_is_that_of_the_classes() -> None:
    page = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
    assert FORMATS["renewed"](page) == page, "run python3 scripts/write_format_tables.py"
    kinds = FORMATS["closure"](kind for files in FORMATS["FILES"].values() for kind in files.values())
    keys = {key for kind in kinds for key in FORMATS["fields_of"](kind)}
    assert len(keys) > 200 and {key for key in keys if f"| `{key}` | " not in page} == set()


def test_pages_are_made_readable_for_python_markdown() -> None:
    text = "Words:\n- one\n- two `a][b`\n  more\n\n```\nx\n- a][b\n```\nText\n| a |\n|---|\n[A-Z][a]\n"
    expected = "Words:\n\n- one\n- two `a][b`\n  more\n\n```\nx\n- a][b\n```\nText\n\n| a |\n|---|\n[A-Z]\\[a]\n"
    assert HOOKS["spaced"](text) == expected
    assert HOOKS["spaced"](expected) == expected


@pytest.mark.parametrize(
    ("heading", "anchor"), [("`attncem audit`", "attncem-audit"), ("All: A, B", "all-a-b"), ("功能", "功能")]
)
def test_anchors_are_those_of_github(heading: str, anchor: str) -> None:
    assert HOOKS["anchor"](heading, "-") == anchor


class Links(HTMLParser):
    """The links, anchors and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values and values.get("rel") != "canonical":
            self.loaded.append(values[LOADED[tag]])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Links]:
    """The pages of the built site by file."""
    site = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > len(PAGES)
    return {page: Links(page.read_text(encoding="utf-8")) for page in pages}


@pytest.mark.slow
def test_the_site_loads_nothing_from_another_host(built: dict[Path, Links]) -> None:
    outside = {(page.name, url) for page, it in built.items() for url in it.loaded if urlsplit(url).netloc}
    assert outside == set()


@pytest.mark.slow
def test_no_link_of_the_site_is_dead(built: dict[Path, Links]) -> None:
    dead = []
    for page, links in built.items():
        for url in (url for url in links.links + links.loaded if not urlsplit(url).scheme and not url.startswith("//")):
            target = (page.parent / unquote(urlsplit(url).path)).resolve() if urlsplit(url).path else page
            fragment = unquote(urlsplit(url).fragment)
            there = target.exists() and (not fragment or target not in built or fragment in built[target].anchors)
            dead += [] if there else [(page.name, url)]
    assert dead == []


@pytest.mark.slow
def test_the_site_has_every_public_name_and_option(built: dict[Path, Links]) -> None:
    pages = {page.name: page for page in built}
    anchors = {anchor.rpartition(".")[2] for anchor in built[pages["api.html"]].anchors}
    names = {name for module in (attncem, attncem_edge) for name in module.__all__ if not name.startswith("_")}
    assert names - anchors == set()
    text = pages["options.html"].read_text(encoding="utf-8")
    options = {f"<code>{option.key}</code>" for option in HOOKS["describe_options"]()}
    assert len(options) > 150 and {option for option in options if option not in text} == set()


@pytest.mark.slow
def test_no_marker_or_raw_table_is_left_in_a_built_page(built: dict[Path, Links]) -> None:
    raw = re.compile(r"<p>(?:\||- )|&lt;!-- |<!-- generate|<p>:::")
    assert [page.name for page in built if raw.search(page.read_text(encoding="utf-8"))] == []
