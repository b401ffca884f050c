from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import attncem
from attncem import auditing
from attncem.attacks import ATTACKS
from attncem.attacks.base import FitReport, FittedAttack, OwnImages
from attncem.auditing import audit, encode_png, hash_module
from attncem.build import load_data, restore
from attncem.config.attacks import (
    ClassMeanOptions,
    GreyOptions,
    MeanImageOptions,
    NearestNeighbourOptions,
    RidgeOptions,
    Suite,
)
from attncem.config.base import Options
from attncem.metrics import mse, psnr, ssim
from attncem.progress import silent
from attncem.runs import RunDirectory
from attncem.seeding import make_generator
from attncem.types import AuditResult, ConfigError, ReleaseOracle, RunError, audit_from_dict

FLOORS = (("grey", GreyOptions()), ("mean image", MeanImageOptions()), ("class mean", ClassMeanOptions()))
RIDGE = ("ridge", RidgeOptions(num_releases=1))
SUITE = Suite("tiny", 3, "floors and ridge", (*FLOORS, ("nearest neighbour", NearestNeighbourOptions()), RIDGE))
BLIND = Suite("blind", 1, "grey alone", FLOORS[:1])


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """One epoch of the demo's undefended model."""
    out = tmp_path_factory.mktemp("runs") / "demo-none"
    return attncem.train("demo-none", ["training.epochs=1", "device=cpu"], out=out, report=silent)


@pytest.fixture(scope="session")
def result(run: RunDirectory) -> AuditResult:
    return audit(run, SUITE, report=silent)


def rows(result: AuditResult) -> dict[str, Any]:
    return {row.name: row for row in result.attacks}


class FakeOptions(Options):
    """Options of a made-up attack."""

    name: Literal["fake"] = "fake"


FAKE = Suite("fake", 1, "one made-up attack", (FLOORS[0], ("fake", FakeOptions())))


class Fake(FittedAttack):
    """Grey, and whatever a test makes of it."""

    options_type = FakeOptions
    kind = "attack"

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        self.shape = OwnImages(oracle).x.shape[1:]

    def reconstruct(self, released: Tensor) -> Tensor:
        return torch.full((len(released), *self.shape), 0.25)


def use(monkeypatch: pytest.MonkeyPatch, attack: type[FittedAttack]) -> None:
    monkeypatch.setitem(ATTACKS, "fake", attack)


# the result


def test_a_result_survives_json(run: RunDirectory, result: AuditResult) -> None:
    assert audit_from_dict(json.loads(json.dumps(result.to_dict(), allow_nan=False))) == result
    saved = [json.loads(file.read_text()) for file in (run.path / "audits").glob("tiny-train*.json")]
    assert result in [audit_from_dict(data) for data in saved]


def test_the_result_tells_what_was_audited(run: RunDirectory, result: AuditResult) -> None:
    assert (result.run, result.surrogate, result.penalty_weight) == ("demo-none", "none", 0.0)
    assert (result.dataset, result.architecture, result.cut) == ("fashion_mnist_mini", "small_cnn", "2")
    assert (result.suite, result.suite_version, result.threat.name) == ("tiny", 3, "train")
    assert (result.num_evaluation, result.num_auxiliary, result.evaluation) == (1000, 4000, "test")
    assert (result.num_classes, len(result.class_names)) == (10, 10)
    assert result.noise_std == pytest.approx(0.1)
    assert result.weights == "epoch-00001"
    assert result.data_sha256 == run.manifest["split"]["sha256"]
    assert result.bytes_per_query == 4 * 8 * 4 * 4 == run.manifest["bytes_per_query"]
    assert result.client_parameters == run.manifest["client_parameters"]
    assert result.server_parameters == run.manifest["server_parameters"]
    assert result.audit_seconds > 0
    assert [row.name for row in result.attacks] == [name for name, _ in SUITE.attacks]
    assert [row.kind for row in result.attacks] == ["floor"] * 4 + ["attack"]


def test_the_strongest_is_the_lowest_error(result: AuditResult) -> None:
    lowest = min(row.mse.mean for row in result.attacks)
    assert result.strongest_attack.mse.mean == lowest
    assert result.strongest == result.strongest_attack.name


