"""attncem compare: what is compared with what, by which test, and what is refused with a sentence."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from attncem.base.record import read
from attncem.base.types import ConfigError, RunError
from attncem.cli.main import main
from attncem.config.loading.load import dump_config, load_config
from attncem.config.threats import THREATS
from attncem.records.audit import AuditPlan, Row, Subject, Verdict
from attncem.records.fingerprints import fingerprint
from attncem.records.image_scores import ImageScores
from attncem.records.ledger import Ledger, RowFiles
from attncem.records.run_comparison import CommonAudit, RunsComparison
from attncem.records.runs import RunDirectory
from attncem.records.score import Score
from attncem.records.statistics import bootstrap_mean, compare_arms, compare_images
from attncem.reporting import compare, print_comparison
from made_runs import rewrite

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
IMAGES = 300
ENCODER = "e" * 64
Make = Callable[..., Path]


def score(values: Any) -> Score:
    found = bootstrap_mean(np.asarray(values), num_resamples=200)
    return Score(found.mean, found.low, found.high, float(np.min(values)), float(np.max(values)))


def difficulty() -> Any:
    """How hard each image is to recover: the same for all runs, so that pairs tell more than means."""
    return np.random.default_rng(0).exponential(0.02, IMAGES) + 0.005


def write_row(ledger: Ledger, name: str, values: Any, *, index: Any = None, keep: bool = True, **other: Any) -> None:
    places = np.arange(len(values)) if index is None else np.asarray(index)
    scores = {"mse": np.asarray(values), "ssim": 1 - 5 * np.asarray(values)}
    found = {key: score(own) for key, own in scores.items()}
    facts: dict[str, Any] = {"kind": "attack", "outcome": "ok", "reason": "", "options": {}, "seed": 0, "releases": 1}
    facts["must_beat"] = ["ridge"] if name == "decoder" else []
    row = Row(name=name, method=name, num_images=len(values), scores=found, **facts | other)
    ledger.write(row, RowFiles(ImageScores(places, scores) if keep else None))


def plan(config: Any, *, rows: Sequence[str], accuracy: float, **other: Any) -> AuditPlan:
    subject: dict[str, Any] = {
        "run": config.name,
        "fingerprint": fingerprint(ENCODER, config.channel_options, config.front_end_options),
        "weights": "epoch-00004",
        "surrogate": config.defence,
        "penalty_weight": config.training.penalty_weight,
        "noise_std": config.noise_std,
        "channel": config.channel_options,
        "noise_scheme": 1,
        "dataset": config.data.name,
        "architecture": "small_cnn",
        "cut": "2",
        "seed": config.seed,
        "num_classes": 10,
        "class_names": [],
        "data_sha256": "d" * 64,
        **dict.fromkeys(("client_macs", "server_macs", "client_parameters", "server_parameters"), 1),
        "bytes_per_query": 1,
        "training_seconds": 3.0,
    }
    values: dict[str, Any] = {
        "id": "quick-train-test-0",
        "suite": "quick",
        "suite_version": 2,
        "changed": [],
        "rows": list(rows),
        "threat": THREATS["train"],
        "evaluation": "test",
        "seed": config.seed,
        "subject": Subject(**subject),
        "num_evaluation": IMAGES,
        "num_auxiliary": 1000,
        "num_train": 1000,
        "accuracy": replace(score(np.arange(IMAGES) < accuracy * IMAGES)),
        "findings": [],
        "device": "cpu",
        "versions": {},
    }
    return AuditPlan(**values | other)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a finished run of a surrogate and seed whose attacks leave so much error."""

    def run(
        folder: str,
        surrogate: str = "none",
        seed: int = 0,
        *,
        level: float = 1.0,
        rows: Sequence[str] = ("ridge", "decoder"),
        audited: bool = True,
        accuracy: float = 0.8,
        manifest: dict[str, Any] | None = None,
        audit: dict[str, Any] | None = None,
        row: dict[str, Any] | None = None,
        **options: Any,
    ) -> Path:
        weight = 0.0 if surrogate == "none" else 1.0
        given = {"name": surrogate, "surrogate.name": surrogate, "seed": seed, "training.penalty_weight": weight}
        config = load_config(None, {**given, "training.epochs": 4, **options}).config
        best = {"checkpoint": "epoch-00004", "epoch": 4, "validation_accuracy": 0.8 - 0.01 * seed}
        facts: dict[str, Any] = {
            "status": "finished",
            "best": best,
            "training_seconds": 3.0,
            "split": {"sha256": "d" * 64},
        }
        facts = {"name": config.name, **facts, **(manifest or {})}
        made = RunDirectory.create(tmp_path / folder, config_yaml=dump_config(config), manifest=facts)
        checkpoint = made.path / "checkpoints/epoch-00004"
        checkpoint.mkdir()
        (checkpoint / "checkpoint.json").write_text(
            json.dumps({"epoch": 4, "sha256": {"client.safetensors": ENCODER, "optimizer.pt": "0"}})
        )
        (made.path / "best.json").write_text(json.dumps({"checkpoint": "epoch-00004"}))
        for epoch in range(1, 5):
            made.log({"kind": "validation", "epoch": epoch, "step": epoch, "accuracy": 0.2 * epoch, "ce": 1 / epoch})
        if audited:
            planned = plan(config, rows=rows, accuracy=accuracy - 0.01 * seed, **audit or {})
            ledger = Ledger.begin(made.path / "audits", planned)
            noise = np.random.default_rng([seed, len(surrogate)])
            for place, name in enumerate(rows):
                values = level * (2 - place) * difficulty() + noise.normal(0, 1e-4, IMAGES)
                write_row(ledger, name, values, **row or {})
        return made.path

    return run


