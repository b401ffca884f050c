"""Ridge: the textbook's solution, however few images are held at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attncem.base.seeding import derive_seed, make_generator
from attncem.config.options.attacks import RidgeOptions
from attncem.judging.attacks import ridge
from attncem.judging.attacks.base import OwnImages, Standardiser, divide
from attncem.judging.attacks.ridge import RidgeAttack
from attncem.judging.oracle import Oracle
from contracts.test_attacks import LEAKY, fitted, make_oracle

SEED = 3
STRENGTHS = RidgeOptions().strengths
ROW = 8 * 2 * 144
"""Bytes of an image of 12×12 and its feature, both in double precision."""


def by_the_book(oracle: Oracle) -> Tensor:
    """The weights of the strength that is best on held-out own images, with all releases in one matrix."""
    own = OwnImages(oracle)
    noise = make_generator(own.x.device, SEED, "ridge")
    released = [own.release_all(noise) for _ in range(RidgeOptions().num_releases)]
    standardise = Standardiser.of(released[0])
    features = [standardise(part).flatten(1).double() for part in released]
    train, held = divide(len(own.x), 0.1, derive_seed(SEED, "ridge split"), own.x.device)
    pixels = own.x[:].flatten(1).double()
    phi, target = torch.cat([part[train] for part in features]), pixels[train].repeat(len(features), 1)
    centre, bias = phi.mean(0), target.mean(0)
    phi, target = phi - centre, target - bias
    covariance, tried = phi.T @ phi / len(phi), []
    for strength in STRENGTHS:
        penalty = strength * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=torch.float64)
        weights = torch.linalg.solve(covariance + penalty, phi.T @ target / len(phi))
        left = (features[0][held] - centre) @ weights + bias - pixels[held]
        tried.append((weights, float(left.square().mean())))
    return min(tried, key=lambda one: one[1])[0]


@pytest.mark.parametrize("rows", [1, 7, 64, 10_000])
@pytest.mark.parametrize("noise_std", [0.05, 0.5])
def test_it_is_the_solution_of_the_book_in_parts_of_any_size(
    monkeypatch: pytest.MonkeyPatch, noise_std: float, rows: int
) -> None:
    monkeypatch.setattr(ridge, "_AT_ONCE", rows * ROW)
    oracle = make_oracle(LEAKY, noise_std=noise_std)
    found = fitted(RidgeOptions(), oracle, SEED).state()
    assert found is not None
    torch.testing.assert_close(found["weights"], by_the_book(oracle), rtol=1e-8, atol=1e-10)


def test_no_more_images_are_held_in_double_precision_than_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()
    plain = RidgeAttack._features

    def counting(attack: RidgeAttack, released: Tensor) -> Tensor:
        seen.append(len(released))
        return plain(attack, released)

    monkeypatch.setattr(RidgeAttack, "_features", counting)
    monkeypatch.setattr(ridge, "_AT_ONCE", 50 * ROW)
    fitted(RidgeOptions(), make_oracle(LEAKY, noise_std=0.1))
    assert max(seen) == 50
