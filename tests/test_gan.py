"""The baseline's GAN attack: its critic, its penalty, and who takes which step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attncem.base.types import TrainingError
from attncem.config.options.attacks import DecoderOptions, GanOptions
from attncem.config.options.channels import GaussianOptions
from attncem.config.threats import THREATS
from attncem.judging.attacks.gan import Game, GanAttack, gradient_penalty
from attncem.judging.attacks.published import PublishedAttack, RawMaterial
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.critic import Critic
from attncem.models.decoders import PublishedDecoder
from attncem.models.split import SplitModel, count_parameters

FEW = {"decoder_epochs": 1, "epochs": 2, "batch_size": 16, "critic_steps": 2}


def make_oracle(count: int = 40) -> Oracle:
    x = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    model = SplitModel(nn.PixelUnshuffle(2), build_channel([GaussianOptions(noise_std=0.1)]), None)
    return Oracle(model, THREATS["train"], x, torch.zeros(count, dtype=torch.long), num_classes=1)


def make_game(**options: object) -> Game:
    material = RawMaterial(make_oracle(), DecoderOptions(batch_size=16), seed=0)
    torch.manual_seed(0)
    return Game(material, PublishedDecoder((4, 4, 4), (1, 8, 8)), GanOptions.model_validate(FEW | options))


def weights(module: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def moved(module: nn.Module, before: list[Tensor]) -> bool:
    return any(not torch.equal(a, b) for a, b in zip(weights(module), before, strict=True))


def test_the_critic_of_32_pixels_is_the_published_one() -> None:
    """Convolutions 3-64-128-256 of 5x5, two affine instance norms, and 4x4x256 to one number."""
    convolutions = 3 * 64 * 25 + 64 + 64 * 128 * 25 + 128 + 128 * 256 * 25 + 256
    assert count_parameters(Critic((3, 32, 32))) == convolutions + 2 * (128 + 256) + 4 * 4 * 256 + 1


@pytest.mark.parametrize("image", [(1, 28, 28), (3, 64, 64), (3, 11, 5), (1, 2, 2)])
def test_the_critic_judges_each_image_by_itself(image: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    critic, images = Critic(image), torch.rand(4, *image)
    with torch.no_grad():
        together, alone = critic(images), torch.cat([critic(part) for part in images.split(1)])
    assert together.shape == (4,)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_the_penalty_is_of_the_slope() -> None:
    class Linear(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return 3 * images[:, 0, 0, 0] + 4 * images[:, 0, 1, 0]

    class Flat(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return 0 * images.flatten(1).sum(1)

    assert float(gradient_penalty(Linear(), torch.rand(5, 1, 4, 4))) == pytest.approx((5 - 1) ** 2)
    assert float(gradient_penalty(Flat(), torch.rand(5, 1, 4, 4))) == pytest.approx(1, abs=1e-4)


def test_the_generator_steps_after_several_of_the_critic() -> None:
    game = make_game(critic_steps=3)
    for number in range(1, 7):
        critic, generator = weights(game.critic), weights(game.generator)
        game.step(1.0)
        assert moved(game.critic, critic)
        assert moved(game.generator, generator) == (number % 3 == 0)
        assert all(parameter.grad is None for parameter in [*game.critic.parameters(), *game.generator.parameters()])


def test_the_critic_learns_to_tell_images_from_reconstructions() -> None:
    game = make_game(critic_steps=1000)
    for _ in range(60):
        game.step(0.2)
    released, x = game.material.batch()
    with torch.no_grad():
        gap = game.critic(x).mean() - game.critic(game.generator(released)).mean()
    assert float(gap) > 0.1


def test_it_starts_as_the_published_attack_ends() -> None:
    """A rate of nearly nothing leaves the weights; the statistics of its normalisation go on, and are settled."""
    oracle = make_oracle()
    attack, start = GanAttack(lr=1e-12, **FEW), PublishedAttack(epochs=1)
    attack.fit(oracle, seed=5)
    start.fit(make_oracle(), seed=5)
    for own, other in zip(attack.decoder.parameters(), start.decoder.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-6)


def test_its_numbers_are_the_published_ones_and_its_budget_is_given() -> None:
    options = GanOptions()
    assert (options.critic_lr, options.lr, options.gradient_penalty, options.critic_steps) == (5e-3, 5e-4, 10, 10)
    assert (options.mse_weight, options.batch_size, options.decoder_epochs) == (1500, 128, 50)
    attack = GanAttack(**FEW)
    attack.fit(make_oracle(), seed=0)
    assert (attack.verdict.reliable, attack.verdict.fixed_budget, attack.findings) == (True, True, [])


def test_it_says_when_it_diverged() -> None:
    with pytest.raises(TrainingError, match="gan diverged: lower its lr="):
        GanAttack(**FEW | {"lr": 1e30}).fit(make_oracle(), seed=0)
