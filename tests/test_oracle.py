"""The oracle: what each field of a threat model grants, and that the victim notices nothing of an attack."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.base.types import NotApplicable
from attncem.config.options.attacks import DecoderOptions, NearestNeighbourOptions, RidgeOptions
from attncem.config.options.channels import GaussianOptions, IdentityOptions, QuantiseOptions, TopKOptions
from attncem.config.threats import THREATS, ThreatModel
from attncem.judging.attacks import build_attack
from attncem.judging.attacks.decoder import Material
from attncem.judging.attacks.seeing import mean_of
from attncem.judging.oracle import Oracle
from attncem.models.channels import GaussianChannel, build_channel
from attncem.models.split import SplitModel
from attncem_edge.noise import new_key

STD = 0.2
FULL = THREATS["train"]


def images(count: int = 320, seed: int = 1) -> Tensor:
    """Pictures of whole grey levels, as keyed noise reads them."""
    levels = torch.randint(0, 256, (count, 1, 8, 8), generator=torch.Generator().manual_seed(seed))
    return levels.float() / 255


X = images()
Y = torch.arange(len(X)) % 4
LEAKY = nn.PixelUnshuffle(4)


def victim(*, noise: str = "fresh", std: float = STD) -> SplitModel:
    """A convolution with batch norm and dropout, noise, and a server half."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Tanh())
        server = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 4))
    channel = build_channel([GaussianOptions(noise_std=std, noise=noise)])  # type: ignore[arg-type]
    return SplitModel(encoder, channel, server)


def leaky(*, noise: str = "fresh", std: float = STD, server: nn.Module | None = None) -> SplitModel:
    channel = build_channel([GaussianOptions(noise_std=std, noise=noise)])  # type: ignore[arg-type]
    return SplitModel(LEAKY, channel, server).eval()


def ask(model: SplitModel, threat: ThreatModel = FULL, **more: Any) -> Oracle:
    return Oracle(model, threat, X, Y, num_classes=4, **more)


def noise_of(released: Tensor, x: Tensor = X) -> Tensor:
    return released - LEAKY(x)


# the victim notices nothing


def train_it(module: nn.Module) -> None:
    module.train().requires_grad_(True)
    optimizer = torch.optim.SGD(module.parameters(), 1.0)
    for _ in range(2):
        module(X[:8]).square().sum().backward()
        optimizer.step()


def overwrite_it(module: nn.Module) -> None:
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.fill_(3)
    module[0] = nn.Identity()  # type: ignore[index]


def leave_it_in_training(module: nn.Module) -> None:
    module.train()
    module(X)


def use_encoder(do: Callable[[nn.Module], None]) -> Callable[[Oracle], None]:
    return lambda oracle: do(oracle.encoder())


def use_own_copies(do: Callable[[nn.Module], None]) -> Callable[[Oracle], None]:
    return lambda oracle: do(oracle._model.encoder)


def change_channel(oracle: Oracle) -> None:
    channel = oracle.channel().train()
    assert isinstance(channel, GaussianChannel)
    channel.noise_std = 9.0
    channel.bind(bytes(32), "other")
    oracle._model.channel.noise_std = 9.0


def change_images(oracle: Oracle) -> None:
    for x, y in (oracle.auxiliary(), oracle.auxiliary_in_parts()):
        x[:].zero_()
        y.zero_()


MEDDLING = {
    "trains the encoder": use_encoder(train_it),
    "overwrites the encoder": use_encoder(overwrite_it),
    "leaves the encoder in training": use_encoder(leave_it_in_training),
    "trains the oracle's copy": use_own_copies(train_it),
    "overwrites the oracle's copy": use_own_copies(overwrite_it),
    "leaves the oracle's copy in training": use_own_copies(leave_it_in_training),
    "changes the channel": change_channel,
    "changes its images": change_images,
}


@pytest.mark.parametrize("what", MEDDLING)
@pytest.mark.parametrize("training", [False, True])
def test_whatever_an_attack_does_the_victim_stays_as_it_is(what: str, training: bool) -> None:
    model = victim(noise="keyed").train(training)
    key = new_key()
    model.channel.bind(key, "mark")  # type: ignore[operator]
    weights = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    own_x, own_y = X.clone(), Y.clone()
    MEDDLING[what](ask(model))
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert model.channel.noise_std == STD
    assert model.channel._binding.key == key  # type: ignore[union-attr]
    assert torch.equal(X, own_x) and torch.equal(Y, own_y)


