"""Pitfalls that flatter a defence: each is planted here, and the check that catches it fails. docs/audit.md lists them.

What a test plants stands in its body; beside it stands the same without the pitfall, which must pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attncem.training.build
from attncem.base.progress import silent
from attncem.base.texts import has_text
from attncem.base.types import TrainingError
from attncem.config.options.attacks import (
    AttackOptions,
    DecoderOptions,
    GreyOptions,
    MeanImageOptions,
    OptimisationOptions,
    RidgeOptions,
)
from attncem.config.options.base import Options
from attncem.config.options.suites import Suite, load_suite, packaged_suites
from attncem.config.threats import THREATS
from attncem.data.batches import DeviceData
from attncem.judging.attacks import ATTACKS
from attncem.judging.attacks.base import Attack, Standardiser
from attncem.judging.attacks.ridge import RidgeAttack
from attncem.judging.auditing import Case, audit, measure
from attncem.judging.opening import OpenRun, open_encoder
from attncem.judging.oracle import Oracle
from attncem.records.audit import AuditResult
from attncem.records.metrics import METRICS
from attncem.training.surrogates import SURROGATES
from attncem.training.train import train
from probing import DATA, LEAKY, NUM_CLASSES, SIZE, Constant, subject

DOCS = Path(__file__).parents[1] / "docs" / "audit.md"


class FakeOptions(Options):
    """Options of a planted attack."""

    name: Literal["fake"] = "fake"
    loss: str = "mse"
    images: int | None = None


class Fake(Attack):
    """Grey, and whatever a test makes of it."""

    options_type = FakeOptions

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        self.shape = oracle.image_shape

    def reconstruct(self, released: Tensor) -> Tensor:
        return torch.full((len(released), *self.shape), 0.5)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Attack]], None]:
    """Makes `fake` this attack."""
    return lambda attack: monkeypatch.setitem(ATTACKS, "fake", attack)


def suite(rows: dict[str, Any]) -> Suite:
    return Suite.model_construct(name="planted", version=1, meaning="planted", rows=rows)


FAKE = suite({"grey": GreyOptions(), "fake": FakeOptions()})


def audited(opened: OpenRun, tmp_path: Path, rows: Suite = FAKE, **options: Any) -> AuditResult:
    return audit(opened, rows, out=tmp_path, progress=silent, **options)


def codes(result: AuditResult, about: str | None = None) -> list[str]:
    return [item.code for item in result.findings if about in (None, item.about)]


def short(**options: Any) -> DecoderOptions:
    return DecoderOptions.model_validate({"epochs": 1, "max_epochs": 2, "lr": 3e-3, "batch_size": 16, **options})


# attacks that are too weak


def test_a_weak_decoder_is_called_so(tmp_path: Path) -> None:
    """One epoch of a decoder: doubling still gains, and ridge does better; eighty are believed on the first count."""
    weak = audited(subject(LEAKY), tmp_path / "weak", suite({"ridge": RidgeOptions(), "decoder": short()}))
    assert codes(weak, "decoder") == ["not_converged", "loses_to"]
    gain = weak.row("decoder").verdict.gain_of_doubling
    assert gain is not None and gain > 0.02
    assert not weak.row("decoder").verdict.reliable
    once = audited(subject(LEAKY), tmp_path / "once", suite({"decoder": short(epochs=2, max_epochs=3)}))
    assert codes(once, "decoder") == ["never_doubled"]
    long = short(epochs=20, max_epochs=160, tolerance=0.3, lr=8e-3)
    fair = audited(subject(LEAKY, 0.1), tmp_path / "fair", suite({"decoder": long}))
    assert codes(fair, "decoder") == []


def test_a_stronger_name_is_not_a_stronger_attack(plant: Callable[..., None], tmp_path: Path) -> None:
    """What is called adaptive is ranked by what it recovers."""
    plant(Fake)
    rows = suite({"strongest adaptive GAN": FakeOptions(), "ridge": RidgeOptions(), "grey": GreyOptions()})
    assert audited(subject(LEAKY), tmp_path, rows).strongest == "ridge"


def test_a_starved_attacker_is_told(tmp_path: Path) -> None:
    few = replace(DATA, held_out=DeviceData(DATA.held_out.images[:30], DATA.held_out.labels[:30]))
    rows = suite({"ridge": RidgeOptions()})
    starved = audited(subject(LEAKY, 0.1, data=few), tmp_path / "few", rows, threat="held_out")
    assert "starved_attacker" in codes(starved)
    fed = audited(subject(LEAKY, 0.1), tmp_path / "fed", rows)
    assert "starved_attacker" not in codes(fed)
    assert starved.row("ridge").mse.mean > fed.row("ridge").mse.mean, "it does flatter"


def test_a_decoder_that_is_trained_for_likeness_alone_is_told(plant: Callable[..., None], tmp_path: Path) -> None:
    perceptual, plain = short(loss="mse_ssim"), short()
    alone = audited(subject(LEAKY), tmp_path / "alone", suite({"likeness": perceptual}))
    assert "other_aim" in codes(alone, "likeness")
    both = audited(subject(LEAKY), tmp_path / "both", suite({"likeness": perceptual, "plain": plain}))
    assert "other_aim" not in codes(both)
    for name in packaged_suites():
        rows = [row.model_dump() for row in load_suite(name).suite.rows.values()]
        aims = {(row["name"], row.get("size"), row["loss"]) for row in rows if "loss" in row}
        assert all((method, size, "mse") in aims for method, size, _ in aims), name


def test_a_white_box_row_without_its_prior_or_switched_off_is_told(tmp_path: Path) -> None:
    """The weight of the total variation is tuned on own held-out images; a suite without it is not the packaged one."""
    packaged = load_suite("full").suite.rows["white box"]
    assert isinstance(packaged, OptimisationOptions)
    assert len(set(packaged.smoothness)) > 1
    without = audit(
        subject(LEAKY, 0.1), "full", ["white-box.smoothness=[0]"], out=tmp_path / "0", only=["grey"], progress=silent
    )
    assert any("smoothness" in item.text for item in without.findings if item.code == "suite_changed")
    assert any("white box" in item.text for item in without.findings if item.code == "rows_missing")
    brief = OptimisationOptions(steps=5, max_steps=10, restarts=1, tuning_images=8)
    tuned = audited(subject(LEAKY, 0.1), tmp_path / "1", suite({"white box": brief}))
    assert tuned.row("white box").verdict.chosen["smoothness"] in brief.smoothness


def test_an_attack_that_cannot_invert_the_identity_is_found_out(plant: Callable[..., None], tmp_path: Path) -> None:
    """Planted: the worst candidate is kept instead of the best. Every attack's own test is in test_attack_laws.py."""

    class KeepsTheWorst(RidgeAttack):
        must_beat = ("ridge",)

        def reconstruct(self, released: Tensor) -> Tensor:
            return super().reconstruct(released).flip(-1)

    plant(KeepsTheWorst)
    planted = RidgeOptions.model_construct(**{**RidgeOptions().model_dump(), "name": "fake"})
    found = audited(subject(LEAKY), tmp_path, suite({"ridge": RidgeOptions(), "fake": planted}))
    assert found.row("ridge").mse.mean < 1e-4 < found.row("fake").mse.mean
    assert "loses_to" in codes(found, "fake")


