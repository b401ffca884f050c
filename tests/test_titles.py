"""Names as people are shown them: in English word for word, in Chinese only those that are ours."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from attncem.base.progress import show_progress
from attncem.base.texts import catalogue, speaking
from attncem.base.texts.titles import (
    FROM_SENT,
    channel_title,
    failed_at,
    images_title,
    noise_title,
    number_title,
    row_title,
    row_titles,
    stage_title,
    threat_title,
)
from attncem.config.options.suites import packaged_suites
from attncem.config.threats import THREATS
from attncem.models.channels import CHANNELS
from attncem.records.findings import finding
from attncem.reporting import report, summary_table
from attncem.reporting.notebook import draw_figures
from test_chinese_pages import left_in_english
from test_convergence import Said
from test_convergence import run as converge
from test_reporting import NOW, asking_rows, make_audit, make_run, rows, score

OLDER = {"decoder small x16"}
"""Rows of older versions of the packaged suites, which their audits still have."""
ROWS = sorted({*OLDER, *(name for suite in packaged_suites().values() for name in suite.rows)})
CHINESE = re.compile(r"[\u4e00-\u9fff]")
STAGES = (
    *("train demo-gated", "audit demo-gated", "explain demo-gated: attacks", "campaign grid"),
    *(f"audit demo-gated: {row}" for row in ROWS),
    *(f"audit demo-gated: decoder small: {part}" for part in ("trunk", "annealed from 14", "annealed from 0.28")),
    *("audit demo-gated: white box: optimisation weights", "audit demo-gated: white box: decoder small: trunk"),
    *("audit demo-gated: decoder family: family 32 × 5000: trunk", "decoder global: annealed from 28"),
)
NUMBERS = {"epoch": 7.0, "running": 2.0, "failed": 1.0, "train_accuracy": 0.9, "grad": 0.1}


# names


def test_a_packaged_row_has_a_title_in_every_language() -> None:
    assert [row_title(name) for name in ROWS] == ROWS, "in English it is the name itself"
    with speaking("zh"):
        assert [name for name in ROWS if not CHINESE.search(row_title(name))] == []


def test_no_two_rows_have_the_same_title() -> None:
    with speaking("zh"):
        assert len({row_title(name) for name in ROWS}) == len(ROWS)


@pytest.mark.parametrize("name", ["mine", "Ridge", "ridge x32", "decoder small ", "", "岭回归"])
def test_an_own_name_stays(name: str) -> None:
    with speaking("zh"):
        assert row_title(name) == name


def test_threat_models_channels_and_noise_have_titles() -> None:
    kinds: dict[Callable[[str], str], Iterable[str]] = {
        threat_title: [*THREATS, "train-x16"],
        noise_title: ("fresh", "keyed"),
        channel_title: CHANNELS,
        images_title: ("train", "validation", "test", "held_out"),
    }
    for title, names in kinds.items():
        assert [title(name) for name in names] == [*names], "in English it is the name itself"
        with speaking("zh"):
            assert [name for name in names if not CHINESE.search(title(name))] == []
            assert title("mine") == "mine"
    with speaking("zh"):
        assert threat_title("train-x16") == f"{threat_title('train')} ×16"
        assert threat_title("mine-x16") == "mine ×16"


def test_titles_in_a_line() -> None:
    assert row_titles(["ridge", "mine"]) == "ridge, mine"
    with speaking("zh"):
        assert row_titles(["ridge", "mine"]) == "岭回归, mine"
        assert [failed_at(stage) for stage in ("train", "elsewhere")] == ["训练", "elsewhere"]


def test_findings_name_rows_by_their_titles_and_runs_by_their_names() -> None:
    loses = finding("loses_to", "white box", other="decoder small")
    missing = finding("rows_missing", rows="ridge x4, mine, flow")
    leaders = finding("compare_leaders_differ", leaders="flow: ridge; mine: no result")
    same = finding("compare_same_result", "flow", other="ridge")
    assert loses.text == "white box: loses to decoder small: it is under-trained"
    with speaking("zh"):
        assert loses.text.startswith("白盒优化：不如“小型解码器”")
        assert "岭回归 ×4, mine, 流模型" in missing.text
        assert same.text.startswith("flow：") and "ridge" in same.text, "these are runs"
        assert "岭回归; mine" in leaders.text
        assert finding("loses_to", "white box", other="decoder small") == loses, "what is kept is English"


# stages


def test_stages_are_shown_in_the_language_spoken() -> None:
    for stage in STAGES:
        assert stage_title(stage) == stage
        with speaking("zh"):
            said = stage_title(stage)
        words = re.sub(r"demo-gated|grid|GAN|SSIM|Fisher", "", said)
        assert CHINESE.search(said) and not re.search(r"[A-Za-z]{2,}|: ", words), said
        assert re.findall(r"\d+\.\d+|14|28|5000", said) == re.findall(r"\d+\.\d+|14|28|5000", stage), "numbers stay"


@pytest.mark.parametrize("stage", ["training of mine", "mine", "audit of mine: my row: my part"])
def test_other_words_of_a_stage_stay(stage: str) -> None:
    with speaking("zh"):
        assert stage_title(stage) == stage.replace(": ", "：").replace("audit", "审计")
        assert number_title("my_number") == "my_number"


def lines_told(*told: tuple[str, float, float, Mapping[str, float]], width: int = 0) -> list[str]:
    """What is shown of stages: on a terminal of this width, or as plain lines."""
    text = io.StringIO()
    with show_progress(Console(file=text, force_terminal=bool(width), width=width or 200)) as progress:
        for words in told:
            progress(*words)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue()).replace("\r", "\n").split("\n")
    return [line for line in lines if line.strip()]


def test_plain_lines_in_chinese_hold_no_english_words() -> None:
    with speaking("zh"):
        said = lines_told(*((stage, 3, 28, NUMBERS) for stage in STAGES))
        first = lines_told(("train demo-gated", 3.7, 28, {"epoch": 7, "ce": 0.51}))
    assert first == ["训练 demo-gated：3/28  轮次 7  ce 0.51"]
    assert len(said) == len(STAGES)
    assert left_in_english(said) == []
    assert not re.search(r"\b(of|left|epoch|running|failed|minutes|train|audit|trunk|annealed|s)\b", " ".join(said))


def test_english_lines_are_as_they_were() -> None:
    assert lines_told(("train demo-gated", 3.7, 28, NUMBERS)) == [
        "train demo-gated: 3 of 28  epoch 7  running 2  failed 1  train_accuracy 0.9  grad 0.1"
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 61, 80])
@pytest.mark.parametrize("run", ["demo", "recommended-balanced-of-mine-s0"])
def test_bars_in_chinese_fit_their_columns(run: str, width: int) -> None:
    """Most Chinese letters take two columns; where there is too little room the run's name gives way."""
    with speaking("zh"):
        said = lines_told((f"audit {run}: decoder small: annealed from 28", 3, 28, {"mse": 0.02959}), width=width)
    assert all(cell_len(line) <= width for line in said)
    assert "3/28" in said[-1]
    if width >= 61:
        assert "：小型解码器：从 28 起退火" in said[-1]
    if width == 80:
        assert f"  审计 {run[:4]}" in said[-1]
        assert ("…：小型" in said[-1]) == (run != "demo")


