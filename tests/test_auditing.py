from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import attncem
from attncem.base.pictures import png, png_text
from attncem.base.progress import silent
from attncem.base.seeding import make_generator
from attncem.base.texts import speaking, translated
from attncem.base.texts.titles import threat_title
from attncem.base.types import ConfigError, NotApplicable, RunError
from attncem.config.options.attacks import (
    ClassMeanOptions,
    GreyOptions,
    MeanImageOptions,
    NearestNeighbourOptions,
    RidgeOptions,
)
from attncem.config.options.base import Options
from attncem.config.options.suites import Suite
from attncem.config.threats import THREATS, ThreatModel
from attncem.judging.attacks import ATTACKS, floors
from attncem.judging.attacks.base import Attack, OwnImages
from attncem.judging.auditing import Case, audit, judges, measure
from attncem.judging.auditing.measuring import _as_row
from attncem.judging.judges import Certificate, Probe
from attncem.judging.opening import open_encoder, open_run
from attncem.judging.oracle import Oracle
from attncem.records import metrics
from attncem.records.audit import AuditResult, Row, Verdict
from attncem.records.bounds import Bound
from attncem.records.findings import finding
from attncem.records.ledger import Ledger
from attncem.records.metrics import PERFECT, mse, psnr, ssim
from attncem.records.runs import RunDirectory
from attncem.records.shared_scores import shared_errors
from attncem.training.build import load_data
from editing import copy_run
from remembering import computed_anew


def suite_of(name: str, rows: dict[str, Any], version: int = 1) -> Suite:
    """A suite of any rows, made-up ones too."""
    return Suite.model_construct(name=name, version=version, meaning=name, rows=rows)


FLOORS: dict[str, Any] = {"grey": GreyOptions(), "mean image": MeanImageOptions(), "class mean": ClassMeanOptions()}
RIDGE: dict[str, Any] = {"ridge": RidgeOptions(num_releases=1)}
SUITE = suite_of("tiny", {**FLOORS, "nearest neighbour": NearestNeighbourOptions(), **RIDGE}, version=3)
BLIND = suite_of("blind", {"grey": GreyOptions()})


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """One epoch of the demo's undefended model."""
    out = tmp_path_factory.mktemp("runs") / "demo-none"
    return attncem.train("demo-none", ["training.epochs=1", "model.width=8", "device=cpu"], out=out, progress=silent)


@pytest.fixture(scope="session")
def result(run: RunDirectory) -> AuditResult:
    return audit(run, SUITE, progress=silent)


class FakeOptions(Options):
    """Options of a made-up attack."""

    name: Literal["fake"] = "fake"
    images: int | None = None


FAKE = suite_of("fake", {"grey": GreyOptions(), "fake": FakeOptions()})


class Fake(Attack):
    """Grey, and whatever a test makes of it."""

    options_type = FakeOptions

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        self.shape = oracle.image_shape

    def reconstruct(self, released: Tensor) -> Tensor:
        return torch.full((len(released), *self.shape), 0.25)


def audit_with(
    run: Any, monkeypatch: pytest.MonkeyPatch, attack: type[Attack], out: Path, suite: Suite = FAKE, **options: Any
) -> AuditResult:
    """An audit in which `fake` is this attack, in a folder of its own."""
    monkeypatch.setitem(ATTACKS, "fake", attack)
    return audit(run, suite, out=out, progress=silent, **options)


def codes(result: AuditResult) -> list[str]:
    return [item.code for item in result.findings]


# the result


def test_a_result_is_the_join_of_the_rows_on_disk(run: RunDirectory, result: AuditResult) -> None:
    folder = Path(result.folder)
    assert folder.parent == run.path / "audits"
    assert Ledger.open(folder).result() == result
    names = {file.name for file in folder.iterdir() if file.suffix in (".json", ".npz")}
    rows = ("grey", "mean-image", "class-mean", "nearest-neighbour", "ridge")
    assert names == {"audit.json", "joined.json", *(f"{row}.{kind}" for row in rows for kind in ("json", "npz"))}


