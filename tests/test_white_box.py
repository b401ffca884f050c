"""White-box optimisation: what it must reach, what it cannot, and what it may look at."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn

from attncem.config.options.attacks import OptimisationOptions
from attncem.config.options.channels import (
    ChannelOptions,
    DropoutOptions,
    GaussianOptions,
    LaplaceOptions,
    LocalDPOptions,
    QuantiseOptions,
    ShapedOptions,
    TopKOptions,
)
from attncem.config.threats import THREATS, with_releases
from attncem.judging.attacks import optimisation
from attncem.judging.attacks.optimisation import OptimisationAttack, View, Weights, descend, quieten
from attncem.judging.auditing import Case, measure
from attncem.judging.opening import open_encoder
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.split import SplitModel
from attncem.records.metrics import mse

SIZE = 8
NO_NOISE = [GaussianOptions(noise_std=0.0)]
DATA = {"name": "fashion_mnist_mini", "held_out_fraction": 0.8}
NOISE = [{"name": "gaussian", "noise_std": 0.1}]
LAPLACE, LOCAL_DP = LaplaceOptions(noise_std=0.1), LocalDPOptions(epsilon=10, delta=1e-5, clip=10)


class Linear(nn.Module):
    """z = A (x − ½) as vectors; `folded` gives the squares instead, which forget the sign."""

    def __init__(self, matrix: Tensor, *, folded: bool = False) -> None:
        super().__init__()
        self.matrix, self.folded = matrix, folded

    def forward(self, x: Tensor) -> Tensor:
        z = (x.flatten(1) - 0.5) @ self.matrix.T
        return z.square() if self.folded else z


class Tokens(nn.Module):
    """Rows of pixels as tokens [B, N, D]."""

    def forward(self, x: Tensor) -> Tensor:
        return 3 * x.squeeze(1)


class Constant(nn.Module):
    """Tells nothing, and passes no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.full((len(x), 4, 2, 2), 0.3)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def smooth_images(count: int, seed: int) -> Tensor:
    """Images of nine random grey levels, blown up."""
    levels = torch.rand(count, 1, 3, 3, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(levels, size=(SIZE, SIZE), mode="bilinear", align_corners=True)


def gaussian_images(count: int, seed: int) -> Tensor:
    """Pixels of deviation 0.1 that know nothing of each other."""
    return (0.5 + 0.1 * normal(count, 1, SIZE, SIZE, seed=seed)).clamp(0, 1)


OWN, OTHERS = smooth_images(160, seed=1), smooth_images(60, seed=2)
NARROW = Linear(normal(16, SIZE**2, seed=3) / 4)


def make_oracle(
    encoder: nn.Module, channel: Sequence[ChannelOptions] = NO_NOISE, *, x: Tensor = OWN, releases: int = 1
) -> Oracle:
    model = SplitModel(encoder, build_channel(channel), None)
    threat = with_releases(THREATS["train"], releases)
    return Oracle(model, threat, x, torch.zeros(len(x), dtype=torch.long), num_classes=2)


def fitted(oracle: Oracle, **options: Any) -> OptimisationAttack:
    """Fast settings that do not move with the defaults."""
    few = {"steps": 40, "max_steps": 80, "restarts": 1, "tuning_images": 16, "lr": 0.03, "tolerance": 0.02}
    grid = {"smoothness": (0.0, 1.0, 10.0), "pulls": (0.0, 1.0)}
    attack = OptimisationAttack(OptimisationOptions.model_validate({**few, **grid, **options}))
    attack.fit(oracle, seed=0)
    return attack


def errors(attack: OptimisationAttack, oracle: Oracle, x: Tensor = OTHERS) -> Tensor:
    return mse(attack.reconstruct(oracle.release(x, generator=torch.Generator().manual_seed(9))), x)


# what it must reach


@pytest.mark.parametrize("start", ["ridge", "mean", "random"])
def test_it_undoes_the_identity(start: str) -> None:
    oracle = make_oracle(nn.Identity())
    attack = fitted(oracle, start=start, steps=200, max_steps=400)
    assert float(errors(attack, oracle).mean()) < 1e-4
    assert attack.verdict.reliable
    assert not attack.findings


def test_a_decoder_may_be_the_start() -> None:
    oracle = make_oracle(nn.PixelUnshuffle(2), [GaussianOptions(noise_std=0.2)])
    attack = fitted(oracle, start="decoder", decoder_epochs=1)
    blind = float(mse(OWN.mean(0).expand_as(OTHERS), OTHERS).mean())
    assert float(errors(attack, oracle).mean()) < 0.5 * blind


def test_on_a_linear_gaussian_toy_it_is_the_posterior_mean() -> None:
    """With the right prior its minimum is the MMSE estimate in closed form; from ridge it comes near to it."""
    matrix, noise_std, variance = normal(40, SIZE**2, seed=4) / 8, 0.05, 0.01
    oracle = make_oracle(Linear(matrix), [GaussianOptions(noise_std=noise_std)], x=gaussian_images(600, seed=5))
    x = gaussian_images(300, seed=6)
    gram = variance * matrix @ matrix.T + noise_std**2 * torch.eye(40)
    left = variance * (SIZE**2 - variance * torch.linalg.solve(gram, matrix @ matrix.T).trace())
    mmse = float(left) / SIZE**2
    for options in ({"start": "mean", "pulls": (1.0,), "smoothness": (0.0,)}, {"start": "ridge"}):
        found = errors(fitted(oracle, steps=80, max_steps=160, **options), oracle, x)
        noise = float(found.std()) / len(x) ** 0.5
        assert mmse - 3 * noise < float(found.mean()) < 1.1 * mmse, options


@pytest.mark.parametrize("start", ["ridge", "mean", "random"])
def test_from_a_constant_it_learns_nothing(start: str) -> None:
    oracle = make_oracle(Constant(), [GaussianOptions(noise_std=0.1)])
    found = errors(fitted(oracle, start=start), oracle)
    gained = mse(OWN.mean(0).expand_as(OTHERS), OTHERS) - found
    assert float(gained.mean()) < 3 * float(gained.std()) / len(gained) ** 0.5


def test_total_variation_helps_on_smooth_images_and_is_chosen() -> None:
    oracle = make_oracle(NARROW)
    plain, smooth = (
        fitted(oracle, start="mean", pulls=(0.0,), smoothness=grid, steps=100, max_steps=100)
        for grid in ((0.0,), (0.0, 3.0, 10.0))
    )
    assert smooth.chosen.smoothness > 0
    assert float(errors(smooth, oracle).mean()) < 0.6 * float(errors(plain, oracle).mean())


def test_it_gains_on_its_start_where_the_encoder_bends() -> None:
    encoder = nn.Sequential(Linear(normal(40, SIZE**2, seed=8)), nn.Tanh())
    oracle = make_oracle(encoder, [GaussianOptions(noise_std=0.05)])
    attack = fitted(oracle)
    released = oracle.release(OTHERS)
    start = mse(attack._start.centre(released), OTHERS).mean()
    assert float(mse(attack.reconstruct(released), OTHERS).mean()) < 0.85 * float(start)


# what it may look at


def test_weights_are_chosen_on_own_images_that_the_start_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    targets: list[Tensor] = []
    parts: list[Tensor] = []

    def watched(images: Tensor, x: Tensor) -> Tensor:
        targets.append(x)
        return mse(images, x)

    def only(self: Oracle, index: Tensor) -> Oracle:
        part = plain(self, index)
        parts.append(part.auxiliary()[0])
        return part

    plain = Oracle.only
    monkeypatch.setattr(optimisation, "mse", watched)
    monkeypatch.setattr(Oracle, "only", only)
    oracle = make_oracle(NARROW)
    attack = fitted(oracle)
    learned = {image.numpy().tobytes() for image in parts[0]}
    chosen_on = {image.numpy().tobytes() for x in targets for image in x}
    assert (len(learned), len(chosen_on)) == (144, 16)
    assert learned.isdisjoint(chosen_on)
    assert learned | chosen_on == {image.numpy().tobytes() for image in OWN}
    before = len(targets)
    attack.reconstruct(oracle.release(OTHERS))
    assert len(targets) == before  # nothing is compared with an image any more


def test_evaluation_images_that_are_planted_change_nothing() -> None:
    """Neither the true images of a case nor other releases between have a part in an answer."""
    case = Case(open_encoder(nn.AvgPool2d(4), data=DATA, channel=NOISE), THREATS["train"])
    released, answers, chosen = case.released[:5], [], []
    for planted in (1.0, 0.0):
        case.x.mul_(planted)
        attack = OptimisationAttack(steps=5, max_steps=10, tuning_images=8, restarts=2, start="mean")
        attack.fit(case.oracle(attack, 0), seed=0)
        chosen.append((attack.chosen, attack.steps, attack.verdict))
        answers += [attack.reconstruct(released)]
        attack.reconstruct(case.released[5:9])
        answers += [attack.reconstruct(released)]
    assert chosen[0] == chosen[1]
    assert all(torch.equal(answer, answers[0]) for answer in answers)


def test_each_image_keeps_the_restart_with_the_lowest_objective() -> None:
    oracle = make_oracle(Linear(normal(48, SIZE**2, seed=10), folded=True))
    attack = fitted(oracle, start="random", restarts=3, smoothness=(1.0,), pulls=(0.0,))
    released = oracle.release(OTHERS)
    centre, ones = attack._start.centre(released), torch.ones(len(released))
    task = optimisation.Task(released, centre, ones, 0 * ones)
    restarts = [
        descend(attack._objective, task, start, attack.steps, attack.options.lr, lambda step: None)
        for start in attack._start.points(centre)
    ]
    values = torch.stack([attack._objective.judged(task, images) for images in restarts])
    winner = values.argmin(0)
    assert len(winner.unique()) > 1
    expected = torch.stack(restarts)[winner, torch.arange(len(winner))]
    assert torch.equal(attack.reconstruct(released), expected)


def test_it_is_not_applicable_without_the_encoder() -> None:
    case = Case(open_encoder(nn.AvgPool2d(4), data=DATA, channel=NOISE), THREATS["query_only"])
    row = measure(case, "white box", OptimisationOptions(), seed=0).row
    assert (row.outcome, row.scores) == ("not_applicable", {})
    assert row.reason == "the adversary of the threat model query_only does not know the encoder"


def small_net() -> nn.Sequential:
    torch_state = torch.get_rng_state()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.Tanh())
    torch.set_rng_state(torch_state)
    return net


