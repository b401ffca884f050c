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

from evidence import beyond, claim, front, headlines, others, pareto, questions
from evidence.source import Source, not_measured

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


def figures(source: Source) -> dict[Path, bytes | None]:
    """Every figure of the page by its file; None if not measured yet."""
    drawn = {front.FIGURE: front.figure(source), pareto.FIGURE: pareto.figure(source, CLAIM)}
    return {ROOT / "docs" / name: content for name, content in drawn.items()}


def elsewhere(source: Source, there: claim.Claim) -> str:
    """The claim on other data, and the selection of λ there."""
    selection = SELECTIONS[there.campaign]
    tried = others.selection_section(source, selection, others.by_part(source, selection))
    return f"{claim.section(source, there)}\n\n{tried}"


def page(source: Source) -> str:
    """The whole page, with links to its parts after its headline."""
    head, mark, rest = _body(source).partition("\n## ")
    return f"{head}\n{contents(mark + rest)}\n{mark}{rest}"


def contents(text: str) -> str:
    """A line of links to the headings of the second level."""
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    return "On this page: " + " · ".join(f"[{one}](#{anchor(one)})" for one in headings)


def anchor(heading: str) -> str:
    """The link target of a heading, as GitHub builds it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _body(source: Source) -> str:
    thin = "" if source.table(THIN) else f"Arm d, with a thin client: {not_measured(THIN)}\n\n"
    drawn = (
        f"![Accuracy against the MSE of the strongest attack]({pareto.FIGURE})\n\n" if claim.find(source, CLAIM) else ""
    )
    return f"""# Results

`python scripts/write_results.py` writes this page from the files of `results/`; each file holds its command.
Only the numbers published by others are typed by hand. A part that is not measured yet says so. ↑: higher is more
private; ↓: lower is more private. Privacy without accuracy is worth nothing, so read both.

{headlines.headline(source, HEADLINES, "en", to_results="../results", to_page=None)}

## The claim
CIFAR-10, VGG11-BN cut 4, z = 8×8×8, σ = 0.1, 40 epochs, one-cycle. **a**: the baseline's kmeans, with its index
defect fixed; **b**: the same behind a front end; **c**: attention behind the same front end. b over a shows the effect
of the front end, c over b the effect of attention. **d**: c with a thin, deep client of equal multiply-accumulates, a
different network. The audit omits three rows of `standard` (the small decoder, the baseline's decoder, the white box):
they take three fifths of its time, and `decoder global` beat them on all four models of [the ladder](audit.md).

{drawn}{thin}{claim.section(source, CLAIM, goals=True)}

### How the arms were chosen
A rule in code (`campaigns/choosing.py`) chooses on validation images. For each setting it takes the λ, within the range
tried, at which the setting has the accuracy of arm a. c is the attention setting with the largest geometric mean of MSE
and structure error at that λ; b is kmeans behind the same front end; d is c with the thin client
([below](#what-may-come-after)).

{others.selection_section(source, others.SELECTION, others.chosen(source))}

### An earlier measurement
The first measurement of the same three arms, with weights that were not matched. Fewer than six seeds per arm cannot
show that a method wins ([why](statistics.md#the-rule-of-six-seeds)).

{claim.section(source, EARLIER)}

## The front
Every surrogate, in our version and as the source documents define it, with and without a front end; CIFAR-10, in the
setting of the claim.

{front.section(source)}

## Other data
The same arms, with the front end and the surrogates chosen on CIFAR-10. Only λ of b and c is chosen again, by the same
rule on validation images of these data.

### Tiny-ImageNet, 200 classes, ResNet-20
{elsewhere(source, TINY)}

### Faces (LFW people)
The number of pictures per person differs, so the accuracy is the mean over people.

{elsewhere(source, FACES)}

## The baseline's own recipe
{others.baseline_section(source)}

## What may come after
On validation images: a thin, deep client of the same multiply-accumulates (`thin_vgg11_bn`), a small adversarial
penalty behind the front end, a front end with learned filters, and noise shaped by spatial frequency.

{beyond.section(source)}

### Where the noise lies
The demo's defended model with noise of the same strength σ: equal on all spatial frequencies of z, stronger on the high
ones (`tilt` below 0), or stronger on the low ones (`tilt` above 0; [channels](channels.md)).

{questions.section(source, "shaped-demo", "white")}

### Filters that are learned
The demo's defended model with fixed filters, with learned filters (`learned_contrast`), each of them with a small
adversarial penalty in addition to the surrogate, and the fixed filters also with larger ones
([front ends](front-ends.md#a-front-end-that-learns)).

{questions.section(source, "learned-demo", "fixed")}

## Without a defence
{others.undefended_section(source)}

## The embedded images
{others.demo_section(source)}

### The claim in small
The demo's baseline, the same behind the demo's front end, and the demo's defended model, whose σ differs too: six
seeds, without a GPU. Accuracies are not matched. The attacks are those of `quick`; none of them sees the whole feature.

{claim.section(source, SMALL)}
"""


def renewed(readme: str, language: str, source: Source) -> str:
    """A README with its headline from the results; one without a place for it is not changed."""
    text = headlines.headline(source, HEADLINES, language, to_results="results", to_page="docs/results.md")
    return HEADLINE.sub(lambda _: text, readme)


def main(arguments: list[str]) -> None:
    """Write everything, or print what the selections choose."""
    source = Source(ROOT / "results")
    if arguments == ["--choose"]:
        parts = {CLAIM.campaign: others.chosen(source)}
        parts |= {campaign: others.by_part(source, one) for campaign, one in SELECTIONS.items()}
        for campaign, own in parts.items():
            print("\n".join([f"{campaign}:", *(others.told_choices(own) or ["nothing to choose from yet"])]))
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
