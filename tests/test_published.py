"""The baseline's attack against its definition, written out as a plain loop."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.base.types import TrainingError
from attncem.config.options.attacks import DecoderOptions
from attncem.config.options.channels import GaussianOptions
from attncem.config.threats import THREATS
from attncem.judging.attacks.convergence import cosine, for_epochs
from attncem.judging.attacks.published import PublishedAttack, RawMaterial
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.decoders import PublishedDecoder
from attncem.models.split import SplitModel
from attncem.training.engine import Engine, adam, memory_kept, seeded

CPU = torch.device("cpu")


def make_oracle(count: int = 40, scale: float = 1.0) -> Oracle:
    x = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    encoder = nn.Sequential(nn.PixelUnshuffle(2), Times(scale))
    model = SplitModel(encoder, build_channel([GaussianOptions(noise_std=0.1)]), None)
    return Oracle(model, THREATS["train"], x, torch.zeros(count, dtype=torch.long), num_classes=1)


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def test_it_is_the_loop_that_was_published() -> None:
    """Adam with L2, cosine to 1e-5 by epochs, MSE, fresh noise, all own images, the last weights in evaluation mode."""
    oracle, seed = make_oracle(), 3
    attack = PublishedAttack(epochs=4, batch_size=16)
    attack.fit(oracle, seed=seed)
    batches = RawMaterial(make_oracle(), DecoderOptions(batch_size=16), seed)
    with seeded(torch.device("cpu"), seed, "decoder init"):
        decoder = PublishedDecoder((4, 4, 4), (1, 8, 8), width=64, blocks=8)
    adam = torch.optim.Adam(decoder.parameters(), lr=1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, T_max=4, eta_min=1e-5)
    for _ in range(4):
        for _ in range(40 // 16):
            released, x = batches.batch()
            adam.zero_grad()
            F.mse_loss(decoder(released), x).backward()
            adam.step()
        schedule.step()
    released = oracle.release(oracle.auxiliary()[0])
    with torch.no_grad():
        expected = decoder.eval()(released)
    torch.testing.assert_close(attack.reconstruct(released), expected, rtol=1e-3, atol=1e-4)


def test_what_is_overwritten_changes_no_number() -> None:
    """Each step has the very loss of one whose ReLUs make copies, and of one that gives its memory back."""
    x = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(1))

    def losses(*, inplace: bool) -> list[float]:
        with seeded(CPU, 0, "decoder init"):
            decoder = PublishedDecoder((4, 4, 4), (1, 8, 8))
        relus = [module for module in decoder.modules() if isinstance(module, nn.ReLU)]
        assert relus
        assert all(relu.inplace for relu in relus)
        for relu in relus:
            relu.inplace = inplace
        optimizer, found = adam(decoder.parameters(), 1e-3, CPU, weight_decay=1e-4), list[float]()
        for _ in range(4):
            loss = F.mse_loss(decoder(F.pixel_unshuffle(x, 2)), x)
            Engine(CPU).descend(loss, [optimizer])
            found.append(loss.item())
        return found

    plain = losses(inplace=False)
    assert plain[-1] < plain[0]
    assert losses(inplace=True) == plain
    with memory_kept(CPU):
        assert losses(inplace=True) == plain


def test_its_numbers_are_the_published_ones() -> None:
    options = PublishedAttack().options
    assert (options.epochs, options.batch_size, options.lr, options.final_lr, options.weight_decay) == (
        *(50, 256, 1e-3, 1e-5, 1e-4),
    )


def test_it_learns_from_all_images_and_from_releases_as_they_are() -> None:
    material = RawMaterial(make_oracle(count=33, scale=5.0), DecoderOptions(batch_size=33), seed=0)
    assert (len(material.train), len(material.held_x)) == (33, 0)
    released, x = material.batch()
    torch.testing.assert_close(released, 5 * F.pixel_unshuffle(x, 2), rtol=0, atol=0.6)
    again = RawMaterial(make_oracle(count=33, scale=5.0), DecoderOptions(batch_size=33), seed=0)
    first, second = again.batch(), again.batch()
    order = [part[1].flatten(1).sum(1).argsort() for part in (first, second)]
    assert torch.equal(first[1][order[0]], second[1][order[1]])
    assert not torch.equal(first[0][order[0]], second[0][order[1]])  # fresh noise


def test_its_verdict_says_that_its_budget_is_given() -> None:
    attack = PublishedAttack(epochs=1, batch_size=16)
    attack.fit(make_oracle(), seed=0)
    verdict = attack.verdict
    assert (verdict.reliable, verdict.fixed_budget, verdict.gain_of_doubling, verdict.curve) == (True, True, None, [])
    assert attack.findings == []
    assert attack.must_beat == ()


def test_it_says_when_it_diverged() -> None:
    with pytest.raises(TrainingError, match="published diverged: lower its lr="):
        PublishedAttack(epochs=2, batch_size=16, lr=1e30).fit(make_oracle(), seed=0)


def test_the_cosine_goes_from_start_to_end_and_stays() -> None:
    assert [cosine(1.0, 0.2, epoch, 4) for epoch in (0, 2, 4, 9)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


@pytest.mark.parametrize(("epochs", "steps"), [(3, 30), (0.25, 2), (0.001, 1)])
def test_a_given_budget_is_given(epochs: float, steps: int) -> None:
    class Counting:
        steps_per_epoch = 10

        def __init__(self) -> None:
            self.rates: list[float] = []

        def step(self, rate: float) -> None:
            self.rates.append(rate)

    learner, told = Counting(), list[float]()
    for_epochs(learner, epochs, float, tell=told.append)
    assert learner.rates == [float(step // 10) for step in range(steps)]
    assert told == ([2.0] if steps == 30 else [])
