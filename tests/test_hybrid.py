"""The hybrid surrogate: which classes are marked, by what, and what a marked class gets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config
from attncem.config.options.attacks import GreyOptions, RidgeOptions
from attncem.config.options.suites import Suite, row_file
from attncem.judging.auditing import audit
from attncem.records.ledger import read_audit
from attncem.records.runs import RunDirectory
from attncem.training.surrogates import build_surrogate
from attncem.training.surrogates.hybrid import HybridCEM
from attncem.training.train import train
from made_runs import reseal, rewrite

SLOT = {"slot_dim": 8, "num_heads": 2, "num_slots": 2}
SPREAD = (0.1, 3.0, 0.2, 2.0, 0.3)
"""Standard deviation of each class: 1 and 3 are the wide ones."""
SMALL = Suite(
    name="small",
    version=1,
    meaning="",
    rows={"grey": GreyOptions(), "ridge": RidgeOptions(strengths=(0.01,), num_releases=1)},
)


def build(**options: Any) -> HybridCEM:
    torch.manual_seed(0)
    settings = {"feature_shape": (6,), "num_classes": 5, "noise_std": 0.1, "max_risk_classes": 2, "slot": SLOT}
    surrogate = build_surrogate("hybrid", **(settings | options))
    assert isinstance(surrogate, HybridCEM)
    return surrogate


def samples(seed: int = 0, classes: tuple[int, ...] = (0, 1, 2, 3, 4)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.tensor(classes).repeat(8)
    return torch.randn(len(y), 6, generator=generator) * torch.tensor(SPREAD)[y].unsqueeze(1), y


def marked(surrogate: HybridCEM) -> list[int]:
    return surrogate.epoch_record()["risk_classes"]


def test_the_widest_classes_are_marked_and_only_they_get_slots() -> None:
    surrogate = build(slot_weight=0.5)
    z, y = samples()
    surrogate(z, y)
    surrogate.refresh([])
    assert marked(surrogate) == [1, 3]
    surrogate.eval()
    whole, gated = surrogate(z, y), surrogate.gated(z, y)
    torch.testing.assert_close(whole.per_class[[0, 2, 4]], gated.per_class[[0, 2, 4]], rtol=0, atol=0)
    alone = build_surrogate("slot", feature_shape=(6,), num_classes=5, noise_std=0.1, **SLOT).eval()
    alone.load_state_dict(surrogate.slot.state_dict())
    expected = gated.per_class + 0.5 * alone(z, y).per_class
    torch.testing.assert_close(whole.per_class[[1, 3]], expected[[1, 3]])
    assert float(whole.diagnostics["risk_share"]) == pytest.approx(0.4)
    assert whole.loss > gated.loss


def test_before_the_first_refresh_no_class_is_marked() -> None:
    surrogate = build()
    z, y = samples()
    output = surrogate(z, y)
    assert marked(surrogate) == []
    assert torch.equal(output.loss, surrogate.gated(z, y).loss)
    assert output.diagnostics["risk_share"] == 0


def test_the_set_follows_the_running_mean() -> None:
    surrogate = build(risk_momentum=0.5)
    z, y = samples()
    surrogate(z, y)
    surrogate.refresh([])
    start = surrogate.risk.clone()
    for _ in range(6):
        surrogate(z.flip(0) * 0.01, y)
    expected = surrogate.gated(z.flip(0) * 0.01, y).per_class
    torch.testing.assert_close(surrogate.risk, expected + (start - expected) * 0.5**6, rtol=1e-4, atol=1e-5)
    assert marked(surrogate) == [1, 3], "within an epoch the set stays"
    wide = torch.where((y == 0).unsqueeze(1), z * 100, z * 0.01)
    for _ in range(6):
        surrogate(wide, y)
    surrogate.refresh([])
    assert 0 in marked(surrogate)


def test_classes_never_seen_are_not_marked_and_evaluation_leaves_the_risk() -> None:
    surrogate = build(max_risk_classes=4)
    surrogate(*samples(classes=(0, 2)))
    surrogate.refresh([])
    assert marked(surrogate) == [0, 2]
    before = surrogate.risk.clone()
    surrogate.eval()(*samples(3))
    assert torch.equal(surrogate.risk, before)


@pytest.mark.parametrize(
    ("options", "size"),
    [({"max_risk_classes": 4}, 4), ({"risk_quantile": 0.7}, 3), ({"risk_quantile": 0.0}, 10), ({}, 3)],
)
def test_the_set_has_a_fixed_size(options: dict[str, Any], size: int) -> None:
    surrogate = build(num_classes=10, **({"max_risk_classes": None} | options))
    assert len(surrogate.risk_classes) == size == surrogate.slot.num_classes


def test_presets_reach_into_both_parts() -> None:
    plan = build(variant="000", gated={"hidden_dim": 7}, slot=SLOT).options
    assert (plan.gated.variant, plan.gated.statistic, plan.gated.hidden_dim) == ("000", "hinge", 7)
    assert (plan.slot.variant, plan.slot.statistic, plan.slot.num_slots) == ("001", "softplus", 2)
    assert plan.slot.renormalise, "000: ε is added and normalised again; 001's equation 6 leaves that out"
    assert (plan.loss_scale, plan.default_warmup_epochs) == (0.25, 5)
    assert "learn=penalty" in build(variant="000", slot=SLOT).caution


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_risk_classes=6: must be at most 5"):
        build(max_risk_classes=6)
    with pytest.raises(ConfigError, match=r"attention_loss_scale=0\.25.*must be equal"):
        build(gated={"variant": "000"})
    with pytest.raises(ConfigError, match=r"surrogate\.gated\.statistic=capacity is measured in units of"):
        build(noise_std=0.0)
    with pytest.raises(ValueError, match=r"noise: expected shape \[5, 2, 8\]"):
        build()(*samples(), noise=torch.zeros(2, 2, 8))


def interrupt_at(step: int) -> Any:
    def report(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        if done >= step:
            raise KeyboardInterrupt

    return report


HYBRID = {
    "surrogate.name": "hybrid",
    "surrogate.slot.slot_dim": 16,
    "surrogate.max_risk_classes": 3,
    "training.penalty_weight": 0.1,
    "training.epochs": 3,
}


def test_a_run_logs_the_set_and_goes_on_after_an_interruption_as_if_there_was_none(
    tmp_path: Path, tiny: dict[str, Any]
) -> None:
    settings = {**tiny, **HYBRID}
    whole = train("demo", settings, out=tmp_path / "whole", progress=silent)
    records = [record for record in whole.records() if record["kind"] == "surrogate"]
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert all(len(record["risk_classes"]) == 3 for record in records)
    shares = [record["risk_share"] for record in whole.records() if record["kind"] == "train"]
    assert shares[0] == 0 and 0 < shares[-1] < 1
    with pytest.raises(KeyboardInterrupt):
        train("demo", settings, out=tmp_path / "run", progress=interrupt_at(20))
    run = train(resume=tmp_path / "run", progress=silent)
    assert run.records() == whole.records()
    one, other = run.load("last").weights["surrogate"], whole.load("last").weights["surrogate"]
    assert {"risk", "risk_classes", "places"} <= one.keys()
    assert all(torch.equal(one[key], other[key]) for key in other)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> RunDirectory:
    run = train("demo-none", {**tiny, "training.epochs": 1}, out=tmp_path_factory.mktemp("a") / "run", progress=silent)
    audit(run, SMALL, on="validation", progress=silent)
    return run


def audit_folder(run: RunDirectory) -> Path:
    return next(path.parent for path in (run.path / "audits").glob("*/audit.json"))


def changed_audit(run: RunDirectory, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the audit whose plan is changed."""
    shutil.copytree(audit_folder(run), to)
    data = json.loads((to / "audit.json").read_text())
    change(data)
    (to / "audit.json").write_text(json.dumps(data))
    reseal(to)
    return to


