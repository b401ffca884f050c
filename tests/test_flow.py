"""The flow decoder against closed forms, and how its samples enter a row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncem.config.options.attacks import DecoderOptions, FlowOptions, MeanImageOptions
from attncem.config.options.channels import GaussianOptions
from attncem.config.threats import THREATS
from attncem.judging.attacks import build_attack, flow
from attncem.judging.attacks.floors import MeanImageFloor
from attncem.judging.attacks.flow import FlowAttack, FlowMaterial
from attncem.judging.auditing import Case, measure, sampling
from attncem.judging.opening import open_encoder
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.flow import FlowDecoder, FlowNetwork
from attncem.models.split import SplitModel
from attncem.records.metrics import METRICS, mse

SMALL: dict[str, Any] = {"width": 8, "blocks": 1, "batch_size": 64, "least_steps": 20, "lr": 3e-3}


class Gaussian(nn.Module):
    """The field of r ~ N(m, v): E[((1 − t) r − t ε) / √q | r_t] in closed form."""

    def __init__(self, m: float, v: float) -> None:
        super().__init__()
        self.m, self.v = m, v
        self.unused = nn.Parameter(torch.zeros(1))  # for optimisers, which want one

    def forward(self, seen: Tensor, time: Tensor, released: Tensor, mean: Tensor) -> Tensor:
        t = time.view(-1, 1, 1, 1)
        root = (t**2 + (1 - t) ** 2).sqrt()
        off = seen * root - t * self.m
        variance = t**2 * self.v + (1 - t) ** 2
        r, noise = self.m + t * self.v / variance * off, (1 - t) / variance * off
        return ((1 - t) * r - t * noise) / root


class Half(nn.Module):
    """A mean of 0.5."""

    def forward(self, released: Tensor) -> Tensor:
        return torch.full((len(released), 1, 6, 6), 0.5)


def exact(m: float, v: float, scale: float = 0.05) -> FlowDecoder:
    decoder = FlowDecoder(Half(), Gaussian(m, v))
    decoder.scale.fill_(scale)
    return decoder


# closed forms


@pytest.mark.parametrize(("m", "v"), [(0.0, 1.0), (0.7, 0.3), (-1.0, 2.0)])
def test_the_exact_field_carries_noise_to_the_law(m: float, v: float) -> None:
    noise = torch.randn(4000, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    images = exact(m, v).sample(torch.zeros(4000, 1), noise, steps=30)
    assert float(images.mean()) == pytest.approx(0.5 + 0.05 * m, abs=1e-3)
    assert float(images.std()) == pytest.approx(0.05 * math.sqrt(v), rel=0.02)


def test_the_mean_of_the_law_comes_in_one_step() -> None:
    decoder = exact(0.7, 0.3)
    assert decoder(torch.zeros(3, 1)).flatten().tolist() == pytest.approx([0.5 + 0.05 * 0.7] * 108)
    decoder.refined.fill_(0)
    assert decoder(torch.zeros(3, 1)).flatten().tolist() == pytest.approx([0.5] * 108)


def test_the_exact_field_has_the_least_loss() -> None:
    """Of all fields the conditional mean; 1 − the part of the target that r_t explains is left."""
    generator = torch.Generator().manual_seed(1)
    r = 0.7 + math.sqrt(0.3) * torch.randn(5000, 1, 6, 6, generator=generator)
    x, time = 0.5 + 0.05 * r, torch.rand(5000, generator=generator)
    noise = torch.randn(x.shape, generator=generator)
    right = float(exact(0.7, 0.3).loss(torch.zeros(5000, 1), x, time, noise).mean())
    for m, v in ((0.5, 0.3), (0.7, 0.5), (0.7, 0.2)):
        assert float(exact(m, v).loss(torch.zeros(5000, 1), x, time, noise).mean()) > 1.003 * right


def gaussian_oracle(count: int = 1500) -> tuple[Oracle, Tensor]:
    """Pixels N(0.5, 0.1²) behind noise of σ = 0.1: E[x | z] = 0.5 + (z − 0.5) / 2, and a variance of 0.005."""
    generator = torch.Generator().manual_seed(0)
    x, other = (0.5 + 0.1 * torch.randn(n, 1, 4, 4, generator=generator) for n in (count, 300))
    model = SplitModel(nn.Identity(), build_channel([GaussianOptions(noise_std=0.1)]), None)
    oracle = Oracle(model, THREATS["train"], x, torch.zeros(count, dtype=torch.long), num_classes=1)
    return oracle, other


def test_a_learned_flow_knows_mean_and_spread_of_a_gaussian() -> None:
    oracle, x = gaussian_oracle(600)
    attack = FlowAttack(epochs=8, max_epochs=8, samples=16, steps=5, **SMALL)
    attack.fit(oracle, seed=0)
    released = oracle.release(x)
    mean, samples = attack.reconstruct(released), attack.samples(released)
    best = 0.5 + (released - 0.5) / 2
    assert float(mse(mean, x).mean()) < 1.2 * float(mse(best, x).mean())
    assert float(samples.var(0).mean()) == pytest.approx(0.005, rel=0.25)
    assert float(mse(samples.mean(0), mean).mean()) < 2 * 0.005 / 16
    assert float(mse(samples[0], x).mean()) == pytest.approx(0.01, rel=0.25)


# its parts


def test_the_mean_is_left_as_it_is() -> None:
    oracle, _ = gaussian_oracle(200)
    material = FlowMaterial(oracle, DecoderOptions(batch_size=50), seed=0)
    network = FlowNetwork((1, 4, 4), (1, 4, 4), width=8, blocks=1)
    mean = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.Dropout(0.5))
    before = [tensor.clone() for tensor in mean.state_dict().values()]
    training = flow.FlowTraining(material, FlowDecoder(mean, network))
    for _ in range(3):
        training.step(1e-3)
    assert training.decoder.training and not mean.training
    assert all(torch.equal(a, b) for a, b in zip(before, mean.state_dict().values(), strict=True))
    assert any(bool(tensor.any()) for tensor in network.end[-1].parameters())


def test_a_part_of_every_batch_learns_the_mean_alone() -> None:
    oracle, _ = gaussian_oracle(200)
    material = FlowMaterial(oracle, DecoderOptions(batch_size=50), seed=0)
    time, noise = material.drawn(torch.zeros(4000, 1, 4, 4))
    none = time == 0
    assert float(none.float().mean()) == pytest.approx(0.25, abs=0.03)
    assert float(noise[none].abs().sum()) == 0
    assert float(noise[~none].std()) == pytest.approx(1, abs=0.02)
    assert float(time[~none].mean()) == pytest.approx(0.5, abs=0.03)


def test_own_images_say_whether_the_flows_mean_is_used() -> None:
    oracle, _ = gaussian_oracle(200)
    material = FlowMaterial(oracle, DecoderOptions(batch_size=50), seed=0)

    class Best(nn.Module):
        def forward(self, released: Tensor) -> Tensor:
            return 0.5 + (material.standardise.mean + material.standardise.std * released - 0.5) / 2

    def gains(mean: nn.Module, m: float, scale: float) -> bool:
        decoder = FlowDecoder(mean, Gaussian(m, 1.0))
        decoder.scale.fill_(scale)
        return flow.FlowTraining(material, decoder).gains_by_refining()

    assert not gains(Best(), 1.0, 0.07)
    assert gains(Dark(), 1.0, 0.2)  # 0.3 + 0.2 · 1 is the mean


class Dark(nn.Module):
    """A mean that is too dark."""

    def forward(self, released: Tensor) -> Tensor:
        return torch.full((len(released), 1, 4, 4), 0.3)


@pytest.mark.parametrize("feature", [(8, 4, 4), (49, 16), (30,)])
@pytest.mark.parametrize("image", [(1, 28, 28), (3, 11, 13), (3, 5, 5)])
def test_any_feature_and_any_image(feature: tuple[int, ...], image: tuple[int, int, int]) -> None:
    network = FlowNetwork(feature, image, width=8, blocks=1)
    seen, mean = torch.randn(2, *image), torch.rand(2, *image)
    out = network(seen, torch.rand(2), torch.randn(2, *feature), mean)
    assert out.shape == seen.shape
    assert float(out.detach().abs().max()) == 0  # nothing is learned yet


# samples in a row


@pytest.fixture(scope="module")
def case() -> Case:
    data = {"name": "fashion_mnist_mini", "held_out_fraction": 0.8}
    return Case(
        open_encoder(nn.AvgPool2d(4), data=data, channel=[{"name": "gaussian", "noise_std": 0.1}]), THREATS["train"]
    )


@pytest.fixture(scope="module")
def row_and_files(case: Case) -> Any:
    return measure(case, "flow", FlowOptions(epochs=0.2, max_epochs=0.2, samples=2, steps=2, **SMALL), seed=0)


def test_samples_are_measured_beside_the_mean(case: Case, row_and_files: Any) -> None:
    row, scores = row_and_files.row, row_and_files.files.scores
    assert row.outcome == "ok", row.reason
    assert set(row.scores) == {*METRICS, "spread", "sample_mse", "sample_ssim", "sample_edges"}
    assert all(len(values) == len(case.x) for values in scores.values.values())
    assert row.scores["spread"].mean > 0
    assert row.scores["sample_mse"].mean > row.mse.mean


def test_samples_are_the_same_alone_and_after_loading(case: Case) -> None:
    options = FlowOptions(epochs=0.2, max_epochs=0.2, samples=3, steps=2, **SMALL)
    attack, other = build_attack(options), build_attack(options)
    attack.fit(case.oracle(attack, 0), seed=0)
    released = case.released[:6]
    together = attack.samples(released)
    assert together.shape == (3, 6, 1, 28, 28)
    assert together.min() >= 0 and together.max() <= 1
    alone = torch.cat([attack.samples(part) for part in released.split(1)], 1)
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-4)
    other.load(attack.state())
    assert torch.equal(other.samples(released), together)


def test_different_releases_draw_differently(case: Case) -> None:
    released = case.released[:200]
    marks = flow.mark(released)
    assert len(marks.unique()) > 100
    assert torch.equal(torch.cat([flow.mark(part) for part in released.split(1)]), marks)
    assert torch.equal(flow.mark(released[:1].expand(2, -1, -1, -1)), marks[:1].expand(2))


def test_attacks_that_know_one_image_have_no_further_scores(case: Case) -> None:
    assert sampling.sample_values(case, MeanImageFloor(), 10) == {}
    assert set(measure(case, "mean image", MeanImageOptions(), seed=0).row.scores) == set(METRICS)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "samples of shape None"),
        (torch.zeros(1, 10, 1, 28, 28), "expected two or more of"),
        (torch.zeros(2, 9, 1, 28, 28), "samples of shape"),
        (torch.full((2, 10, 1, 28, 28), math.nan), "not finite"),
    ],
)
def test_samples_that_are_none_fail(case: Case, made: Tensor | None, said: str) -> None:
    class Odd(MeanImageFloor):
        def samples(self, released: Tensor) -> Tensor | None:
            return made

    with pytest.raises(Exception, match=said):
        sampling.sample_values(case, Odd(), 10)
