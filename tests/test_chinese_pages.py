"""Every page and every table in Chinese: what is left of English are names, and no sentence."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from attncem.base.texts import VARIABLE, speaking, written
from attncem.base.texts.titles import threat_word
from attncem.cli.main import main
from attncem.config.options.suites import packaged_suites
from attncem.records.bounds import Bound
from attncem.records.card import PrivacyCard
from attncem.records.explanation import FeatureTile, FeatureView
from attncem.records.files import read_record
from attncem.reporting import compare, fonts, print_comparison, print_explanation, print_summary, privacy_card, report
from attncem.reporting.campaign.load import load_campaign
from attncem.reporting.campaign.page import write_campaign_report, write_figures, write_tables
from attncem.reporting.campaign.plots import inline, saved, trade_offs
from attncem.reporting.campaign.plots import printed as printed_figure
from attncem.reporting.explain.page import write_explanation
from made_campaigns import ARMS, Made, make_campaign
from made_sending import facts, sent_audit, sent_run
from test_reporting import (
    KEPT,
    MEAN,
    NOW,
    RIDGE,
    asking_rows,
    failed,
    make_audit,
    make_explanation,
    make_run,
    row,
    rows,
    score,
)

ROWS = {name for suite in packaged_suites().values() for name in suite.rows}
OF_SUITES = re.compile(rf"(?<![\w.-])({'|'.join(sorted(map(re.escape, ROWS), key=len, reverse=True))})(?![\w-])")
NAMES = (
    *("Ankle boot", "local contrast"),
    *("shapes dddddddddddd", "out of memory", "Which defence keeps pictures private at the same accuracy"),
    *("van Trees", "Student", "Fisher", "Noto Sans CJK", "Benjamini–Hochberg"),
)
"""What may stand on a page in English and in more than one word: classes, an error, a user's own sentence."""
TYPED = re.compile(r"attncem \w+( (RUN|--?[\w-]+|[\w./-]+))*|[\w.]+=\S+|--\w+")
"""Commands and options."""


class Seen(HTMLParser):
    """What a reader sees or hears, but for code."""

    SPOKEN = ("aria-label", "title", "alt", "placeholder", "data-title")
    SILENT = ("script", "style", "pre", "code")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.within = 0
        self.language = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.within += tag in self.SILENT
        self.language = dict(attrs).get("lang") or self.language
        self.found += [value for name, value in attrs if name in self.SPOKEN and value]

    def handle_endtag(self, tag: str) -> None:
        self.within -= tag in self.SILENT

    def handle_data(self, data: str) -> None:
        self.found += [data] if data.strip() and not self.within else []


def left_in_english(found: Iterable[str]) -> list[str]:
    """Names of packaged rows, and two English words or more in a row, that are no own name and no command."""
    said = [TYPED.sub("·", " ".join(words.split())) for words in found]
    for name in NAMES:
        said = [words.replace(name, "·") for words in said]
    english = re.compile(rf"{OF_SUITES.pattern}|[A-Za-z]{{2,}}( [a-z]{{2,}})+")
    return sorted({run[0] for words in said for run in english.finditer(words)})


HALF = re.compile(r"(?:攻击者|威胁模型|带|状态|图像：)[ “：]*(?:train|held_out|query_only|fresh|keyed|finished)\b")


def half_translated(found: Iterable[str]) -> list[str]:
    """Chinese sentences with the English name of a threat model, a kind of noise or a state in them."""
    return sorted({part for words in found for part in HALF.findall(" ".join(words.split()))})


def check(page: str) -> Seen:
    seen = Seen(page)
    assert seen.language == "zh-CN"
    assert left_in_english(seen.found) == []
    assert half_translated(seen.found) == []
    return seen


def printed(show: Callable[[Console], None]) -> list[str]:
    """What a terminal shows, a cell of a table each."""
    console = Console(file=io.StringIO(), width=400, record=True)
    show(console)
    return cells(console.export_text())


def cells(said: str) -> list[str]:
    return re.split(r"[ │┃]{2,}|\n", said)


def test_english_would_be_found() -> None:
    assert left_in_english(["对 ridge：no attack of this suite"]) == ["no attack of this suite", "ridge"]
    assert left_in_english(["decoder small：attncem audit RUN --suite certificates"]) == ["decoder small"]
    assert left_in_english(["岭回归：attncem audit RUN --only ridge"]) == []
    assert half_translated(["攻击者 train，套件 quick", "带 fresh 噪声", "状态 finished；设备 cpu"]) != []


# pages


