"""docs/results.md, its page of all tables and the READMEs' headline: what is committed is what the script writes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncem.base.types import RunError
from attncem.records.campaign_table import CampaignTable, CellAudit, CellResult
from attncem.records.metrics import METRICS
from attncem.records.study.equal import effects, moved, slopes
from attncem.records.study.results import study_of_results
from made_results import BASE, ROOT, by_weight, cells_of, flat, folder, made, made_audit, page_scripts, part, planted


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The script and its parts, importable as when it is run."""
    with page_scripts() as parts:
        yield parts


def full(script: Any, source: Any) -> str:
    """The page of all tables."""
    return str(script.write_results.page(source, "results-in-full"))


# what is committed


def test_the_committed_page_is_what_the_script_writes(script: Any) -> None:
    write = script.write_results
    source = script.source.Source(ROOT / "results")
    drawn = write.figures(source)
    for file, content in drawn.items():
        assert file.exists() == (content is not None) and (content is None or file.read_bytes() == content), file
    for file, text in write.pages(source, [one.name for one in drawn if drawn[one]]).items():
        assert file.read_text(encoding="utf-8") == text, "run scripts/write_results.py"
    for language, readme in write.READMES.items():
        text = readme.read_text(encoding="utf-8")
        assert write.renewed(text, language, source) == text, "run scripts/write_results.py"


