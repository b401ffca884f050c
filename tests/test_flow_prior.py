"""The prior of other images: what it learns, what it adds to a release, and how its samples and searches differ."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attncem.config.options.attacks import FlowPriorOptions, MeanImageOptions
from attncem.config.threats import THREATS
from attncem.judging.attacks.flow_prior import FlowPriorAttack, PriorMaterial, PriorTraining
from attncem.judging.oracle import Oracle
from attncem.models.flow import FlowPrior, PriorNetwork
from attncem.records.metrics import mse
from attncem.testing.attack_world import Constant
from contracts.test_attacks import EVALUATION, HARD, LEAKY, errors, fitted, make_oracle, prior_of
from test_attack_laws import OTHERS, errors_on_gaussian, gaussian_oracle, least_error


def fit(oracle: Oracle, **options: Any) -> FlowPriorAttack:
    attack = fitted(prior_of(**options), oracle)
    assert isinstance(attack, FlowPriorAttack)
    return attack


# the prior


class Exact(torch.nn.Module):
    """F of a prior whose r has mean 0 and variance 1 in every pixel: E[((1 − t) r − t ε) / √q | r_t] = 0."""

    def forward(self, seen: Tensor, time: Tensor) -> Tensor:
        return torch.zeros_like(seen)


def test_the_exact_field_carries_noise_to_the_images() -> None:
    mean = torch.full((1, 4, 4), 0.4)
    prior = FlowPrior(Exact(), mean, 0.1)
    noise = torch.randn(2000, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    images = prior.drawn(noise, 20)
    assert float((images.mean(0) - mean).abs().max()) < 0.01
    assert float(images.std()) == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("t", [0.001, 0.5, 1.0])
def test_the_expected_image_goes_from_the_mean_to_the_point(t: float) -> None:
    """E[r | r_t] = t / q · r_t for r and ε of variance 1."""
    prior = FlowPrior(Exact(), torch.full((1, 4, 4), 0.4), 0.1)
    point = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    wanted = 0.4 + 0.1 * t / (t**2 + (1 - t) ** 2) * point
    assert torch.allclose(prior.expected(point, t), wanted, atol=1e-6)


@pytest.mark.parametrize("size", [7, 12])
def test_any_size(size: int) -> None:
    images = torch.rand(2, 3, size, size)
    assert PriorNetwork(3, width=8, blocks=1)(images, torch.rand(2)).shape == images.shape


def test_training_lowers_the_loss_on_images_that_it_has_not_seen() -> None:
    material = PriorMaterial(make_oracle(LEAKY), prior_of(), 0)
    assert not set(material.train.tolist()) & set(material.held.tolist())
    training = PriorTraining(material)
    _, before = training.validate()
    for _ in range(150):
        training.step(3e-3)
    error, after = training.validate()
    assert after < 0.8 * before
    assert error < float(material.held_x.var(0).mean())


# what it adds


def test_neither_queries_nor_labels_are_needed() -> None:
    assert not FlowPriorAttack.needs & {"queries", "labels", "observed", "server"}


@pytest.mark.slow
def test_the_mean_comes_near_the_closed_form() -> None:
    """Images of the toy are Gaussian, the client is linear: the ensemble's gain is nearly the best one."""
    error = float(errors_on_gaussian(prior_of(epochs=4, max_epochs=8, samples=16, times=4), 1000).mean())
    blind = float(errors_on_gaussian(MeanImageOptions(), 1000).mean())
    assert error - least_error() < 0.25 * (blind - least_error())


def test_a_sample_has_a_larger_error_than_the_mean() -> None:
    oracle = gaussian_oracle(320)
    attack, released = fit(oracle, samples=8), oracle.release(OTHERS[:100])
    mean, samples = attack.reconstruct(released), attack.samples(released)
    assert samples.shape == (8, 100, 1, 12, 12)
    assert float(mse(samples.flatten(0, 1), OTHERS[:100].repeat(8, 1, 1, 1)).mean()) > 1.3 * float(
        mse(mean, OTHERS[:100]).mean()
    )


