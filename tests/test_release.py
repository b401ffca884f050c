"""What a release needs: a citation that fits the package, a changelog of short entries, and every library declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

import attncem
import attncem_edge
from pages import read_part
from test_imports import imports

ROOT = Path(__file__).parent.parent
CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EDGE: dict[str, Any] = tomllib.loads((ROOT / "edge/pyproject.toml").read_text(encoding="utf-8"))["project"]

# the citation

REQUIRED = {"cff-version", "message", "title", "authors"}
OPTIONAL = {
    *("abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license", "license-url"),
    *("preferred-citation", "references", "repository", "repository-artifact", "repository-code", "type", "url"),
    "version",
}
"""All fields of the Citation File Format 1.2.0."""
OF_A_REFERENCE = {
    *("type", "title", "authors", "notes", "year", "month", "collection-title", "start", "end", "url", "doi"),
    *("journal", "volume", "issue", "publisher", "identifiers"),
}
"""Fields of a reference that this file may use."""
OF_AN_AUTHOR = {frozenset({"name"}), frozenset({"family-names", "given-names"})}


def test_the_citation_has_the_fields_of_its_format() -> None:
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    assert CITATION.keys() >= REQUIRED and CITATION.keys() <= REQUIRED | OPTIONAL
    for reference in CITATION["references"]:
        assert reference.keys() >= {"type", "title", "authors"} and reference.keys() <= OF_A_REFERENCE, reference
        assert isinstance(reference["year"], int) and reference["url"].startswith("https://")
    for work in (CITATION, *CITATION["references"]):
        assert work["authors"] and all(frozenset(author) in OF_AN_AUTHOR for author in work["authors"]), work["title"]
        assert all(isinstance(name, str) and name for author in work["authors"] for name in author.values())


def test_the_citation_is_that_of_the_package() -> None:
    assert (CITATION["version"], CITATION["license"]) == (attncem.__version__, PROJECT["license"])
    assert CITATION["title"] == f"attncem: {PROJECT['description'][0].lower()}{PROJECT['description'][1:]}"
    assert CITATION["keywords"] == PROJECT["keywords"] and CITATION["authors"] == PROJECT["authors"]


def test_the_works_that_the_documents_cite_are_references() -> None:
    page = read_part("surrogates.md", "The documents 000 to 004")
    cited = re.findall(r"“([^”]+)”, [^,]+(?: \d{4})?,\s+\[arXiv [\d.]+\]\((https://[^)]+)\)", page)
    assert len(cited) == page.count("[arXiv") == 4
    assert [(work["title"], work["url"]) for work in CITATION["references"]] == cited


# the changelog

LONGEST_ENTRY = 200
ENTRIES = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
"""One text for each version, the newest first."""


def test_the_newest_version_begins_with_five_lines_and_its_entries_are_short() -> None:
    first, *parts = ENTRIES[0].strip().split("\n\n### ")
    highlights = first.splitlines()[1:]
    entries = [line for part in parts for line in part.splitlines()[1:] if not part.startswith("Moved")]
    assert len(highlights) == 5 and len(entries) > 20
    for line in (*highlights, *entries):
        assert line.startswith("- "), f"an entry is one line: {line}"
        assert len(line) <= LONGEST_ENTRY, f"{len(line)} characters: {line}"


def test_the_package_has_the_version_of_the_newest_released_entry() -> None:
    titles = [entry.splitlines()[0] for entry in ENTRIES]
    released = next(title for title in titles if not title.endswith("(unreleased)"))
    assert released.startswith(f"[{attncem.__version__}]")
    assert titles[0].startswith(f"[{attncem_edge.__version__.removesuffix('.0')}"), "0.3 is its first version"


# what the sources import

COMES_WITH = {"h11": "uvicorn", "markupsafe": "jinja2", "pydantic_core": "pydantic", "threadpoolctl": "scikit-learn"}
"""Imported packages that a declared one requires."""
NOT_DECLARED = {"IPython", "pandas", "timm", "torchvision"}
"""Libraries that users may have; the package works without them, and says how to get them."""
OTHER_NAMES = {"PIL": "pillow", "yaml": "pyyaml", "sklearn": "scikit-learn", "lightning_fabric": "lightning-fabric"}


def imported(folder: Path) -> set[str]:
    """Distributions that the sources in a folder import, also by name."""
    texts = [file.read_text(encoding="utf-8") for file in folder.rglob("*.py")]
    named = [name for text in texts for name in re.findall(r"import_module\(\"([\w.]+)\"", text)]
    names = {name.partition(".")[0] for name in (*named, *(it for text in texts for it in imports(ast.parse(text))))}
    return {OTHER_NAMES.get(name, name) for name in names - sys.stdlib_module_names - {"attncem", "attncem_edge"}}


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;~! ]", line)[0].lower() for line in requirements}


@pytest.mark.parametrize(
    ("project", "folder", "fewest"), [(PROJECT, "src/attncem", 15), (EDGE, "edge/src/attncem_edge", 3)]
)
def test_every_imported_library_is_declared(project: dict[str, Any], folder: str, fewest: int) -> None:
    extras = project.get("optional-dependencies", {}).values()
    declared = names_of([*project["dependencies"], *(line for lines in extras for line in lines)])
    used = imported(ROOT / folder)
    assert len(used) >= fewest
    assert used - declared - COMES_WITH.keys() - NOT_DECLARED == set()


@pytest.mark.parametrize(("name", "parent"), COMES_WITH.items())
def test_what_comes_with_a_declared_library_really_does(name: str, parent: str) -> None:
    always = [line for line in metadata.requires(parent) or [] if "extra ==" not in line]
    assert name.replace("_", "-") in names_of(always)


def test_the_client_on_a_device_needs_no_more_than_the_package() -> None:
    everything = {*PROJECT["dependencies"], *(line for it in PROJECT["optional-dependencies"].values() for line in it)}
    assert set(EDGE["dependencies"]) <= everything