def test_floors_have_a_sensible_order(result: AuditResult) -> None:
    found = rows(result)
    assert found["class mean"].mse.mean < found["mean image"].mse.mean < found["grey"].mse.mean
    assert found["ridge"].mse.mean < found["class mean"].mse.mean


def test_rows_are_measured_on_the_evaluation_images(run: RunDirectory, result: AuditResult) -> None:
    config, _, _ = restore(run)
    data = load_data(config, torch.device("cpu"))
    x, y = data.test.get(slice(None))
    mean = data.train.get(slice(None))[0].mean(0).expand_as(x)
    row = rows(result)["mean image"]
    assert row.mse.mean == pytest.approx(float(mse(mean, x).mean()), rel=1e-5)
    assert row.psnr.mean == pytest.approx(float(psnr(mean, x).mean()), rel=1e-5)
    assert row.ssim.mean == pytest.approx(float(ssim(mean, x).mean()), abs=1e-5)
    assert row.ssim_zero_pad.mean == pytest.approx(float(ssim(mean, x, zero_pad=True).mean()), abs=1e-5)
    assert row.per_class_mse[3] == pytest.approx(float(mse(mean, x)[y == 3].mean()), rel=1e-5)
    assert row.mse_5th_percentile == pytest.approx(float(np.quantile(mse(mean, x).numpy(), 0.05)), rel=1e-5)
    for interval in (row.mse, row.psnr, row.ssim, row.ssim_zero_pad):
        assert interval.low < interval.mean < interval.high


@pytest.mark.parametrize("on", ["test", "validation"])
def test_accuracy_is_that_of_the_attacked_releases(run: RunDirectory, on: str) -> None:
    result = audit(run, BLIND, on=on, seed=4, report=silent)
    config, model, _ = restore(run)
    data = load_data(config, torch.device("cpu"))
    x, y = getattr(data, on).get(slice(None))
    noise = make_generator("cpu", 4, "evaluation")
    with torch.no_grad():
        logits = torch.cat([model.predict(model.release(part, generator=noise)) for part in x.split(250)])
    right = logits.argmax(1) == y
    assert result.accuracy.mean == pytest.approx(float(right.float().mean()))
    assert result.accuracy.mean > 0.3
    assert result.per_class_accuracy == pytest.approx([float(right[y == c].float().mean()) for c in range(10)])
    assert result.evaluation == on
    assert result.num_evaluation == len(x) == {"test": 1000, "validation": 500}[on]
    assert rows(result)["grey"].mse.mean == pytest.approx(float((x - 0.5).square().mean()), rel=1e-5)


def test_the_same_seed_gives_the_same_numbers(run: RunDirectory, result: AuditResult) -> None:
    def numbers(of: AuditResult) -> AuditResult:
        plain = [replace(row, seconds=0) for row in of.attacks]
        return replace(of, attacks=plain, audit_seconds=0)

    before = {file.name: file.read_bytes() for file in (run.path / "audits").iterdir()}
    again = audit(run, SUITE, report=silent)
    assert numbers(again) == numbers(result)
    other = audit(run, SUITE, seed=1, report=silent)
    assert rows(other)["ridge"].mse != rows(result)["ridge"].mse
    after = {file.name: file.read_bytes() for file in (run.path / "audits").iterdir()}
    assert before.items() <= after.items()
    assert len(after) == len(before) + 2
    assert "tiny-train-2.json" in after


# who owns which images


def images_of(oracle: ReleaseOracle) -> set[bytes]:
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
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, threat: str, on: str, auxiliary: int, evaluation: int
) -> None:
    owned: set[bytes] = set()
    judged: set[bytes] = set()

    class Watching(Fake):
        def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            owned.update(images_of(oracle))

    def watched(x: Tensor, y: Tensor) -> Tensor:
        judged.update(image.numpy().tobytes() for image in y)
        return mse(x, y)

    use(monkeypatch, Watching)
    monkeypatch.setattr(auditing, "mse", watched)
    result = audit(run, FAKE, threat=threat, on=on, report=silent)
    assert (result.num_auxiliary, result.num_evaluation) == (auxiliary, evaluation)
    assert result.threat.name == threat
    assert len(owned) > 0.95 * auxiliary
    assert len(judged) > 0.95 * evaluation
    assert not owned & judged