def test_the_victim_is_untouched() -> None:
    encoder = small_net().train()
    before = copy.deepcopy(encoder.state_dict())
    oracle = make_oracle(encoder, [GaussianOptions(noise_std=0.1)])
    fitted(oracle).reconstruct(torch.zeros(3, 4, 4, 4))
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in encoder.parameters())
    assert all(module.training for module in encoder.modules())


@pytest.mark.parametrize("channel", [[GaussianOptions(noise_std=0.1)], [DropoutOptions(rate=0.3)]], ids=["add", "drop"])
def test_an_image_alone_is_the_same_as_among_others(channel: Sequence[ChannelOptions]) -> None:
    oracle = make_oracle(small_net(), channel)
    attack = fitted(oracle, restarts=2, pulls=(1.0,), smoothness=(1.0,), draws=2)
    released = oracle.release(OTHERS[:6])
    together = attack.reconstruct(released)
    alone = torch.cat([attack.reconstruct(part) for part in released.flip(0).split(1)]).flip(0)
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-4)


# the channel


@pytest.mark.parametrize(
    ("stages", "draws", "stds"),
    [
        ([GaussianOptions(noise_std=0.1)], False, [0]),
        ([LAPLACE], False, [0]),
        ([LOCAL_DP], False, [0]),
        ([TopKOptions(keep=0.5)], False, [0]),
        ([QuantiseOptions(bits=3, low=-1, high=1), GaussianOptions(noise_std=0.1)], False, [0, 0]),
        ([DropoutOptions(rate=0.3), GaussianOptions(noise_std=0.1), LAPLACE], True, [0, 0, 0]),
        ([GaussianOptions(noise_std=0.1), QuantiseOptions(bits=3, low=-1, high=1)], True, [0.1, 0]),
        ([GaussianOptions(noise_std=0.1), LOCAL_DP], True, [0.1, 0]),
    ],
)
def test_noise_at_the_end_is_in_the_likelihood_and_other_draws_are_averaged(
    stages: Sequence[ChannelOptions], draws: bool, stds: list[float]
) -> None:
    channel = build_channel(stages).eval()
    assert quieten(channel) == draws
    assert [stage.noise_std for stage in channel.single_stages()] == stds
    z = normal(1, 30, seed=11).expand(4, -1)
    first, again = (channel(z, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert torch.equal(first, first[:1].expand_as(first))  # the images of a batch share the draw
    assert torch.equal(first, again) != draws


@pytest.mark.parametrize("releases", [1, 9])
@pytest.mark.parametrize("options", [GaussianOptions(noise_std=0.3), LaplaceOptions(noise_std=0.3)])
def test_the_noise_of_the_mean_of_releases_is_measured(options: ChannelOptions, releases: int) -> None:
    attack = fitted(make_oracle(Tokens(), [options], releases=releases), steps=1, max_steps=1)
    noise = attack._objective.uncertainty - (0.1 * attack_std(releases)) ** 2
    assert float(noise.mean()) == pytest.approx(0.09 / releases, rel=0.1)


def attack_std(releases: int) -> float:
    """About what a feature of `Tokens` deviates by."""
    return math.sqrt(float((3 * OWN.std()).square()) + 0.09 / releases)


@pytest.mark.parametrize(
    "channel",
    [
        [DropoutOptions(rate=0.3)],
        [QuantiseOptions(bits=2, low=0, high=3)],
        [TopKOptions(keep=0.6)],
        [GaussianOptions(noise_std=0.1), QuantiseOptions(bits=3, low=0, high=3)],
        [LAPLACE],
        [ShapedOptions(noise_std=0.1)],
        [LocalDPOptions(epsilon=50, delta=1e-5, clip=20)],
    ],
    ids=["dropout", "quantise", "top_k", "noise, quantise", "laplace", "shaped", "local_dp"],
)
@pytest.mark.parametrize("encoder", [Tokens(), nn.Flatten(), nn.PixelUnshuffle(2)], ids=["tokens", "vectors", "maps"])
def test_every_channel_and_shape(channel: Sequence[ChannelOptions], encoder: nn.Module) -> None:
    oracle = make_oracle(encoder, channel)
    attack = fitted(oracle, draws=2, steps=20, max_steps=20, smoothness=(0.0, 1.0), pulls=(0.0, 1.0, 10.0))
    released = oracle.release(OTHERS, generator=torch.Generator().manual_seed(9))
    start = float(mse(attack._start.centre(released), OTHERS).mean())
    assert float(mse(attack.reconstruct(released), OTHERS).mean()) < 1.05 * start + 1e-6


class Doubling(nn.Module):
    """A channel that is not ours, and draws from torch's generator."""

    def forward(self, z: Tensor) -> Tensor:
        return 2 * z + 0.01 * torch.randn_like(z)


def test_a_channel_that_is_not_ours() -> None:
    model = SplitModel(nn.Identity(), Doubling(), None)
    oracle = Oracle(model, THREATS["train"], OWN, torch.zeros(len(OWN)), num_classes=2)
    attack = fitted(oracle)
    before = torch.get_rng_state()
    images = attack.reconstruct(2 * OTHERS)
    assert torch.equal(torch.get_rng_state(), before)
    assert float(mse(images, OTHERS).mean()) < 1e-3


def test_a_view_without_the_channel_is_the_encoder() -> None:
    threat = THREATS["query_only"].__class__("own", knows_encoder=True, knows_channel=False, auxiliary="train")
    model = SplitModel(nn.Identity(), build_channel([DropoutOptions(rate=0.5)]), None)
    view = View(Oracle(model, threat, OWN, torch.zeros(len(OWN)), num_classes=2), draws=4, seed=0)
    seen = view(OTHERS, view.generator("steps"))
    assert len(seen) == 1
    assert torch.equal(seen[0], OTHERS)


# what it says of itself


def test_the_verdict_is_that_of_doubling() -> None:
    oracle = make_oracle(NARROW)
    short = {"start": "mean", "smoothness": (10.0,), "pulls": (0.0,)}
    never, early, late = (
        fitted(oracle, steps=steps, max_steps=most, **short) for steps, most in ((5, 9), (5, 10), (200, 800))
    )
    assert [item.code for item in never.findings] == ["steps_never_doubled"]
    assert [item.code for item in early.findings] == ["steps_not_enough"]
    assert "total variation 10, pull 0" in early.findings[0].text
    assert [point.epochs for point in early.verdict.curve] == [5, 10]
    assert late.verdict.reliable
    assert not late.findings
    assert late.verdict.gain_of_doubling is not None
    assert late.verdict.gain_of_doubling < 0.02
    assert late.chosen == Weights(10.0, 0.0)
    assert (early.steps, late.steps) == (10, 200), "more steps are taken where they are worth it"


def test_it_tells_how_far_it_is() -> None:
    told: list[tuple[str, float, float]] = []
    options = OptimisationOptions(steps=20, max_steps=20, restarts=2, tuning_images=8, smoothness=(1,), pulls=(0,))
    attack = OptimisationAttack(options, progress=lambda stage, done, total, _: told.append((stage, done, total)))
    attack.fit(make_oracle(NARROW), seed=0)
    attack.reconstruct(NARROW(OTHERS))
    assert told == [("optimisation weights", 20, 20), ("optimisation", 20, 40), ("optimisation", 40, 40)]


def test_options() -> None:
    assert OptimisationAttack().num_images == 1000
    with pytest.raises(ValidationError, match="max_steps=5 is below the first budget, steps=10"):
        OptimisationOptions(steps=10, max_steps=5)
    for wrong in ({"smoothness": ()}, {"pulls": (-1.0,)}, {"restarts": 0}):
        with pytest.raises(ValidationError):
            OptimisationOptions.model_validate(wrong)
