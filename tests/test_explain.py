"""explain(): one image's feature, its place in its class, what the penalty makes of it, what comes back, the page."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import attncem
from attncem.base.progress import silent
from attncem.base.shown_paths import without_paths_in
from attncem.base.texts import text
from attncem.base.types import DataError, RunError
from attncem.cli.main import main
from attncem.config.options.attacks import ClassMeanOptions, DecoderOptions, RidgeOptions
from attncem.config.options.suites import Suite
from attncem.config.threats import THREATS
from attncem.data.batches import DeviceData
from attncem.judging.auditing import Case
from attncem.judging.opening import OpenRun, open_run
from attncem.records.explanation import Explanation, Gate, Recovery
from attncem.records.judgement import Judgement
from attncem.records.ledger import Ledger
from attncem.records.metrics import METRICS, mse
from attncem.records.runs import RunDirectory
from attncem.reporting.explain.explaining import _distances, _strongest, explain, forget_training, strongest_audit
from attncem.reporting.explain.page import describe_gates, first_words, standing, write_explanation
from attncem.training.build import load_data, restore_surrogate
from attncem.training.surrogates import SURROGATES, build_surrogate, moments

Make = Callable[..., Path]
CPU = torch.device("cpu")
GATES = {"surrogate.variant": "002", "training.warmup_epochs": 0}
HYBRID = {
    "surrogate.name": "hybrid",
    "surrogate.max_risk_classes": 3,
    "surrogate.slot.slot_dim": 8,
    "surrogate.slot.num_slots": 3,
    "surrogate.slot.num_heads": 2,
    "surrogate.slot.snr_gate": True,
    "training.warmup_epochs": 0,
}
SLOTS = {"surrogate.name": "slot", "surrogate.slot_dim": 8, "surrogate.num_slots": 3, "surrogate.num_heads": 2}


@pytest.fixture(scope="session")
def gated(small_run: Make) -> Path:
    return small_run("demo", **GATES)


@pytest.fixture(scope="session")
def found(gated: Path) -> Explanation:
    return explain(gated, "test:17", progress=silent)


def decoded(png: str) -> Any:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(png))))


# the hook of the surrogates


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([0, 0, 0, 1, 1, 1, 1, 3, 9, -1])  # 9 and −1: no class
    return torch.randn(len(y), 4, 2, 2, generator=generator), y


def fitted(name: str, **options: Any) -> Any:
    torch.manual_seed(0)
    surrogate = build_surrogate(name, feature_shape=(4, 2, 2), num_classes=5, noise_std=0.1, **options)
    if surrogate.needs_refresh:
        generator = torch.Generator().manual_seed(1)
        surrogate.refresh([(torch.randn(100, 4, 2, 2, generator=generator), torch.arange(100) % 5)])
    return surrogate.eval()


@pytest.mark.parametrize("variant", ["ours", "000", "002", "004"])
def test_attention_is_that_of_forward_and_sums_to_one(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    surrogate, (z, y) = fitted("gated", variant=variant), batch()
    used: list[Tensor] = []
    original = moments.weighted_moments

    def watched(x: Tensor, weights: Tensor, groups: Any) -> Any:
        used.append(weights.detach())
        return original(x, weights, groups)

    monkeypatch.setattr(moments, "weighted_moments", watched)
    surrogate(z, y)
    forward = used[0].sum(1)
    attention = surrogate.explain(z, y)["attention"]
    assert torch.equal(attention, forward)
    for label, members in ((0, slice(0, 3)), (1, slice(3, 7)), (3, slice(7, 8))):
        assert float(attention[members].sum()) == pytest.approx(1, abs=1e-6), label
    assert attention[8:].tolist() == [0, 0], "a sample without a class has no weight"
    assert attention[:3].std() > 0


def test_gates_are_those_of_forward() -> None:
    surrogate, (z, y) = fitted("gated", variant="002"), batch()
    rows, said = surrogate.explain(z, y), surrogate(z, y).diagnostics
    kept = [0, 3]  # a row of each class with two samples or more
    for name in ("gate_dimension", "gate_snr", "gate_class"):
        values = rows[name][kept].reshape(len(kept), -1).mean(1)
        assert float(values.mean()) == pytest.approx(float(said[name]), rel=1e-5)
    assert rows["gate_dimension"].shape == (len(y), 16)


@pytest.mark.parametrize(
    ("name", "options", "parts"),
    [
        ("slot", {"slot_dim": 8, "num_heads": 2, "num_slots": 3}, 3),
        ("slot", {"slot_dim": 8, "num_heads": 2, "num_slots": 3, "variant": "001"}, 3),
        ("kmeans", {"num_clusters": 4}, 4),
        ("gmm", {"num_clusters": 2}, 2),
        ("gmm", {"num_clusters": 2, "covariance": "full", "pca_dim": 3}, 2),
    ],
)
def test_shares_of_the_parts_sum_to_one(name: str, options: dict[str, Any], parts: int) -> None:
    surrogate, (z, y) = fitted(name, **options), batch()
    shares = surrogate.explain(z, y)["shares"]
    assert shares.shape == (len(y), parts)
    assert surrogate.part in ("slot", "cluster", "component")
    torch.testing.assert_close(shares.sum(1), torch.ones(len(y)))
    assert shares.min() >= 0


def test_kmeans_names_the_nearest_centre() -> None:
    surrogate, (z, y) = fitted("kmeans"), batch()
    centres = surrogate.centres[y.clamp(0, 4)]
    nearest = (z.flatten(1).unsqueeze(1) - centres).square().sum(2).argmin(1)
    assert torch.equal(surrogate.explain(z, y)["shares"].argmax(1), nearest)


@pytest.mark.parametrize("name", sorted(SURROGATES))
def test_explaining_changes_nothing_and_needs_a_batch(name: str) -> None:
    torch.manual_seed(0)
    surrogate = build_surrogate(name, feature_shape=(4, 2, 2), num_classes=5, noise_std=0.1)
    before = {key: value.clone() for key, value in surrogate.state_dict().items()}
    z, y = batch()
    rows = surrogate.explain(z.requires_grad_(), y)
    assert all(len(values) == len(y) and not values.requires_grad for values in rows.values())
    assert all(torch.equal(value, before[key]) for key, value in surrogate.state_dict().items())
    with pytest.raises(ValueError, match="expected shape"):
        surrogate.explain(z[:, :2], y)


def test_hybrid_shows_the_slots_of_its_marked_classes_alone() -> None:
    surrogate, (z, y) = (
        fitted("hybrid", max_risk_classes=1, slot={"slot_dim": 8, "num_heads": 2, "num_slots": 3}),
        batch(),
    )
    assert not surrogate.explain(z, y)["shares"].any(), "no class is marked yet"
    surrogate.risk.copy_(torch.tensor([0.0, 2.0, -torch.inf, 1.0, -torch.inf]))
    surrogate.refresh([])
    rows = surrogate.explain(z, y)
    slots = surrogate.slot.explain(z[y == 1], torch.zeros(4, dtype=torch.long))["shares"]
    torch.testing.assert_close(rows["shares"][y == 1], slots)
    assert not rows["shares"][y != 1].any()
    gated = surrogate.gated.explain(z, y)
    assert rows.keys() == gated.keys() | {"shares"} and torch.equal(rows["attention"], gated["attention"])


def test_gates_of_the_slots_of_hybrid_are_those_of_forward() -> None:
    gates = {"snr_gate": True, "dimension_gate": True, "class_gate": True}
    slots = {"slot_dim": 8, "num_heads": 2, "num_slots": 3}
    surrogate, (z, y) = fitted("hybrid", max_risk_classes=1, gated={"snr_gate": True}, slot={**slots, **gates}), batch()
    surrogate.risk.copy_(torch.tensor([0.0, 2.0, -torch.inf, 1.0, -torch.inf]))
    surrogate.refresh([])
    rows, said = surrogate.explain(z, y), surrogate(z, y).diagnostics
    assert rows["slot_gate_dimension"].shape == (len(y), 3 * 16), "a value for each slot and feature"
    for name, known in (("dimension", "gate_dimension"), ("snr", "slot_gate_snr"), ("class", "gate_class")):
        values = rows[f"slot_gate_{name}"]
        assert float(values[y == 1][0].mean()) == pytest.approx(float(said[known]), rel=1e-5), "the one marked class"
        assert not values[y != 1].any()
    assert torch.equal(rows["gate_snr"], surrogate.gated.explain(z, y)["gate_snr"]), "beside those of attention"


# the explanation


def test_attention_of_the_explanation(gated: Path, found: Explanation) -> None:
    reference = found.reference
    assert reference.attention is not None
    assert reference.attention + sum(reference.attentions) == pytest.approx(1, abs=1e-5)
    own = next(row for row in reference.classes if row.label == reference.label)
    assert own.images == len(reference.attentions) + 1 == len(reference.distances) + 1
    assert [gate.name for gate in reference.gates] == ["gate_dimension", "gate_snr", "gate_class"]
    for gate in reference.gates:
        assert 0 <= gate.low <= gate.mean <= gate.high <= 1
        assert 0 <= gate.saturated <= 1


def test_the_surrogate_is_the_runs_own(gated: Path, found: Explanation) -> None:
    """Its penalties are those of the checkpoint's state on the same images."""
    opened = open_run(RunDirectory.open(gated))
    config, model, checkpoint = opened.config, opened.model, opened.checkpoint
    data = load_data(config, CPU)
    surrogate = restore_surrogate(config, model, data.spec, checkpoint)
    assert not surrogate.training
    index = torch.cat([(data.validation.labels == c).nonzero().flatten()[:32] for c in range(10)])
    x, y = data.validation.get(index)
    image, label = data.test.get(slice(17, 18))
    with torch.no_grad():
        output = surrogate(model.encode(torch.cat([x, image])), torch.cat([y, label]))
    assert [row.penalty for row in found.reference.classes] == pytest.approx(output.per_class.tolist(), rel=1e-4)
    assert found.reference.diagnostics["rob_loss"] == pytest.approx(float(output.loss), rel=1e-4)
    assert found.reference.label == int(label) == found.prediction.true_label
    assert found.reference.is_true