def ledger_of(run: Path) -> Ledger:
    (folder,) = (run / "audits").iterdir()
    return Ledger.open(folder)


def codes(found: RunsComparison) -> list[str]:
    return [item.code for item in found.findings]


def verdicts(found: RunsComparison) -> dict[str, str]:
    return {item.measure: item.verdict for item in found.comparisons}


def told(found: RunsComparison, width: int = 80) -> str:
    words = io.StringIO()
    print_comparison(found, Console(width=width, file=words))
    return words.getvalue()


# two runs: images


def test_two_runs_are_compared_image_by_image(make: Make) -> None:
    first, second = make("a"), make("b", "kmeans", level=1.02)
    found = compare([first, second])
    assert verdicts(found) == {
        "accuracy": "no_difference_shown",
        "MSE of the strongest attack, decoder": "a_higher",
        "SSIM of the strongest attack, decoder": "b_higher",
        "MSE of ridge": "a_higher",
    }
    item = found.comparisons[1]
    one, other = (ledger_of(run).scores("decoder").values["mse"] for run in (second, first))
    expected = compare_images(one, other, a="kmeans", b="none", measure=item.measure)
    assert item == expected
    assert item.over == "images" and found.comparisons[0].over == "images_apart"
    apart = [bootstrap_mean(values) for values in (one, other)]
    assert apart[0].low < apart[1].high, "two intervals would not have told"
    assert codes(found) == ["compare_one_seed"]
    assert found.audit == CommonAudit("quick", 2, "train")


def test_options_that_differ_are_named_and_no_others(make: Make) -> None:
    found = compare([make("a"), make("b", "kmeans", **{"surrogate.num_clusters": 7})])
    every = {item.key: item.values for item in found.differences}
    assert every["surrogate.name"] == {"none": ["none"], "kmeans": ["kmeans"]}
    assert every["surrogate.num_clusters"] == {"none": [], "kmeans": [7]}
    assert "training.epochs" not in every and "name" not in every
    shared = [item.key for item in found.differences if item.everywhere]
    assert shared == ["surrogate.name", "training.penalty_weight"]
    keys = list(every)
    assert keys == sorted(keys, key=lambda key: ["surrogate", "training"].index(key.partition(".")[0]))


def test_pairs_are_of_the_images_that_both_rows_saw(make: Make) -> None:
    first, second = make("a", rows=["ridge"]), make("b", "kmeans", rows=["ridge"])
    for run, index in ((first, range(200)), (second, range(100, 300))):
        write_row(ledger_of(run), "ridge", difficulty()[list(index)], index=index)
    found = compare([first, second])
    item = next(item for item in found.comparisons if "MSE" in item.measure)
    assert (item.count_a, item.difference, item.verdict) == (100, 0.0, "no_difference_shown")