def test_a_new_measure_changes_nothing_that_is_committed(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed results do not have it."""
    monkeypatch.setitem(METRICS, "new", METRICS["mse"])
    found = script.claim.find(script.source.Source(ROOT / "results"), script.write_results.SMALL)
    assert found.measures == ["accuracy", *BASE]
    assert all("new" not in effects and "mse" in effects for effects in found.measured.values())


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("results", {"does-attention-leak-less-than-kmeans", "does-the-baselines-own-recipe-hold"}),
        ("results-in-full", {"the-claim", "tiny-imagenet-200-classes-resnet-20", "filters-that-are-learned"}),
    ],
)
def test_links_inside_a_page_lead_to_its_headings(script: Any, name: str, some: set[str]) -> None:
    """tests/test_readme.py follows the links between pages."""
    page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^##+ (.+)$", page, re.MULTILINE)
    there = {script.write_results.anchor(one) for one in headings}
    inside = re.findall(r"\]\(#([^)]+)\)", page)
    assert some <= there and set(inside) <= there and len(inside) >= page.count("\n## ")


UNFOLDED = 250
"""Lines of docs/results.md that a reader may see before unfolding anything."""


def test_the_page_is_short_and_every_question_is_answered_first() -> None:
    """A section is an answer, at most one figure and one table; the rest is folded."""
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    shown = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    assert len(shown.splitlines()) <= UNFOLDED and page.count("<details>") == page.count("</details>") > 0
    sections = shown.split("\n## ")[1:]
    assert len(sections) > 10
    for section in sections:
        heading, first, *_ = section.splitlines()
        assert heading.endswith("?") and first[0].isalpha() and first.endswith("."), heading
        assert section.count("![") <= 1 and section.count("\n|--") <= 1, heading


def test_arms_that_were_chosen_are_those_of_the_claims_files(script: Any) -> None:
    """Once the selections are measured, nobody may forget to put what they say into the campaigns."""
    chosen = script.others.chosen(script.source.Source(ROOT / "results"))
    for letter, one in chosen.items():
        name = "claim-thin-cifar10" if letter == "d" else "claim-cifar10"
        asked = next(cell.config for cell in cells_of(name) if cell.cell.arm.startswith(f"{letter}-"))
        assert asked.training.penalty_weight == one.matched.weight
        assert (asked.model.front_end, asked.surrogate) == (one.config.model.front_end, one.config.surrogate)


def test_weights_that_were_chosen_on_other_data_are_those_of_their_claims_files(script: Any) -> None:
    source, front_ends = script.source.Source(ROOT / "results"), set()
    for campaign, chosen in script.write_results.SELECTIONS.items():
        asked = {one.cell.arm: one.config for one in cells_of(campaign)}
        front_ends |= {asked[name].model.front_end.model_dump_json() for name in asked if name[0] in "bc"}
        for one in script.others.by_part(source, chosen).values():
            assert asked[one.matched.name].training.penalty_weight == one.matched.weight
    own = {one.cell.arm: one.config.model.front_end.model_dump_json() for one in cells_of("claim-cifar10")}
    assert front_ends == {own["c-front-end-attention"]}, "not chosen anew"


# made-up results


def test_without_results_the_pages_say_what_to_run(script: Any, tmp_path: Path) -> None:
    source = script.source.Source(tmp_path)
    tables = full(script, source)
    for name in ("claim", "claim-selection", "claim-thin", "front", "beyond"):
        assert f"not measured yet: `attncem campaign run {name}-cifar10`" in tables
    for name in ("claim-tiny-imagenet", "claim-lfw", "claim-selection-lfw"):
        assert f"not measured yet: `attncem campaign run {name}`" in tables
    page = script.write_results.page(source, drawn=[])
    assert "There is no claim on CIFAR-10 yet" in page
    assert "![" not in page and "\n|" not in page.partition("As published")[0]
    for name in ("claim-cifar10", "front-cifar10", "lean-cifar10", "selective-cifar10", "lean-doubts-cifar10"):
        assert f"not measured yet: `attncem campaign run {name}`" in page
    for name in ("documents-gates", "documents-sweep", "baseline-240-cifar10"):
        assert f"not measured yet: `attncem campaign run {name}`" in page
    assert "`attncem demo`" in page and "`python -m benchmarks --out results/benchmark.json`" in page
    assert set(script.write_results.figures(source).values()) == {None}


def test_a_planted_effect_is_found_and_the_page_is_the_same_every_time(script: Any, tmp_path: Path) -> None:
    folder(tmp_path, made("claim-cifar10", planted(2.1)), made("claim-selection-cifar10", flat))
    source = script.source.Source(tmp_path)
    page = full(script, source)
    assert page == full(script, script.source.Source(tmp_path))
    own = part(page, "## The claim")
    assert own.count("- reached: ") == 4 and "not reached" not in own
    assert "MSE ↑ at least 1.6 times: 2.1" in own and "2 times as well" in own
    assert "6 seeds per arm" in own and "[`results/claim_cifar10.json`](../results/claim_cifar10.json)" in own
    assert re.search(r"\| c over a \| MSE ↑ \| 2\.\d\d \(2\.\d\d to 2\.\d\d\) \|", own)
    assert "| c over a | PSNR" not in own, "decibels have no ratio"
    assert re.search(r"\| ridge x4 \| 0\.0\d+ ± .* \| 0\.06\d\d ± ", own)
    head = headline(script, source, "en")
    assert re.search(r"\| the same: front end \+ attention \| 6 \| 87\.\d \| – \| 5\d \| – \| more private", head)


def test_no_effect_is_said_to_be_none(script: Any, tmp_path: Path) -> None:
    folder(tmp_path, made("claim-cifar10", planted(1.0)))
    page = full(script, script.source.Source(tmp_path))
    own = part(page, "## The claim")
    assert "no difference shown" in own and "more private |" not in own
    assert own.count("**not reached**") >= 3
    assert "no measure may be worse; shown to be worse: none" in own
    assert "effect of attention: c over b" in own


def test_a_measure_that_is_worse_is_named(script: Any, tmp_path: Path) -> None:
    folder(tmp_path, made("claim-cifar10", planted(0.8)))
    own = part(full(script, script.source.Source(tmp_path)), "## The claim")
    assert "**not reached**: no measure may be worse; shown to be worse: MSE ↑, SSIM ↓" in own
    assert "**less private**" in own


def test_unequal_accuracies_are_corrected_along_the_measured_slope(script: Any, tmp_path: Path) -> None:
    """Arm c is a point less accurate, and all that it leaves more is what its slope says a point is worth."""

    def honest(arm: str, weight: float) -> dict[str, float]:
        return {"accuracy": 0.867, "times": 1.2} if arm[0] == "c" else {"accuracy": 0.877, "times": 1.0}

    def along(arm: str, weight: float) -> dict[str, float]:
        away = 0.0 if weight in (0.05, 1.2) or (arm, weight) == ("kmeans", 2) else 0.02
        return {"accuracy": 0.877 - away, "times": 1.2 ** (100 * away)}

    folder(tmp_path, made("claim-cifar10", honest, noise=0.5), made("claim-selection-cifar10", along, noise=0.0))
    source = script.source.Source(tmp_path)
    found = script.claim.find(source, script.write_results.CLAIM)
    as_measured, equal = found.measured["c", "a"]["mse"], found.corrected["c", "a"]["mse"]
    assert as_measured.comparison.ratio == pytest.approx(1.2, abs=0.01) and as_measured.answer == "more_private"
    assert equal.comparison.ratio == pytest.approx(1.0, abs=0.02) and equal.answer == "no_difference_shown"
    assert np.std(found.equal["c"].values("mse")) > np.std(found.arms["c"].values("mse")), "accuracies spread too"
    own = part(full(script, source), "## The claim")
    assert re.search(r"c differs from a by -1\.\d\d points of accuracy: \*\*not within\*\* 0\.2\.", own)
    assert "results/claim_selection_cifar10.json" in own and "one slope for 14 settings at several λ each" in own
    assert re.search(r"changes the MSE by -16\.7 % \(-16\.7 to -16\.7 with one setting left out\)", own)
    assert re.search(r"\*\*not reached\*\*: MSE ↑ at least 1\.6 times: (0\.99|1\.0\d) ", own)


def test_three_seeds_are_too_few_to_tell_however_large_the_effect(script: Any, tmp_path: Path) -> None:
    folder(tmp_path, made("claim-lfw", planted(3.0), drop=1))
    own = part(full(script, script.source.Source(tmp_path)), "### Faces (LFW people)")
    assert "too few seeds for a test" in own and "≥ 0.1" in own and "more private |" not in own
    assert "Balanced accuracy %" in own and "85." in own, "two points below the plain one"
    assert "**Not complete**: 1 of the campaign's runs are missing: `c-front-end-attention` (1)." in own


def test_a_claim_that_lacks_runs_is_no_claim_yet(script: Any, tmp_path: Path) -> None:
    folder(tmp_path, made("claim-cifar10", planted(2.1), drop=6))
    page = full(script, script.source.Source(tmp_path))
    head = headline(script, script.source.Source(tmp_path), "en")
    assert "There is no claim on CIFAR-10 yet" in head and "| CIFAR-10" not in head
    assert "**Not complete**: 6 of the campaign's runs are missing" in part(page, "## The claim")


def test_attacks_that_cannot_be_trusted_are_counted(script: Any, tmp_path: Path) -> None:
    table = made("claim-cifar10", planted(2.1))
    (audit,) = table.cells[0].audits
    assert audit.attacks is not None
    audit.attacks["decoder global"]["reliable"] = False
    folder(tmp_path, table)
    page = full(script, script.source.Source(tmp_path))
    assert "**The audits of 1 runs call their strongest attack unreliable**" in page


def test_the_thin_client_stands_beside_the_claim_once_it_is_measured(script: Any, tmp_path: Path) -> None:
    folder(tmp_path, made("claim-cifar10", planted(1.8)), made("claim-thin-cifar10", planted(1.8)))
    own = part(full(script, script.source.Source(tmp_path)), "## The claim")
    assert "| **d** | thin_vgg11_bn | local_contrast s 1.5 |" in own
    assert re.search(r"effect of the thin client: d over c, MSE ↑ 1\.2\d", own)
    assert "not measured" not in own


def test_the_rule_takes_the_setting_that_leaves_most_at_the_accuracy_of_a(script: Any, tmp_path: Path) -> None:
    folder(tmp_path, made("claim-selection-cifar10", by_weight, noise=0.0))
    source = script.source.Source(tmp_path)
    found = script.others.chosen(source)
    assert found.keys() == {"b", "c"}
    assert (found["c"].matched.name, found["b"].matched.name) == ("s1.5-slot", "s1.5-kmeans")
    assert (found["c"].matched.weight, found["b"].matched.weight) == (0.07, 1.6)
    assert script.others.told_choices(found) == [
        "b: front end local_contrast s 1.5; surrogate kmeans; λ = 1.6",
        "c: front end local_contrast s 1.5; surrogate slot; λ = 0.07",
    ]
    page = full(script, source)
    assert re.search(r"\| s1.5-slot \| 0.07 \| 0\.\d+ \| yes \| \*\*c\*\* \|", page)


def test_a_setting_that_was_never_that_accurate_is_not_taken(script: Any, tmp_path: Path) -> None:
    def plant(arm: str, weight: float) -> dict[str, float]:
        means = by_weight(arm, weight)
        return {**means, "accuracy": means["accuracy"] - 0.1} if arm == "s1.5-slot" else means

    folder(tmp_path, made("claim-selection-cifar10", plant, noise=0.0))
    assert script.others.chosen(script.source.Source(tmp_path))["c"].matched.name == "s3-slot"


def test_the_front_is_a_table_and_a_figure_of_the_same_bytes(script: Any, tmp_path: Path) -> None:
    def fronts(arm: str, weight: float) -> dict[str, float]:
        if arm == "front-end-none":
            return {"accuracy": 0.9, "times": 2.0}
        return {"accuracy": 0.89 - 0.01 * weight / 16, "times": 1.5 if arm.startswith("front-end") else 1.0}

    folder(tmp_path, made("front-cifar10", fronts, noise=0.1))
    source = script.source.Source(tmp_path)
    drawn = script.front.figure(source)
    assert drawn == script.front.figure(source) and drawn.startswith(b"<?xml")
    for name in ("gated-002", "slot-001", "with a front end", "accuracy %"):
        assert f">{name}<".encode() in drawn
    own = part(full(script, source), "## The front")
    assert own.count("\n| local_contrast s 1.5 |") == own.count("\n| none |") == 17
    assert "gated 002, λ = 16" in own and "| on it, 100 % |" in own and "| no, 0 % |" in own
    assert "(results-front.svg)" in script.write_results.page(source, drawn=["results-front.svg"])


def test_the_front_sets_surrogates_beside_each_other_at_one_accuracy(script: Any, tmp_path: Path) -> None:
    """All lie on one line of error over accuracy, twice as high behind a front end; gmm's larger λ does nothing."""

    def fronts(arm: str, weight: float) -> dict[str, float]:
        name, behind = arm.removeprefix("front-end-"), 2.0 if arm.startswith("front-end-") else 1.0
        if name == "gmm":
            return {"accuracy": 0.88, "times": behind * (1.1 if weight == 0.05 else 1.0)}
        lost = 0.0 if not weight else 0.01 if weight in (1.4, 0.05, 0.15, 0.07, 4) else 0.02
        return {"accuracy": 0.89 - lost, "times": behind * 1.2 ** (100 * lost)}

    folder(tmp_path, made("front-cifar10", fronts, noise=0.0))
    source = script.source.Source(tmp_path)
    own = part(full(script, source), "## The front")
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in own.splitlines() if " | 2.00 |" in line}
    assert set(rows) == {"kmeans", "gmm", "capacity", "gated", "gated-002", "slot", "slot-001", "hybrid"}
    at = {name: (float(cells[0]), float(cells[3])) for name, cells in rows.items()}
    assert at.pop("gmm") == (0.0165, 0.033), "of two weights at that accuracy the one that leaves more"
    assert all(own == pytest.approx((0.018, 0.036), rel=0.03) for own in at.values()), "along the common slope"
    assert re.search(r"MSE 0\.0165 to 0\.018\d without a front end, 0\.0330 to 0\.03[67]\d behind it", own)