def test_distances_leave_the_image_itself_out() -> None:
    generator = torch.Generator().manual_seed(0)
    z, members = torch.randn(1, 3, 2, generator=generator), torch.randn(5, 3, 2, generator=generator)
    own, others = _distances(z, members)
    assert own == pytest.approx(float((z[0] - members.mean(0)).square().mean().sqrt()))
    for position, value in enumerate(others):
        rest = torch.cat([members[:position], members[position + 1 :]]).mean(0)
        assert value == pytest.approx(float((members[position] - rest).square().mean().sqrt()), rel=1e-5)
    assert _distances(z, members[:0]) == (None, [])
    assert _distances(z, z) == (0, []), "one member has no others"


@pytest.mark.parametrize(("left", "words"), [(1, "(root mean square over the features)."), (0, "no validation image")])
def test_a_class_with_few_validation_images_is_noted(
    gated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, words: str
) -> None:
    original = OpenRun.data.func

    def thinned(opened: OpenRun) -> Any:
        data = original(opened)
        images, labels = data.validation.images, data.validation.labels
        own = (labels == int(data.test.labels[17])).nonzero().flatten()
        kept = torch.ones(len(labels), dtype=torch.bool).index_fill(0, own[left:], False)
        return replace(data, validation=DeviceData(images[kept], labels[kept]))

    monkeypatch.setattr(OpenRun, "data", property(thinned))
    found = explain(gated, "test:17", out=tmp_path / "page.html", progress=silent)
    said = {item.code: item.text for item in found.findings}
    assert f"few validation images of class {found.reference.name} ({left})" in said["few_of_class"]
    assert words in (tmp_path / "page.html").read_text()
    assert found.reference.distances == [] and len(found.reference.attentions) == left
    assert (found.feature.snr is None) == (left == 0)