@pytest.mark.parametrize("what", MEDDLING)
def test_the_next_attack_sees_nothing_of_it(what: str) -> None:
    model = victim().eval()
    before = ask(model).release(X)
    oracle = ask(model)
    MEDDLING[what](oracle)
    assert torch.equal(ask(model).release(X), before)
    own = copy.deepcopy(model.encoder)
    assert torch.equal(ask(model).encoder()(X), own(X))


def test_what_is_handed_out_twice_is_two_things() -> None:
    oracle = ask(victim())
    overwrite_it(oracle.encoder())
    train_it(oracle.encoder())
    assert oracle.encoder() is not oracle.encoder()
    assert oracle.channel() is not oracle.channel()
    assert torch.equal(oracle.encoder()(X), ask(victim()).encoder()(X))


def test_the_encoder_passes_gradients_to_its_input_alone() -> None:
    model = victim().train()
    encoder = ask(model).encoder()
    assert not encoder.training
    x = X[:4].clone().requires_grad_()
    encoder(x).square().sum().backward()
    assert x.grad is not None and float(x.grad.abs().min()) > 0
    assert all(parameter.grad is None for parameter in (*encoder.parameters(), *model.parameters()))


def test_the_victim_answers_in_evaluation_mode() -> None:
    model = victim(std=0).train()
    oracle = ask(model)
    whole = oracle.release(X)
    torch.testing.assert_close(whole, torch.cat([oracle.release(part) for part in X.split(7)]))
    assert torch.equal(whole, oracle.release(X))
    assert not whole.requires_grad
    assert int(model.encoder[1].num_batches_tracked) == 0  # type: ignore[index]
    assert torch.equal(oracle.predict(whole), oracle.predict(whole))
    assert not oracle.predict(whole).requires_grad


def test_releases_are_not_the_oracles_own_tensors() -> None:
    oracle = ask(leaky(std=0))
    for release in (lambda: oracle.release(X), lambda: oracle.release_auxiliary(torch.arange(len(X)))):
        before = release().clone()
        release().zero_()
        assert torch.equal(release(), before)


# what each field of a threat model does


def test_who_does_not_know_the_encoder_is_refused_it() -> None:
    blind = ask(leaky(), THREATS["query_only"])
    for need in ("encoder", "gradient"):
        with pytest.raises(NotApplicable, match="threat model query_only does not know the encoder"):
            blind.require(need)  # type: ignore[arg-type]
    with pytest.raises(NotApplicable):
        blind.encoder()
    assert blind.release(X).shape == (320, 16, 2, 2), "its queries are answered"
    assert torch.equal(ask(leaky()).encoder()(X), LEAKY(X))


def test_who_does_not_know_the_channel_is_refused_it() -> None:
    with pytest.raises(NotApplicable, match="does not know the channel"):
        ask(leaky(), replace(FULL, knows_channel=False)).channel()
    generator = torch.Generator().manual_seed(0)
    released = ask(leaky()).channel()(LEAKY(X), x=X, generator=generator)
    assert float(noise_of(released).std()) == pytest.approx(STD, rel=0.05)


def test_who_may_not_query_computes_what_it_knows() -> None:
    """Its own features through the channel it knows; without the channel clean ones; without the encoder nothing."""
    alone = replace(FULL, may_query=False)
    noisy = ask(leaky(), alone).release(X)
    assert float(noise_of(noisy).std()) == pytest.approx(STD, rel=0.05)
    clean = ask(leaky(), replace(alone, knows_channel=False))
    assert torch.equal(clean.release(X), LEAKY(X))
    assert torch.equal(clean.release_auxiliary(torch.arange(5)), LEAKY(X[:5]))
    shut = ask(leaky(), replace(alone, knows_encoder=False))
    for release in (lambda: shut.release(X), lambda: shut.release_auxiliary(torch.arange(5))):
        with pytest.raises(NotApplicable, match="can neither query the client nor compute its features"):
            release()


def test_who_queries_gets_the_channels_noise_without_knowing_it() -> None:
    released = ask(leaky(), THREATS["query_only"]).release(X)
    assert float(noise_of(released).std()) == pytest.approx(STD, rel=0.05)


