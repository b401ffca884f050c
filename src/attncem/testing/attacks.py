"""The contract of attacks: check_attack(), and its laws one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from attncem.base.types import NotApplicable
from attncem.config.options.attacks import BudgetOptions, MeanImageOptions, SeeingOptions
from attncem.config.options.base import Options
from attncem.config.threats import THREATS, with_releases
from attncem.judging.attacks import ATTACKS
from attncem.judging.attacks.base import Attack
from attncem.judging.attacks.floors import MeanImageFloor
from attncem.judging.oracle import Oracle
from attncem.records.checkpoints import pack_tensors
from attncem.records.metrics import mse
from attncem.testing.attack_world import AUXILIARY, EVALUATION, LEAKY, WITHOUT, Constant, Templates, least, make_oracle
from attncem.testing.laws import check_laws, holds

_NOISES = (0.0, 0.1)


class AttackCase:
    """An attack's class with its options, fitted at most once on each of the usual oracles."""

    def __init__(self, kind: type[Attack], options: Options | Mapping[str, Any] | None = None) -> None:
        given = options if isinstance(options, Options) else kind.options_type.model_validate(dict(options or {}))
        self.kind, self.options = kind, given

    def fitted(self, oracle: Oracle, seed: int = 0) -> Attack:
        """A new attack, fitted."""
        attack = self.kind(self.options)
        attack.fit(oracle, seed=seed)
        return attack

    def errors(self, oracle: Oracle) -> Tensor:
        """The error on each evaluation image."""
        released = oracle.release(EVALUATION[0])
        return mse(self.fitted(oracle).reconstruct(released), EVALUATION[0])

    @cached_property
    def leaky(self) -> Attack:
        """Fitted on the leaky identity encoder, without noise."""
        return self.fitted(make_oracle(LEAKY, server=Templates(*AUXILIARY)))

    @cached_property
    def noisy(self) -> Attack:
        """Fitted on the leaky identity encoder with noise."""
        return self.fitted(make_oracle(LEAKY, noise_std=0.1, server=Templates(*AUXILIARY)))

    @property
    def briefly(self) -> AttackCase:
        """The same with a training that is as good as none."""
        few = {"epochs": 0.1, "max_epochs": 0.1} if isinstance(self.options, BudgetOptions) else {"epochs": 0.1}
        short = few if "epochs" in type(self.options).model_fields else {}
        return AttackCase(self.kind, self.options.model_copy(update=short))


def blind(oracle: Oracle) -> float:
    """The error of the mean of the attacker's images, which sees no release."""
    return float(AttackCase(MeanImageFloor, MeanImageOptions()).errors(oracle).mean())


# laws


def declares_what_it_is(case: AttackCase) -> None:
    """An attack that sees releases has SeeingOptions; the methods that it must beat exist."""
    sees = issubclass(case.kind.options_type, SeeingOptions) == (case.kind.sees == "release")
    holds(sees, f"sees={case.kind.sees!r} does not fit {case.kind.options_type.__name__}: see SeeingOptions")
    unknown = set(case.kind.must_beat) - set(ATTACKS)
    holds(not unknown, f"must_beat names unknown attacks: {', '.join(sorted(unknown))}")


def recovers_what_is_not_hidden(case: AttackCase) -> None:
    """An attack that sees releases beats the mean image where the encoder hides nothing."""
    if case.kind.sees != "release":
        return
    oracle = make_oracle(LEAKY, server=Templates(*AUXILIARY))
    error = float(mse(case.leaky.reconstruct(LEAKY(EVALUATION[0])), EVALUATION[0]).mean())
    holds(error < blind(oracle), f"its MSE is {error:.4f}, that of the mean image {blind(oracle):.4f}")


def nobody_beats_the_mean_image_when_z_is_constant(case: AttackCase) -> None:
    """Where z is constant, no attack beats the mean image: better would mean that it saw more than the release."""
    for noise_std in _NOISES:
        gains_nothing_from_a_constant(case, noise_std)


