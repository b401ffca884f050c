"""Languages: the same keys with the same values in each, and a page that speaks one speaks no other."""

from __future__ import annotations

import json
import re
import string
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import attncem
from attncem.base.record import read
from attncem.base.texts import (
    LANGUAGES,
    VARIABLE,
    Sentence,
    catalogue,
    language,
    parts,
    speaking,
    text,
    translated,
    written,
)
from attncem.base.types import ConfigError
from attncem.cli.main import main
from attncem.config.loading.languages import checked, kept_environment, speak_everywhere, spoken
from attncem.records.findings import Finding, finding
from attncem.training.health import CAUSES, spans, warning
from made_runs import failed

OTHERS = LANGUAGES[1:]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
SAME_IN_CHINESE = {
    *("measure.mse", "measure.psnr", "measure.ssim", "arms.column.class_mse", "arms.column.p", "compare.column.p"),
    *("report.column.penalty_weight", "report.column.noise", "report.column.accuracy.note", "page.language"),
    *("report.column.taken_off.note", "arms.save.csv", "arms.save.md", "arms.save.tex", "arms.method.tsne"),
    *("amount.kib", "amount.mib", "amount.gib", "compare.audit", "comparison.p", "report.probe.share"),
    *("report.column.exposed", "leak.nats", "measure.infonce"),
}
"""Texts without Chinese: names of measures and formats, letters of formulas, units."""


def fields(sentence: str) -> list[tuple[str, str | None]]:
    """Values that a text names, with their formats."""
    return sorted((name, spec) for _, name, spec, _ in string.Formatter().parse(sentence) if name is not None)


def own_words(sentence: str) -> str:
    """What of a text is not a value."""
    return "".join(words for words, *_ in string.Formatter().parse(sentence))


# catalogues


@pytest.mark.parametrize("word", OTHERS)
def test_every_text_is_there_in_every_language(word: str) -> None:
    english, other = catalogue("en"), catalogue(word)
    assert sorted(english.keys() - other.keys()) == [], f"write these texts in {word}.toml"
    assert sorted(other.keys() - english.keys()) == [], f"take these out of {word}.toml"


@pytest.mark.parametrize("word", OTHERS)
def test_texts_stand_in_the_same_parts(word: str) -> None:
    english, other = parts("en"), parts(word)
    assert list(other) == list(english)
    for name, texts in english.items():
        assert sorted(other[name]) == sorted(texts), name
    assert sum(map(len, other.values())) == len(catalogue(word)), "no key twice"


def test_every_file_of_texts_is_a_language_and_every_text_a_string() -> None:
    folder = Path(attncem.__file__).parent / "base/texts"
    assert sorted(file.stem for file in folder.glob("*.toml")) == sorted(LANGUAGES)
    assert {type(said) for word in LANGUAGES for said in catalogue(word).values()} == {str}


@pytest.mark.parametrize("word", OTHERS)
def test_texts_name_the_same_values(word: str) -> None:
    other = catalogue(word)
    wrong = {
        key: (said, other[key]) for key, said in catalogue("en").items() if fields(said) != fields(other.get(key, said))
    }
    assert wrong == {}


@pytest.mark.parametrize("word", OTHERS)
def test_tables_have_the_same_columns(word: str) -> None:
    other, tables = catalogue(word), [key for key in catalogue("en") if ".columns" in key]
    assert len(tables) > 5
    assert [key for key in tables if catalogue("en")[key].count("|") != other[key].count("|")] == []


@pytest.mark.parametrize("word", OTHERS)
def test_texts_hold_no_markup(word: str) -> None:
    assert [key for key, said in catalogue(word).items() if re.search(r"<[a-z/]|&[a-z#]", said)] == []


def test_every_chinese_text_is_chinese() -> None:
    texts = catalogue("zh")
    other = {key for key, said in texts.items() if not CHINESE.search(said) and re.search(r"[a-z%]", own_words(said))}
    assert other <= SAME_IN_CHINESE, sorted(other - SAME_IN_CHINESE)
    assert texts.keys() >= SAME_IN_CHINESE


def test_no_english_sentence_stands_in_a_chinese_text() -> None:
    found = {key: words for key, said in catalogue("zh").items() if (words := english_in(own_words(said)))}
    assert found == {}


def test_chinese_sentences_have_chinese_marks() -> None:
    """A comma, colon or bracket beside a Chinese character is a full-width one."""
    mark = re.compile(r"[\u4e00-\u9fff][,;:?!.()]|[,;:?!()][\u4e00-\u9fff]")
    found = {key: match[0] for key, said in catalogue("zh").items() if (match := mark.search(own_words(said)))}
    assert found == {}


COMMANDS = re.compile(
    r"attncem \w+( (\w+|\S*\.\w+|[A-Z]+|--?\w+))*|surrogate\.\w+=\w+|\w+=\([^)]*\)|baseline's decoder|Noto Sans CJK"
)
"""What is typed as it stands, and the names of a row and a font."""


def english_in(said: str) -> list[str]:
    """Runs of three English words, but for commands."""
    return [found[0] for found in re.finditer(r"[A-Za-z]{2,}( [A-Za-z]{2,}){2,}", COMMANDS.sub("", said))]


def test_an_english_sentence_would_be_found() -> None:
    assert english_in("报告：the noise is averaged 掉了") == ["the noise is averaged"]
    assert english_in("再执行 attncem campaign run") == []


# which one is spoken


