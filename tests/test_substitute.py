"""The substitute client: what it may touch, and that releases alone, with a server, tell something of their images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.base.types import NotApplicable
from attncem.config.options.attacks import ClassMeanOptions, SubstituteOptions
from attncem.config.options.channels import (
    ChannelOptions,
    DropoutOptions,
    GaussianOptions,
    QuantiseOptions,
    TopKOptions,
)
from attncem.config.threats import THREATS
from attncem.judging.attacks.substitute import Client, Scale, SubstituteAttack, covariance, mmd
from attncem.judging.auditing import Case, measure
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.split import SplitModel
from contracts.test_attacks import AUXILIARY, EVALUATION, LEAKY, Templates, errors, fitted, make_oracle
from probing import subject

NO_ACCESS = THREATS["no_access"]


def briefly(**options: Any) -> SubstituteOptions:
    return SubstituteOptions.model_validate({"steps": 3, "batch_size": 8, "width": 8, **options})


def test_with_a_server_it_beats_the_class_mean() -> None:
    """Neither encoder nor queries: observed releases, own images, the server."""
    oracle = make_oracle(LEAKY, noise_std=0.05, server=Templates(*AUXILIARY))
    label = float(errors(ClassMeanOptions(), oracle).mean())
    options = SubstituteOptions(steps=150, batch_size=16, width=8, lr=3e-3)
    assert float(errors(options, oracle).mean()) < 0.6 * label


def test_without_a_server_it_says_that_it_is_unguided() -> None:
    alone = fitted(briefly(), make_oracle(LEAKY))
    assert [item.code for item in alone.findings] == ["unguided"]
    assert not alone.verdict.reliable
    guided = fitted(briefly(), make_oracle(LEAKY, server=Templates(*AUXILIARY)))
    assert guided.verdict.reliable and not guided.findings


def test_it_sees_the_releases_that_are_judged_and_no_image_of_them() -> None:
    case = Case(subject(LEAKY, 0.1), NO_ACCESS)
    oracle = case.oracle(SubstituteAttack(briefly()), 0)
    assert torch.equal(oracle.observed(), case.released)
    oracle.observed().zero_()
    assert torch.equal(oracle.observed(), case.released)
    held = {image.numpy().tobytes() for image in case.x}
    assert not held & {image.numpy().tobytes() for image in oracle.auxiliary()[0]}
    with pytest.raises(NotApplicable, match="can neither query"):
        oracle.release(case.x)


def test_it_learns_from_what_it_observes() -> None:
    """Other observed releases give another decoder; with as many releases as the adversary sees they are combined."""
    oracle, other = (make_oracle(LEAKY, noise_std=std) for std in (0.05, 0.5))
    released = LEAKY(EVALUATION[0])
    assert not torch.equal(*(fitted(briefly(), one).reconstruct(released) for one in (oracle, other)))
    many = Case(subject(LEAKY, 0.5), replace(NO_ACCESS, releases_per_input=64))
    observed = many.oracle(SubstituteAttack(briefly()), 0).observed()
    assert float((observed - LEAKY(many.x)).std()) == pytest.approx(0.5 / 8, rel=0.1)


def test_without_observed_releases_it_is_not_applicable() -> None:
    with pytest.raises(NotApplicable, match="has observed no releases"):
        fitted(briefly(), make_oracle(LEAKY, lacks="observed"))


def test_a_row_under_no_access() -> None:
    row = measure(Case(subject(LEAKY, 0.1), NO_ACCESS), "substitute", briefly(), seed=0).row
    assert (row.outcome, row.num_images) == ("ok", 120)


def test_the_server_is_a_copy_through_which_gradients_pass() -> None:
    server = nn.Sequential(nn.Flatten(), nn.Linear(144, 4), nn.Dropout(0.5)).train()
    oracle = make_oracle(LEAKY, server=server)
    copy = oracle.server()
    z = LEAKY(EVALUATION[0][:3]).requires_grad_()
    copy(z).sum().backward()
    assert z.grad is not None and float(z.grad.abs().max()) > 0
    assert not copy.training and server.training
    assert all(not weight.requires_grad for weight in copy.parameters())
    with torch.no_grad():
        copy[1].weight.zero_()  # type: ignore[index]
    assert bool(server[1].weight.any()) and bool(oracle.server()[1].weight.any())  # type: ignore[index]
    with pytest.raises(NotApplicable, match="no server half"):
        make_oracle(LEAKY).server()


class Vectors(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, ::5]


class Tokens(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, 4).flatten(2).transpose(1, 2)


@pytest.mark.parametrize("encoder", [LEAKY, Vectors(), Tokens(), nn.Identity()], ids=["maps", "vector", "tokens", "x"])
@pytest.mark.parametrize(
    "channel",
    [GaussianOptions(noise_std=0.1, noise="keyed"), DropoutOptions(rate=0.3), TopKOptions(), QuantiseOptions(bits=2)],
    ids=lambda options: options.name,
)
def test_every_shape_and_channel(encoder: nn.Module, channel: ChannelOptions) -> None:
    built = build_channel([channel]).bind(bytes(range(32)), "mark")
    model = SplitModel(encoder, built, None).eval()
    observed = model.release(EVALUATION[0])
    oracle = Oracle(model, NO_ACCESS, *AUXILIARY, num_classes=4, observed=observed)
    images = fitted(briefly(), oracle).reconstruct(observed)
    assert images.shape == EVALUATION[0].shape
    assert images.isfinite().all()
    client = Client((1, 12, 12), tuple(observed.shape[1:]), 8)
    assert client(EVALUATION[0][:5]).shape == observed[:5].shape


def test_few_images_and_releases_are_enough() -> None:
    x, y = AUXILIARY[0][:3], AUXILIARY[1][:3]
    model = SplitModel(LEAKY, build_channel([GaussianOptions(noise_std=0.1)]), None)
    oracle = Oracle(model, NO_ACCESS, x, y, num_classes=4, observed=LEAKY(EVALUATION[0][:2]))
    assert fitted(briefly(), oracle).reconstruct(LEAKY(EVALUATION[0])).isfinite().all()


def test_distances_of_distributions() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 500, 6, generator=generator)
    distance = torch.tensor(12.0)
    near, far = float(mmd(a, b, distance)), float(mmd(a, b + 1, distance))
    assert 0 <= near < 0.01 < far
    assert float(mmd(a, a, distance)) == pytest.approx(0, abs=1e-6)
    assert covariance(a) == pytest.approx(torch.eye(6), abs=0.2)
    wide = torch.randn(3, 8, 16, 16, generator=generator)
    assert covariance(wide).shape == (8, 8), "of channels, where entries are too many"


def test_scaling_is_undone() -> None:
    released = 3 + 2 * torch.randn(50, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    scale = Scale.of(released)
    torch.testing.assert_close(scale.undone(scale(released)), released)
    assert float(scale(released).square().mean()) == pytest.approx(1, rel=1e-4)