def gains_nothing_from_a_constant(case: AttackCase, noise_std: float) -> None:
    """The same with noise of this strength."""
    oracle = make_oracle(Constant(), noise_std=noise_std)
    error = float(case.errors(oracle).mean())
    holds(error > 0.95 * blind(oracle), f"its MSE is {error:.4f}, that of the mean image {blind(oracle):.4f}")


def more_releases_of_an_input_tell_more(case: AttackCase) -> None:
    """Through noise of σ = 0.5, sixteen releases of each image give a lower error than one."""
    if case.kind.sees != "release":
        return
    server = Templates(*AUXILIARY)

    def error(releases: int) -> float:
        threat = with_releases(THREATS["train"], releases)
        return float(case.errors(make_oracle(LEAKY, noise_std=0.5, server=server, threat=threat)).mean())

    one, many = error(1), error(16)
    holds(many < 0.9 * one, f"the MSE is {one:.4f} with one release and {many:.4f} with sixteen")


def one_release_is_taken_as_it_is(case: AttackCase) -> None:
    """`combine` of a single release is that release."""
    released = LEAKY(EVALUATION[0])
    same = case.kind.sees != "release" or torch.equal(case.noisy.combine(iter([released])), released)
    holds(same, "it returns something else")


def what_it_needs_is_enough(case: AttackCase) -> None:
    """With exactly its `needs` the attack works: it uses nothing that it does not declare."""
    needs = case.kind.needs
    oracle = make_oracle(LEAKY, noise_std=0.1, server=Templates(*AUXILIARY), threat=least(needs))
    oracle.require(*needs)
    shape = case.briefly.fitted(oracle).reconstruct(LEAKY(EVALUATION[0])).shape
    holds(shape == EVALUATION[0].shape, f"it returns images of the shape {list(shape)}")


def without_what_it_needs_it_is_not_applicable(case: AttackCase) -> None:
    """Without one of its `needs` the oracle refuses it, with the reason."""
    needs = case.kind.needs
    for need in needs:
        lacking = replace(THREATS["train"], **WITHOUT[need])
        words = "the images have no labels" if need == "labels" else "the adversary of the threat model train"
        try:
            make_oracle(LEAKY, threat=lacking, lacks=need).require(*needs)
        except NotApplicable as error:
            holds(words in str(error), f"without {need} the reason is: {error}")
        else:
            raise AssertionError(f"without {need} it is applicable")
    make_oracle(LEAKY, server=Templates(*AUXILIARY)).require(*needs)


def answers_are_images(case: AttackCase) -> None:
    """Answers are float32 images in [0, 1] without a gradient, and the releases are not changed."""
    released = LEAKY(EVALUATION[0]) + 3 * torch.randn(100, 16, 3, 3, generator=torch.Generator().manual_seed(0))
    before = released.clone()
    images = case.noisy.reconstruct(released)
    holds(images.shape == EVALUATION[0].shape, f"their shape is {list(images.shape)}")
    holds(images.dtype == torch.float32, f"their type is {images.dtype}")
    low, high = float(images.detach().min()), float(images.detach().max())
    holds(0 <= low <= high <= 1, f"their pixels lie between {low:.4g} and {high:.4g}")
    holds(not images.requires_grad, "they have a gradient")
    holds(torch.equal(released, before), "the releases were changed in place")


def each_image_follows_from_its_own_release_alone(case: AttackCase) -> None:
    """An image is the same in any batch, and again at the next call."""
    released = LEAKY(EVALUATION[0])[:20]
    together = case.noisy.reconstruct(released)
    alone = torch.cat([case.noisy.reconstruct(part) for part in released.split(1)])
    apart = float((together - alone).abs().max())
    holds(apart < 1e-5, f"alone and in a batch, pixels differ by {apart:.4g}: use no statistics of the batch")
    holds(torch.equal(case.noisy.reconstruct(released), together), "the second call gives something else")


