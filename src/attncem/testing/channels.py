"""The contract of channels: check_channel(), and its laws one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from attncem.config.options.channels import ChannelOptions, RandomOptions
from attncem.models.channels import SYSTEM, Channel, Secrets, Source
from attncem.testing.laws import check_laws, holds

KEY, OTHER_KEY = b"a" * 32, b"b" * 32
SHAPES = ((8, 4, 4), (49, 6), (100,))
DTYPES = (torch.float32, torch.bfloat16, torch.float64)


class Counted(Secrets):
    """Secrets that can be given again: 1, 2, 3 and so on."""

    def __init__(self, given: int = 0) -> None:
        self.given = given

    def fresh(self) -> bytes:
        """The next secret."""
        self.given += 1
        return self.given.to_bytes(32, "big")


class ChannelCase:
    """A channel's class with its options; ``random``: it draws numbers, ``keyed``: by a key and the input."""

    def __init__(self, kind: type[Channel], options: ChannelOptions, *, random: bool | None = None) -> None:
        self.kind, self.options = kind, options
        self.random = not kind.draws_nothing if random is None else random
        self.keyed = self.random and isinstance(options, RandomOptions) and options.noise == "keyed"

    def build(self, *, training: bool = False) -> Channel:
        """A new channel without a key."""
        return self.kind(self.options).train(training)

    def make(self, *, key: bytes = KEY, fingerprint: str = "print", training: bool = False) -> Channel:
        """A new channel with a key."""
        return self.build(training=training).bind(key, fingerprint)


def features(shape: tuple[int, ...] = (8, 4, 4), count: int = 6) -> tuple[Tensor, Tensor]:
    """Features in [0, 1], and the images that they belong to."""
    generator = seeded(2)
    return torch.rand(count, *shape, generator=generator), torch.rand(count, 1, 5, 5, generator=generator)


def seeded(seed: int) -> torch.Generator:
    """A generator with this seed."""
    return torch.Generator().manual_seed(seed)


# laws


def shape_and_type_are_kept(case: ChannelCase) -> None:
    """A release has the shape and type of z and is finite: in training and evaluation, for maps, tokens, vectors."""
    for shape, training, dtype, source in product(SHAPES, (True, False), DTYPES, (None, SYSTEM)):
        z, x = features(shape)
        released = case.make(training=training)(z.to(dtype), x=x, generator=source)
        holds(released.shape == z.shape, f"z {list(z.shape)} is released as {list(released.shape)}")
        holds(released.dtype == dtype, f"z of {dtype} is released as {released.dtype}")
        holds(released.isfinite().all(), f"a release of {list(z.shape)} in {dtype} is not finite")


def the_feature_itself_is_not_changed(case: ChannelCase) -> None:
    """Z is not changed in place."""
    for training in (True, False):
        z, x = features()
        before = z.clone()
        case.make(training=training)(z, x=x)
        holds(torch.equal(z, before), f"it is, with training={training}")


def gradient(
    case: ChannelCase, z: Tensor, x: Tensor, *, training: bool = False, source: Source = None
) -> tuple[Tensor, Tensor]:
    """What is released, and the gradient of its sum."""
    z = z.clone().requires_grad_()
    released = case.make(training=training)(z, x=x, generator=source)
    released.sum().backward()
    assert z.grad is not None
    return released.detach(), z.grad


def the_gradient_reaches_z_and_is_finite(case: ChannelCase) -> None:
    """The gradient reaches z of every sample and is finite, also where z is zero: the client trains through it."""
    for training, dtype, source in product((True, False), DTYPES[:2], (None, SYSTEM)):
        z, x = features()
        z[0] = 0
        _, slope = gradient(case, z.to(dtype), x, training=training, source=source)
        holds(slope.dtype == dtype, f"for z of {dtype} it has the type {slope.dtype}")
        holds(slope.isfinite().all(), f"it is not finite, with training={training}")
        holds(slope[1:].flatten(1).any(1).all(), f"it is zero for a sample, with training={training}")


def training_noise_is_always_fresh(case: ChannelCase) -> None:
    """In training every release draws anew, with or without the images, and follows a generator."""
    if not case.random:
        return
    z, x = features()
    channel = case.make(training=True)
    holds(not torch.equal(channel(z, x=x), channel(z, x=x)), "two releases are equal")
    holds(not torch.equal(channel(z), channel(z)), "two releases without images are equal")
    same = torch.equal(channel(z, generator=seeded(1)), channel(z, generator=seeded(1)))
    holds(same, "a generator with the same seed gives another release: draw with `draw`")


def fresh_noise_differs_at_every_release_and_follows_a_generator(case: ChannelCase) -> None:
    """With noise=fresh every release and every sample has a draw of its own, which follows a generator."""
    if not case.random or case.keyed:
        return
    z, x = features()
    channel = case.make()
    holds(not torch.equal(channel(z, x=x), channel(z, x=x)), "two releases are equal")
    one, same, other = (channel(z, x=x, generator=seeded(seed)) for seed in (1, 1, 2))
    holds(torch.equal(one, same) and not torch.equal(one, other), "a generator's seed does not determine it")
    released = channel(torch.ones(2, 50), x=torch.zeros(2, 1, 5, 5))
    holds(not torch.equal(released[0], released[1]), "equal inputs in a batch get the same noise")


def what_leaves_a_device_has_a_secret_for_each_sample_and_release(case: ChannelCase) -> None:
    """On a device noise comes from 256 random bits of each sample and release, in any batch; never from torch."""
    if not case.random:
        return
    z, _ = features()
    for training in (True, False):
        channel, source = case.build(training=training), Counted()
        released = channel(z, generator=source)
        holds(source.given == len(z), f"{source.given} secrets are drawn for {len(z)} samples: draw with `draw`")
        alone = [channel(z[i : i + 1], generator=Counted(i)) for i in range(len(z))]
        holds(torch.equal(torch.cat(alone), released), "the same secrets give another release")
        holds(not torch.equal(channel(z, generator=source), released), "other secrets give the same release")
        holds(not torch.equal(channel(z, generator=SYSTEM), channel(z, generator=SYSTEM)), "releases repeat")


