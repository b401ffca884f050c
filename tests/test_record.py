"""Results as files: one reader from the type hints, older and newer files, and one kind of error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncem.base.record import Record, read
from attncem.base.types import RunError
from attncem.config.threats import ThreatModel
from attncem.records.audit import AuditPlan, Row, Subject
from attncem.records.bounds import Bound
from attncem.records.files import read_record, write_record
from attncem.records.findings import Finding, finding, unique
from attncem.records.run import DataFacts
from attncem.records.score import Score


class Inner(Record):
    value: float
    word: Literal["a", "b"] = "a"


class Outer(Record):
    name: str
    count: int
    flag: bool
    inner: Inner
    maybe: float | None
    many: list[Inner]
    named: dict[str, Inner]
    free: Mapping[str, Any]
    later: list[int] = field(default_factory=list)


WHOLE: dict[str, Any] = {
    "name": "x",
    "count": 3,
    "flag": True,
    "inner": {"value": 1},
    "maybe": None,
    "many": [{"value": 0.5, "word": "b"}],
    "named": {"k": {"value": 2.0}},
    "free": {"anything": [1, "two"]},
}


def test_a_record_comes_back_from_its_own_data(tmp_path: Path) -> None:
    record = read(Outer, WHOLE, "x.json")
    assert record.inner == Inner(1)
    assert record.many == [Inner(0.5, "b")]
    assert record.named["k"].value == 2.0
    assert record.later == [], "an older file lacks it"
    write_record(tmp_path / "x.json", record)
    assert read_record(Outer, tmp_path / "x.json") == record


def test_a_record_is_frozen_without_a_decorator() -> None:
    with pytest.raises(FrozenInstanceError):
        Inner(1).value = 2  # type: ignore[misc]


def test_what_a_newer_version_wrote_is_kept(tmp_path: Path) -> None:
    newer = {**WHOLE, "surprise": {"deep": 1}, "inner": {"value": 1, "unit": "nats"}}
    record = read(Outer, newer, "x.json")
    assert record.further == {"surprise": {"deep": 1}}
    assert record.inner.further == {"unit": "nats"}
    write_record(tmp_path / "x.json", record)
    again = json.loads((tmp_path / "x.json").read_text())
    assert again["surprise"] == {"deep": 1}
    assert again["inner"]["unit"] == "nats"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name must be text, not 3"),
        ({"count": 1.5}, "count must be a whole number, not 1.5"),
        ({"count": True}, "count must be a whole number, not True"),
        ({"flag": 1}, "flag must be true or false, not 1"),
        ({"inner": []}, r"inner must be a mapping, not \[\]"),
        ({"inner": {}}, "inner.value is missing"),
        ({"inner": {"value": "1"}}, "inner.value must be a number, not '1'"),
        ({"inner": {"value": 1, "word": "c"}}, "inner.word must be one of a, b, not 'c'"),
        ({"many": {}}, "many must be a list, not {}"),
        ({"many": [{"value": 1}, {"value": None}]}, "many.1.value must be a number, not None"),
        ({"named": {"k": 1}}, "named.k must be a mapping, not 1"),
        ({"maybe": "no"}, "maybe must be a number, not 'no'"),
        ({"free": "x" * 90}, r"free must be a mapping, not 'x+\.\.\."),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=f"x.json is damaged: {message}"):
        read(Outer, {**WHOLE, **change}, "x.json")


def test_a_missing_key_and_no_mapping_at_all_are_named() -> None:
    with pytest.raises(RunError, match="count is missing"):
        read(Outer, {key: value for key, value in WHOLE.items() if key != "count"}, "x.json")
    with pytest.raises(RunError, match="it must be a mapping, not None"):
        read(Outer, None, "x.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "NaN", '{"a": NaN}', "[" * 100_000, '{"schema_version": 99}'])
def test_a_file_that_is_none_is_one_kind_of_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(RunError, match=r"x\.json (is damaged|was written by a newer)"):
        read_record(Outer, tmp_path / "x.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([Outer, Row, AuditPlan, Subject, Score, Bound, DataFacts, ThreatModel]), json_values)
def test_any_data_gives_a_record_or_the_one_error(kind: type[Record], data: Any) -> None:
    with contextlib.suppress(RunError):
        assert isinstance(read(kind, data, "x"), kind)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(WHOLE)), json_values)
def test_one_wrong_value_gives_a_record_or_the_one_error(key: str, value: Any) -> None:
    try:
        assert isinstance(read(Outer, {**WHOLE, key: value}, "x"), Outer)
    except RunError as error:
        assert key in str(error)


def test_findings_are_told_apart_by_code_and_not_by_their_words() -> None:
    one, two = finding("loses_to", "decoder", other="ridge"), finding("loses_to", "decoder", other="another")
    other = finding("loses_to", "strong", other="ridge")
    assert unique([one, two, other]) == [one, other]
    assert one.text == "decoder: loses to ridge: it is under-trained"


def test_a_finding_of_a_newer_version_shows_what_it_said() -> None:
    later = Finding("of the future", "row", {"n": 1}, "something with 1 in it")
    assert later.text == "row: something with 1 in it"