def test_tiles_show_the_feature_on_one_scale(gated: Path, found: Explanation) -> None:
    opened = open_run(RunDirectory.open(gated))
    config, model = opened.config, opened.model
    image, _ = load_data(config, CPU).test.get(slice(17, 18))
    with torch.no_grad():
        z = model.encode(image)[0]
    feature = found.feature
    assert feature.shape == list(z.shape) and len(feature.tiles) == len(z) and feature.hidden == 0
    for channel, tile in zip(z, feature.tiles, strict=True):
        shown = feature.low + decoded(tile.clean) / 255 * (feature.high - feature.low)
        assert np.abs(shown - channel.numpy()).max() <= (feature.high - feature.low) / 255
        assert tile.snr is not None and tile.snr > 0
        assert decoded(tile.released).shape == tuple(channel.shape)
    lowest = min(found.prediction.release.minimum, float(z.min()))
    assert feature.low == pytest.approx(lowest, abs=1e-6)


def test_without_a_channel_nothing_is_changed(small_run: Make) -> None:
    found = explain(small_run("demo-none", **{"channel.name": "identity"}), "test:3", progress=silent)
    assert found.feature.snr is None
    assert all(tile.clean == tile.released and tile.snr is None for tile in found.feature.tiles)
    assert found.reference.unit == "1"
    assert found.reference.attention is None and found.reference.gates == []