def test_the_front_says_what_the_front_end_does_for_every_surrogate(script: Any, tmp_path: Path) -> None:
    def fronts(arm: str, weight: float) -> dict[str, float]:
        lost = 0.01 if weight in (0, 1.4, 0.05, 0.15, 0.07, 4) else 0.02
        gain = 1.5 if arm == "front-end-gmm" else 2.0 if arm.startswith("front-end-") else 1.0
        return {"accuracy": 0.89 - lost, "times": gain * 1.2 ** (100 * lost)}

    source = script.source.Source(folder(tmp_path, made("front-cifar10", fronts, noise=0.0)))
    section = part(full(script, source), "## The front")
    assert (
        "Each of 8 surrogates leaves 1.50 to 2.00 times the MSE and 1.50 to 2.00 times the structure error" in section
    )


def test_the_thin_client_is_told_at_equal_accuracy_where_that_is_not_extrapolated(script: Any, tmp_path: Path) -> None:
    def along(arm: str, weight: float) -> dict[str, float]:
        away = 0.0 if weight in (0.05, 1.2) or (arm, weight) == ("kmeans", 2) else 0.02
        return {"accuracy": 0.877 - away, "times": 1.2 ** (100 * away)}

    claim = made("claim-cifar10", planted(1.8))
    for accuracy, told in ((0.867, True), (0.850, False)):
        thin = made("claim-thin-cifar10", planted(1.8, accuracy=accuracy))
        folder(tmp_path, claim, thin, made("claim-selection-cifar10", along, noise=0.0))
        page = script.write_results.page(script.source.Source(tmp_path))
        (row,) = (line for line in page.splitlines() if "| thin client, front end + attention over kmeans |" in line)
        assert ("(accuracy not corrected)" not in row) == told