def test_results_without_single_images_are_compared_by_intervals(make: Make) -> None:
    found = compare([make("a", row={"keep": False}), make("b", "kmeans", level=3.0)])
    assert {item.over for item in found.comparisons} == {"images_apart"}
    assert verdicts(found)["MSE of the strongest attack, decoder"] == "a_higher"
    assert codes(found) == ["compare_one_seed", "compare_not_paired"]


def test_more_single_runs_stand_beside_the_first(make: Make) -> None:
    found = compare([make("a"), make("b", "kmeans"), make("c", "capacity")])
    assert [(item.a, item.b) for item in found.comparisons[:2]] == [("kmeans", "none"), ("capacity", "none")]


# several seeds


def many(make: Make, surrogate: str, seeds: int, level: float = 1.0, **other: Any) -> list[Path]:
    """Seeds whose level moves by some per cent."""
    moves = np.random.default_rng(len(surrogate)).normal(0, 0.02, seeds)
    return [make(f"{surrogate}-{n}", surrogate, n, level=level * (1 + move), **other) for n, move in enumerate(moves)]


def test_seeds_are_grouped_by_themselves_and_tested(make: Make) -> None:
    none, kmeans = many(make, "none", 6), many(make, "kmeans", 6, 1.3)
    found = compare([*none, *kmeans])
    assert [(group.name, len(group.runs)) for group in found.groups] == [("none", 6), ("kmeans", 6)]
    assert {item.over for item in found.comparisons} == {"seeds"}
    item = found.comparisons[1]
    values = [[run.numbers["strongest.mse"] for run in found.runs if run.group == name] for name in ("kmeans", "none")]
    plain = compare_arms(*values, a="kmeans", b="none", measure=item.measure)
    assert (item.p, item.smallest_p, item.low) == (plain.p, plain.smallest_p, plain.low)
    assert item.adjusted_p is not None and item.adjusted_p >= (item.p or 0)
    assert item.verdict == "a_higher" and verdicts(found)["accuracy"] == "no_difference_shown"
    assert codes(found) == []
    assert "p is adjusted for the number of comparisons" in told(found)


def test_three_seeds_are_too_few(make: Make) -> None:
    found = compare([*many(make, "none", 3), *many(make, "kmeans", 3, 2.0)])
    assert set(verdicts(found).values()) == {"too_few_seeds"}
    assert "too few seeds" in " ".join(told(found).split())


def test_seeds_of_one_configuration_have_a_spread_and_no_test(make: Make) -> None:
    found = compare(many(make, "none", 3))
    assert found.comparisons == [] and codes(found) == ["compare_one_group"]
    assert found.groups[0].numbers["accuracy"].sd == pytest.approx(0.01, abs=0.001)
    assert "No option differs except the seed." in told(found)


def test_two_seeds_of_one_configuration_are_two_models(make: Make) -> None:
    found = compare(many(make, "none", 2))
    assert [group.name for group in found.groups] == ["none (none-0)", "none (none-1)"]
    assert [item.key for item in found.differences] == ["seed"]
    assert "compare_one_seed" in codes(found)


def test_the_same_result_counts_once(make: Make) -> None:
    found = compare([*many(make, "none", 2), make("again", "none", 1, device="cpu"), *many(make, "kmeans", 2)])
    assert [len(group.runs) for group in found.groups] == [2, 2]
    assert "compare_same_result" in codes(found)
    assert "none (again): has the same configuration and seed as none (none-1)" in found.findings[0].text


def test_groups_by_an_option(make: Make) -> None:
    weights = [make(f"w{n}", "kmeans", n, **{"training.penalty_weight": 1.0 + n}) for n in range(2)]
    found = compare([*many(make, "none", 2), *weights], by=["surrogate.name"])
    assert [group.name for group in found.groups] == ["surrogate.name=none", "surrogate.name=kmeans"]
    (mixed,) = (item for item in found.findings if item.code == "compare_mixed")
    assert mixed.about == "surrogate.name=kmeans" and "training.penalty_weight" in mixed.text
    assert found.by == ["surrogate.name"]
    alone = compare(weights, by=["surrogate.name"])
    assert "compare_one_group" in codes(alone)


