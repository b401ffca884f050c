#!/usr/bin/env python3
"""Write docs/results.md, its figures and the headline of both READMEs from the committed files of results/.

    python scripts/write_results.py             # needs no GPU; the same bytes every time
    python scripts/write_results.py --choose    # print the arms that the selections choose; writes nothing

A part that is not measured yet shows the command that measures it. A README has its headline between
`<!-- results: headline -->` and `<!-- end -->`; one without these lines is not changed. Tests compare all output.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from evidence import beyond, claim, front, headlines, lean, others, pareto, words
from evidence.source import Setting, Source
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from attncem.config.threats import THREATS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/results.md"
READMES = {"en": ROOT / "README.md", "zh": ROOT / "README.zh-CN.md"}
HEADLINE = re.compile(r"(?<=<!-- results: headline -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
THIN = "claim-thin-cifar10"
CLAIM = claim.Claim(
    "claim-cifar10",
    {"a": "a-kmeans", "b": "b-front-end-kmeans", "c": "c-front-end-attention"},
    {"d": (THIN, "d-thin-front-end-attention")},
)
EARLIER = claim.Claim(
    "front-ends-cifar10",
    {"a": "none-kmeans-2-0.1", "b": "local_contrast-kmeans-2-0.1", "c": "local_contrast-gated-0.1-0.1"},
)
TINY = claim.Claim("claim-tiny-imagenet", CLAIM.parts)
FACES = claim.Claim("claim-lfw", CLAIM.parts, balanced=True)
SELECTIONS = {
    TINY.campaign: others.Selection("claim-selection-tiny-imagenet", "a-kmeans"),
    FACES.campaign: others.Selection("claim-selection-lfw", "a-kmeans", balanced=True),
}
SMALL = claim.Claim("claim-demo", CLAIM.parts)
HEADLINES = headlines.Claims(CLAIM, (TINY, FACES), SMALL)


CLAIMS = {"CLAIM": CLAIM, "EARLIER": EARLIER, "TINY": TINY, "FACES": FACES, "SMALL": SMALL, "HEADLINES": HEADLINES}
MODULES = (beyond, claim, front, headlines, others, pareto, words)


def template() -> Template:
    """The page's template, with all functions that it calls."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "evidence"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    modules = {module.__name__.rpartition(".")[2]: module for module in MODULES}
    environment.globals |= modules | CLAIMS | {"SELECTIONS": SELECTIONS, "THIN": THIN, "THREATS": THREATS, "zip": zip}
    environment.filters |= {"spread": words.spread, "unreliable": Setting.unreliable}
    return environment.get_template("results.md.j2")


TEMPLATE = template()


def figures(source: Source) -> dict[Path, bytes | None]:
    """Every figure of the page by its file; None if not measured yet."""
    drawn = {
        front.FIGURE: front.figure(source),
        pareto.FIGURE: pareto.figure(source, CLAIM),
        lean.FIGURE: lean.figure(source),
    }
    return {ROOT / "docs" / name: content for name, content in drawn.items()}


def page(source: Source) -> str:
    """The whole page, with links to its parts after its headline."""
    head, mark, rest = TEMPLATE.render(source=source).partition("\n## ")
    return f"{head}\n{contents(mark + rest)}\n{mark}{rest}"


def contents(text: str) -> str:
    """A line of links to the headings of the second level."""
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    return "On this page: " + " · ".join(f"[{one}](#{anchor(one)})" for one in headings)


def anchor(heading: str) -> str:
    """The link target of a heading, as GitHub builds it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def renewed(readme: str, language: str, source: Source) -> str:
    """A README with its headline from the results; one without a place for it does not change."""
    text = headlines.headline(source, HEADLINES, language, to_results="results", to_page="docs/results.md")
    return HEADLINE.sub(lambda _: text, readme)


def main(arguments: list[str]) -> None:
    """Write everything, or print the choices of the selections."""
    source = Source(ROOT / "results")
    if arguments == ["--choose"]:
        parts = {CLAIM.campaign: others.chosen(source)}
        parts |= {campaign: others.by_part(source, one) for campaign, one in SELECTIONS.items()}
        for campaign, chosen in parts.items():
            print("\n".join([f"{campaign}:", *(others.told_choices(chosen) or ["nothing to choose from yet"])]))
        return
    if arguments:
        sys.exit(f"{' '.join(arguments)}: unknown argument; use none, or --choose")
    PAGE.write_text(page(source), encoding="utf-8")
    for file, drawn in figures(source).items():
        if drawn is not None:
            file.write_bytes(drawn)
    for language, file in READMES.items():
        file.write_text(renewed(file.read_text(encoding="utf-8"), language, source), encoding="utf-8")
    print(f"{PAGE} is up to date")


if __name__ == "__main__":
    main(sys.argv[1:])