def test_who_owns_no_images_is_refused_them() -> None:
    poor = ask(leaky(), replace(FULL, auxiliary="none"))
    for use in (
        poor.auxiliary,
        poor.auxiliary_in_parts,
        poor.mirrored,
        lambda: poor.release_auxiliary(torch.arange(2)),
    ):
        with pytest.raises(NotApplicable, match="owns no images"):
            use()
    assert poor.release(X).shape == (320, 16, 2, 2), "it may make some up"
    x, y = ask(leaky()).auxiliary()
    assert torch.equal(x, X) and torch.equal(y, Y)


@pytest.mark.parametrize("releases", [1, 4, 16])
def test_so_many_releases_of_an_input_are_combined(releases: int) -> None:
    oracle = ask(leaky(), replace(FULL, releases_per_input=releases))
    expected = STD / releases**0.5
    for released in (oracle.release(X), oracle.release_auxiliary(torch.arange(len(X)))):
        assert released.shape == (320, 16, 2, 2)
        assert float(noise_of(released).std()) == pytest.approx(expected, rel=0.05)


def test_an_attack_may_combine_releases_otherwise() -> None:
    counted: list[int] = []

    def median(releases: Iterable[Tensor]) -> Tensor:
        several = torch.stack(list(releases))
        counted.append(len(several))
        return several.median(0).values

    oracle = ask(leaky(), replace(FULL, releases_per_input=5), combine=median)
    middle = oracle.release(X[:7], generator=torch.Generator().manual_seed(0))
    mean = ask(leaky(), replace(FULL, releases_per_input=5)).release(X[:7], generator=torch.Generator().manual_seed(0))
    assert counted == [5]
    assert not torch.equal(middle, mean)
    assert float(noise_of(middle, X[:7]).std()) < STD


def test_one_release_is_not_averaged() -> None:
    one = torch.rand(3, 2, generator=torch.Generator().manual_seed(0))
    assert mean_of(iter([one])) is one
    assert torch.equal(mean_of([one, 3 * one]), (one + 3 * one) / 2)


@pytest.mark.parametrize("options", [NearestNeighbourOptions(), RidgeOptions()], ids=["nearest", "ridge"])
def test_keyed_noise_is_not_averaged_away(options: Any) -> None:
    """Sixteen releases of an input are one and the same: the attack gains nothing."""
    model = leaky(noise="keyed", std=0.5)
    model.channel.bind(new_key(), "mark")  # type: ignore[operator]
    errors = []
    for releases in (1, 16):
        oracle = ask(model, replace(FULL, releases_per_input=releases))
        attack = build_attack(options)
        attack.fit(oracle, seed=0)
        x = images(100, seed=2)
        errors.append(float((attack.reconstruct(oracle.release(x)) - x).square().mean()))
    assert errors[1] == pytest.approx(errors[0], rel=0.02)


def test_the_server_answers_where_there_is_one() -> None:
    alone = ask(leaky())
    assert not alone.has_server
    with pytest.raises(NotApplicable, match="has no server half to query"):
        alone.predict(LEAKY(X))
    with pytest.raises(NotApplicable, match="has no server half to query"):
        alone.require("server")
    served = ask(leaky(server=nn.Flatten()))
    assert served.has_server
    served.require("server")
    assert torch.equal(served.predict(LEAKY(X)), LEAKY(X).flatten(1))


# the key


@pytest.fixture
def keyed() -> SplitModel:
    model = leaky(noise="keyed")
    model.channel.bind(new_key(), "mark")  # type: ignore[operator]
    return model


def test_queries_of_equal_inputs_get_the_same_keyed_noise(keyed: SplitModel) -> None:
    first, other = ask(keyed, seed=1).release(X), ask(keyed, seed=2).release(X)
    assert torch.equal(first, other)
    assert torch.equal(first, keyed.release(X))
    assert torch.equal(ask(keyed).release_auxiliary(torch.tensor([3, 3])), first[[3, 3]])


def test_the_channel_is_handed_out_without_its_key(keyed: SplitModel) -> None:
    oracle = ask(keyed)
    channel, before = oracle.channel(), keyed.release(X)
    assert "key=" not in repr(vars(channel)) and channel._binding is None
    generator = torch.Generator().manual_seed(0)
    first, second = (channel(LEAKY(X), x=X, generator=generator) for _ in range(2))
    for released in (first, second):
        assert float(noise_of(released).std()) == pytest.approx(STD, rel=0.05)
        assert float((noise_of(released) * noise_of(before)).mean()) == pytest.approx(0, abs=0.002)
    assert not torch.equal(first, second)
    assert torch.equal(keyed.release(X), before), "the victim has its key still"
    assert torch.equal(oracle.release(X), before)