def test_the_baselines_row_and_what_may_come_after(script: Any, tmp_path: Path) -> None:
    folder(
        tmp_path,
        made("baseline-240-cifar10", flat),
        made("claim-selection-cifar10", by_weight, noise=0.0),
        made("beyond-cifar10", lambda arm, weight: {"accuracy": 0.877 - weight / 100, "times": 1 + weight}, noise=0.0),
    )
    source = script.source.Source(tmp_path)
    page, own = full(script, source), part(script.write_results.page(source), "## Does the baseline's own recipe hold?")
    assert "| `train` | decoder global | 87." in own and "| `published_infer` | decoder global | 87." in own
    assert "As published by others" in own and "one seed, the baseline's" in own
    beyond = part(page, "## What may come after")
    assert "| thin_vgg11_bn | local_contrast s 1.5 | gated, λ = 0.03 |" in beyond
    assert "gated, λ = 0.05, adversarial 0.05" in beyond and "| thin-s1.5-gated | 0.002 |" in beyond
    assert "| local_contrast s 1.5 | gated, λ = 0.05, noise of tilt 0.5 |" in beyond
    assert "not measured yet: `attncem campaign run shaped-demo`" in part(page, "### Where the noise lies")


def test_what_may_come_after_stands_beside_the_baseline_at_the_same_accuracy(script: Any, tmp_path: Path) -> None:
    accuracies = {"thin": 0.862, "thin-s1.5": 0.872, "thin-kmeans": 0.89}

    def plant(arm: str, weight: float) -> dict[str, float]:
        """Baseline: 1 times at 87.7 % (λ 2), 1.5 at 86.7 (3), 2 at 85.7 (4), 4 at 83.7 (6)."""
        if arm == "kmeans":
            return {"accuracy": 0.857 - 0.01 * (weight - 4), "times": 2.0 + weight - 4}
        return {"accuracy": accuracies.get(arm, 0.5), "times": {"thin": 3.5, "thin-s1.5": 5.0}.get(arm, 9.0)}

    beyond = made("beyond-cifar10", plant, noise=0.0)
    lost = [replace(cell, warnings=["near_chance"]) if cell.arm == "thin-s1.5" else cell for cell in beyond.cells]
    chosen = made("claim-selection-cifar10", by_weight, noise=0.0)
    for cells, names in ((beyond.cells, ["thin-s1.5", "thin"]), (lost, ["thin"])):
        source = script.source.Source(folder(tmp_path, replace(beyond, cells=cells), chosen))
        found = script.beyond.beside_baseline(source)
        own = [one for one in found if one.arm.campaign == "beyond-cifar10"]
        assert [one.arm.name for one in own] == names, "the others are beyond the baseline's accuracies"
        assert own[-1].times == pytest.approx({"mse": 2.0, "structure": 2.0}), "1.75 between 1.5 and 2"
        assert {(one.arm.name, one.part) for one in found if one.part} == {("s1.5-slot", "c"), ("s1.5-kmeans", "b")}
        assert [one.gain for one in found] == sorted((one.gain for one in found), reverse=True)
    said = part(full(script, source), "## What may come after")
    assert "between its λ of 2, 3, 4, 6 (83.70 to 87.70 %" in said and "Means of 2 seeds per arm" in said
    assert "| thin_vgg11_bn | none | none | 86.20 | 2.00 | 2.00 |  |" in said
    assert script.beyond.beside_baseline(script.source.Source(tmp_path / "nothing")) == []


