#!/usr/bin/env python3
"""Write docs/results.md, docs/results-in-full.md, their figures and the headline of both READMEs from results/.

    python scripts/write_results.py             # needs no GPU; the same bytes every time
    python scripts/write_results.py --choose    # print the arms that the selections choose; writes nothing

A part that is not measured yet shows the command that measures it. A README has its headline between
`<!-- results: headline -->` and `<!-- end -->`; one without these lines is not changed. Tests compare all output.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from evidence import (
    baseline,
    beyond,
    claim,
    cost,
    demo,
    documents,
    doubts,
    front,
    headlines,
    lean,
    lean_claim,
    others,
    pairs,
    pareto,
    server,
    unsure,
    words,
)
from evidence.source import Setting, Source
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from attncem.config.threats import THREATS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
READMES = {"en": ROOT / "README.md", "zh": ROOT / "README.zh-CN.md"}
HEADLINE = re.compile(r"(?<=<!-- results: headline -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
THIN = "claim-thin-cifar10"
CLAIM = claim.Claim(
    "claim-cifar10",
    {"a": "a-kmeans", "b": "b-front-end-kmeans", "c": "c-front-end-attention"},
    {"d": (THIN, "d-thin-front-end-attention")},
)
TINY = claim.Claim("claim-tiny-imagenet", CLAIM.parts)
FACES = claim.Claim("claim-lfw", CLAIM.parts, balanced=True)
SELECTIONS = {
    TINY.campaign: others.Selection("claim-selection-tiny-imagenet", "a-kmeans"),
    FACES.campaign: others.Selection("claim-selection-lfw", "a-kmeans", balanced=True),
}
SMALL = claim.Claim("claim-demo", CLAIM.parts)
HEADLINES = headlines.Claims(CLAIM, (TINY, FACES), SMALL)


CLAIMS = {"CLAIM": CLAIM, "TINY": TINY, "FACES": FACES, "SMALL": SMALL, "HEADLINES": HEADLINES}
MODULES = (
    *(baseline, beyond, claim, cost, demo, documents, doubts, front, headlines, lean, others, pairs, pareto, server),
    *(lean_claim, unsure, words),
)


def templates() -> Environment:
    """The templates of both pages, with all functions that they call."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "evidence"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    modules = {module.__name__.rpartition(".")[2]: module for module in MODULES}
    environment.globals |= modules | CLAIMS | {"SELECTIONS": SELECTIONS, "THIN": THIN, "THREATS": THREATS}
    environment.filters |= {"spread": words.spread, "unreliable": Setting.unreliable}
    return environment


TEMPLATES = templates()
FIGURES: dict[str, Callable[[Source], bytes | None]] = {
    pareto.FIGURE: partial(pareto.figure, claim=CLAIM),
    front.FIGURE: front.figure,
    pairs.FRONT_END: partial(pairs.figure_of_front_end, claims=HEADLINES.all),
    pairs.EVERYWHERE: partial(pairs.figure_of_all_data, claims=HEADLINES.all),
    lean.FIGURE: lean.figure,
    server.FIGURE: server.figure,
    unsure.FIGURE: unsure.figure,
    doubts.FIGURE: doubts.figure,
    documents.FIGURE: documents.figure,
    cost.FIGURE: cost.figure,
}
"""What draws every figure of the page; None where nothing is measured yet."""


def figures(source: Source) -> dict[Path, bytes | None]:
    """Every figure by its file; None if not measured yet."""
    return {DOCS / name: draw(source) for name, draw in FIGURES.items()}


def pages(source: Source, drawn: Collection[str] = tuple(FIGURES)) -> dict[Path, str]:
    """Both pages by their files; ``drawn``: the figures that there are."""
    return {DOCS / f"{name}.md": page(source, name, drawn) for name in ("results", "results-in-full")}


def page(source: Source, name: str = "results", drawn: Collection[str] = tuple(FIGURES)) -> str:
    """A whole page, with links to its parts after its first lines."""
    head, mark, rest = TEMPLATES.get_template(f"{name}.md.j2").render(source=source, drawn=drawn).partition("\n## ")
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
        print("\n".join([f"{lean_claim.SELECTION}:", *lean_claim.told(source)]))
        return
    if arguments:
        sys.exit(f"{' '.join(arguments)}: unknown argument; use none, or --choose")
    drawn = {file: content for file, content in figures(source).items() if content is not None}
    for file, content in drawn.items():
        file.write_bytes(content)
    for file, text in pages(source, [file.name for file in drawn]).items():
        file.write_text(text, encoding="utf-8")
    for language, file in READMES.items():
        file.write_text(renewed(file.read_text(encoding="utf-8"), language, source), encoding="utf-8")
    print(f"{DOCS / 'results.md'} is up to date")


if __name__ == "__main__":
    main(sys.argv[1:])