def test_english_is_spoken_unless_another_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert language() == "en"
    with speaking("zh"):
        assert text("page.class", number=3) == "类别 3"
        with spoken(None):
            assert language() == "zh"
        with spoken("en"):
            assert text("page.class", number=3) == "class 3"
    assert language() == "en"
    monkeypatch.setenv(VARIABLE, "zh")
    assert language() == "zh"
    with speaking("en"):
        assert language() == "en"


def test_an_unknown_language_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="lang=fr: unknown language; choose one of en, zh"):
        checked("fr")
    with pytest.raises(ConfigError, match="lang=fr"):
        attncem.report("nowhere", lang="fr")
    with pytest.raises(ConfigError, match="lang=fr"):
        attncem.explain("nowhere", "test:0", lang="fr")
    assert main(["runs", "--lang", "fr"]) == 2
    assert "lang=fr" in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, "fr")
    assert main(["runs"]) == 2
    assert f"{VARIABLE}=fr" in capsys.readouterr().err


def test_the_command_speaks_and_is_over_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert main(["runs", str(tmp_path), "--lang", "zh"]) == 0
    assert "没有运行" in "".join(capsys.readouterr()).replace("\n", "")
    assert language() == "en"
    for words in (["campaign", "--lang", "zh", "list"], ["campaign", "list", "--lang", "zh"]):
        assert main(words) == 0
        assert "批量实验" in capsys.readouterr().out


def test_threads_and_processes_speak_as_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    asked = "from attncem.base.texts import language; print(language())"
    with kept_environment():
        speak_everywhere("zh")
        with ThreadPoolExecutor() as pool:
            assert pool.submit(language).result() == "zh"
        child = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
        assert child.stdout.strip() == "zh"
    assert language() == "en"


# what is written down


def test_results_are_written_in_english_whatever_is_spoken() -> None:
    english = finding("row_failed", "ridge", reason="no memory")
    with speaking("zh"):
        assert finding("row_failed", "ridge", reason="no memory") == english
        assert english.text == "岭回归：失败：no memory"
        spoken_of = warning("attention", "effective_samples", 0.05, begins=True, step=1, epoch=1.0)
        assert written("page.class", number=3) == "class 3"
    assert english.text == "ridge: failed: no memory"
    assert spoken_of == warning("attention", "effective_samples", 0.05, begins=True, step=1, epoch=1.0)


def kept(item: Finding) -> Finding:
    """A finding after it was written to a file and read again."""
    return read(Finding, json.loads(json.dumps(item.to_dict())), "file")


def test_what_is_written_is_shown_in_the_language_spoken() -> None:
    reason = written("threat.lacks", name="blind", what=written("threat.lacks.encoder"))
    lacks = kept(finding("row_not_applicable", "white box", reason=reason))
    left_out = kept(finding("measure_left_out", about=written("measure.structure"), pixels=11))
    log = kept(finding("log_lost", about=written("about.log", number=2), said="line 3 is damaged"))
    assert lacks.values == {"reason": "the adversary of the threat model blind does not know the encoder"}
    with speaking("zh"):
        assert lacks.text == "白盒优化：不适用：威胁模型“blind”中的攻击者不知道编码器"
        assert left_out.text.startswith("结构误差：")
        assert log.text.startswith("日志 2：line 3 is damaged")
        assert left_out.moved("quick：结构误差").text.startswith("quick：结构误差：")
        assert translated(reason) == "威胁模型“blind”中的攻击者不知道编码器"
        assert translated("a sentence of nobody") == "a sentence of nobody"
    assert translated(reason) == reason


def test_a_sentence_without_a_source_stays_english() -> None:
    """Results of version 0.2 hold none; a later version's source may have a key or values that are not known here."""
    old = {
        "code": "row_not_applicable",
        "about": "ridge",
        "values": {"reason": "the images have no labels"},
        "said": "x",
    }
    others = (
        {},
        {"key": "reason.of_another_version", "values": {}},
        {"key": "reason.few_pairs", "values": {}},
        *({"key": "reason.one_image"}, {"values": {}}, {"key": "reason.one_image", "values": 3}),
    )
    with speaking("zh"):
        assert read(Finding, old, "file").text == "岭回归：不适用：the images have no labels"
        assert (
            translated(failed("ridge", "not_applicable", "the images have no labels").why)
            == "the images have no labels"
        )
        for source in others:
            assert translated(Sentence("as it was", source)) == "as it was"
        inner = Sentence("as it was")
        assert translated(written("health.over", cause=inner)) == "as it was：已结束"


def test_warnings_of_a_training_are_shown_whole() -> None:
    """Also from the log of version 0.2: the cause, the number and the limit of a warning always stood in it."""
    for name, cause in CAUSES.items():
        check = cause.checks[0] if cause.checks else None
        place = {"step": 1, "epoch": 2.0, "begins": True}
        begun = warning(name, check.key, 0.01, **place) if check else warning(name, "ce", None, **place)
        (span,) = spans([json.loads(json.dumps(begun))])
        with speaking("zh"):
            said = kept(span.finding).text
        assert said.startswith(f"训练，{name}：第 2 轮起：{catalogue('zh')[f'health.{name}.meaning']}")
        assert catalogue("zh")[f"health.{name}.advice"] in said
        assert english_in(said) == []
        assert span.finding.text == f"training, {name}: from epoch 2 on: {begun['text']}. What to do: {cause.advice}"


def test_every_text_can_be_kept_and_shown() -> None:
    for key, sentence in catalogue("en").items():
        values = {name: 7 if spec else "name" for name, spec in fields(sentence)}
        with speaking("zh"):
            assert translated(written(key, **values)) == text(key, **values), key