def test_tokens_are_one_matrix(small_run: Make) -> None:
    settings = {"model.name": "vit_tiny", "model.width": 16, "model.bottleneck.stride": 1, "training.epochs": 1}
    found = explain(small_run("demo-none", **settings), "test:3", progress=silent)
    tokens, width = found.feature.shape
    assert len(found.feature.tiles) == 1
    assert decoded(found.feature.tiles[0].clean).shape == (min(tokens, width), max(tokens, width))


@pytest.mark.parametrize(
    ("config", "settings", "part"),
    [("demo-kmeans", {}, "cluster"), ("demo-kmeans", {"surrogate.name": "gmm"}, "component"), ("demo", SLOTS, "slot")],
)
def test_parts_of_the_class_take_the_image(
    small_run: Make, tmp_path: Path, config: str, settings: dict[str, Any], part: str
) -> None:
    found = explain(small_run(config, **settings), "test:3", out=tmp_path / "page.html", progress=silent)
    assert found.reference.part == part
    assert sum(share.image for share in found.reference.shares) == pytest.approx(1, abs=1e-5)
    assert sum(share.others for share in found.reference.shares) == pytest.approx(1, abs=1e-5)
    assert f"Share of the image in each {part}" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("slots", [True, False])
def test_hybrid_says_where_attention_is_alone(small_run: Make, tmp_path: Path, slots: bool) -> None:
    run, page = small_run("demo", **HYBRID), tmp_path / "page.html"
    marked = [line["risk_classes"] for line in RunDirectory.open(run).records() if "risk_classes" in line][-1]
    assert 0 < len(marked) < 10
    labels = load_data(RunDirectory.open(run).config, CPU).test.labels.tolist()
    number = next(number for number, label in enumerate(labels) if (label in marked) == slots)
    found = explain(run, f"test:{number}", out=page, progress=silent)
    assert [row.label for row in found.reference.classes if row.divided] == marked
    shown = unescape(page.read_text(encoding="utf-8"))
    assert len(found.reference.shares) == (3 if slots else 0) and found.reference.attention is not None
    assert ('id="shares"' in shown) == slots and ("Gated attention alone handles" in shown) != slots
    names = ", ".join(row.name for row in found.reference.classes if row.divided)
    assert slots or f"gives slots only to these classes: {names}." in shown
    assert [gate.name for gate in found.reference.gates] == (["slot_gate_snr"] if slots else [])
    assert (text("explain.gate.slot_gate_snr") in shown) == slots and "uses no gates in this run." not in shown
    assert (text("explain.gates.alone.nothing", name=found.reference.name) in shown) != slots
    attended = replace(found, reference=replace(found.reference, gates=[Gate("gate_snr", 0.5, 0.1, 0.9, 0.0)]))
    said = text("explain.gates.alone.attention", name=found.reference.name)
    assert describe_gates(attended) == ("" if slots else said)


def test_a_memory_inside_a_part_is_no_part_of_the_explanation(tiny: dict[str, Any]) -> None:
    parts = {"gated": {"memory": {"per_class": 4}}, "slot": {"slot_dim": 8, "num_heads": 2, "memory": {"per_class": 4}}}
    surrogate = fitted("hybrid", **parts)
    forget_training(surrogate)
    assert surrogate.gated.memory is None and surrogate.slot.memory is None