def test_an_audit_marks_the_classes_it_recovered_best(
    audited: RunDirectory, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    errors = read_audit(audit_folder(audited)).strongest_attack.mse.per_class
    expected = sorted(sorted(range(10), key=lambda label: errors[label])[:3])
    settings = {**tiny, **HYBRID, "surrogate.risk_audit": str(audited.path), "training.epochs": 2}
    run = train("demo", settings, out=tmp_path / "run", progress=silent)
    sets = [record["risk_classes"] for record in run.records() if record["kind"] == "surrogate"]
    assert sets == [expected, expected]
    shares = [record["risk_share"] for record in run.records() if record["kind"] == "train"]
    assert shares[0] > 0, "the classes are marked from the first step on"
    assert run.manifest["cautions"] == [], "validation images may choose"


def test_the_most_exposed_images_of_a_class_may_mark_it(audited: RunDirectory, tmp_path: Path) -> None:
    """A class whose mean is high may still have images that come back whole."""
    shutil.copytree(audit_folder(audited), tmp_path / "audit")
    strongest = read_audit(tmp_path / "audit").strongest_attack
    file = tmp_path / "audit" / f"{row_file(strongest.name)}.json"
    data = json.loads(file.read_text())
    ends = [0.02 + 0.001 * label for label in range(10)]
    ends[7] = 0.001
    data["scores"]["mse"]["per_class_p05"] = ends
    rewrite(file, data)
    settings = {"num_classes": 10, "risk_audit": str(tmp_path / "audit"), "max_risk_classes": 1}
    assert build(**settings, risk_by="exposed").risk_classes.tolist() == [7]
    means = [mean for mean in strongest.mse.per_class if mean is not None]
    assert build(**settings).risk_classes.tolist() == [strongest.mse.per_class.index(min(means))]
    data["scores"]["mse"]["per_class_p05"] = []
    rewrite(file, data)
    with pytest.raises(
        ConfigError, match=r"surrogate\.risk_by=exposed: .* does not have this number: run attncem audit again"
    ):
        build(**settings, risk_by="exposed")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "cifar10"}, "the audit is about the classes of cifar10"),
        ({"class_names": ["a", "b"]}, r"\(a, b …\), data.name=fashion_mnist_mini has others"),
        ({"num_classes": 7}, "is about 7 classes .* this model has 10"),
        ({"num_classes": "seven"}, "is damaged: subject.num_classes must be a whole number, not 'seven'"),
    ],
)
def test_an_audit_that_does_not_fit_is_refused_before_a_folder_is_made(
    audited: RunDirectory, tmp_path: Path, tiny: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    folder = changed_audit(audited, tmp_path / "audit", lambda data: data["subject"].update(change))
    with pytest.raises(ConfigError, match=f"surrogate.risk_audit.*{words}"):
        train("demo", {**tiny, **HYBRID, "surrogate.risk_audit": str(folder)}, out=tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()


def test_an_audit_without_a_result_marks_nothing(audited: RunDirectory, tmp_path: Path) -> None:
    folder = changed_audit(audited, tmp_path / "audit", lambda data: data.update(rows=[]))
    with pytest.raises(ConfigError, match="no attack of this audit has a result"):
        build(risk_audit=str(folder))


def test_a_missing_or_ambiguous_audit_is_explained(audited: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"surrogate.risk_audit=.*nowhere.audit.json is missing"):
        build(risk_audit=str(tmp_path / "nowhere"))
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"an audit of attncem 0\.1, .* run attncem audit RUN again"):
        build(risk_audit=str(tmp_path / "old.json"))
    (tmp_path / "config.yaml").touch()
    with pytest.raises(ConfigError, match="run folder with one audit, it has none"):
        build(risk_audit=str(tmp_path))
    for name in ("one", "two"):
        shutil.copytree(audit_folder(audited), tmp_path / "audits" / name)
    with pytest.raises(ConfigError, match=r"it has 2, name one: .*one, .*two"):
        build(risk_audit=str(tmp_path))


def test_an_audit_on_test_images_carries_a_caution(audited: RunDirectory, tmp_path: Path) -> None:
    file = changed_audit(audited, tmp_path / "audit", lambda data: data.update(evaluation="test")) / "audit.json"
    assert "test images" in build(num_classes=10, risk_audit=str(file)).caution
    config = load_config("demo", {**HYBRID, "surrogate.risk_audit": str(file)}).config
    assert config.surrogate.risk_audit == str(file)
