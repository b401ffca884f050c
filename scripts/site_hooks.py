"""Hooks of mkdocs.yml: pages written for a repository become pages of a site, and two reference pages are generated.

The pages follow GitHub's Markdown and link to files outside docs/. The hooks add these files to the site, take GitHub's
names of headings, and add the blank lines that Python-Markdown needs. `<!-- generate: NAME -->` is replaced by what
GENERATED makes, so the reference pages always fit the code that the site was built from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from attncem.config.loading.describe import OptionHelp, describe_options

ROOT = Path(__file__).resolve().parent.parent
BORROWED = ("CONTRIBUTING.md", "CHANGELOG.md")
"""Pages of the site that are at the top level of the repository."""
_OUTSIDE = re.compile(r"\]\(\.\./([^)#\s]+)")
_INSIDE = re.compile(r"\]\(docs/")
_MARKER = re.compile(r"^<!-- generate: ([\w ]+) -->$", re.MULTILINE)
_FENCE = re.compile(r"^\s*```")
_BLOCK = re.compile(r"\s*([-*] |\d+\. |\|)")
"""How a list or table begins."""
_SWITCHED = '<style id="hljs-light"></style><style id="hljs-dark"></style>\n'
"""Two elements that the theme's colour switch needs, and which it leaves out of pages without highlighted code."""
_BY_NUMBER = re.compile(r'<a (?=[^>]*href="#\d)')
"""A link to a heading that begins with a digit, with which the theme's list of headings ends in an error."""
_BRACKETS = re.compile(r"(`[^`]*`)|\]\[")
"""Code, or brackets in a row, which would name a link."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Headings get the anchors that GitHub gives them."""
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": anchor}
    return config


def anchor(heading: str, separator: str) -> str:
    """The anchor of a heading as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of BORROWED, and every file outside docs/ that a page links to."""
    pages = [file.content_string for file in files.documentation_pages()]
    linked = {name for text in pages for name in _OUTSIDE.findall(text) if name not in BORROWED}
    for name in sorted(linked):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name in BORROWED:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_INSIDE.sub("](", text)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page as Python-Markdown reads it, with its generated parts."""
    text = _OUTSIDE.sub(r"](\1", markdown).replace("<details>", '<details markdown="1">')
    return spaced(_MARKER.sub(lambda marker: GENERATED[marker[1]](), text))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The page as the theme's script can read it: without this the script stops, and nothing on the page switches."""
    output = output.replace("</title>", f"</title>{_SWITCHED}", 1)
    return _BY_NUMBER.sub("<a disabled ", output)


def spaced(text: str) -> str:
    """The text with a blank line before every list and table, and brackets in a row escaped; GitHub needs neither."""
    lines: list[str] = []
    in_code = False
    for line in text.splitlines():
        if not in_code and _begins_block(line, lines[-1] if lines else ""):
            lines.append("")
        in_code ^= bool(_FENCE.match(line))
        lines.append(line if in_code else _BRACKETS.sub(lambda part: part[1] or r"]\[", line))
    return "\n".join(lines) + "\n"


def _begins_block(line: str, before: str) -> bool:
    """Whether a list or table begins here, directly after a line of text."""
    is_text = bool(before.strip()) and not before.startswith(" ") and not _BLOCK.match(before)
    return is_text and bool(_BLOCK.match(line))


def option_tables() -> str:
    """Every option of a run: a table for each section, and one for each choice with options of its own."""
    parts: dict[tuple[str, str], list[OptionHelp]] = {}
    for option in describe_options():
        parts.setdefault((_section(option), option.when), []).append(option)
    order = {section: number for number, (section, _) in reversed(list(enumerate(parts)))}
    ordered = sorted(parts.items(), key=lambda part: order[part[0][0]])
    return "\n\n".join(_option_table(*part, options) for part, options in ordered)


def _section(option: OptionHelp) -> str:
    """The section of an option; options at the top level are those of the run."""
    first, dot, _ = option.key.partition(".")
    return first if dot else "run"


def _option_table(section: str, when: str, options: list[OptionHelp]) -> str:
    return "\n".join([f"### {when}" if when else f"## {section}", "", *_option_rows(options)])


def _option_rows(options: list[OptionHelp]) -> list[str]:
    rows = [f"| `{it.key}` | `{it.default}` | {_values(it)} | {it.meaning} |" for it in options]
    return ["| option | default | values | meaning |", "|---|---|---|---|", *rows]


def _values(option: OptionHelp) -> str:
    return (", ".join(option.choices) or option.type).replace("|", "or")


def api(package: str) -> str:
    """The directives of mkdocstrings for every public name of a package."""
    module = import_module(package)
    names = [name for name in module.__all__ if not name.startswith("_")]
    return "\n\n".join(f"::: {package}.{module._HOME[name]}.{name}" for name in names)


GENERATED: dict[str, Callable[[], str]] = {
    "options": option_tables,
    "api attncem": partial(api, "attncem"),
    "api attncem_edge": partial(api, "attncem_edge"),
}
"""What a marker is replaced by."""