def test_an_attack_that_returns_the_originals_would_be_seen(plant: Callable[..., None], tmp_path: Path) -> None:
    """From a constant z nothing can be recovered: what is, was not recovered from it."""
    case = Case(subject(Constant()), THREATS["train"])
    blind = measure(case, "mean", MeanImageOptions(), seed=0).row.mse

    class Knows(Fake):
        def reconstruct(self, released: Tensor) -> Tensor:
            return case.x[: len(released)]

    plant(Knows)
    assert measure(case, "fake", FakeOptions(), seed=0).row.mse.high < 0.5 * blind.low, "the planted one stands out"
    honest = measure(case, "ridge", RidgeOptions(), seed=0).row.mse
    assert honest.high > 0.95 * blind.mean


# what is attacked is not what was measured


def test_an_encoder_that_is_swapped_fails_the_row(plant: Callable[..., None], tmp_path: Path) -> None:
    def model() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Conv2d(1, 8, 4, 4)

    opened = subject(model(), 0.1)

    class Swaps(Fake):
        def fit(self, oracle: Oracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            with torch.no_grad():
                opened.model.encoder.weight.mul_(2)  # type: ignore[operator]

    plant(Swaps)
    result = audited(opened, tmp_path / "swapped")
    assert [row.outcome for row in result.rows] == ["ok", "failed"]
    assert "the encoder or the channel has changed" in result.row("fake").reason
    plant(Fake)
    assert [row.outcome for row in audited(subject(model(), 0.1), tmp_path / "same").rows] == ["ok", "ok"]


@pytest.mark.parametrize("what", ["noise", "mode", "module"])
def test_a_channel_that_is_dropped_for_the_attack_fails_the_row(
    plant: Callable[..., None], tmp_path: Path, what: str
) -> None:
    opened = subject(LEAKY, 0.3)

    class Drops(Fake):
        def fit(self, oracle: Oracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            if what == "noise":
                opened.model.channel.noise_std = 0.0
            elif what == "mode":
                opened.model.channel.train()
            else:
                opened.model.channel = nn.Identity()

    plant(Drops)
    assert audited(opened, tmp_path).row("fake").outcome == "failed"


CHANNELS: dict[str, dict[str, Any]] = {
    "dropout": {"name": "dropout", "rate": 0.5},
    "top_k": {"name": "top_k", "keep": 0.3},
    "quantise": {"name": "quantise", "bits": 2},
    "local_dp": {"name": "local_dp", "clip": 1.0, "epsilon": 8.0},
}


def changed_share(released: Tensor, z: Tensor) -> float:
    return float((released.flatten(1) - z.flatten(1)).square().mean())


@pytest.mark.parametrize("name", CHANNELS)
def test_accuracy_attack_and_server_see_one_channel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers to the very releases that are attacked, and own images pass the same law."""
    asked: list[Tensor] = []

    class Server(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            asked.append(z)
            return z.flatten(1)[:, :NUM_CLASSES]

    opened = open_encoder(LEAKY, data={"name": "fashion_mnist_mini"}, channel=[CHANNELS[name]], server=Server())
    opened = replace(opened, spec=subject(LEAKY).spec, reader=lambda: DATA)
    case = Case(opened, THREATS["train"])
    case.right()
    attack = ATTACKS["ridge"](RidgeOptions())
    assert torch.equal(torch.cat(asked), case.released)
    assert torch.equal(torch.cat(list(case.seen_by(attack, len(case.x)))), case.released)

    def same_law() -> bool:
        oracle = case.oracle(attack, 0)
        own = changed_share(oracle.release_auxiliary(torch.arange(len(case.auxiliary))), LEAKY(oracle.auxiliary()[0]))
        others = changed_share(case.released, LEAKY(case.x))
        return others > 0 and own == pytest.approx(others, rel=0.2)

    assert same_law()
    monkeypatch.setattr(Oracle, "release_auxiliary", lambda self, index: self._model.encode(self._x[index]))
    assert not same_law(), "planted: the attack learns without the channel"


# images that should not have been seen


def test_weights_are_not_chosen_by_test_images(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any test image the same checkpoint is the best; planted, with validation on test images, it is not so."""

    def best(out: str) -> tuple[Any, bytes]:
        run = train("demo-none", {**tiny, "device": "cpu", "training.epochs": 3}, out=tmp_path / out, progress=silent)
        lines = [record["accuracy"] for record in run.records() if record["kind"] == "validation"]
        return lines, (run.path / "checkpoints" / run.load("best").name / "client.safetensors").read_bytes()

    plain_parts = attncem.training.build._parts

    def blank(*arguments: Any) -> dict[str, DeviceData]:
        parts = plain_parts(*arguments)
        test = parts["test"]
        return parts | {"test": DeviceData(torch.zeros_like(test.images), torch.zeros_like(test.labels))}

    def peeking(*arguments: Any) -> dict[str, DeviceData]:
        parts = blank(*arguments)
        return parts | {"validation": parts["test"]}

    honest = best("honest")
    monkeypatch.setattr(attncem.training.build, "_parts", blank)
    assert best("blank") == honest
    monkeypatch.setattr(attncem.training.build, "_parts", peeking)
    assert best("peeking")[0] != honest[0]


def test_evaluation_images_among_the_attackers_own_are_counted(tmp_path: Path) -> None:
    images = DATA.train.images.clone()
    images[:7] = DATA.test.images[20:27]
    mixed = replace(DATA, train=DeviceData(images, DATA.train.labels))
    rows = suite({"grey": GreyOptions()})
    found = audited(subject(LEAKY, data=mixed), tmp_path / "mixed", rows).findings
    assert [dict(item.values) for item in found if item.code == "overlap"] == [{"count": 7, "total": 120}]
    assert "overlap" not in codes(audited(subject(LEAKY), tmp_path / "apart", rows))


# numbers that do not mean what they say


def test_pixels_of_another_unit_fail_the_row(plant: Callable[..., None], tmp_path: Path) -> None:
    """Images in [-1, 1] would have four times the error, images of bytes 65,025 times."""
    case = Case(subject(LEAKY), THREATS["train"])
    for scale, shift, outcome in (
        (1.0, 0.0, "ok"),
        (2.0, -1.0, "failed"),
        (255.0, 0.0, "failed"),
        (3.0, -1.5, "failed"),
    ):

        class Scaled(Fake):
            def reconstruct(self, released: Tensor, by: float = scale, off: float = shift) -> Tensor:
                return by * case.x[: len(released)] + off

        plant(Scaled)
        row = measure(case, "fake", FakeOptions(), seed=0).row
        assert row.outcome == outcome
        assert outcome == "ok" or "not in [0, 1]" in row.reason


def test_measures_have_their_golden_values() -> None:
    """x in [0, 1] and x + 0.1: 20 dB an image, not 68 with a peak of 255, and each image for itself."""
    x = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 0.5
    y = x + torch.tensor([0.1, 0.2, 0.01]).view(3, 1, 1, 1)
    values = {name: metric.function(x, y) for name, metric in METRICS.items()}
    assert values["mse"].tolist() == pytest.approx([0.01, 0.04, 0.0001], rel=1e-4)
    assert values["psnr"].tolist() == pytest.approx([20.0, 13.9794, 40.0], abs=1e-3)
    pooled = -10 * np.log10(float(values["mse"].mean()))
    assert abs(float(values["psnr"].mean()) - pooled) > 5, "the mean of images is not the pooled one"
    assert float((4 * values["mse"] - METRICS["mse"].function(2 * x - 1, 2 * y - 1)).abs().max()) < 1e-6
    flat = torch.zeros(1, 1, 16, 16)
    other = torch.full_like(flat, 0.5)
    assert float(METRICS["ssim_zero_pad"].function(flat, other)) == pytest.approx(
        float(METRICS["ssim"].function(flat, other)), abs=0.1
    )
    assert all(metric.private in ("higher", "lower") for metric in METRICS.values())


def test_a_decoder_left_in_training_mode_is_told(plant: Callable[..., None], tmp_path: Path) -> None:
    """Batch statistics let an image depend on the others; in evaluation mode it does not."""

    class Normalised(Fake):
        mode = True

        def fit(self, oracle: Oracle, *, seed: int) -> None:
            super().fit(oracle, seed=seed)
            self.net = nn.Sequential(nn.BatchNorm2d(16), nn.PixelShuffle(4), nn.Sigmoid()).train(self.mode)
            self.net[0].running_mean += 0.3  # type: ignore[operator]

        @torch.no_grad()
        def reconstruct(self, released: Tensor) -> Tensor:
            images: Tensor = self.net(released)
            return images

    class Evaluated(Normalised):
        mode = False

    plant(Normalised)
    assert "depends_on_batch" in codes(audited(subject(LEAKY), tmp_path / "training"), "fake")
    plant(Evaluated)
    assert "depends_on_batch" not in codes(audited(subject(LEAKY), tmp_path / "evaluation"))


def test_ten_images_are_called_few(tmp_path: Path) -> None:
    one_step = {"start": "mean", "steps": 1, "max_steps": 1, "restarts": 1, "tuning_images": 4}
    rows = suite({"ridge": RidgeOptions(), "some": OptimisationOptions(images=100, **one_step)})

    def on(count: int) -> AuditResult:
        repeated = DATA.test.images.repeat(9, 1, 1, 1)[:count], DATA.test.labels.repeat(9)[:count]
        data = replace(DATA, test=DeviceData(*repeated))
        return audited(subject(LEAKY, 0.1, data=data), tmp_path / str(count), rows)

    few, many = on(10), on(1000)
    assert codes(few).count("few_images") == 1, "that all rows have few is told once"
    assert "few_images" in codes(few, "")
    assert "few_images" in codes(many, "some"), "a row that is asked about a part alone"
    assert codes(many).count("few_images") == 1

    def width(result: AuditResult) -> float:
        return result.row("ridge").mse.high - result.row("ridge").mse.low

    assert width(few) > 3 * width(many), "and its interval says so"


def test_a_model_without_accuracy_is_told(tmp_path: Path) -> None:
    class Answers(nn.Module):
        def __init__(self, good: bool) -> None:
            super().__init__()
            self.good = good

        def forward(self, z: Tensor) -> Tensor:
            told = (10 * z[:, 0, 0, 0]).round().long().clamp(0, NUM_CLASSES - 1)
            return nn.functional.one_hot(told if self.good else torch.zeros_like(told), NUM_CLASSES).float()

    rows = suite({"grey": GreyOptions()})
    assert "near_chance" in codes(audited(subject(LEAKY, server=Answers(False)), tmp_path / "useless", rows))
    assert "near_chance" not in codes(audited(subject(LEAKY, server=Answers(True)), tmp_path / "useful", rows))


class Shrunk(nn.Module):
    """The leaky identity, made small or squeezed into (0, 1)."""

    def __init__(self, factor: float, *, squeeze: bool = False) -> None:
        super().__init__()
        self.factor, self.squeeze = factor, squeeze

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.factor * LEAKY(x)
        return torch.sigmoid(z) if self.squeeze else z


def test_a_small_z_is_not_a_private_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks standardise; planted, one that does not finds little. The signal over the noise is written down."""

    def error(encoder: nn.Module, options: AttackOptions) -> float:
        return measure(Case(subject(encoder), THREATS["train"]), "row", options, seed=0).row.mse.mean

    options = short(epochs=6, max_epochs=6)
    plain = {"ridge": error(Shrunk(1.0), RidgeOptions()), "decoder": error(Shrunk(1.0), options)}
    for encoder in (Shrunk(2.0**-12), Shrunk(2.0**-6, squeeze=True)):
        assert error(encoder, RidgeOptions()) < plain["ridge"] + 1e-5
        assert error(encoder, options) < 1.1 * plain["decoder"]
    monkeypatch.setattr(Standardiser, "__call__", lambda self, released: released.float())
    assert error(Shrunk(2.0**-12), options) > 1.5 * plain["decoder"], "planted: the decoder reads z as it is"


def test_signal_to_noise_is_written_down(tmp_path: Path) -> None:
    rows = suite({"grey": GreyOptions()})
    snr = audited(subject(LEAKY, 0.1), tmp_path / "noisy", rows).plan.signal_to_noise
    z = LEAKY(DATA.test.get(slice(None))[0])
    assert np.array(snr) == pytest.approx((z.var((0, 2, 3)) / 0.01).numpy(), rel=0.1)
    small = audited(subject(Shrunk(0.1), 0.1), tmp_path / "small", rows).plan.signal_to_noise
    assert np.array(small) == pytest.approx(np.array(snr) / 100, rel=0.2)
    assert audited(subject(LEAKY), tmp_path / "clean", rows).plan.signal_to_noise == [None] * 16


def test_images_of_another_size_fail_the_row(plant: Callable[..., None], tmp_path: Path) -> None:
    class Larger(Fake):
        def reconstruct(self, released: Tensor) -> Tensor:
            return torch.zeros(len(released), 1, SIZE + 4, SIZE + 4)

    plant(Larger)
    row = audited(subject(LEAKY), tmp_path).row("fake")
    assert row.outcome == "failed"
    assert "expected (120, 1, 12, 12)" in row.reason


def test_nothing_falls_back_in_silence(
    plant: Callable[..., None], tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A penalty that fails ends the training, and an attack that fails has no number; none of them becomes 0."""

    class Breaks(Fake):
        def reconstruct(self, released: Tensor) -> Tensor:
            raise ValueError("no such shape")

    plant(Breaks)
    result = audited(subject(LEAKY), tmp_path / "audit")
    assert (result.row("fake").outcome, result.row("fake").scores) == ("failed", {})
    assert "row_failed" in codes(result, "fake")
    assert result.strongest == "grey"

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("no clusters")

    monkeypatch.setattr(SURROGATES["kmeans"], "_evaluate", broken)
    with pytest.raises((ValueError, TrainingError), match="no clusters"):
        train("demo-kmeans", {**tiny, "device": "cpu"}, out=tmp_path / "run", progress=silent)


def test_a_client_that_does_most_of_the_work_is_told(tmp_path: Path) -> None:
    def network(client: int, server: int) -> OpenRun:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            encoder = nn.Sequential(nn.Conv2d(1, client, 3, padding=1), nn.Conv2d(client, 4, 4, 4))
            half = nn.Sequential(nn.Flatten(), nn.Linear(36, server), nn.Linear(server, NUM_CLASSES))
        return subject(encoder, server=half)

    rows = suite({"grey": GreyOptions()})
    heavy = audited(network(32, 8), tmp_path / "heavy", rows)
    assert "client_heavier" in codes(heavy)
    assert heavy.subject.client_macs > heavy.subject.server_macs > 0
    assert "client_heavier" not in codes(audited(network(1, 4000), tmp_path / "light", rows))


# the table


def table_of_pitfalls() -> list[tuple[str, ...]]:
    section = DOCS.read_text(encoding="utf-8").split("## Pitfalls", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    return [tuple(cell.strip() for cell in row) for row in rows]


def test_every_pitfall_is_in_the_table_with_a_test_that_exists() -> None:
    rows = table_of_pitfalls()
    named = {name for row in rows for name in re.findall(r"`(test_\w+)`", row[2])}
    here = {name for name in globals() if name.startswith("test_")}
    itself = {"test_every_pitfall_is_in_the_table_with_a_test_that_exists"}
    assert len(rows) >= 18
    assert all(re.search(r"`test_\w+`", row[2]) for row in rows)
    assert named == here - itself
    told = {code for row in rows for code in re.findall(r"`([a-z_0-9]+)`", row[1])} - {"signal_to_noise"}
    assert told
    assert all(has_text(f"finding.{code}") for code in told)