def test_who_may_not_query_has_no_noise_of_the_victims_key(keyed: SplitModel) -> None:
    """It runs the channel with a key of its own: the same for equal inputs, so that its law is the victim's."""
    oracle = ask(keyed, replace(FULL, may_query=False, releases_per_input=4))
    released, true = noise_of(oracle.release(X)), noise_of(keyed.release(X))
    assert float(released.std()) == pytest.approx(STD, rel=0.05)
    assert float((released * true).mean()) == pytest.approx(0, abs=0.002)
    assert torch.equal(noise_of(oracle.release(X)), released)


# streams of noise


def test_releases_by_index_are_releases() -> None:
    oracle = ask(leaky(std=0))
    index = torch.tensor([5, 0, 5, 319])
    assert torch.equal(oracle.release_auxiliary(index), oracle.release(X[index]))
    noisy = ask(leaky())
    one, two = (torch.Generator().manual_seed(3) for _ in range(2))
    by_index, by_image = noisy.release_auxiliary(index, generator=one), noisy.release(X[index], generator=two)
    assert torch.equal(by_index, by_image)


def test_known_features_are_used() -> None:
    known = ask(leaky(std=0), features=LEAKY(X) + 1)
    assert torch.equal(known.release_auxiliary(torch.arange(4)), LEAKY(X[:4]) + 1)


def test_releases_by_index_have_the_same_noise_law() -> None:
    oracle = ask(leaky())
    index = torch.arange(len(X))
    by_index, by_image = noise_of(oracle.release_auxiliary(index)), noise_of(oracle.release(X))
    for noise in (by_index, by_image):
        assert float(noise.std()) == pytest.approx(STD, rel=0.03)
        assert float(noise.mean()) == pytest.approx(0, abs=0.005)
    assert not torch.equal(by_index, by_image)
    again = noise_of(oracle.release_auxiliary(index))
    assert float((again * by_index).mean()) == pytest.approx(0, abs=0.002)