def test_on_other_data_a_setting_whose_every_run_collapsed_has_no_weight(script: Any, tmp_path: Path) -> None:
    def plant(arm: str, weight: float) -> dict[str, float]:
        return {"accuracy": 0.7 if arm[0] == "a" else 0.79 - weight / 20, "times": 1 + weight}

    found = made("claim-selection-lfw", plant, noise=0.0)
    lost = [replace(one, warnings=["near_chance"]) if one.arm[0] == "c" else one for one in found.cells]
    selection = script.write_results.SELECTIONS["claim-lfw"]
    for cells, parts in ((found.cells, ["b", "c"]), (lost, ["b"])):
        source = script.source.Source(folder(tmp_path, replace(found, cells=cells)))
        own = script.others.by_part(source, selection)
        assert list(own) == parts and own["b"].matched.weight == 1.8 and own["b"].matched.within
        shown = part(full(script, source), "### Faces (LFW people)")
        assert ("| **c** |" in shown) == ("c" in parts) and "Balanced accuracy %" in shown


def test_the_claims_figure_has_every_arm_and_is_of_the_same_bytes(script: Any, tmp_path: Path) -> None:
    write = script.write_results
    place = folder(tmp_path / "some", made("claim-cifar10", planted(1.8)))
    source = script.source.Source(place)
    drawn = write.figures(source)[ROOT / "docs/results-claim.svg"]
    assert drawn == write.figures(source)[ROOT / "docs/results-claim.svg"] and "(results-claim.svg)" in write.page(
        source
    )
    told = drawn.decode()
    assert all(f">{name}<" in told for name in ("a: kmeans", "b: front end, kmeans", "c: front end, attention"))
    assert "d: thin client" not in told


