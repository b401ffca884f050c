"""The first screen of a campaign's page: which arm is better, one image of every arm; figures tell points apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncem.records.study import AuditKind
from attncem.reporting.campaign import plots, tables
from attncem.reporting.campaign.answers import SEEDS_NEEDED, Answer, answers, picture_row
from attncem.reporting.campaign.data import walls
from attncem.reporting.campaign.load import Judged, drawn_interval, load_campaign, point_words
from attncem.reporting.table_formats import Column, Item, Table, as_latex, with_best
from made_campaigns import ARMS, Made, make_campaign

GRID = {"training.penalty_weight": [1.0, 4.0]}


def study_of(folder: Path, made: Made) -> Judged:
    return load_campaign(make_campaign(folder / "campaign", made).path).study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Three arms, two of them at two points, four seeds each."""
    return study_of(tmp_path_factory.mktemp("made"), Made(ARMS, seeds=4, grid=GRID, pictures=1, portraits=False))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Two seeds, and an attack that never converges."""
    made = Made(ARMS, seeds=2, grid=GRID, attacks=("gan",), pictures=1, portraits=False)
    return study_of(tmp_path_factory.mktemp("made"), made)


def said(answer: Answer) -> str:
    clauses = (f"{clause.about} {clause.word} ({clause.numbers})" for clause in answer.clauses)
    return f"{answer.arm} against {answer.other}. {'; '.join(clauses)}"


def kind_of(study: Judged) -> AuditKind:
    (kind,) = study.kinds
    return kind


def test_every_arm_gets_one_answer_about_privacy_and_accuracy(study: Judged) -> None:
    told = [said(answer) for answer in answers(study, kind_of(study), "none")]
    assert [line.partition(" against")[0] for line in told] == [arm.label for arm in study.arms[1:]]
    assert told[0].startswith("kmeans (penalty_weight=1) against none. Privacy: better (MSE 0.02")
    assert all("; Accuracy: worse (8" in line and "% against 9" in line and "p = 0.0" in line for line in told)
    backwards = answers(study, kind_of(study), "gated")
    assert [(answer.arm, answer.other) for answer in backwards][:2] == [
        ("none", "gated (penalty_weight=1)"),
        ("kmeans (penalty_weight=1)", "gated (penalty_weight=1)"),
    ]
    assert said(backwards[0]).startswith("none against gated (penalty_weight=1). Privacy: worse (MSE 0.0")
    assert [clause.tone for clause in backwards[0].clauses] == ["no", "yes"]


def test_two_seeds_are_not_enough_to_tell(pair: Judged) -> None:
    assert SEEDS_NEEDED == 4
    for answer in answers(pair, kind_of(pair), "none"):
        assert {clause.word for clause in answer.clauses} == {"not enough to tell"}
        assert {clause.tone for clause in answer.clauses} == {""}
        assert "a test needs at least 4 seeds of each" in answer.clauses[0].numbers


def test_an_attack_that_had_not_converged_makes_no_arm_better(tmp_path: Path) -> None:
    arms = {name: ARMS[name] for name in ("none", "kmeans")}
    study = study_of(tmp_path, Made(arms, seeds=4, attacks=("gan",), pictures=1, portraits=False))
    (answer,) = answers(study, kind_of(study), "none")
    privacy, accuracy = answer.clauses
    assert (privacy.word, privacy.tone) == ("not enough to tell", "")
    assert "but audits of kmeans are not reliable, or not enough to tell" in privacy.numbers
    assert accuracy.word == "worse"


def test_one_image_shows_every_arm(study: Judged) -> None:
    row = picture_row(walls(study, kind_of(study)))
    assert row is not None and row.original.original
    assert [shot.arm.label for shot, _ in row.shots] == [arm.label for arm in study.arms]
    assert all(cell.image and cell.mse for _, cell in row.shots) and row.hidden == 0
    assert picture_row([]) is None


# figures


def test_the_points_of_an_arm_are_told_apart(study: Judged) -> None:
    assert list(point_words(study).values()) == ["", "1", "4", "1", "4"]
    for plot in (*plots.trade_offs(study, kind_of(study)), *plots.cost_plots(study, kind_of(study))):
        (axes,) = plots.printed(plot).axes
        assert [note.get_text() for note in axes.texts] == ["1", "4", "1", "4"], plot.name


def test_axes_hold_the_seeds_and_not_the_interval_of_two(pair: Judged) -> None:
    kind = kind_of(pair)
    values = [value for arm in pair.arms for value in arm.values("mse", kind)]
    widest = max(spread.seeds.high - spread.seeds.low for arm in pair.arms if (spread := arm.summary("mse", kind)))
    plot = plots.trade_offs(pair, kind)[0]
    low, high = plots.printed(plot).axes[0].get_ylim()
    assert low < min(values) and max(values) < high
    assert high - low < 1.6 * (max(values) - min(values)) and widest > 0.5 * (max(values) - min(values))


def test_of_two_seeds_their_range_is_drawn(pair: Judged, study: Judged) -> None:
    arm, more = pair.arms[0], study.arms[0]
    spread, wide = arm.summary("mse", kind_of(pair)), more.summary("mse", kind_of(study))
    assert spread is not None and wide is not None
    assert drawn_interval(spread.seeds) == pytest.approx(sorted(arm.values("mse", kind_of(pair))))
    assert drawn_interval(wide.seeds) == (wide.seeds.low, wide.seeds.high)


# tables


def test_latex_has_booktabs_and_the_best_of_the_useful_rows_in_bold() -> None:
    columns = [Column("arm", "Arm", words=True), Column("accuracy", "Accuracy"), Column("ssim", "SSIM")]
    numbers = {"a": (0.9, 0.4), "b": (0.8, 0.3), "useless": (0.1, 0.1), "bare": (None, None)}
    rows = [[Item(arm, arm), *(Item(value, str(value)) for value in values)] for arm, values in numbers.items()]
    assert as_latex(with_best(Table("t", "T", columns, rows), ["useless"])).splitlines() == [
        r"\begin{tabular}{lrr} % \usepackage{booktabs}",
        r"\toprule",
        r"Arm & Accuracy & SSIM \\",
        r"\midrule",
        r"a & \textbf{0.9} & 0.4 \\",
        r"b & 0.8 & \textbf{0.3} \\",
        r"useless & 0.1 & 0.1 \\",
        r"bare & None & None \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert "textbf" not in as_latex(with_best(Table("t", "T", columns, rows[:1])))


def test_the_memory_of_a_process_is_no_cost_of_an_arm(pair: Judged) -> None:
    """On a CPU version 0.2 wrote the peak of the process, which grows with every run before."""
    column = [column.key for column in tables.costs(pair, kind_of(pair)).columns].index("memory")
    assert tables.costs(pair, kind_of(pair)).rows[0][column].value == 512_000_000
    manifest = pair.arms[0].cells[0].manifest
    assert isinstance(manifest, dict)
    for facts, value in (({"device": "cpu"}, None), ({"device": "NVIDIA H200"}, 512_000_000)):
        manifest.pop("peak_memory_of", None)
        manifest.update(facts)
        assert tables.costs(pair, kind_of(pair)).rows[0][column].value == value