def test_a_callback_is_told_english_in_every_language() -> None:
    english, chinese = list[Said](), list[Said]()
    converge([1.0, 0.5, 0.495], said=english)
    with speaking("zh"):
        converge([1.0, 0.5, 0.495], said=chinese)
    assert {"fake: trunk", "fake: annealed from 8"} <= {said[0] for said in english}
    assert [said[0] for said in chinese] == [said[0] for said in english]


# what programs read


@pytest.fixture
def run(tmp_path: Path) -> Path:
    own = replace(rows(0.03)[-1], name="my attack")
    found = [*rows(0.02), own, *asking_rows((4, 0, 0.02), (16, 2, 0.01))]
    return make_run(tmp_path, "gated", audits=[make_audit("gated", found)])


def test_pages_show_titles_and_keep_names_for_programs(run: Path, tmp_path: Path) -> None:
    english, chinese = (
        report([run], tmp_path / f"{lang}.html", csv=True, now=NOW, lang=lang).read_text("utf-8")
        for lang in ("en", "zh")
    )
    assert '<option value="decoder small">小型解码器</option>' in chinese, "the script reads the value"
    assert ">my attack</option>" in chinese
    assert '<option value="decoder small">decoder small</option>' in english
    kept = [re.search(r'id="page-data">(.*?)</script>', page, re.DOTALL) for page in (english, chinese)]
    attacks = [json.loads(found[1])["tables"]["attacks"]["csv"] for found in kept if found]
    assert attacks[0] == attacks[1], "what is saved from the page"
    assert (tmp_path / "en.csv").read_bytes() == (tmp_path / "zh.csv").read_bytes()


def test_figures_have_the_same_names_in_every_language(run: Path) -> None:
    english = list(draw_figures([run]))
    with speaking("zh"):
        assert list(draw_figures([run])) == english
    assert {"attack-decoder-small", "asking-ridge"} <= set(english)


def test_a_guess_of_one_audit_has_its_name_for_programs() -> None:
    others = [replace(it, scores={"mse": score(0.06)}) if it.name == "class mean" else it for it in rows(0.02)]
    audits = [make_audit("gated", rows(0.02)), make_audit("none", others)]
    with speaking("zh"):
        found = [row for row in summary_table(audits) if row["kind"] == "floor"]
    names = [row["run"] for row in found]
    assert sorted(names) == ["class mean (gated)", "class mean (none)", "grey", "mean image"]
    assert all(CHINESE.search(row["shown"]) for row in found)


def test_every_name_is_its_own_english_text() -> None:
    names = {key: said for key, said in catalogue("en").items() if key.startswith("row.") and key != "row.from_sent"}
    assert sorted(names.values()) == ROWS


def test_a_twin_has_the_title_of_its_row_also_in_a_list() -> None:
    rows_of_runs = f"grey, ridge{FROM_SENT}, ridge"
    with speaking("zh"):
        title = row_title("ridge" + FROM_SENT)
        assert row_title("ridge") in title and left_in_english([title]) == []
        assert title in finding("rows_missing", rows=rows_of_runs).text


def test_the_page_about_languages_has_every_row() -> None:
    page = (Path(__file__).parents[1] / "docs/terminal.md").read_text(encoding="utf-8")
    with speaking("zh"):
        assert [name for name in ROWS if f"| `{name}` | {row_title(name)} |" not in page] == []