def test_arms_of_one_name_are_told_apart_by_their_options(make: Make) -> None:
    runs = [
        make(f"r{weight}-{seed}", "kmeans", seed, **{"training.penalty_weight": weight})
        for weight in (1.0, 4.0)
        for seed in range(2)
    ]
    names = [group.name for group in compare(runs).groups]
    assert names == ["training.penalty_weight=1.0", "training.penalty_weight=4.0"]


def test_an_unknown_option_is_refused_with_a_guess(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"--by surrogate.nme: none of the runs.*did you mean surrogate\.name\?"):
        compare([make("a"), make("b", "kmeans")], by=["surrogate.nme"])


# what cannot be compared


@pytest.mark.parametrize(
    "other", [{"data.name": "cifar10"}, {"manifest": {"split": {"sha256": "c" * 64}}}], ids=["set", "split"]
)
def test_other_data_are_not_compared(make: Make, other: dict[str, Any]) -> None:
    found = compare([make("a"), make("b", "kmeans", **other)])
    assert codes(found) == ["compare_other_data"]
    assert found.comparisons == found.quantities == []
    assert found.audit is None and all(not run.numbers for run in found.runs)
    assert "their numbers cannot be compared" in " ".join(told(found).split())


def test_runs_without_audits_say_how_to_get_one(make: Make) -> None:
    found = compare([make("a"), make("b", "kmeans", audited=False)])
    assert codes(found) == ["compare_unaudited", "compare_one_seed"]
    assert "attncem audit b makes one" in found.findings[0].text
    assert found.comparisons == [] and [it.key for it in found.quantities] == ["validation_accuracy"]
    seeds = compare([*many(make, "none", 4, audited=False), *many(make, "kmeans", 4, audited=False)])
    assert list(verdicts(seeds).values()) == ["no_difference_shown"]


@pytest.mark.parametrize(
    "other",
    [{"suite_version": 3}, {"suite": "standard"}, {"threat": THREATS["held_out"]}, {"changed": ["decoder.epochs=1"]}],
    ids=["version", "suite", "threat", "options"],
)
def test_audits_of_other_questions_are_not_compared(make: Make, other: dict[str, Any]) -> None:
    found = compare([make("a"), make("b", "kmeans", audit=other)])
    assert codes(found)[0] == "compare_no_common_audit"
    assert "quick v2, train" in found.findings[0].text
    assert found.comparisons == []


def test_audits_of_other_images_are_not_compared(make: Make) -> None:
    """The data may have been changed after a training; an audit knows what it saw."""
    runs = [make("a"), make("b", "kmeans")]
    file = ledger_of(runs[1]).path / "audit.json"
    rewrite(file, {"subject": json.loads(file.read_text())["subject"] | {"data_sha256": "c" * 64}})
    assert codes(compare(runs))[0] == "compare_no_common_audit"


@pytest.mark.parametrize(("rows", "taken"), [(["ridge"], "train"), (["ridge", "decoder"], "held_out")])
def test_the_common_audit_with_the_most_attacks_is_taken_and_of_equals_the_newest(
    make: Make, rows: list[str], taken: str
) -> None:
    """A later audit of certificates, with ridge alone, does not hide what decoders found."""
    runs = [make("a"), make("b", "kmeans")]
    for run in runs:
        config = RunDirectory(run).config
        later = plan(config, rows=rows, accuracy=0.5, id="later", threat=THREATS["held_out"])
        ledger = Ledger.begin(run / "audits", later)
        for row in rows:
            write_row(ledger, row, difficulty())
    found = compare(runs)
    assert found.audit is not None and found.audit.threat == taken
    assert codes(found)[0] == "compare_other_audits"


def test_rows_that_some_lack_are_named(make: Make) -> None:
    found = compare([make("a"), make("b", "kmeans", rows=["ridge"])])
    assert "compare_rows_lacking" in codes(found) and "compare_leaders_differ" in codes(found)
    assert "MSE of ridge" in verdicts(found) and "MSE of decoder" not in verdicts(found)


def test_useless_models_and_weak_attacks_are_named(make: Make) -> None:
    runs = [make("a"), make("b", "kmeans", accuracy=0.12, row={"verdict": Verdict(reliable=False)})]
    found = {item.code: item.text for item in compare(runs).findings}
    assert found["compare_useless"].endswith(": kmeans") and found["compare_unreliable"].endswith(": kmeans")