def test_a_run_that_collapsed_is_shown_and_decides_nothing(script: Any, tmp_path: Path) -> None:
    def plant(arm: str, weight: float) -> dict[str, float]:
        return {"accuracy": 0.86 - weight / 2, "times": 3.0}

    beyond = made("beyond-cifar10", plant, noise=0.0)
    lost = [
        replace(cell, audits=[made_audit(0.1, 4.0)], warnings=["near_chance"])
        if (cell.arm, cell.point.get("training.penalty_weight"), cell.seed) == ("thin-s1.5-gated", 0.07, 0)
        else cell
        for cell in beyond.cells
    ]
    others = [made("claim-selection-cifar10", by_weight, noise=0.0), made("claim-cifar10", planted(1.8))]
    folder(tmp_path, replace(beyond, cells=lost), *others)
    source = script.source.Source(tmp_path)
    chosen = {one.matched.name: one.matched for one in script.others.choices(source, campaign="beyond-cifar10")}
    assert (chosen["thin-s1.5-gated"].weight, chosen["thin-s1.5-gated"].within) == (0.002, False)
    own = part(full(script, source), "## What may come after")
    assert "gated, λ = 0.07 | 46." in own and "Runs that ended near chance: 1;" in own
    networks = {arm.config.model.name for arm in source.arms("beyond-cifar10")}
    found = script.claim.find(source, script.write_results.CLAIM)
    assert networks == {"vgg11_bn", "thin_vgg11_bn"} and not any(
        arm.name.startswith("thin") for curve in found.slope.curves for arm in curve
    ), "the slope is that of the network of arm a"


@pytest.mark.parametrize(
    ("accuracy", "points", "told"), [(0.855, "-2", "extrapolated"), (0.82, "-5", "too little to correct this")]
)
def test_an_accuracy_beyond_those_of_the_slope_is_said_to_be(
    script: Any, tmp_path: Path, accuracy: float, points: str, told: str
) -> None:
    """λ moves the accuracy by 1.43 points there: as far again is extrapolated, and farther is not corrected."""
    tables = [made("claim-selection-cifar10", by_weight, noise=0.0), made("claim-cifar10", planted(1.8))]
    folder(tmp_path, *tables, made("claim-thin-cifar10", planted(1.8, accuracy=accuracy)))
    source = script.source.Source(tmp_path)
    own = part(full(script, source), "## The claim")
    (said,) = re.findall(rf"- d differs from a by {points}\.\d\d points of accuracy: .*", own)
    assert f"**{told}**" in said and own.count(f"**{told}**") == 1
    found = script.claim.find(source, script.write_results.CLAIM)
    assert found.slope.reach == pytest.approx(0.02 * 0.05 / 0.07)
    assert found.equal.keys() == ({"a", "b", "c", "d"} if told == "extrapolated" else {"a", "b", "c"})


@pytest.mark.parametrize(
    ("language", "unequal", "measured"),
    [
        ("en", "cannot be corrected to equal accuracy", "; accuracy not corrected"),
        ("zh", "无法校正到相同准确率", "；准确率未校正"),
    ],
)
def test_a_claim_beyond_the_slope_is_shown_as_measured(
    script: Any, tmp_path: Path, language: str, unequal: str, measured: str
) -> None:
    """Arms b and c are far from a: nothing is known at equal accuracy, and no goal is reached."""
    tables = [made("claim-selection-cifar10", by_weight, noise=0.0), made("claim-cifar10", planted(1.8, 0.82))]
    source = script.source.Source(folder(tmp_path, *tables))
    assert script.claim.find(source, script.write_results.CLAIM).equal.keys() == {"a"}
    head = headline(script, source, language)
    assert unequal in head and re.search(rf"\| 8[12]\.\d \| – \| 45 \| – \| .*{re.escape(measured)} \|", head), head
    section = part(full(script, source), "## The claim")
    assert section.count("too little to correct") == 2 and "- reached" not in section
    assert "corrected to the mean accuracy" not in section, "nothing is"
    assert section.count("**not reached**") == section.count("(at a different accuracy than a)") == 4


def headline(script: Any, source: Any, language: str) -> str:
    """The headline as a README has it, without the link to the page."""
    claims = script.write_results.HEADLINES
    return str(script.headlines.headline(source, claims, language, to_results="results", to_page=None))