def test_releases_follow_a_generator() -> None:
    oracle = ask(leaky())
    one, two = (oracle.release_auxiliary(torch.arange(4), generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)


def test_oracles_of_other_seeds_draw_independent_noise() -> None:
    one, same, other = (noise_of(ask(leaky(), seed=seed).release(X)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert float((one * other).mean()) == pytest.approx(0, abs=0.002)


def test_noise_leaves_torchs_own_generator_alone() -> None:
    before = torch.get_rng_state()
    oracle = ask(leaky(), replace(FULL, releases_per_input=3))
    oracle.release(X)
    oracle.release_auxiliary(torch.arange(4))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_foreign_channel_is_any_module() -> None:
    class Doubling(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return 2 * z

    oracle = ask(SplitModel(LEAKY, Doubling(), None).eval(), replace(FULL, releases_per_input=3))
    torch.testing.assert_close(oracle.release(X), 2 * F.pixel_unshuffle(X, 4))
    assert torch.equal(oracle.channel()(X), 2 * X)


@pytest.mark.parametrize("releases", [1, 3])
def test_releases_that_repeat_are_drawn_once_and_are_the_same(releases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = leaky(noise="keyed")
    model.channel.bind(new_key(), "f")  # type: ignore[operator]
    assert model.channel.repeats
    threat = replace(FULL, releases_per_input=releases)
    with torch.no_grad():
        fixed = model.release(X)
    plain, known = ask(model, threat), ask(model, threat, fixed=fixed)
    index = torch.tensor([5, 0, 5])
    expected = plain.release_auxiliary(index)
    monkeypatch.setattr(GaussianChannel, "draw", lambda *_: pytest.fail("it was drawn again"))
    assert torch.equal(known.release_auxiliary(index), expected)


def test_fresh_noise_and_an_unbound_key_do_not_repeat() -> None:
    assert not leaky().channel.repeats
    assert not leaky(noise="keyed").channel.repeats
    bound = leaky(noise="keyed")
    bound.channel.bind(new_key(), "f")  # type: ignore[operator]
    assert not bound.channel.train().repeats, "training always draws anew"
    assert build_channel([QuantiseOptions(), TopKOptions(), IdentityOptions()]).repeats
    assert not build_channel([QuantiseOptions(), GaussianOptions()]).repeats


# other own images


def test_images_that_it_made_are_released_as_any() -> None:
    oracle, made = ask(leaky(std=0.0)), X.flip(-1)
    other = oracle.owning(made, Y)
    index = torch.tensor([5, 0, 5])
    assert torch.equal(other.release_auxiliary(index), LEAKY(made[index]))
    assert torch.equal(oracle.release_auxiliary(index), LEAKY(X[index]))
    assert torch.equal(other.auxiliary()[0], made)


def test_images_that_it_made_have_keyed_noise_of_their_own() -> None:
    model = leaky(noise="keyed")
    model.channel.bind(new_key(), "f")  # type: ignore[operator]
    with torch.no_grad():
        fixed, made = model.release(X), model.release(X.flip(-1))
    for known in (None, fixed):
        oracle = ask(model, fixed=known)
        for other in (oracle.owning(X.flip(-1), Y), oracle.mirrored()):
            assert torch.equal(other.release_auxiliary(torch.arange(len(X))), made)


@pytest.mark.parametrize("jitter", [0, 2])
def test_mirrored_images_are_those_that_it_would_make(jitter: int) -> None:
    oracle, index = ask(leaky(), replace(FULL, jitter=jitter)), torch.tensor([5, 0, 5])
    made, mirrored = (
        other.release_auxiliary(index, generator=torch.Generator().manual_seed(1))
        for other in (oracle.owning(X.flip(-1), Y), oracle.mirrored())
    )
    assert torch.equal(made, mirrored) and torch.equal(oracle.mirrored().auxiliary()[0], X.flip(-1))
    assert torch.equal(oracle.mirrored().mirrored().auxiliary()[0], X)


def test_who_owns_no_images_makes_none() -> None:
    with pytest.raises(NotApplicable):
        ask(leaky(), replace(FULL, auxiliary="none")).owning(X, Y)


# an adversary who looks at releases in a way of its own


def test_all_that_is_seen_is_looked_at_in_the_same_way() -> None:
    whole = ask(leaky(std=0.0), observed=LEAKY(X[:3]))
    twice = whole.looking(lambda released: 3 * released).looking(lambda released: released + 1)
    index = torch.arange(5)
    expected = 3 * LEAKY(X[:5]) + 1
    torch.testing.assert_close(twice.release(X[:5]), expected)
    torch.testing.assert_close(twice.release_auxiliary(index), expected)
    torch.testing.assert_close(twice.observed(), expected[:3])
    mirrored = twice.owning(X.flip(-1), Y)
    torch.testing.assert_close(mirrored.release_auxiliary(index), 3 * LEAKY(X[:5].flip(-1)) + 1)
    torch.testing.assert_close(whole.release_auxiliary(index), LEAKY(X[:5]))


@pytest.mark.parametrize("noise", ["fresh", "keyed"])
def test_before_the_channel_features_are_clean(noise: str) -> None:
    model = leaky(noise=noise)
    model.channel.bind(new_key(), "here")  # type: ignore[operator]
    whole = ask(model, replace(FULL, releases_per_input=4, jitter=3), observed=LEAKY(X))
    clean = whole.before_channel()
    index = torch.arange(5)
    for oracle, x in ((clean, X), (clean.owning(X.flip(-1), Y), X.flip(-1))):
        torch.testing.assert_close(oracle.release_auxiliary(index), LEAKY(x[:5]))
        torch.testing.assert_close(oracle.release(x[:5]), LEAKY(x[:5]))
    assert not torch.allclose(whole.release_auxiliary(index), LEAKY(X[:5]), atol=0.01)
    with pytest.raises(NotApplicable):
        clean.observed()
    with pytest.raises(NotApplicable):
        ask(model, THREATS["query_only"]).before_channel()


@pytest.mark.parametrize("way", ["looking", "before the channel"])
def test_a_decoder_that_mirrors_its_images_sees_them_in_the_same_way(way: str) -> None:
    whole = ask(leaky(std=5.0 if way == "before the channel" else 0.0))
    oracle = whole.before_channel() if way == "before the channel" else whole.looking(lambda z: 3 * z - 7)
    material = Material(oracle, DecoderOptions(batch_size=64, mirror=True), seed=0)
    standardised, x = material.batch()
    seen = standardised * material.standardise.std + material.standardise.mean
    torch.testing.assert_close(seen, LEAKY(x) if way == "before the channel" else 3 * LEAKY(x) - 7)
    own = {image.numpy().tobytes() for image in X}
    assert 10 < sum(image.numpy().tobytes() not in own for image in x) < 54, "about half are mirrored"
