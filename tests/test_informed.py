"""The decoder that knows the front end: it has the client's own inside, and learns the picture that it leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from attncem.base.types import DatasetSpec, NotApplicable
from attncem.config.options.channels import GaussianOptions
from attncem.config.options.model import BlockDCTOptions, LocalContrastOptions
from attncem.config.threats import THREATS
from attncem.judging.attacks.informed import InformedAttack
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.decoders import InformedDecoder
from attncem.models.front_ends import FRONT_ENDS, build_front_end, described, from_description
from attncem.models.split import SplitModel

SPEC = DatasetSpec("made up", (3, 8, 8), 2, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
FEW: dict[str, Any] = {"epochs": 4, "max_epochs": 4, "batch_size": 16, "least_steps": 1, "lr": 3e-3}
FRONT_END = LocalContrastOptions(s=1.5, a=0.1)


def make_oracle(front_end: Any = FRONT_END, threat: str = "train") -> Oracle:
    x = torch.rand(120, *SPEC.shape, generator=torch.Generator().manual_seed(0))
    first = [] if front_end is None else [build_front_end(front_end, SPEC)]
    model = SplitModel(
        nn.Sequential(*first, nn.PixelUnshuffle(2)), build_channel([GaussianOptions(noise_std=0.1)]), None
    )
    return Oracle(model, THREATS[threat], x, torch.zeros(120, dtype=torch.long), num_classes=1)


def fitted(oracle: Oracle, **options: Any) -> InformedAttack:
    attack = InformedAttack(**FEW | options)
    attack.fit(oracle, seed=0)
    return attack


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_a_front_end_comes_back_from_its_description(name: str) -> None:
    front_end = build_front_end(FRONT_ENDS[name].options_type(), SPEC)
    again = from_description(described(front_end))
    x = torch.rand(4, *SPEC.shape)
    assert again.options == front_end.options
    torch.testing.assert_close(again(x), front_end(x), rtol=0, atol=0)


def test_the_clients_front_end_is_inside_and_has_no_weights_there() -> None:
    oracle = make_oracle()
    decoder = fitted(oracle).decoder
    assert isinstance(decoder, InformedDecoder)
    x = torch.rand(4, *SPEC.shape)
    torch.testing.assert_close(decoder.front_end(x), oracle.encoder()[0](x))  # type: ignore[index]
    assert not any(name.startswith("front_end") for name in decoder.state_dict())


def test_it_learns_the_picture_that_the_encoder_has_seen() -> None:
    oracle = make_oracle()
    attack = fitted(oracle, epochs=20, max_epochs=20, picture=0.1)
    x, released = oracle.auxiliary()[0], oracle.release_auxiliary(torch.arange(120))
    decoder = attack.decoder
    assert isinstance(decoder, InformedDecoder)
    with torch.no_grad():
        _, seen = decoder.both(attack._standardise(released))
    picture = decoder.front_end(x)
    assert (seen - picture).square().mean() < 0.3 * picture.square().mean()


def test_without_a_front_end_the_picture_is_the_image() -> None:
    decoder = fitted(make_oracle(None)).decoder
    assert isinstance(decoder.front_end, nn.Identity)


@pytest.mark.parametrize("front_end", [FRONT_END, BlockDCTOptions(n=2), None])
def test_what_is_kept_recovers_the_same(front_end: Any) -> None:
    oracle = make_oracle(front_end)
    attack, again = fitted(oracle), InformedAttack(**FEW)
    again.load(attack.state())
    released = oracle.release_auxiliary(torch.arange(20))
    assert torch.equal(attack.reconstruct(released), again.reconstruct(released))
    assert again.state().keys() == attack.state().keys()


def test_who_has_no_encoder_has_no_copy_of_its_front_end() -> None:
    with pytest.raises(NotApplicable):
        fitted(make_oracle(threat="query_only"))


def test_odd_images_are_corrected_at_their_own_resolution() -> None:
    decoder = InformedDecoder((4, 4, 4), (1, 7, 9), nn.Identity())
    assert decoder(torch.rand(2, 4, 4, 4)).shape == (2, 1, 7, 9)