@pytest.mark.parametrize(
    ("language", "none", "some"),
    [
        ("en", "attention shows no gain over kmeans", "attention leaves 1.29 times the error of kmeans"),
        ("zh", "注意力与 kmeans 相比未显示增益", "注意力的误差为 kmeans 的 1.29 倍"),
    ],
)
def test_the_headline_names_the_cause_of_the_gain(
    script: Any, tmp_path: Path, language: str, none: str, some: str
) -> None:
    def same(arm: str, weight: float) -> dict[str, float]:
        return planted(1.8)("c" if arm[0] == "b" else arm, weight)

    for name, plant, differs in (("same", same, False), ("more", planted(1.8), True)):
        tables = [made("claim-cifar10", plant), made("claim-thin-cifar10", planted(1.8, 0.86))]
        place = folder(tmp_path / name, *tables, made("claim-selection-cifar10", by_weight, noise=0.0))
        head = headline(script, script.source.Source(place), language)
        assert (none in head) is not differs and (some in head) is differs, head
        assert "results/claim_cifar10.json" in head and head.count("\n| ") == 3


def test_a_single_question_has_every_arm_over_the_one_it_is_asked_against(script: Any, tmp_path: Path) -> None:
    def plant(arm: str, weight: float) -> dict[str, float]:
        return {"accuracy": 0.86 if arm == "coarse-1" else 0.88, "times": 1.5 if arm == "coarse-1" else 1.0}

    folder(tmp_path, made("shaped-demo", plant, noise=0.2))
    own = part(full(script, script.source.Source(tmp_path)), "### Where the noise lies")
    assert re.search(r"\| coarse-1 over white \| MSE ↑ \| 1\.5\d? .*\| 0\.0\d+ \| more private \|", own)
    assert re.search(r"\| fine-0.5 over white \| MSE ↑ \| (1\.0|0\.9)\d .*no difference shown", own)
    assert re.search(r"Accuracies differ by up to [12]\.\d\d points", own) and "white over" not in own


@pytest.mark.parametrize(
    ("language", "few", "doubt"),
    [
        ("en", "more private than the baseline, too few seeds", "; attack not reliable in 1 of 9 runs |"),
        ("zh", "比基线更私密，种子太少，不足以检验", "；9 次运行中有 1 次攻击不可靠 |"),
    ],
)
def test_the_headline_shows_other_data_once_they_are_complete(
    script: Any, tmp_path: Path, language: str, few: str, doubt: str
) -> None:
    def head(table: CampaignTable) -> str:
        return headline(script, script.source.Source(folder(tmp_path, table)), language)

    complete, name = made("claim-tiny-imagenet", planted(1.8, 0.887)), "| Tiny-ImageNet"
    assert name not in head(made("claim-tiny-imagenet", planted(1.8), drop=1))
    text = head(complete)
    assert name in text and few in text and "results/claim_tiny_imagenet.json" in text and doubt not in text
    assert re.search(r"\| 3 \| 88\.\d \| – \| 45 \|", text), "1.8 over 4 times the error of the baseline"
    first = complete.cells[0].audits[0]
    attacks = {name: {**scores, "reliable": False} for name, scores in (first.attacks or {}).items()}
    cells = [replace(complete.cells[0], audits=[replace(first, attacks=attacks)]), *complete.cells[1:]]
    assert doubt in head(replace(complete, cells=cells))


