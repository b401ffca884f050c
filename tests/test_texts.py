"""The catalogue: every text asked for is there, every text there is asked for, and pages hold no others."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest
from jinja2 import Environment, nodes

import attncem
from attncem.base.texts import catalogue, has_text, parts, pattern, text
from attncem.config.options.channels import RandomOptions
from attncem.config.options.suites import packaged_suites
from attncem.config.threats import THREATS, Auxiliary, Need
from attncem.data.specs import DATASETS
from attncem.judging.probes import PROBES
from attncem.models.channels import CHANNELS
from attncem.records.audit import Kind
from attncem.records.campaign import State
from attncem.records.comparison import Over, Standing, VerdictCode
from attncem.records.explanation import GATES
from attncem.records.findings import Finding
from attncem.records.judgement import Question, Status
from attncem.records.judgement import State as AuditState
from attncem.records.leaks import LEAKS
from attncem.records.metrics import METRICS
from attncem.records.portrait import Method, Of
from attncem.reporting.campaign.data import WORDS
from attncem.reporting.campaign.page import READING
from attncem.reporting.campaign.tables import COLUMNS
from attncem.reporting.card import NOT_SAID
from attncem.reporting.client_costs import CLIENT
from attncem.reporting.figures import HEALTH, PANELS
from attncem.reporting.html import marked
from attncem.reporting.runs.certificates import OF_BOUND
from attncem.reporting.runs.first_screen import FACTS
from attncem.reporting.runs.leak_costs import AXES
from attncem.reporting.runs.protection import BARS, Level
from attncem.reporting.runs.report_tables import COLUMNS as REPORT_COLUMNS
from attncem.reporting.runs.report_tables import NOTED, OF_CLASS
from attncem.reporting.runs.sending import COLUMNS as SENDING_COLUMNS
from attncem.reporting.runs.sending import ENDS
from attncem.reporting.runs.tables import SAMPLED
from attncem.reporting.table_formats import FORMATS
from attncem.training.health import CAUSES, SHOWN

PACKAGE = Path(attncem.__file__).parent
TEXTS = catalogue("en")
TEMPLATES = sorted((PACKAGE / "reporting").glob("*.j2"))
ASKERS = ("records/findings.py", "base/texts/__init__.py", "reporting/html.py")
"""Files that pass on keys which others give them."""
STANDINGS = ("alike", "better", "worse")
ANSWERS = ("better", "worse", "no_difference_shown", "too_few_seeds", "unreliable")
PARTS_OF_A_CLASS = ("slot", "cluster", "component")
ASSUMPTIONS = (
    *("same_law", "key_secret", "candidates_by_lot", "entropy_normal", "entropy_neighbours", "continuous"),
    *("unbiased", "smooth", "not_smooth", "prior_normal", "as_drawn", "fitted_to", "noise_drawn", "one_runtime"),
)
BOUNDS = (
    *("leakage", "leakage_training", "infonce", "decoder", "mse_normal", "mse_neighbours", "dfil", "mse_unbiased"),
    *("mse_van_trees", "epsilon", "releases", "beyond_label", "entropy", "entropy_plugin"),
    *("over_all", "not_sent"),
)


def key_word(name: str) -> str:
    """A name as a part of a key."""
    return re.sub(r"\W+", "_", name.lower())


FILLED: dict[str, Iterable[str]] = {
    "measure.*": (*METRICS, *LEAKS),
    "measure.*.meaning": (*METRICS, *LEAKS),
    "terminal.*": {metric.private for metric in METRICS.values()},
    "report.private.*": {metric.private for metric in METRICS.values()},
    "report.column.*": REPORT_COLUMNS,
    "report.column.*.note": NOTED,
    "report.classes.*": OF_CLASS,
    "report.first.*": FACTS,
    "certificates.column.*": OF_BOUND,
    "report.aspect.*": ("dataset", "data", "suite", "changed", "threat"),
    "arms.answer.*": (*ANSWERS, "privacy", "accuracy", "leak"),
    "arms.answer.*.numbers": ANSWERS,
    "amount.*": ("seconds", "minutes", "hours"),
    "report.kind.*": get_args(Kind),
    "report.outcome.*": ("failed", "not_applicable", "damaged"),
    "report.bound.*": ("bound", "estimate"),
    "report.probe.*": (
        *("attribute_accuracy", "attribute_balanced"),
        *(f"{space}_{measure}" for space in ("pixel", "feature") for measure in ("rank_1", "rank")),
        *(f"{method}_{measure}" for method in ("kmeans", "mixture") for measure in ("accuracy", "nats")),
        *("rank_1", "rank", "reciprocal_rank", "accuracy", "balanced", "auc", "balanced_accuracy"),
    ),
    "report.sample.*": SAMPLED,
    "report.reading.probe.*": PROBES,
    "report.reading.probe.*.text": PROBES,
    "report.gallery.*": ("best", "worst"),
    "report.protected.bar.*": BARS,
    "report.protected.note.*": BARS,
    "report.protects.*": [
        f"{shape}_{colour}"
        for shape in get_args(Level)
        for colour in get_args(Level)
        if {shape, colour} != {"kept", "unknown"}
    ],
    "state.*": get_args(AuditState),
    "question.*": get_args(Question),
    "answer.*": get_args(Status),
    "answer.*.numbers": [question for question in get_args(Question) if question != "picture"],
    "threat.encoder.*": ("yes", "no"),
    "threat.channel.*": ("yes", "no"),
    "threat.auxiliary.*": get_args(Auxiliary),
    "threat.lacks.*": get_args(Need),
    "report.costs.column.*": AXES,
    "report.attacks.stronger.*": ("all", "sent"),
    "sending.column.*": SENDING_COLUMNS,
    "sending.figure.*": ENDS,
    "subject.lacks.*": ("gradient", "encoder", "labels"),
    "health.*.meaning": CAUSES,
    "health.*.advice": CAUSES,
    "health.warning.*": ("above", "below"),
    "command.go_on.*": ("train", "audit"),
    "command.goes_on.*": ("campaign", "search"),
    "campaign.state.*": get_args(State),
    "campaign.changed.*": ("added", "left_alone", "anew"),
    "command.checked.*": ("failed", "passed"),
    "command.state.*": (
        *("running", "finished", "stopped", "failed", "interrupted", "unknown", "damaged", "unreadable"),
        *("found", "missing", "incomplete", "ok"),
    ),
    "arms.column.*": COLUMNS,
    "arms.script.*": WORDS,
    "arms.save.*": FORMATS,
    "arms.state.*": get_args(State),
    "arms.standing.*": get_args(Standing),
    "arms.verdict.*": get_args(VerdictCode),
    "arms.verdict.front.*": ("surely", "possibly"),
    "arms.mark.*": ("a_higher", "b_higher", "no_difference_shown"),
    "arms.method.*": get_args(Method),
    "arms.cloud.*": get_args(Of),
    "arms.reading.*": READING,
    "arms.reading.*.text": READING,
    "comparison.verdict.*": get_args(VerdictCode),
    "comparison.*": get_args(Over),
    "compare.cost.*": CLIENT,
    "search.budget.*": ("equal", "unequal"),
    "import.note.*": re.findall(
        r'made\.note\("(\w+)"', (PACKAGE / "cli/importing/flags.py").read_text(encoding="utf-8")
    ),
    "figure.panel.*": [key for _, key in PANELS],
    "figure.panel.*.note": ["accuracy"],
    "figure.health.*": HEALTH,
    "explain.class.lead.*": ("true", "predicted"),
    "explain.shares.*": PARTS_OF_A_CLASS,
    "explain.column.*": PARTS_OF_A_CLASS,
    "explain.penalty.*": PARTS_OF_A_CLASS,
    "explain.gate.*": GATES,
    "explain.gates.alone.*": ("attention", "nothing"),
    "explain.answer.*": get_args(Level),
    "explain.average.*": STANDINGS,
    "explain.blind.*": STANDINGS,
    "explain.divided.*": ("yes", "no"),
    "finding.*_part": ("fails", "passes"),
    "finding.*_mean": ("fails", "passes"),
    "finding.*_images": ("fails", "passes"),
    "finding.row_*": ("failed", "not_applicable", "damaged"),
    "assumption.*": ASSUMPTIONS,
    "card.not_said.*": NOT_SAID,
    "card.adversary.*": (*THREATS, "outside"),
    "card.untested.*": ("attribute", "membership"),
    "dataset.*": DATASETS,
    "bound.*": BOUNDS,
    "bound.*.at": ("leakage", "rank_1"),
    "bound.kind.*": ("bound", "estimate"),
    "bound.line.*": ("bound", "estimate"),
    "bound.claim.*": ("at_most", "at_least"),
    # the last is a row of older versions, which their audits still have
    "row.*": {*(key_word(name) for suite in packaged_suites().values() for name in suite.rows), "decoder_small_x16"},
    "number.*": (
        *("epoch", "rob_loss", "train_accuracy", *SHOWN.values(), "smoothness", "pull"),
        *("running", "failed"),
    ),
    "threat_name.*": (*THREATS, "outside"),
    "noise_name.*": get_args(RandomOptions.model_fields["noise"].annotation),
    "channel_name.*": CHANNELS,
    "images_name.*": ("train", "validation", "held_out", "test", "infer_auxiliary", "infer_evaluation"),
    "failed_at.*": ("train", "audit", "portray", "process", "read"),
}
"""Keys that are put together: what may stand in the gap."""
NAMED = ("row", "number", "failed_at", "noise_name", "channel_name", "images_name")
"""Kinds of names that the titles look up by their English text."""


@dataclass(frozen=True)
class Ask:
    """One place where a text is asked for: a key with * for gaps, and the values given (None: not known here)."""

    place: str
    key: str
    values: frozenset[str] | None

    def meant(self) -> list[str]:
        """The keys that are meant."""
        return [self.key.replace("*", word) for word in FILLED[self.key]] if "*" in self.key else [self.key]


# Python files


def python_asks(file: Path) -> Iterator[Ask]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name, place = node.func.id, f"{file.relative_to(PACKAGE)}:{node.lineno}"
            if name in ("text", "finding", "has_text", "written") and name in imported:
                yield python_ask(node, name, place)


def python_ask(node: ast.Call, name: str, place: str) -> Ask:
    key = python_key(node.args[0], place)
    given = {keyword.arg for keyword in node.keywords}
    values = None if None in given or name == "has_text" else frozenset(word for word in given if word)
    if name == "finding":
        return Ask(place, f"finding.{key}", None if values is None else values - {"about"})
    return Ask(place, key, values)


def python_key(node: ast.expr, place: str) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr), f"{place}: the key must be written where it is used"
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)


# templates


def template_asks(file: Path) -> Iterator[Ask]:
    tree = Environment().parse(file.read_text(encoding="utf-8"))
    for node in tree.find_all(nodes.Call):
        if isinstance(node.node, nodes.Name) and node.node.name in ("t", "has_text"):
            values = None if node.node.name == "has_text" else frozenset(keyword.key for keyword in node.kwargs)
            yield Ask(f"{file.name}:{node.lineno}", template_key(node.args[0]), values)


def template_key(node: nodes.Expr) -> str:
    parts = node.nodes if isinstance(node, nodes.Concat) else [node]
    return "".join(str(part.value) if isinstance(part, nodes.Const) else "*" for part in parts)


def all_asks() -> list[Ask]:
    files = [file for file in PACKAGE.rglob("*.py") if str(file.relative_to(PACKAGE)) not in ASKERS]
    found = [ask for file in sorted(files) for ask in python_asks(file)]
    found.append(Ask("records/findings.py", "said.about", frozenset(("about", "said"))))
    found.append(Ask("base/texts/__init__.py", "said.between", frozenset()))
    found += [Ask("base/texts/titles.py", f"{kind}.*", frozenset()) for kind in NAMED]
    return found + [ask for file in TEMPLATES for ask in template_asks(file)]


ASKS = all_asks()


def placeholders(sentence: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None)


def test_keys_that_are_put_together_are_known() -> None:
    assert {ask.key for ask in ASKS if "*" in ask.key} <= FILLED.keys()
    assert FILLED.keys() <= {ask.key for ask in ASKS}


def test_every_text_that_is_asked_for_is_there() -> None:
    assert len(ASKS) > 200
    missing = [(ask.place, key) for ask in ASKS for key in ask.meant() if key not in TEXTS]
    assert missing == []


def test_every_text_that_is_there_is_asked_for() -> None:
    assert sorted(TEXTS.keys() - {key for ask in ASKS for key in ask.meant()}) == []


def test_every_text_gets_the_values_it_names() -> None:
    wrong = [
        (ask.place, key, sorted(ask.values), TEXTS[key])
        for ask in ASKS
        if ask.values is not None
        for key in ask.meant()
        if placeholders(TEXTS.get(key, "")) != ask.values
    ]
    assert wrong == []


def test_every_reason_why_a_row_does_not_apply_is_of_the_catalogue() -> None:
    """Only then it can be shown in another language."""
    trees = (ast.walk(ast.parse(file.read_text(encoding="utf-8"))) for file in PACKAGE.rglob("*.py"))
    calls = [node for tree in trees for node in tree if isinstance(node, ast.Call)]
    reasons = [ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "NotApplicable"]
    assert len(reasons) > 20
    assert [reason for reason in reasons if not reason.startswith("written(")] == []


def test_no_key_stands_in_two_parts() -> None:
    assert sum(map(len, parts("en").values())) == len(TEXTS)


def test_texts_are_plain_words() -> None:
    for key, sentence in TEXTS.items():
        assert re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", key)
        assert not re.search(r"<[a-z/]|&[a-z#]", sentence), f"no HTML in {key}"
        assert all(re.fullmatch(r"[a-z_]+", name) for name in placeholders(sentence)), key


def test_surrogates_divide_classes_into_parts_that_have_a_name() -> None:
    files = (PACKAGE / "training/surrogates").glob("*.py")
    named = {part for file in files for part in re.findall(r'^    part = "(\w+)"', file.read_text(), re.MULTILINE)}
    assert named == set(PARTS_OF_A_CLASS)


# no words but those of the catalogue


class Words(HTMLParser):
    """Letters that a reader would see or hear."""

    SPOKEN = ("aria-label", "title", "alt", "placeholder", "label", "lang")

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in self.SPOKEN and has_letters(value or "")]

    def handle_data(self, data: str) -> None:
        self.found += [data.strip()] if has_letters(data) else []


def has_letters(words: str) -> bool:
    return any(letter.isalpha() for letter in words)


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_templates_hold_no_words(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    data = "".join(value for _, kind, value in Environment().lex(source) if kind == "data")
    assert Words(data).found == []
    constants = [node.value for node in Environment().parse(source).find_all(nodes.Const)]
    sentences = [value for value in constants if isinstance(value, str) and re.search(r"[^\W\d_] +[^\W\d_]", value)]
    assert sentences == []
    shown = [part for node in Environment().parse(source).find_all(nodes.Output) for part in node.nodes]
    assert [part.value for part in shown if isinstance(part, nodes.Const) and has_letters(str(part.value))] == []


def test_a_template_with_words_would_be_found() -> None:
    assert Words('<p aria-label="two words">–</p>').found == ["two words"]
    assert Words("<p>word</p>").found == ["word"]


COMPUTED = ("explaining.py", "portraits.py")
"""Modules of reporting that compute with torch; they speak in errors and findings."""


def test_reporting_holds_no_sentences_but_errors() -> None:
    files = sorted(file for file in (PACKAGE / "reporting").rglob("*.py") if file.name not in COMPUTED)
    assert len(files) > 20
    assert [(file.name, sentence) for file in files for sentence in sentences_in(file)] == []


def sentences_in(file: Path) -> list[str]:
    """Constants of three words and more, but for docstrings and errors."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = {id(part) for node in ast.walk(tree) if is_silent(node) for part in ast.walk(node)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in skipped]
    sentence = re.compile(r"[a-z]{2,}[,:]? [a-z]{2,}[,:]? [a-z]{2,}")
    return [node.value for node in constants if isinstance(node.value, str) and sentence.search(node.value)]


def is_silent(node: ast.AST) -> bool:
    """Docstrings and errors."""
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


# how texts are put together


def test_text_pattern_and_has_text() -> None:
    assert text("page.class", number=3) == "class 3"
    assert pattern("page.class") == "class {number}"
    assert has_text("page.class")
    assert not has_text("page.nothing")
    with pytest.raises(KeyError):
        text("page.nothing")


def test_values_on_a_page_are_escaped_unless_they_are_markup() -> None:
    from markupsafe import Markup

    assert marked("page.original_of", name="<b>") == "original image of &lt;b&gt;"
    assert marked("page.original_of", name=Markup("<b>x</b>")) == "original image of <b>x</b>"
    assert marked("figure.floor", name="grey", mse=0.25) == "grey 0.2500"


def test_every_finding_can_be_said() -> None:
    for key, sentence in TEXTS.items():
        if key.startswith("finding."):
            values = dict.fromkeys(placeholders(sentence), 1)
            assert Finding(key.removeprefix("finding."), "ridge", values).text.startswith("ridge: ")