@pytest.fixture(scope="module")
def odd_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with everything that has sentences: warnings, rows without a result, a bound, a probe, more releases."""
    lacks = written("threat.lacks", name=threat_word("train"), what=written("threat.lacks.server"))
    bound = row("leakage", 0.1, kind="certificate", scores={})
    bound = replace(bound, bounds={"leakage": Bound(4.0, "nats", 3.0, 5.0, "bound", ["same_law"])})
    probe = row("who", 0.1, kind="probe", scores={"rank_1": replace(score(0.25), median=0.0)})
    probe = replace(probe, method="reidentification", chance={"rank_1": 0.01})
    absent = replace(failed("fisher", "not_applicable", written("reason.no_gradient")), kind="certificate")
    unsure = rows(0.02)[-1].verdict
    found = [
        *(failed("oracle"), failed("gradient", "not_applicable", lacks), bound, probe, absent),
        *rows(0.02, decoder={"verdict": replace(unsure, reliable=False)}),
        *asking_rows((4, 0, 0.02), (16, 2, 0.01)),
    ]
    folder = tmp_path_factory.mktemp("odd")
    return make_run(folder, "gated", audits=[make_audit("gated", found)], effective_samples=0.01, skipped=0.5)


def test_report(odd_run: Path, tmp_path: Path) -> None:
    others = [make_run(tmp_path, name) for name in ("none", "kmeans")]
    seen = check(report([odd_run, *others], tmp_path / "r.html", now=NOW, lang="zh").read_text(encoding="utf-8"))
    words = " ".join(seen.found)
    assert "注意力塌缩" in words, "a warning of the training"
    assert "威胁模型“训练集型”中的攻击者没有可供查询的服务器端网络" in words
    assert "没有可供查询的服务器端网络" in words, "why a row does not apply"
    assert "梯度无法从特征传到像素" in words
    assert all(title in words for title in ("小型解码器", "岭回归", "平均图像", "泄露上界")), "rows of the suites"
    assert all(name in words for name in ("oracle", "gradient", "fisher")), "own names"


def test_comparison(odd_run: Path, tmp_path: Path) -> None:
    plain = make_run(tmp_path, "none")
    found = compare([plain, odd_run], out=tmp_path / "c.html", lang="zh")
    check((tmp_path / "c.html").read_text(encoding="utf-8"))
    assert left_in_english(printed(lambda console: print_comparison(found, console, lang="zh"))) == []


def test_summary_of_the_terminal() -> None:
    found = make_audit("gated")
    said = printed(lambda console: print_summary([found], console, lang="zh"))
    assert any("最强攻击" in cell for cell in said)
    assert {"小型解码器", "盲猜基准：平均图像", "盲猜基准：灰色图像"} <= {cell.strip() for cell in said}
    assert left_in_english(said) == []


def test_card_and_its_json_in_english(odd_run: Path, tmp_path: Path) -> None:
    card, files = privacy_card(odd_run, tmp_path / "zh", now=NOW, lang="zh")
    check(files[2].read_text(encoding="utf-8"))
    assert left_in_english(files[1].read_text(encoding="utf-8").splitlines()[1:]) == []
    assert "界" in card.leakage
    _, english = privacy_card(odd_run, tmp_path / "en", now=NOW)
    assert files[0].read_bytes() == english[0].read_bytes()
    assert read_record(PrivacyCard, files[0]).leakage not in ("", card.leakage)


def test_pages_of_a_client_that_sends_some_images(tmp_path: Path) -> None:
    run, whole = sent_run(tmp_path), make_run(tmp_path, "none")
    check(report([run, whole], tmp_path / "r.html", now=NOW, lang="zh").read_text(encoding="utf-8"))
    found = compare([run, whole], out=tmp_path / "c.html", lang="zh")
    check((tmp_path / "c.html").read_text(encoding="utf-8"))
    check(privacy_card(run, tmp_path / "card", now=NOW, lang="zh")[1][2].read_text(encoding="utf-8"))
    said = printed(lambda console: print_comparison(found, console, lang="zh"))
    assert left_in_english([*said, *printed(lambda console: print_summary([sent_audit()], console, lang="zh"))]) == []


def test_explanation(tmp_path: Path) -> None:
    tiles = [FeatureTile(written("about.channel", number=0), "", "", 0.5)]
    audit = written("about.audit", suite="quick", threat=threat_word("train"))
    item = make_explanation([RIDGE, MEAN, KEPT], audit=audit, feature=FeatureView([8, 4, 4], 0.0, 1.0, tiles, 3, 0.5))
    with speaking("zh"):
        page = write_explanation(item, tmp_path / "e.html", now=NOW)
    words = " ".join(check(page.read_text(encoding="utf-8")).found)
    assert "通道 0" in words
    assert left_in_english(printed(lambda console: print_explanation(item, console, lang="zh"))) == []


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    grid, audits = {"training.penalty_weight": [1.0, 4.0]}, ({"suite": "quick"},)
    made = Made(ARMS, seeds=2, grid=grid, audits=audits, pictures=2, sending={"gated": facts()})
    return make_campaign(tmp_path_factory.mktemp("made") / "campaign", made).path


def test_campaign_report(campaign: Path, tmp_path: Path) -> None:
    page = write_campaign_report(campaign, tmp_path / "p.html", now=NOW, lang="zh").read_text(encoding="utf-8")
    check(page)
    script = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert script is not None
    data: dict[str, Any] = json.loads(script[1])
    audits = [audit for cell in data["cells"].values() for audit in cell["audits"]]
    rows_told = {row[0] for audit in audits for row in audit["rows"]}
    assert "小型解码器" in rows_told and {audit["strongest"] for audit in audits} <= rows_told, "the script marks it"
    assert left_in_english(rows_told) == []
    assert left_in_english([*data["words"].values(), *data["standings"].values(), *data["gates"].values()]) == []


def test_campaign_tables(campaign: Path, tmp_path: Path) -> None:
    files = write_tables(campaign, tmp_path / "zh", lang="zh")
    english = write_tables(campaign, tmp_path / "en")
    for file, other in zip(files, english, strict=True):
        head = file.read_text(encoding="utf-8").splitlines()[0]
        if file.suffix == ".csv":
            assert head == other.read_text(encoding="utf-8").splitlines()[0], "programs read these"
        else:
            assert (
                left_in_english(file.read_text(encoding="utf-8").splitlines()[0 if file.suffix == ".md" else 1 :]) == []
            )


# figures


def test_figures_without_a_font_are_in_english(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fonts, "further", lambda word: None)
    monkeypatch.setattr("attncem.reporting.campaign.plots.plots", only_trade_off)
    words = ["campaign", "report", str(campaign), "--out", str(tmp_path / "p.html"), "--figures", str(tmp_path / "f")]
    assert main([*words, "--lang", "zh"]) == 0
    assert "没有安装中文字体" in capsys.readouterr().out
    drawn = (tmp_path / "f/trade-off-mse.svg").read_text(encoding="utf-8")
    assert "accuracy %" in drawn
    assert not re.search(r"[\u4e00-\u9fff]", drawn)


@pytest.mark.skipif(fonts.further("zh") is None, reason="no font with Chinese letters is installed")
def test_figures_with_a_font_are_in_chinese(campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncem.reporting.campaign.plots.plots", only_trade_off)
    files = {file.suffix: file.read_bytes() for file in write_figures(campaign, tmp_path / "f", lang="zh")}
    assert "准确率" in files[".svg"].decode()
    named = {name.partition(b"+")[2] for name in re.findall(rb"/BaseFont /(\S+)", files[".pdf"])}
    assert len(named) == 2, "our own font and the one for Chinese"
    assert not any(b"LastResort" in name for name in named)
    assert b"/Type3" in files[".pdf"]
    with speaking("zh"):
        view = load_campaign(campaign)
        kept = printed_figure(only_trade_off(view, view.study.kinds[0])[0])
    assert b"/Type3" in saved(kept, "pdf", {}), "also when it is saved later, as from a notebook"
    english = printed_figure(only_trade_off(view, view.study.kinds[0])[0])
    assert b"/Type3" not in saved(english, "pdf", {})


def only_trade_off(view: Any, kind: Any) -> list[Any]:
    return trade_offs(view.study, kind)[:1]


def test_figures_of_pages_use_the_fonts_of_the_page(campaign: Path, tmp_path: Path) -> None:
    for word in ("en", "zh"):
        with speaking(word):
            view = load_campaign(campaign)
            svg = inline(only_trade_off(view, view.study.kinds[0])[0]).svg
        assert "var(--font)" in svg
        assert "DejaVu" not in svg


# a real run


@pytest.mark.slow
def test_a_run_from_audit_to_explanation(
    small_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands themselves, in Chinese by the environment; what they keep is the same as in English."""
    import shutil

    run = Path(shutil.copytree(small_run("demo"), tmp_path / "run"))
    monkeypatch.setenv(VARIABLE, "zh")
    assert main(["audit", str(run), "--suite", "certificates", "--only", "leakage", "--only", "quantisation"]) == 0
    assert main(["audit", str(run), "--suite", "quick"]) == 0
    assert main(["predict", str(run), "test:3"]) == 0
    assert main(["explain", str(run), "test:3", "--out", str(tmp_path / "e.html")]) == 0
    assert main(["card", str(run)]) == 0
    assert main(["report", str(run), "--out", str(tmp_path / "r.html")]) == 0
    assert left_in_english(cells(capsys.readouterr().out)) == []
    for page in (tmp_path / "e.html", tmp_path / "r.html", run / "card/card.html"):
        check(page.read_text(encoding="utf-8"))
    kept = [file for file in run.rglob("*.json*") if re.search(r"[\u4e00-\u9fff]|\\u[4-9]", file.read_text("utf-8"))]
    assert kept == [], "what is stored does not depend on the language"