def test_samples_are_drawn_once_and_differ_between_releases() -> None:
    attack = fit(make_oracle(LEAKY, noise_std=0.3), samples=4)
    released = LEAKY(EVALUATION[0][:6])
    samples = attack.samples(released)
    assert len(attack._kept) == 1
    alone = torch.cat([attack.samples(part) for part in released.split(1)], 1)
    assert float((samples - alone).abs().max()) < 1e-5
    assert float(samples.var(0).mean()) > 1e-5


def test_the_mean_of_samples_of_a_constant_is_the_mean_image() -> None:
    """Samples of p(x) say nothing: the share that is chosen on held-out images undoes them."""
    oracle = make_oracle(Constant(), noise_std=0.1)
    attack = fit(oracle, samples=4, tuning_images=32)
    assert attack.verdict.chosen["share"] < 0.5
    blind = float(errors(MeanImageOptions(), oracle).mean())
    assert float(mse(attack.reconstruct(oracle.release(EVALUATION[0])), EVALUATION[0]).mean()) < 1.1 * blind


def test_gradient_corrections_help_a_client_that_is_not_linear() -> None:
    oracle = make_oracle(HARD["smooth"])
    plain, corrected = (float(errors(prior_of(corrections=(count,)), oracle).mean()) for count in (0, 2))
    assert corrected < 0.8 * plain


@pytest.mark.parametrize("corrections", [0, 1])
def test_an_odd_release_throws_no_image_far_off(corrections: int) -> None:
    attack = fit(make_oracle(LEAKY, noise_std=0.01), corrections=(corrections,))
    target = attack._bend.client.scaled(1e6 * LEAKY(EVALUATION[0][:4]))
    images = attack._bend.draw(target, torch.zeros(4, dtype=torch.long), attack._chosen)
    assert float((images - attack._mean).abs().max()) < 20


def test_the_weight_is_chosen_on_held_out_images() -> None:
    attack = fit(make_oracle(LEAKY, noise_std=0.1), pulls=(1e-3, 1.0, 1e6))
    assert attack.verdict.chosen["pull"] != 1e6


# the search


@pytest.mark.slow
def test_a_search_finds_the_image_that_explains_the_release() -> None:
    oracle = make_oracle(LEAKY)
    attack = fit(oracle, by="latent", epochs=4, max_epochs=8, samples=2, times=2, steps=50, max_steps=50)
    released = oracle.release(EVALUATION[0])
    blind = float(errors(MeanImageOptions(), oracle).mean())
    assert float(mse(attack.reconstruct(released), EVALUATION[0]).mean()) < 0.3 * blind


def test_the_best_of_several_searches_counts() -> None:
    attack = fit(make_oracle(LEAKY), by="latent", samples=3, times=2, steps=5, max_steps=5)
    released = LEAKY(EVALUATION[0][:10])
    answers, target = attack.samples(released), attack._bend.client.scaled(released)
    misfits = torch.stack([(attack._bend.client(each) - target).square().sum(1) for each in answers])
    chosen = (attack._bend.client(attack.reconstruct(released)) - target).square().sum(1)
    assert torch.allclose(chosen, misfits.min(0).values, rtol=1e-4)


def test_a_search_that_more_steps_would_help_is_called_so() -> None:
    attack = fit(make_oracle(LEAKY), by="latent", samples=2, times=2, steps=2, max_steps=4)
    assert "prior_not_converged" in [item.code for item in attack.findings]
    assert not attack.verdict.reliable


# options


@pytest.mark.parametrize("wrong", [{"steps": 20, "max_steps": 10}, {"samples": 1}, {"pulls": (0,)}, {"by": "gan"}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FlowPriorOptions.model_validate(wrong)


def test_the_time_of_a_row_is_foretold() -> None:
    oracle = make_oracle(LEAKY, noise_std=0.1, threat=THREATS["train"])
    few, many = (FlowPriorAttack(prior_of()).forecast(oracle, 320, count) for count in (10, 1000))
    assert 0 < few.least <= few.most < many.most