def test_recoveries_are_those_of_the_audit_s_attacks(gated: Path, found: Explanation) -> None:
    assert [(row.name, row.kind) for row in found.recoveries] == [
        ("mean image", "floor"),
        ("class mean", "floor"),
        ("nearest neighbour", "attack"),
        ("ridge", "attack"),
    ]
    original = decoded(found.image) / 255
    for row in found.recoveries:
        assert row.mse == pytest.approx(float(np.square(decoded(row.image) / 255 - original).mean()), abs=2e-3)
        assert set(row.scores) == set(METRICS) and -1 <= row.scores["ssim"] <= 1
        assert row.audit_mse is None and not row.from_audit and row.judgement is None
    assert found.audit is None
    assert [item.code for item in found.findings] == ["no_audit"]


def test_the_newest_audit_of_these_weights_stands_beside(gated: Path, tmp_path: Path) -> None:
    run = tmp_path / "audited"
    shutil.copytree(gated, run)
    suite = Suite(
        name="tiny",
        version=1,
        meaning="",
        rows={"class mean": ClassMeanOptions(), "ridge": RidgeOptions(num_releases=1)},
    )
    audit = attncem.audit(run, suite, progress=silent)
    found = explain(run, "test:3", progress=silent)
    assert found.audit == "suite tiny, threat model train"
    means = {row.name: row.mse.mean for row in audit.attacks}
    assert {row.name: row.audit_mse for row in found.recoveries} == {
        **means,
        "nearest neighbour": None,
        "mean image": None,
    }
    assert found.findings == []
    (Path(audit.folder) / "ridge.json").write_text("{")
    found = explain(run, "test:3", progress=silent)
    (finding,) = found.findings
    assert finding.code == "audits_left_out" and "ridge.json is damaged" in finding.text and found.audit is None


def test_the_strongest_attack_of_the_audit_is_shown_with_what_it_learned(gated: Path, tmp_path: Path) -> None:
    run = tmp_path / "audited"
    shutil.copytree(gated, run)
    rows = {"class mean": ClassMeanOptions(), "decoder small": DecoderOptions(epochs=8, max_epochs=8)}
    audit = attncem.audit(run, Suite(name="tiny", version=1, meaning="", rows=rows), progress=silent)
    assert audit.strongest == "decoder small"
    found = explain(run, "test:3", progress=silent)
    first = found.recoveries[0]
    assert (first.name, first.from_audit, first.audit_mse) == ("decoder small", True, audit.strongest_attack.mse.mean)
    assert [row.name for row in found.recoveries[1:]] == ["mean image", "class mean", "nearest neighbour", "ridge"]
    assert first.judgement == audit.judgement
    # On the very release that was attacked it gives the very image of the audit.
    opened = open_run(run)
    case = Case(opened, THREATS["train"], seed=opened.config.seed)
    _, attack, _ = _strongest(strongest_audit(opened), case.released[:1])
    assert attack is not None
    errors = mse(attack.reconstruct(case.released[:250]), case.x[:250]).double().numpy()
    assert np.array_equal(errors, Ledger.open(Path(audit.folder)).scores("decoder small").values["mse"][:250])


def test_an_audit_of_other_weights_is_not_used(gated: Path, tmp_path: Path) -> None:
    run = tmp_path / "audited"
    shutil.copytree(gated, run)
    suite = Suite(name="tiny", version=1, meaning="", rows={"class mean": ClassMeanOptions()})
    attncem.audit(run, suite, weights="epoch-00001", progress=silent)
    found = explain(run, "test:3", weights="epoch-00002", progress=silent)
    assert found.audit is None
    assert [item.code for item in found.findings] == ["no_audit"]


def test_the_same_question_has_the_same_answer(gated: Path, found: Explanation) -> None:
    assert explain(gated, "test:17", progress=silent) == found