def the_same_seed_gives_the_same_answer(case: AttackCase) -> None:
    """Fitted again with the same seed it answers the same, also where the only release is taken as it is."""
    oracle = make_oracle(LEAKY, noise_std=0.1, server=Templates(*AUXILIARY), combine=lambda few: next(iter(few)))
    released = LEAKY(EVALUATION[0])
    torch.manual_seed(1234)
    again = case.fitted(oracle).reconstruct(released)
    holds(torch.equal(again, case.noisy.reconstruct(released)), "draw from make_generator(device, seed, name)")


def torchs_own_generator_is_not_touched(case: AttackCase) -> None:
    """Neither fitting nor recovering draws from torch's global generator."""
    before = torch.get_rng_state()
    attack = case.briefly.fitted(make_oracle(LEAKY, noise_std=0.1))
    attack.reconstruct(LEAKY(EVALUATION[0]))
    holds(torch.equal(torch.get_rng_state(), before), "draw from make_generator(device, seed, name)")


def every_fit_gives_a_verdict(case: AttackCase) -> None:
    """A fit is reliable if and only if it has no finding; each finding has a sentence."""
    attack = case.leaky
    holds(attack.verdict.reliable == (not attack.findings), f"reliable={attack.verdict.reliable}: {attack.findings}")
    holds(all(item.text for item in attack.findings), "a finding has no sentence")


def what_was_learned_can_be_written_down(case: AttackCase) -> None:
    """The state, written and read, gives the same answers to the bit; an attack without a state says so."""
    attack, other = case.noisy, case.kind(case.options)
    state = attack.state()
    if state is None:
        _refuses_a_state(other)
        return
    before = torch.get_rng_state()
    other.load(load(pack_tensors(state)))
    holds(torch.equal(torch.get_rng_state(), before), "loading draws from torch's global generator")
    released = LEAKY(EVALUATION[0]) + 0.3 * torch.randn(100, 16, 3, 3, generator=torch.Generator().manual_seed(0))
    holds(torch.equal(other.reconstruct(released), attack.reconstruct(released)), "the answers differ")
    _holds_of_a_network(other, released)


@torch.no_grad()
def _holds_of_a_network(attack: Attack, released: Tensor) -> None:
    network = attack.network()
    if network is not None:
        change = float((network(released) - attack.reconstruct(released)).abs().max())
        holds(change < 1e-4, f"network() gives other images than reconstruct(): off by {change:.2g}")


def _refuses_a_state(attack: Attack) -> None:
    try:
        attack.load({})
    except NotImplementedError as error:
        holds(f"{type(attack).__name__} keeps no state" in str(error), f"the error is: {error}")
    else:
        raise AssertionError("it loads a state, but state() returns None")


def options_by_name_are_enough(case: AttackCase) -> None:
    """The class takes its options by keyword, and fits and answers then."""
    short = case.briefly
    attack = case.kind(**short.options.model_dump(exclude={"name"}))
    holds(attack.options == short.options, "the options are not those that were given")
    attack.fit(make_oracle(LEAKY), seed=0)
    shape = attack.reconstruct(LEAKY(AUXILIARY[0][:7])).shape
    holds(shape == AUXILIARY[0][:7].shape, f"it returns images of the shape {list(shape)}")


LAWS = (
    declares_what_it_is,
    recovers_what_is_not_hidden,
    nobody_beats_the_mean_image_when_z_is_constant,
    more_releases_of_an_input_tell_more,
    one_release_is_taken_as_it_is,
    what_it_needs_is_enough,
    without_what_it_needs_it_is_not_applicable,
    answers_are_images,
    each_image_follows_from_its_own_release_alone,
    the_same_seed_gives_the_same_answer,
    torchs_own_generator_is_not_touched,
    every_fit_gives_a_verdict,
    what_was_learned_can_be_written_down,
    options_by_name_are_enough,
)
"""The laws of every attack."""


def check_attack(kind: type[Attack], options: Mapping[str, Any] | None = None) -> None:
    """Check an attack's class against the contract; ContractError names every broken law.

    ``options`` are values of its options class: choose them so that a fit on 320 images of 12×12 pixels takes about a
    second, and call it once for every choice that takes another path in the code.
    """
    check_laws(kind.__name__, LAWS, AttackCase(kind, options))