@pytest.mark.parametrize(
    ("language", "kmeans", "attention"),
    [("en", "front end + kmeans", "front end + attention"), ("zh", "前端 + kmeans", "前端 + 注意力")],
)
def test_other_data_without_attention_show_the_front_end(
    script: Any, tmp_path: Path, language: str, kmeans: str, attention: str
) -> None:
    """The front end's effect is known before attention is measured; bad news is shown too."""

    def both(table: CampaignTable) -> tuple[str, str]:
        source = script.source.Source(folder(tmp_path, table))
        section = part(full(script, source), "### Tiny-ImageNet, 200 classes, ResNet-20")
        return headline(script, source, language), section

    def plant(arm: str, weight: float) -> dict[str, float]:
        return {"accuracy": 0.39 if arm[0] == "a" else 0.38, "times": 1.0 if arm[0] == "a" else 0.8}

    whole = made("claim-tiny-imagenet", plant)
    cells = [cell for cell in whole.cells if not cell.arm.startswith("c-")]
    lost = {one.cell.id: "planned" for one in cells_of("claim-tiny-imagenet") if one.cell.id.startswith("c-")}
    head, page = both(replace(whole, cells=cells, unfinished=lost))
    worse = {"en": "**less private** than the baseline", "zh": "比基线**更不私密**"}[language]
    assert kmeans in head and attention not in head and re.search(r"Tiny-ImageNet.* \| 3[78]\.\d \| – \| 20 \|", head)
    assert "3 of the campaign's runs are missing: `c-front-end-attention` (3)" in page
    assert re.search(r"\| b over a \| MSE ↑ \| 0\.(79|80|81) ", page) and "c over" not in page
    less = replace(whole, cells=cells[:-1], unfinished={**lost, "b-front-end-kmeans-s2": "planned"})
    assert "Tiny-ImageNet" not in both(less)[0], "not before the measured arms have all their seeds"
    assert worse in head and worse in both(whole)[0] and attention in both(whole)[0] and "c over a" in both(whole)[1]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_readme_gets_its_headline_and_nothing_else_changes(script: Any, tmp_path: Path, language: str) -> None:
    readme = "# Title\n\n<!-- results: headline -->\nold\n<!-- end -->\n\n## More\n"
    write, source = script.write_results, script.source.Source(ROOT / "results")
    new = write.renewed(readme, language, source)
    assert new.startswith("# Title\n\n<!-- results: headline -->\n") and new.endswith("\n<!-- end -->\n\n## More\n")
    assert "old" not in new and "results/" in new and "](docs/results.md)" in new
    assert write.renewed(new, language, source) == new
    assert write.renewed("# Nothing to fill\n", language, source) == "# Nothing to fill\n"
    folder(tmp_path, made("claim-cifar10", planted(2.1)))
    claimed = write.renewed(readme, language, script.source.Source(tmp_path))
    assert "| 53 |" in claimed and "results/claim_cifar10.json" in claimed, "2.1 over 4"


# the numbers behind it


def test_slopes_and_moving_along_them() -> None:
    """Two settings, of which doubling λ costs a point and two points, and halves and quarters what is left to hide."""

    def planted(arm: str, weight: float) -> dict[str, float]:
        steep = 2 if arm == "s3-slot" else 1
        doublings = math.log2(weight / 0.05)
        return {"accuracy": 0.88 - 0.01 * steep * doublings, "times": 1.2 ** (steep * doublings)}

    arms = study_of_results(made("claim-selection-cifar10", planted, noise=0.0)).arms
    curves = [
        [(arm.point["training.penalty_weight"], arm) for arm in arms if arm.name == name]
        for name in ("s3-slot", "s1.5-slot")
    ]
    line = slopes(curves)
    assert line["mse"] == pytest.approx(-math.log(1.2) / 0.01), "the same for both, so the same for all"
    there = moved(curves[0][1][1], 0.88, line)
    assert there.accuracy == pytest.approx(0.88)
    assert there.values("mse") == pytest.approx([BASE["mse"]] * 2)
    assert slopes([]) == {} and slopes([curve[:1] for curve in curves]) == {}, "one point has no slope"
    assert moved(curves[0][0][1], 0.88, {}).measures() == []


def test_p_is_adjusted_for_all_pairs_and_measures_together() -> None:
    a, b, c = study_of_results(made("claim-cifar10", planted(1.6))).arms
    alone, together = effects([(c, a)])[0], effects([(c, a), (b, a), (c, b)])[0]
    assert list(alone) == [one.measure for one in alone.values()] == [name for name in BASE if name != "psnr"]
    assert all(one.comparison.adjusted_p is not None for one in together.values())
    assert all(alone[name].comparison.p == together[name].comparison.p for name in alone)
    assert {one.answer for one in together.values()} == {"more_private"}
    nothing = moved(c, a.accuracy, {})
    assert [len(pair) for pair in effects([(nothing, a), (c, a)])] == [0, len(alone)], "each pair has its place"


def test_results_without_what_is_needed_are_refused(script: Any) -> None:
    table = made("claim-cifar10", flat)
    bare = CellResult("a-kmeans", {}, 0, [CellAudit([0.9, 0.9, 0.9])])
    with pytest.raises(RunError, match="claim-cifar10: a-kmeans with seed 0 has no attack with a result"):
        script.source.settings(CampaignTable("claim-cifar10", "", "", table.audits, [bare]))
    attacks = table.cells[0].audits[0].attacks
    for audit, balanced, missing in (
        (CellAudit([0.9], "decoder global", attacks), True, "claim-cifar10: a with seed 0 has no balanced accuracy"),
        (CellAudit(None, "decoder global", attacks), False, "claim-cifar10: a with seed 0 has no accuracy"),
    ):
        one = CampaignTable("claim-cifar10", "", "", table.audits, [CellResult("a", {}, 0, [audit])])
        with pytest.raises(RunError, match=missing):
            script.source.settings(one, balanced=balanced)