def test_a_file_counts_as_its_predicted_class(gated: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)).save(path)
    found = explain(gated, path, progress=silent)
    assert (found.reference.label, found.reference.is_true) == (found.prediction.top[0].label, False)
    assert found.prediction.true_label is None
    assert any("test:NUMBER" in item.text for item in found.findings)


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [("test:1000", DataError, "test:0 to test:999"), ("nowhere.png", DataError, "nowhere.png is not there")],
)
def test_mistakes_are_named(gated: Path, image: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explain(gated, image)


# sentences


@pytest.mark.parametrize(
    ("mse", "beside", "said"),
    [
        (0.0707, 0.0714, "alike"),
        (0.0714, 0.0707, "alike"),
        (0.0951, 0.1, "alike"),
        (0.0949, 0.1, "better"),
        (0.1, 0.0949, "worse"),
        (0.0, 0.0, "alike"),
        (0.0, 0.1, "better"),
    ],
)
def test_a_difference_of_a_few_percent_is_none(mse: float, beside: float, said: str) -> None:
    assert standing(mse, beside) == said


def recovered(name: str, error: float, **known: Any) -> Recovery:
    return Recovery(name, known.pop("kind", "attack"), "", {"mse": error}, known.pop("mean", None), **known)


@pytest.mark.parametrize(
    ("attack", "answered", "parts"),
    [
        (
            (0.0707, 0.0331, "reliable"),
            "blind",
            ("worse than the average", "99 % of that, about the same", "is reliable"),
        ),
        (
            (0.01, 0.0331, "reliable"),
            "open",
            ("better than the average", "is 14 % of that, so it does better", "is reliable"),
        ),
        (
            (0.033, 0.0331, "not_reliable"),
            "part",
            ("about as well as the average", "is 46 % of that, so it does better", "is not reliable"),
        ),
        (
            (0.06, 0.06, None),
            "unknown",
            ("about as well as the average", "is 84 % of that, so it does better", "was not tested"),
        ),
        (
            (0.06, 0.06, "reliable"),
            "kept",
            ("about as well as the average", "is 84 % of that, so it does better", "is reliable"),
        ),
        (
            (0.09, 0.06, "reliable"),
            "blind",
            ("worse than the average", "126 % of that, so it does worse", "is reliable"),
        ),
        ((0.09, 0.06, "not_enough"), "unknown", ("worse than the average", "is not enough to tell")),
    ],
)
def test_the_first_words(found: Explanation, attack: tuple[float, float, Any], answered: str, parts: list[str]) -> None:
    error, mean, state = attack
    judgement = None if state is None else Judgement(state)
    rows = [
        recovered("grey", 0.2, kind="floor"),
        recovered("class mean", 0.0714, kind="floor"),
        recovered("ridge", 0.001),
        recovered("decoder small", error, mean=mean, from_audit=True, judgement=judgement),
    ]
    words = first_words(replace(found, recoveries=rows))
    assert words[0] == text(f"explain.answer.{answered}")
    assert "the server says" in words[1] and "decoder small" in words[2] and "class mean" in words[3]
    assert all(part in " ".join(words) for part in parts)


def test_without_an_audit_quick_attacks_are_no_answer(found: Explanation, tmp_path: Path) -> None:
    words = first_words(found)
    assert words[0] == text("explain.answer.quick")
    nearest = min((row for row in found.recoveries if row.kind == "attack"), key=lambda row: row.mse)
    assert words[2] == text("explain.quick", attack=nearest.name, mse=nearest.mse)
    assert not any("reliable" in sentence for sentence in words)
    page = write_explanation(found, tmp_path / "page.html", now=datetime.now().astimezone()).read_text("utf-8")
    assert page.index("attncem audit run") < page.index('id="feature"'), "how to make one stands before all else"
    assert str(tmp_path.parent) not in page, "where the run lies is private"
    words = first_words(replace(found, recoveries=[row for row in found.recoveries if row.kind == "floor"]))
    assert words[0] == text("explain.answer.unknown") and words[2:] == [text("explain.recovered.no_attack")]


# the page


def test_the_first_screen_comes_first_and_every_figure_has_its_values(gated: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = explain(gated, "test:17", out=page, progress=silent)
    shown = unescape(page.read_text(encoding="utf-8"))
    top, rest = shown.split("<main>")
    nearest = min((row for row in found.recoveries if row.kind == "attack"), key=lambda row: row.mse)
    for image in (found.image, nearest.image):
        assert image in top
    assert f"{nearest.name}\nMSE: {nearest.mse:.4f}\n" in top
    order = [rest.index(f'id="{name}"') for name in ("feature", "class", "gates", "recovered", "reading")]
    assert order == sorted(order)
    bars = re.findall(r"<title>(.*?)</title><rect", rest, re.DOTALL)
    reference = found.reference
    assert len(bars) == 2 * (1 + len(reference.attentions)) and reference.attention is not None
    own = [bar for bar in bars if bar.startswith("this image\n")]
    assert f"distance / σ {reference.distance:.4g}" in own[0] and f"weight {reference.attention:.4g}" in own[1]
    for gate in reference.gates:
        assert f"mean {gate.mean:.3f}\nfrom {gate.low:.3f} to {gate.high:.3f}\nsaturated: " in rest


def test_the_page_stands_alone_and_escapes_names(gated: Path, tmp_path: Path) -> None:
    path = tmp_path / "<script>alert(1)<&'\".png".replace("/", "")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)).save(path)
    page = tmp_path / "page.html"
    explain(gated, path, out=page, progress=silent)
    shown = page.read_text(encoding="utf-8")
    assert shown.count("<script") == 1 and "<script>alert" not in shown
    assert "<script>alert(1)<&'\".png: the server says" in unescape(shown)
    assert "default-src 'none'" in shown
    for address in re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", shown):
        assert address.startswith(("#", "data:image/png;base64,")), address
    assert not re.search(r"https?://(?!www\.w3\.org)|url\((?!#)|@import", shown)
    assert unescape(shown).count(text("explain.illustration")) == 1