def noise_has_the_deviation_it_says(case: ChannelCase) -> None:
    """`noise_std` is `added_noise_std` of the options and the deviation of the noise that is drawn."""
    channel = case.make()
    said, drawn = case.options.added_noise_std, channel.noise_std
    holds(drawn == said, f"noise_std is {drawn:.4g}, added_noise_std of its options {said:.4g}")
    if not case.options.adds_noise or not case.random or said == 0:
        return
    for training, secret in product((True, False), (True, False)):
        x = torch.rand(100, 1, 5, 5, generator=seeded(3))
        source: Source = Counted() if secret else seeded(4)
        noise = case.make(training=training)(torch.zeros(100, 500), x=x, generator=source)
        std, mean = float(noise.std()), float(noise.mean())
        holds(math.isclose(std, said, rel_tol=0.02), f"the noise has the deviation {std:.4g}, not {said:.4g}")
        holds(abs(mean) <= 0.02 * said, f"the noise has the mean {mean:.4g}, not 0")


def a_release_depends_on_its_own_sample_alone(case: ChannelCase) -> None:
    """Without fresh noise a sample is released alone as in a batch."""
    if case.random and not case.keyed:
        return
    for shape, dtype in product(SHAPES, DTYPES[:2]):
        z, x = features(shape)
        z, channel = z.to(dtype), case.make()
        alone = [channel(z[i : i + 1], x=x[i : i + 1]) for i in range(len(z))]
        holds(torch.equal(torch.cat(alone), channel(z, x=x)), f"it does not, for features of the shape {list(shape)}")


def what_draws_nothing_is_the_same_in_training(case: ChannelCase) -> None:
    """A channel that draws nothing releases the same in training, and without the images."""
    if case.random:
        return
    z, x = features()
    same = torch.equal(case.make(training=True)(z), case.make()(z, x=x, generator=seeded(1)))
    holds(same, "it does not; a channel that draws numbers has draws_nothing = False")


def keyed_noise_follows_the_input_alone(case: ChannelCase) -> None:
    """With noise=keyed the same image always gets the same noise; other images, keys and models get other noise."""
    if not case.keyed:
        return
    for shape in SHAPES:
        z, x = features(shape)
        channel = case.make()
        released, order = channel(z, x=x), torch.tensor([3, 0, 5, 1, 4, 2])
        again = [channel(z, x=x), channel(z, x=x, generator=seeded(9)), channel(z, x=x, generator=SYSTEM)]
        holds(all(torch.equal(one, released) for one in [*again, case.make()(z, x=x)]), "a second release differs")
        holds(torch.equal(channel(z[order], x=x[order]), released[order]), "another order gives other noise")
        copies = channel(z.repeat_interleave(3, 0), x=x.repeat_interleave(3, 0)).view(6, 3, *shape)
        holds(torch.equal(copies, released[:, None].expand_as(copies)), "copies of an image get other noise")
    z, x = torch.ones(6, 50), features()[1]
    released = case.make()(z, x=x)
    holds(len({tuple(row) for row in released.tolist()}) == len(z), "two images get the same noise")
    others = (case.make(key=OTHER_KEY), case.make(fingerprint="another"))
    holds(not any(torch.equal(one(z, x=x), released) for one in others), "another key or model gives the same noise")


def keyed_noise_needs_the_inputs(case: ChannelCase) -> None:
    """With noise=keyed a release without the images is refused."""
    if not case.keyed:
        return
    try:
        case.make()(features()[0])
    except ValueError as error:
        holds("needs the inputs x" in str(error), f"the error is: {error}")
    else:
        raise AssertionError("it is not")


def no_secret_and_no_weight_lies_in_the_state(case: ChannelCase) -> None:
    """The state is empty, and neither it nor the text of the channel shows the key."""
    channel = case.make()
    holds(channel.state_dict() == {}, f"the state holds {', '.join(channel.state_dict())}")
    shown = [repr(channel), *[f"{key}={value}" for key, value in vars(channel).items()]]
    holds(not any(str(KEY)[2:-1] in text for text in shown), "the key is shown")


LAWS = (
    shape_and_type_are_kept,
    the_feature_itself_is_not_changed,
    the_gradient_reaches_z_and_is_finite,
    training_noise_is_always_fresh,
    fresh_noise_differs_at_every_release_and_follows_a_generator,
    what_leaves_a_device_has_a_secret_for_each_sample_and_release,
    noise_has_the_deviation_it_says,
    a_release_depends_on_its_own_sample_alone,
    what_draws_nothing_is_the_same_in_training,
    keyed_noise_follows_the_input_alone,
    keyed_noise_needs_the_inputs,
    no_secret_and_no_weight_lies_in_the_state,
)
"""The laws of every channel."""


def check_channel(kind: type[Channel], options: Mapping[str, Any] | None = None) -> None:
    """Check a channel's class against the contract; ContractError names every broken law.

    ``options`` are values of its options class. A channel with RandomOptions is checked with noise=fresh and keyed.
    """
    fresh = kind.options_type.model_validate(dict(options or {}))
    check_laws(kind.__name__, LAWS, ChannelCase(kind, fresh))
    if isinstance(fresh, RandomOptions):
        check_laws(f"{kind.__name__} (keyed)", LAWS, ChannelCase(kind, fresh.model_copy(update={"noise": "keyed"})))