def test_the_result_tells_what_was_audited(run: RunDirectory, result: AuditResult) -> None:
    plan, subject = result.plan, result.subject
    assert (subject.run, subject.surrogate, subject.penalty_weight) == ("demo-none", "none", 0.0)
    assert (subject.dataset, subject.architecture, subject.cut) == ("fashion_mnist_mini", "small_cnn", "2")
    assert (plan.suite, plan.suite_version, plan.threat.name, plan.seed) == ("tiny", 3, "train", 0)
    assert (plan.num_evaluation, plan.num_auxiliary, plan.num_train, plan.evaluation) == (1000, 4000, 4000, "test")
    assert (subject.num_classes, len(subject.class_names)) == (10, 10)
    assert subject.noise_std == pytest.approx(0.1)
    assert subject.weights == "epoch-00001"
    assert subject.fingerprint == open_run(run).fingerprint
    assert subject.data_sha256 == run.manifest["split"]["sha256"]
    assert subject.bytes_per_query == 4 * 8 * 4 * 4 == run.manifest["bytes_per_query"]
    assert subject.client_parameters == run.manifest["client_parameters"]
    assert subject.server_parameters == run.manifest["server_parameters"]
    assert result.seconds > 0
    assert [row.name for row in result.rows] == list(SUITE.rows)
    assert [row.kind for row in result.rows] == ["floor"] * 3 + ["attack"] * 2
    assert [row.sees for row in result.rows] == ["nothing", "nothing", "label", "release", "release"]
    assert {row.outcome for row in result.rows} == {"ok"}
    assert result.missing == []


def test_the_strongest_is_the_lowest_error(result: AuditResult) -> None:
    lowest = min(row.mse.mean for row in result.attacks)
    assert result.strongest_attack.mse.mean == lowest
    assert result.strongest == result.strongest_attack.name


def test_floors_have_a_sensible_order(result: AuditResult) -> None:
    mean = {row.name: row.mse.mean for row in result.rows}
    assert mean["class mean"] < mean["mean image"] < mean["grey"]
    assert mean["ridge"] < mean["class mean"]


def test_rows_are_measured_on_the_evaluation_images(run: RunDirectory, result: AuditResult) -> None:
    data = load_data(open_run(run).config, torch.device("cpu"))
    x, y = data.test.get(slice(None))
    mean = data.train.get(slice(None))[0].mean(0).expand_as(x)
    row = result.row("mean image")
    assert set(row.scores) == set(metrics.METRICS)
    for name, metric in metrics.METRICS.items():
        assert row.scores[name].mean == pytest.approx(float(metric.function(mean, x).mean()), rel=1e-4), name
        assert row.scores[name].low < row.scores[name].mean < row.scores[name].high
        assert row.scores[name].p05 < row.scores[name].mean < row.scores[name].p95
    assert row.scores["psnr"].mean == pytest.approx(float(psnr(mean, x).mean()), rel=1e-5)
    assert row.scores["ssim"].mean == pytest.approx(float(ssim(mean, x).mean()), abs=1e-5)
    assert row.mse.per_class[3] == pytest.approx(float(mse(mean, x)[y == 3].mean()), rel=1e-5)
    assert row.mse.p05 == pytest.approx(float(np.quantile(mse(mean, x).numpy(), 0.05)), rel=1e-5)


def test_what_remains_is_told_beside_the_best_blind_guess(result: AuditResult) -> None:
    left, strongest = result.remaining, result.strongest_attack
    assert set(left) == set(PERFECT)
    blind = [row for row in result.rows if row.kind == "floor"]
    for name, item in left.items():
        best = (min if PERFECT[name] == 0 else max)(blind, key=lambda row: row.scores[name].mean)
        assert (item.value, item.floor, item.blind) == (strongest.scores[name].mean, best.name, best.scores[name].mean)
        assert item.share == pytest.approx((item.value - PERFECT[name]) / (item.blind - PERFECT[name]))
        assert 0 < item.share < 1, name
    bands = sum(left[name].value for name in ("band_mean", "band_low", "band_high"))
    assert bands == pytest.approx(strongest.mse.mean, rel=1e-5)