def test_a_run_that_is_not_finished_is_named(make: Make) -> None:
    found = compare([make("a"), make("b", "kmeans", manifest={"status": "stopped"})])
    assert found.findings[0].code == "run_status" and found.findings[0].about == "kmeans"


def test_one_run_the_same_twice_and_no_run_are_refused(make: Make, tmp_path: Path) -> None:
    run = make("a")
    with pytest.raises(RunError, match="at least two run folders"):
        compare([run])
    with pytest.raises(RunError, match="is given twice"):
        compare([run, run.parent / "." / run.name])
    with pytest.raises(RunError, match="is given twice"):
        compare([run, tmp_path])  # the folder that holds it
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="is not a run folder"):
        compare([run, tmp_path / "empty"])


def test_a_folder_of_runs_stands_for_them(make: Make, tmp_path: Path) -> None:
    runs = [make("a"), make("b", "kmeans")]
    assert compare([tmp_path]) == compare(runs)


@pytest.mark.parametrize("name", ["audit.json", "ridge.json", "ridge.npz"])
def test_damaged_audits_are_named(make: Make, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make("a", rows=["ridge"]), make("b", "kmeans", rows=["ridge"])]
    (file,) = runs[1].glob(f"audits/*/{name}")
    file.write_bytes(file.read_bytes()[:40])
    assert main(["compare", *map(str, runs)]) == (0 if name == "ridge.npz" else 2)
    shown = capsys.readouterr()
    assert name in (shown.out if name == "ridge.npz" else shown.err)


# how it is shown


def test_the_terminal_needs_80_columns(make: Make) -> None:
    runs = [*many(make, "none", 2), *many(make, "kmeans", 2), *many(make, "capacity", 2)]
    for chosen in (runs, runs[::2]):
        lines = told(compare(chosen)).splitlines()
        assert max(map(len, lines)) <= 80
        assert "…" not in "".join(lines)


ODD = '<b title="x">&odd</b>'


def test_the_page_is_whole_and_escapes_names(make: Make, tmp_path: Path) -> None:
    runs = [make("a"), make("odd <i>", "kmeans", manifest={"name": ODD}, rows=["ridge", "<u>row</u>"])]
    compare(runs, out=tmp_path / "page.html", now=NOW)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert ODD not in page and "<u>row" not in page
    assert "&lt;b title=&#34;x&#34;&gt;&amp;odd&lt;/b&gt;" in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)
    assert "default-src 'none'" in page and 'content="attncem-compare ' in page
    assert page.count("<svg") == 2 and "2030-01-02" in page
    for word in ("Options", "Numbers", "Differences", "Training", "one run each"):
        assert word.lower() in page.lower()
    compare(runs, out=tmp_path / "page.html", now=NOW)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page, "the same runs give the same page"


def test_a_page_of_somebody_else_is_left_alone(make: Make, tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(RunError, match=r"mine\.html: exists and was not written by attncem"):
        compare([make("a"), make("b", "kmeans")], out=tmp_path / "mine.html")
    assert (tmp_path / "mine.html").read_text() == "mine"


def test_names_cannot_steer_the_terminal(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make("a"), make("b", "kmeans", manifest={"name": "x\x1b[2Jy[red]z"})]
    assert main(["compare", *map(str, runs)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown and "[red]z" in "".join(shown.split())


def test_the_command_prints_json_that_comes_back(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [*many(make, "none", 2), *many(make, "kmeans", 2)]
    assert main(["compare", *map(str, runs), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data.pop("schema_version")
    assert read(RunsComparison, data, "stdout") == compare(runs)


def test_the_command_tells_of_the_page(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(make("a")), str(make("b", "kmeans"))]
    assert main(["compare", *runs]) == 0
    assert "add --out compare.html" in capsys.readouterr().out
    assert main(["compare", *runs, "--out", str(tmp_path / "c.html")]) == 0
    assert "page: " in capsys.readouterr().out and (tmp_path / "c.html").is_file()
    for words in ([runs[0]], [*runs, "--out", "/"], [*runs, "--by", ""], [*runs, "--by", "nothing.there"]):
        assert main(["compare", *words]) == 2