def test_a_foreign_file_is_left_alone_and_an_older_page_replaced(
    gated: Path, found: Explanation, tmp_path: Path
) -> None:
    page, other = tmp_path / "page.html", tmp_path / "other.html"
    page.write_text("mine")
    attncem.report(gated, out=other)
    for file, reason in ((page, "was not written by attncem"), (other, "is a page of attncem report and")):
        before = file.read_bytes()
        with pytest.raises(RunError, match=reason):
            explain(gated, "test:3", out=file, progress=silent)
        assert file.read_bytes() == before
    page.unlink()
    for source in ("one.png", "two.png"):
        renamed = replace(found, prediction=replace(found.prediction, source=source))
        write_explanation(renamed, page, now=datetime.now().astimezone())
        assert f"{source}: the server says" in page.read_text()
    with pytest.raises(RunError, match="is a page of attncem explain and was not replaced"):
        attncem.report(gated, out=page)


def test_the_page_shows_the_picture_behind_the_front_end(small_run: Make, tmp_path: Path) -> None:
    run = small_run("demo-none", **{"model.front_end": {"name": "standardise"}})
    page = tmp_path / "page.html"
    seen = explain(run, "test:17", out=page, progress=silent).prediction.seen
    shown = unescape(page.read_text(encoding="utf-8"))
    assert shown.index(text("explain.picture.seen")) < shown.index("<main>"), "on the first screen"
    assert seen is not None and shown.count(seen.picture) == 1
    assert "after the front end standardise:" in shown and text("explain.seen.lead") in shown
    assert decoded(seen.picture).shape == (28, 28)


def test_without_a_front_end_the_page_says_nothing_of_one(small_run: Make, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert explain(small_run("demo-none"), "test:17", out=page, progress=silent).prediction.seen is None
    assert text("explain.seen.lead") not in unescape(page.read_text(encoding="utf-8"))


# the command


def test_the_command_writes_a_page_and_says_where(
    gated: Path, found: Explanation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", str(gated), "test:17"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith(f"page: {tmp_path / 'explanation.html'}\n")
    assert (tmp_path / "explanation.html").is_file()
    assert f"weight {found.reference.attention:.4f} inside its class" in shown
    assert f"{found.recoveries[-1].mse:.4f}" in shown
    assert text("explain.illustration") in shown


def test_json_comes_back_whole(
    gated: Path, found: Explanation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", str(gated), "test:17", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("schema_version") == 2
    assert printed == json.loads(json.dumps(without_paths_in(found.to_dict()), allow_nan=False))
    assert not list(tmp_path.iterdir()), "no page was asked for"