def test_the_scores_of_every_image_are_kept(result: AuditResult) -> None:
    ledger = Ledger.open(Path(result.folder))
    for row in result.rows:
        scores = ledger.scores(row.name)
        assert scores.index.tolist() == list(range(1000))
        for name, values in scores.values.items():
            assert float(values.mean()) == row.scores[name].mean


def test_risk_is_that_of_the_strongest_attacks_images(run: RunDirectory, result: AuditResult) -> None:
    errors = Ledger.open(Path(result.folder)).scores(result.strongest).values["mse"]
    labels = open_run(run).data.test.labels.numpy()
    own = [errors[labels == label] for label in range(10)]
    risk = result.risk
    assert risk is not None
    assert risk.per_class == pytest.approx([part.mean() for part in own])
    assert risk.per_class_p05 == pytest.approx([np.quantile(part, 0.05) for part in own])
    assert risk.exposed_class == int(np.argmin([part.mean() for part in own]))
    assert risk.p05 == pytest.approx(np.quantile(errors, 0.05))


@pytest.mark.parametrize("on", ["test", "validation"])
def test_accuracy_is_that_of_the_attacked_releases(run: RunDirectory, on: str) -> None:
    result = audit(run, BLIND, on=on, seed=4, progress=silent)
    opened = open_run(run)
    x, y = getattr(opened.data, on).get(slice(None))
    noise = make_generator("cpu", 4, "evaluation")
    with torch.no_grad():
        logits = torch.cat([opened.model.predict(opened.model.release(part, generator=noise)) for part in x.split(250)])
    right = logits.argmax(1) == y
    assert result.plan.seed == 4, "the audit's seed is the one recorded"
    assert result.known_accuracy.mean == pytest.approx(float(right.float().mean()))
    assert result.known_accuracy.mean > 0.3
    assert result.known_accuracy.per_class == pytest.approx([float(right[y == c].float().mean()) for c in range(10)])
    assert result.plan.evaluation == on
    assert result.plan.num_evaluation == len(x) == {"test": 1000, "validation": 500}[on]
    assert result.row("grey").mse.mean == pytest.approx(float((x - 0.5).square().mean()), rel=1e-5)


def numbers(of: AuditResult) -> list[Row]:
    """The rows without what differs from one time to the next."""
    return [replace(row, seconds=0) for row in of.rows]


def test_a_finished_audit_is_not_made_again_and_a_fresh_one_is_equal(run: RunDirectory, result: AuditResult) -> None:
    before = {file: file.read_bytes() for file in Path(result.folder).rglob("*") if file.is_file()}
    assert audit(run, SUITE, progress=silent) == result
    with computed_anew():
        fresh = audit(run, SUITE, fresh=True, progress=silent)
    assert fresh.folder == f"{result.folder}-2"
    assert numbers(fresh) == numbers(result)
    assert {file: file.read_bytes() for file in before} == before, "nothing was overwritten"
    other = audit(run, SUITE, seed=1, progress=silent)
    assert other.row("ridge").mse != result.row("ridge").mse
    assert other.plan.id != result.plan.id


def test_other_options_never_join_older_rows(run: RunDirectory, result: AuditResult) -> None:
    rows = {**SUITE.rows, "ridge": RidgeOptions(num_releases=2)}
    other = audit(run, suite_of("tiny", rows, version=3), progress=silent)
    assert other.folder != result.folder
    changed = audit(run, "quick", ["ridge.num_releases=1"], only=["ridge", "grey"], progress=silent)
    assert changed.plan.changed == ["ridge.num_releases=1"]
    assert changed.row("ridge").mse == result.row("ridge").mse, "the same question under another name"
    assert codes(changed) == ["suite_changed", "rows_missing"]


def test_rows_can_be_chosen_and_the_rest_made_later(run: RunDirectory, result: AuditResult, tmp_path: Path) -> None:
    first = audit(run, SUITE, only=["ridge"], out=tmp_path, progress=silent)
    assert [row.name for row in first.rows] == ["ridge"]
    assert first.missing == ["grey", "mean image", "class mean", "nearest neighbour"]
    assert "grey, mean image, class mean, nearest neighbour" in first.warnings[0]
    second = audit(run, SUITE, skip=["nearest_neighbour"], out=tmp_path, progress=silent)
    assert [row.name for row in second.rows] == ["grey", "mean image", "class mean", "ridge"]
    whole = audit(run, SUITE, out=tmp_path, progress=silent)
    assert numbers(whole) == numbers(result)
    assert whole.row("ridge").seconds == first.row("ridge").seconds, "it was not made again"
    with pytest.raises(ConfigError, match="only=rigde: no row or method of this name; did you mean ridge"):
        audit(run, SUITE, only=["rigde"], progress=silent)


