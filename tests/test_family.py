"""The family of decoders: what its curve says, and that parts of the images are parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from attncem.base.record import read
from attncem.config.options.attacks import DecoderOptions
from attncem.config.options.channels import GaussianOptions
from attncem.config.threats import THREATS
from attncem.judging.attacks import family
from attncem.judging.attacks.family import FamilyAttack, PartMaterial, doubts, gain_of_doubling
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.decoders import GlobalDecoder
from attncem.models.split import SplitModel, count_parameters
from attncem.records.audit import FamilyPoint, Verdict

FEW: dict[str, Any] = {"epochs": 1, "max_epochs": 2, "batch_size": 16, "least_steps": 1, "lr": 3e-3}


def make_oracle(count: int = 100) -> Oracle:
    x = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    model = SplitModel(nn.PixelUnshuffle(2), build_channel([GaussianOptions(noise_std=0.1)]), None)
    return Oracle(model, THREATS["train"], x, torch.zeros(count, dtype=torch.long), num_classes=1)


def points(table: dict[tuple[int, int], float]) -> list[FamilyPoint]:
    most = max(images for _, images in table)
    return [FamilyPoint(width, images / most, images, error) for (width, images), error in table.items()]


def codes(table: dict[tuple[int, int], float]) -> list[str]:
    found = points(table)
    return [item.code for item in doubts(found, min(found, key=lambda point: point.validation_error))]


# what the curve says


def test_the_gain_of_a_doubling_is_that_of_a_power_law() -> None:
    law = [(float(size), 3 * size**-0.5) for size in (30, 100, 300)]
    assert gain_of_doubling(law) == pytest.approx(1 - 2**-0.5)
    assert gain_of_doubling(law[::-1]) == pytest.approx(1 - 2**-0.5)
    assert gain_of_doubling([(100, 0.01), (200, 0.0095)]) == pytest.approx(0.05)
    assert gain_of_doubling([(100, 0.01), (200, 0.02)]) == pytest.approx(-1)
    assert gain_of_doubling([(100, 0.01)]) == gain_of_doubling([(100, 0.01), (200, 0.0)]) == 0


def test_a_flat_curve_raises_no_doubt() -> None:
    assert codes({(32, 100): 0.0100, (32, 200): 0.0096, (64, 100): 0.0099, (64, 200): 0.0095}) == []


def test_a_curve_that_falls_with_the_images_raises_one() -> None:
    assert codes({(32, 100): 0.0100, (32, 200): 0.0094, (64, 100): 0.0100, (64, 200): 0.0093}) == ["more_images_help"]


def test_a_curve_that_falls_with_the_width_raises_one() -> None:
    table = {(32, 200): 0.0100, (64, 200): 0.0097}
    assert codes(table) == ["more_width_helps"]
    (said,) = doubts(points(table), points(table)[1])
    assert said.text.startswith("at width 64 the error still falls by 3.0 % per doubling of the width")


def test_a_width_that_does_worse_raises_none() -> None:
    assert codes({(32, 200): 0.0100, (64, 200): 0.0110}) == []


# its members


def test_parts_are_nested_and_share_what_is_held_out() -> None:
    parts = [PartMaterial(make_oracle(), DecoderOptions(), 3, fraction) for fraction in (0.001, 0.5, 1.0)]
    assert [len(part.train) for part in parts] == [1, 45, 90]
    for part in parts:
        assert set(part.train.tolist()) <= set(parts[-1].train.tolist())
        assert torch.equal(part.held_x, parts[-1].held_x)
        assert len(part.held_x) == 10
    assert not torch.equal(parts[0].standardise.mean, parts[-1].standardise.mean)  # of its own images alone


def test_every_member_is_in_the_verdict_and_the_best_recovers() -> None:
    attack = FamilyAttack(widths=(8, 16), fractions=(0.5, 1.0), **FEW)
    attack.fit(make_oracle(), seed=0)
    table = attack.verdict.family
    assert [(point.width, point.images) for point in table] == [(8, 45), (8, 90), (16, 45), (16, 90)]
    best = min(table, key=lambda point: point.validation_error)
    assert attack.verdict.chosen == {"width": best.width, "fraction": best.fraction}
    assert attack.verdict.num_parameters == count_parameters(GlobalDecoder((4, 4, 4), (1, 8, 8), width=best.width))
    assert count_parameters(attack.decoder) == attack.verdict.num_parameters
    held = PartMaterial(make_oracle(), DecoderOptions(), 0, best.fraction)
    with torch.no_grad():
        error = float((attack.decoder(held.held_z) - held.held_x).square().mean())
    assert error == pytest.approx(best.validation_error, rel=1e-4)


def test_a_steep_curve_makes_it_unreliable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "MORE_IMAGES", -9.0)
    monkeypatch.setattr(family, "MORE_WIDTH", 9.0)
    attack = FamilyAttack(widths=(8,), fractions=(0.5, 1.0), tolerance=0.99, **FEW)
    attack.fit(make_oracle(), seed=0)
    assert [item.code for item in attack.findings] == ["more_images_help"]
    assert not attack.verdict.reliable


def test_verdicts_with_and_without_a_family_can_be_read() -> None:
    verdict = Verdict(family=points({(32, 200): 0.01}))
    data = json.loads(json.dumps(verdict.to_dict()))
    assert read(Verdict, data, Path("row.json")) == verdict
    del data["family"], data["fixed_budget"]
    assert read(Verdict, data, Path("row.json")) == Verdict()