def test_a_held_out_attackers_images_were_not_trained_on(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    owned: dict[str, set[bytes]] = {}

    class Watching(Fake):
        def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            owned[oracle.threat.name] = images_of(oracle)

    use(monkeypatch, Watching)
    for threat in ("train", "held_out"):
        audit(run, FAKE, threat=threat, report=silent)
    assert not owned["train"] & owned["held_out"]


def test_a_starved_attacker_is_told(run: RunDirectory, result: AuditResult) -> None:
    starved = audit(run, BLIND, threat="held_out", report=silent)
    assert any("500 images (4000 were trained on)" in warning for warning in starved.warnings)
    assert not any("starved" in warning for warning in result.warnings)


def test_each_threat_and_evaluation_has_a_file_of_its_own(run: RunDirectory) -> None:
    audit(run, BLIND, threat="held_out", on="validation", report=silent)
    assert (run.path / "audits" / "blind-held_out-validation.json").is_file()


# refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"suite": "standart"}, "suite=standart is unknown; did you mean standard?"),
        ({"suite": BLIND, "threat": "heldout"}, "threat=heldout is unknown; did you mean held_out?"),
        ({"suite": BLIND, "on": "tests"}, "on=tests is unknown; did you mean test?"),
        ({"suite": BLIND, "threat": "published_infer", "on": "validation"}, "cannot be judged on the validation"),
    ],
)
def test_what_cannot_be_audited_is_refused(run: RunDirectory, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        audit(run, report=silent, **arguments)
    assert message in str(caught.value)


def test_an_unknown_name_lists_what_is_allowed(run: RunDirectory) -> None:
    with pytest.raises(ConfigError, match=r"allowed: full, quick, standard"):
        audit(run, "nothing like it", report=silent)


def test_unknown_weights_are_refused(run: RunDirectory) -> None:
    with pytest.raises(RunError, match="no checkpoint epoch-00077; it has epoch-00001"):
        audit(run, BLIND, weights="epoch-00077", report=silent)


def test_no_run_no_audit(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        audit(tmp_path, BLIND, report=silent)


def copy_of(run: RunDirectory, to: Path, edit: Callable[[str], str] = str) -> RunDirectory:
    """The run in another folder, its configuration edited."""
    shutil.copytree(run.path, to)
    (to / "config.yaml").write_text(edit((to / "config.yaml").read_text()))
    return RunDirectory.open(to)


def test_a_changed_split_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    changed = copy_of(run, tmp_path / "copy", lambda text: text.replace("split_seed: 0", "split_seed: 1"))
    with pytest.raises(RunError, match="split has changed") as caught:
        audit(changed, BLIND, report=silent)
    assert str(changed.path) in str(caught.value)


def test_an_attacker_without_images_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    def edit(text: str) -> str:
        return text.replace("held_out_fraction: 0.1", "held_out_fraction: 0.0")

    changed = copy_of(run, tmp_path / "copy", edit)
    manifest = changed.manifest
    del manifest["split"]
    (changed.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="leaves the attacker 0 images"):
        audit(changed, BLIND, threat="held_out", report=silent)


# attacks that misbehave


def test_an_attack_that_changes_the_encoder_voids_the_audit(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    class Meddling(Fake):
        def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            next(oracle.encoder().parameters()).data[0] += 1e-4

    use(monkeypatch, Meddling)
    before = sorted((run.path / "audits").iterdir())
    with pytest.raises(RunError, match="changed the victim's encoder"):
        audit(run, FAKE, report=silent)
    assert sorted((run.path / "audits").iterdir()) == before


def test_an_attack_that_returns_the_wrong_shape_is_refused(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    class Misshapen(Fake):
        def reconstruct(self, released: Tensor) -> Tensor:
            return torch.zeros(len(released), 1, 27, 28)

    use(monkeypatch, Misshapen)
    with pytest.raises(RunError, match="shape"):
        audit(run, FAKE, report=silent)


def test_an_unreliable_attack_is_told(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unsure(Fake):
        fit_report = FitReport(reliable=False, warnings=["not converged after 3 epochs"])

    use(monkeypatch, Unsure)
    result = audit(run, FAKE, report=silent)
    assert not rows(result)["fake"].reliable
    assert "fake: not converged after 3 epochs" in result.warnings


def test_attacks_that_lose_to_a_floor_are_told(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hopeless(Fake):
        def reconstruct(self, released: Tensor) -> Tensor:
            return torch.ones(len(released), *self.shape)

    use(monkeypatch, Hopeless)
    result = audit(run, FAKE, report=silent)
    assert result.strongest == "grey"
    assert any("no attack beats the floor “grey”" in warning for warning in result.warnings)


def test_a_decoder_that_loses_to_ridge_is_told(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    class DecoderNamed(Options):
        name: str = "decoder"

    monkeypatch.setitem(ATTACKS, "decoder", Fake)
    suite = Suite("losing", 1, "ridge and a bad decoder", (RIDGE, ("decoder small", DecoderNamed())))
    result = audit(run, suite, report=silent)
    assert "decoder small loses to ridge: it is under-trained" in result.warnings
    assert result.strongest == "ridge"


def test_a_model_near_chance_is_told(run: RunDirectory, tmp_path: Path, result: AuditResult) -> None:
    def edit(text: str) -> str:
        return text.replace("noise_std: 0.1", "noise_std: 50.0")

    drowned = audit(copy_of(run, tmp_path / "copy", edit), BLIND, report=silent)
    assert any("near chance" in warning for warning in drowned.warnings)
    assert not any("near chance" in warning for warning in result.warnings)


# pictures and hashes


def decoded(text: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text)))


def test_gallery_pictures_are_the_images(run: RunDirectory, result: AuditResult) -> None:
    config, _, _ = restore(run)
    test = load_data(config, torch.device("cpu")).test
    assert [image.role for image in result.gallery] == ["fixed"] * 10 + ["best"] * 5 + ["worst"] * 5
    assert [image.label for image in result.gallery[:10]] == list(range(10))
    names = [name for name, _ in SUITE.attacks]
    for image in result.gallery:
        original = decoded(image.original)
        assert original.size == (28, 28)
        assert original.mode == "L"
        assert np.array_equal(np.asarray(original), test.images[image.index, 0].numpy())
        assert image.label == int(test.labels[image.index])
        assert list(image.reconstructions) == list(image.mse) == names
        for name, text in image.reconstructions.items():
            pixels = np.asarray(decoded(text), dtype=np.float64) / 255
            truth = np.asarray(original, dtype=np.float64) / 255
            assert ((pixels - truth) ** 2).mean() == pytest.approx(image.mse[name], abs=2e-3)


def test_best_and_worst_are_those_of_the_strongest_attack(result: AuditResult) -> None:
    by_role = {
        role: [image.mse[result.strongest] for image in result.gallery if image.role == role]
        for role in ("best", "worst")
    }
    assert by_role["best"] == sorted(by_role["best"])
    assert by_role["worst"] == sorted(by_role["worst"], reverse=True)
    assert max(by_role["best"]) <= result.strongest_attack.mse_5th_percentile
    assert min(by_role["worst"]) > result.strongest_attack.mse.mean


def test_colour_pictures() -> None:
    image = torch.zeros(3, 4, 6)
    image[0] = 2.0
    picture = decoded(encode_png(image))
    assert (picture.mode, picture.size) == ("RGB", (6, 4))
    assert picture.getpixel((0, 0)) == (255, 0, 0)


def test_the_hash_of_a_module_covers_names_weights_and_buffers() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    before = hash_module(module)
    assert hash_module(module) == before
    assert hash_module(module.to(memory_format=torch.channels_last)) == before
    module[1].running_mean[0] += 1
    after = hash_module(module)
    assert after != before
    assert hash_module(nn.Sequential(nn.Identity(), *module)) != after


def test_the_encoder_in_the_result_is_the_one_of_the_run(run: RunDirectory, result: AuditResult) -> None:
    _, model, _ = restore(run)
    assert result.encoder_sha256 == hash_module(model.encoder)


def test_progress_is_told(run: RunDirectory) -> None:
    told: list[tuple[str, float, float]] = []
    audit(run, SUITE, report=lambda stage, done, total, _: told.append((stage, done, total)))
    assert told[0] == ("audit demo-none", 0, 5)
    assert told[-1] == ("audit demo-none", 5, 5)