# who owns, knows and sees what


def test_the_own_images_are_held_once_as_bytes(run: RunDirectory) -> None:
    case, attack = Case(open_run(run), THREATS["train"]), Fake()
    oracle = case.oracle(attack, 0)
    for one in (oracle, oracle.mirrored(), case.oracle(attack, 1)):
        assert one.auxiliary_in_parts()[0].stored is case.auxiliary.images
    assert case.auxiliary.images.dtype == torch.uint8
    few = case.oracle(attack, 0, own=30)
    assert torch.equal(few.auxiliary()[0], oracle.auxiliary()[0][:30])
    noise = [torch.Generator().manual_seed(4) for _ in range(2)]
    index = torch.arange(30)
    torch.testing.assert_close(
        *(one.release_auxiliary(index, generator=g) for one, g in zip((few, oracle), noise, strict=True))
    )


@pytest.mark.parametrize("at_once", [7, 100_000])
def test_floors_are_means_of_all_own_images(run: RunDirectory, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Whatever is held at once; a class without images gets the mean of all."""
    monkeypatch.setattr(floors, "_BATCH", at_once)
    oracle = Case(open_run(run), THREATS["train"]).oracle(Fake(), 0)
    x, y = oracle.auxiliary()
    some = oracle.owning(x[y != 3], y[y != 3])
    overall, of_class = ATTACKS["mean_image"](), ATTACKS["class_mean"]()
    overall.fit(some, seed=0)
    of_class.fit(some, seed=0)
    torch.testing.assert_close(overall.reconstruct(x[:1])[0], x[y != 3].mean(0))
    means = torch.stack([x[y != 3].mean(0) if label == 3 else x[y == label].mean(0) for label in range(10)])
    torch.testing.assert_close(of_class.means, means)  # type: ignore[attr-defined]


def images_of(oracle: Oracle) -> set[bytes]:
    return {image.numpy().tobytes() for image in OwnImages(oracle).x}


@pytest.mark.parametrize(
    ("threat", "on", "auxiliary", "evaluation"),
    [
        ("train", "test", 4000, 1000),
        ("train", "validation", 4000, 500),
        ("held_out", "test", 500, 1000),
        ("held_out", "validation", 500, 500),
        ("published_infer", "test", 900, 100),
    ],
)
def test_no_attacker_owns_an_image_it_is_judged_on(
    run: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    threat: str,
    on: str,
    auxiliary: int,
    evaluation: int,
) -> None:
    owned: set[bytes] = set()
    judged: set[bytes] = set()

    class Watching(Fake):
        def fit(self, oracle: Oracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            owned.update(images_of(oracle))

    def watched(x: Tensor, y: Tensor) -> Tensor:
        judged.update(image.numpy().tobytes() for image in y)
        return mse(x, y)

    monkeypatch.setitem(metrics.METRICS, "mse", replace(metrics.METRICS["mse"], function=watched))
    result = audit_with(run, monkeypatch, Watching, tmp_path, threat=threat, on=on)
    assert (result.plan.num_auxiliary, result.plan.num_evaluation) == (auxiliary, evaluation)
    assert result.plan.threat.name == threat
    assert len(owned) > 0.95 * auxiliary
    assert len(judged) > 0.95 * evaluation
    assert not owned & judged


def test_a_held_out_attackers_images_were_not_trained_on(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    owned: dict[str, set[bytes]] = {}

    class Watching(Fake):
        def fit(self, oracle: Oracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            owned[oracle.threat.name] = images_of(oracle)

    for threat in ("train", "held_out"):
        audit_with(run, monkeypatch, Watching, tmp_path, threat=threat)
    assert not owned["train"] & owned["held_out"]


def test_a_starved_attacker_is_told(run: RunDirectory, result: AuditResult) -> None:
    starved = audit(run, BLIND, threat="held_out", progress=silent)
    assert "starved_attacker" in codes(starved)
    assert any("500 images (the model was trained on 4000)" in warning for warning in starved.warnings)
    assert "starved_attacker" not in codes(result)


def test_each_threat_and_evaluation_has_a_folder_of_its_own(run: RunDirectory) -> None:
    result = audit(run, BLIND, threat="held_out", on="validation", progress=silent)
    assert Path(result.folder).name.startswith("blind-held_out-validation-")


def test_an_attacker_who_sees_more_releases_recovers_more(run: RunDirectory, tmp_path: Path) -> None:
    errors = {}
    for releases in (1, 16):
        found = audit(run, suite_of("r", RIDGE), releases=releases, out=tmp_path, progress=silent)
        errors[releases] = found.row("ridge").mse.mean
        assert found.row("ridge").releases == found.plan.threat.releases_per_input == releases
    assert errors[16] < 0.97 * errors[1]
    assert found.plan.threat.name == "train-x16"
    with pytest.raises(ConfigError, match="releases=0: must be at least 1"):
        audit(run, BLIND, releases=0, progress=silent)


@pytest.mark.parametrize(
    ("threat", "applicable"),
    [
        ("query_only", {"grey", "mean image", "class mean", "nearest neighbour", "ridge"}),
        ("no_access", {"grey", "mean image", "class mean"}),
        (ThreatModel("owns nothing", True, True, "none"), {"grey"}),
    ],
)
def test_what_the_adversary_lacks_makes_a_row_not_applicable(
    run: RunDirectory, tmp_path: Path, threat: Any, applicable: set[str]
) -> None:
    result = audit(run, SUITE, threat=threat, out=tmp_path, progress=silent)
    assert {row.name for row in result.rows if row.ok} == applicable
    others = [row for row in result.rows if not row.ok]
    assert {row.outcome for row in others} <= {"not_applicable"}
    assert all("the adversary of the threat model" in row.reason for row in others)
    assert {row.reason_source["key"] for row in others} <= {"threat.lacks"}, "read again from the rows' files"
    with speaking("zh"):
        assert all(
            translated(row.why).startswith(f"威胁模型“{threat_title(result.plan.threat.name)}”") for row in others
        )
    assert result.missing == [], "what cannot be is not missing"


def test_every_attack_draws_from_a_stream_of_its_own(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[Tensor] = []

    class Asking(Fake):
        def fit(self, oracle: Oracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            drawn.append(oracle.release(OwnImages(oracle).x[:50]))

    suite = suite_of("asking", {"one": FakeOptions(), "two": FakeOptions()})
    audit_with(run, monkeypatch, Asking, tmp_path, suite)
    audit_with(run, monkeypatch, Asking, tmp_path, suite, fresh=True, only=["two"])
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[1], drawn[2]), "whatever ran before"


# refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"suite": "standart"}, "standart: no packaged suite of this name"),
        ({"suite": BLIND, "threat": "heldout"}, "threat=heldout is unknown; did you mean held_out?"),
        ({"suite": BLIND, "on": "tests"}, "on=tests is unknown; did you mean test?"),
        ({"suite": BLIND, "threat": "published_infer", "on": "validation"}, "cannot be evaluated on the validation"),
    ],
)
def test_what_cannot_be_audited_is_refused(run: RunDirectory, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        audit(run, progress=silent, **arguments)
    assert message in str(caught.value)


def test_unknown_weights_are_refused(run: RunDirectory) -> None:
    with pytest.raises(RunError, match="no checkpoint epoch-00077; it has epoch-00001"):
        audit(run, BLIND, weights="epoch-00077", progress=silent)


def test_no_run_no_audit(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        audit(tmp_path, BLIND, progress=silent)


def test_a_changed_split_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    changed = copy_run(run.path, tmp_path / "copy", lambda text: text.replace("split_seed: 0", "split_seed: 1"))
    with pytest.raises(RunError, match="split has changed") as caught:
        audit(changed, BLIND, progress=silent)
    assert str(changed) in str(caught.value)


def test_an_attacker_without_images_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    def edit(text: str) -> str:
        return text.replace("held_out_fraction: 0.1", "held_out_fraction: 0.0")

    changed = RunDirectory(copy_run(run.path, tmp_path / "copy", edit))
    changed.update_manifest(split={})
    with pytest.raises(ConfigError, match="leaves the attacker 0 images"):
        audit(changed, BLIND, threat="held_out", progress=silent)


# attacks that misbehave


def test_an_attack_can_do_nothing_to_the_victim(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Meddling(Fake):
        def fit(self, oracle: Oracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            for module in (oracle.encoder(), oracle.channel(), oracle._model):
                module.train()
                module.requires_grad_()
                for parameter in module.parameters():
                    parameter.data += 1
            oracle.encoder()(OwnImages(oracle).x[:2].requires_grad_()).sum().backward()

    opened = open_run(run)
    before = {name: tensor.clone() for name, tensor in opened.model.state_dict().items()}
    suite = suite_of("meddling", {"fake": FakeOptions(), **RIDGE})
    result = audit_with(opened, monkeypatch, Meddling, tmp_path, suite)
    assert [row.outcome for row in result.rows] == ["ok", "ok"]
    assert result.row("ridge").mse == audit(run, suite_of("r", RIDGE), out=tmp_path, progress=silent).row("ridge").mse
    assert all(torch.equal(tensor, before[name]) for name, tensor in opened.model.state_dict().items())
    assert not any(module.training for module in opened.model.modules())
    assert all(parameter.grad is None for parameter in opened.model.parameters())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("out of\n luck"), r"ValueError: out of luck \(test_auditing\.py, line \d+\)"),
        (RunError("for people"), "for people"),
        (MemoryError(), r"MemoryError:  \(test_auditing"),
    ],
)
def test_one_failing_attack_costs_one_row(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, reason: str
) -> None:
    class Failing(Fake):
        def fit(self, oracle: Oracle, *, seed: int) -> None:
            raise error

    suite = suite_of("failing", {"grey": GreyOptions(), "fake": FakeOptions(), **RIDGE})
    result = audit_with(run, monkeypatch, Failing, tmp_path, suite)
    assert [row.outcome for row in result.rows] == ["ok", "failed", "ok"]
    row = result.row("fake")
    assert pytest.approx(row.seconds, abs=5) == 0

    assert re.match(reason, row.reason), row.reason
    assert "row_failed" in codes(result)
    assert result.strongest == "ridge"
    assert result.missing == ["fake"]
    again = audit_with(run, monkeypatch, Fake, tmp_path, suite)
    assert [row.outcome for row in again.rows] == ["ok", "ok", "ok"], "a row that failed is tried again"
    assert again.row("ridge").seconds == result.row("ridge").seconds


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        (lambda n: torch.zeros(n, 1, 27, 28), "images of shape"),
        (lambda n: torch.full((n, 1, 28, 28), float("nan")), "not finite"),
    ],
)
def test_an_attack_that_returns_no_images_has_failed(
    run: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    images: Callable[[int], Tensor],
    reason: str,
) -> None:
    class Misshapen(Fake):
        def reconstruct(self, released: Tensor) -> Tensor:
            return images(len(released))

    result = audit_with(run, monkeypatch, Misshapen, tmp_path)
    assert result.row("fake").outcome == "failed"
    assert reason in result.row("fake").reason


def test_an_unreliable_attack_is_told(run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Unsure(Fake):
        def fit(self, oracle: Oracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            self.verdict = Verdict(reliable=False)
            self.findings = [finding("never_doubled", epochs=3)]

    result = audit_with(run, monkeypatch, Unsure, tmp_path)
    assert not result.row("fake").verdict.reliable
    assert "fake: not converged after 3 epochs: no doubling was tried" in result.warnings


def test_attacks_that_lose_to_a_floor_are_told(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Hopeless(Fake):
        def reconstruct(self, released: Tensor) -> Tensor:
            return torch.ones(len(released), *self.shape)

    result = audit_with(run, monkeypatch, Hopeless, tmp_path)
    assert result.strongest == "grey"
    assert any("no attack beats the floor “grey”" in warning for warning in result.warnings)


def test_an_attack_that_loses_to_what_it_must_beat_is_told(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Losing(Fake):
        must_beat = ("ridge",)

    result = audit_with(run, monkeypatch, Losing, tmp_path, suite_of("losing", {**RIDGE, "fake": FakeOptions()}))
    assert "fake: loses to ridge: it is under-trained" in result.warnings
    assert result.strongest == "ridge"


def test_a_model_near_chance_is_told(run: RunDirectory, tmp_path: Path, result: AuditResult) -> None:
    drowned = copy_run(run.path, tmp_path / "copy", lambda text: text.replace("noise_std: 0.1", "noise_std: 50.0"))
    assert "near_chance" in codes(audit(drowned, BLIND, progress=silent))
    assert "near_chance" not in codes(result)


# rows on some of the images


def test_the_strongest_is_found_on_common_images(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An attack on the easiest images alone must not win by its choice of images."""

    class OnSome(Fake):
        def reconstruct(self, released: Tensor) -> Tensor:
            return torch.full((len(released), *self.shape), 0.5)

    x = open_run(run).data.test.get(slice(None))[0]
    errors = (x - 0.5).square().flatten(1).mean(1)
    count = next(n for n in range(2, 900) if float(errors[:n].mean()) < 0.999 * float(errors.mean()))
    suite = suite_of("some", {"fake": FakeOptions(images=count), "grey": GreyOptions()})
    result = audit_with(run, monkeypatch, OnSome, tmp_path, suite)
    assert result.row("fake").num_images == count
    assert result.row("fake").mse.mean < result.row("grey").mse.mean
    ledger = Ledger.open(Path(result.folder))
    assert len(ledger.scores("fake").index) == count
    errors_by_row = shared_errors(result.rows, ledger.errors).errors
    assert errors_by_row["fake"] == pytest.approx(errors_by_row["grey"])


# certificates and probes


class BoundOptions(Options):
    name: Literal["bound"] = "bound"


class LeastNoise(Certificate):
    """A made-up certificate."""

    options_type = BoundOptions

    def bound(self, case: Case, *, seed: int) -> dict[str, Bound]:
        std = case.subject.config.noise_std
        if std == 0:
            raise NotApplicable("there is no noise")
        return {"noise": Bound(std, "units of z", std, std, "bound", ["none"])}


class ProbeOptions(Options):
    name: Literal["probe"] = "probe"


class Brightness(Probe):
    """A made-up probe."""

    options_type = ProbeOptions
    needs = frozenset({"server"})

    def score(self, case: Case, *, seed: int) -> dict[str, NDArray[np.float64]]:
        return {"brightness": case.x.flatten(1).mean(1).double().numpy()}


def test_certificates_and_probes_go_through_the_same_door(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(judges.CERTIFICATES, "bound", LeastNoise)
    monkeypatch.setitem(judges.PROBES, "probe", Brightness)
    suite = suite_of("all", {"grey": GreyOptions(), "least noise": BoundOptions(), "brightness": ProbeOptions()})
    result = audit(run, suite, out=tmp_path, progress=silent)
    assert [row.kind for row in result.rows] == ["floor", "certificate", "probe"]
    assert result.row("least noise").bounds["noise"].value == pytest.approx(0.1)
    assert 0.2 < result.row("brightness").scores["brightness"].mean < 0.4
    assert len(Ledger.open(Path(result.folder)).scores("brightness").index) == 1000
    assert result.strongest == "grey", "neither competes with attacks"
    assert Ledger.open(Path(result.folder)).result() == result


# a foreign encoder


class Shrink(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(x, 4)


def test_a_foreign_encoder_goes_through_the_same_door(tmp_path: Path) -> None:
    data = {"name": "fashion_mnist_mini", "held_out_fraction": 0.8}
    opened = open_encoder(Shrink(), data=data, channel=[{"name": "gaussian", "noise_std": 0.05}], name="shrink")
    with pytest.raises(ConfigError, match="give out=FOLDER"):
        audit(opened, SUITE, progress=silent)
    result = audit(opened, SUITE, out=tmp_path, progress=silent)
    assert result.accuracy is None
    assert (result.subject.run, result.subject.architecture, result.subject.weights) == ("shrink", "Shrink", "")
    assert {row.outcome for row in result.rows} == {"ok"}
    assert result.strongest == "ridge"
    with pytest.raises(RunError, match="no server half"):
        _ = result.known_accuracy
    other = open_encoder(Shrink(), data=data, channel=[{"name": "gaussian", "noise_std": 0.06}])
    assert other.fingerprint != opened.fingerprint, "the channel is part of it"


def test_measure_is_one_row(run: RunDirectory) -> None:
    case = Case(open_run(run), THREATS["train"])
    found = measure(case, "grey", GreyOptions(), seed=0)
    assert found.row.ok
    assert found.files.scores is not None
    assert set(found.files.scores.values) == set(metrics.METRICS)


# pictures


def decoded(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_pictures_are_the_images(run: RunDirectory, result: AuditResult) -> None:
    test = open_run(run).data.test
    ledger = Ledger.open(Path(result.folder))
    for row in result.rows:
        assert [picture.role for picture in row.pictures] == ["fixed"] * 10 + ["best"] * 5 + ["worst"] * 5
        assert [picture.label for picture in row.pictures[:10]] == list(range(10))
        for picture in row.pictures:
            original = decoded(ledger.picture(picture.original))
            assert (original.size, original.mode) == ((28, 28), "L")
            assert np.array_equal(np.asarray(original), test.images[picture.index, 0].numpy())
            assert picture.label == int(test.labels[picture.index])
            pixels = np.asarray(decoded(ledger.picture(picture.image)), dtype=np.float64) / 255
            truth = np.asarray(original, dtype=np.float64) / 255
            assert ((pixels - truth) ** 2).mean() == pytest.approx(picture.mse, abs=2e-3)


def test_best_and_worst_are_those_of_the_row(result: AuditResult) -> None:
    for row in result.rows:
        best, worst = ([p.mse for p in row.pictures if p.role == role] for role in ("best", "worst"))
        assert best == sorted(best)
        assert worst == sorted(worst, reverse=True)
        assert max(best) <= row.mse.p05
        assert min(worst) > row.mse.mean


def test_colour_pictures() -> None:
    image = torch.zeros(3, 4, 6)
    image[0] = 2.0
    picture = decoded(png(image))
    assert (picture.mode, picture.size) == ("RGB", (6, 4))
    assert picture.getpixel((0, 0)) == (255, 0, 0)
    assert png_text(image).startswith("iVBOR")


def test_progress_is_told(run: RunDirectory, tmp_path: Path) -> None:
    told: list[tuple[str, float, float]] = []
    audit(run, SUITE, out=tmp_path, progress=lambda stage, done, total, _: told.append((stage, done, total)))
    assert told[0] == ("audit demo-none", 0, 5)
    assert told[-1] == ("audit demo-none", 5, 5)


def test_a_stage_has_the_name_of_its_row() -> None:
    told: list[str] = []
    for row, method, stage in (
        ("decoder global x16", "decoder", "decoder global: trunk"),
        ("baseline's decoder", "published", "published"),
        ("decoder family", "family", "family 32 × 500: trunk"),
    ):
        _as_row(lambda stage, *_: told.append(stage), row, method)(stage, 0, 1, {})
    assert told == ["decoder global x16: trunk", "baseline's decoder", "decoder family: family 32 × 500: trunk"]


def test_an_audit_says_what_it_is_about(
    small_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run("demo")
    plan = audit(run, "quick", only=["grey"], out=tmp_path, progress=silent).plan
    assert capsys.readouterr().err == "", "only a terminal is told"
    audit(run, "quick", only=["grey", "ridge"], out=tmp_path)
    first, second, third, fourth, fifth, *_ = capsys.readouterr().err.splitlines()
    assert first == f"audit demo-gated ({plan.subject.weights}): suite quick, rows to run: 1 of 2"
    images = f"images owned: {plan.num_auxiliary}; images attacked: {plan.num_evaluation} (test)"
    assert second == f"  threat model train, {images}"
    assert third == "  cpu, threads 1, workers 1"
    assert fourth == "  channel gaussian noise=fresh noise_std=0.05"
    assert fifth == "  images 1x28x28, normalised with mean 0.287, std 0.354"
