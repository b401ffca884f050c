"""Every probe against one contract; a new one is tested by a line in CASES.

A planted leak is found, a constant feature gives chance, what the adversary lacks makes it not applicable, and the
same seed gives the same numbers and leaves the victim as it was.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.config.options.probes import (
    AttributeLeakageOptions,
    ByPictureOptions,
    ClusteringOptions,
    LabelLeakageOptions,
    MembershipOptions,
    ReidentificationOptions,
)
from attncem.config.threats import THREATS, ThreatModel, with_releases
from attncem.judging.auditing import Case, measure
from attncem.judging.auditing.judges import PROBES, build_judge
from attncem.records.audit import Row
from attncem.records.image_scores import ImageScores
from probing import DATA, LEAKY, NUM_CLASSES, PARTS, Constant, subject


class Labelled(nn.Module):
    """A scramble of x that tells little, and one channel in which the class is lit."""

    def forward(self, x: Tensor) -> Tensor:
        label = (10 * x[:, 0, 0, 0]).round().long()
        lit = F.one_hot(label, 9).float().view(-1, 1, 3, 3)
        return torch.cat([torch.sin(1000 * F.pixel_unshuffle(x, 4)[:, :3]), lit], 1)


class Grouped(nn.Module):
    """The class of x, and nothing else."""

    def forward(self, x: Tensor) -> Tensor:
        return F.one_hot((10 * x[:, 0, 0, 0]).round().long(), NUM_CLASSES).float()[:, :, None, None]


class Ungrouped(nn.Module):
    """The leaky identity without the pixel that tells the class."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, 4)[:, 1:]


class Marked(nn.Module):
    """The leaky identity, with a small mark on every image that it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.own = DATA.train.get(slice(None))[0].flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        known = (torch.cdist(x.flatten(1), self.own, compute_mode="donot_use_mm_for_euclid_dist") < 1e-4).any(1)
        return torch.cat([F.pixel_unshuffle(x, 4), 0.1 * known.float().view(-1, 1, 1, 1).expand(-1, 1, 3, 3)], 1)


class Asked(NamedTuple):
    """A probe's options, an encoder that leaks what it looks for, and what must come out."""

    options: Any
    leak: Callable[[], nn.Module]
    found: dict[str, float]
    """The least of each measure under the leak, without noise."""
    innocent: nn.Module
    """An encoder that tells all but what this probe looks for, or nothing."""


CASES: dict[str, Asked] = {
    "reidentification": Asked(
        ReidentificationOptions(candidates=50, num_releases=4),
        lambda: LEAKY,
        {"rank_1": 1.0, "reciprocal_rank": 1.0},
        Constant(),
    ),
    "reidentification_by_picture": Asked(
        ByPictureOptions(candidates=50), lambda: LEAKY, {"pixel_rank_1": 1.0}, Constant()
    ),
    "label_leakage": Asked(
        LabelLeakageOptions(labels=(1, 4, 16), draws=4),
        Labelled,
        {"accuracy@16": 0.99, "balanced@16": 0.99, "accuracy@4": 0.8, "accuracy@1": 0.4},
        Constant(),
    ),
    "clustering": Asked(
        ClusteringOptions(),
        Grouped,
        {"kmeans_accuracy": 1.0, "mixture_accuracy": 1.0, "kmeans_nats": math.log(4), "mixture_nats": math.log(4)},
        Ungrouped(),
    ),
    "attribute_leakage": Asked(
        AttributeLeakageOptions(groups={"first": ("class 0",), "others": ("class 1", "class 2", "class 3")}),
        Labelled,
        {"attribute_accuracy": 0.99, "attribute_balanced": 0.99},
        Constant(),
    ),
    "membership": Asked(MembershipOptions(), Marked, {"auc": 0.99, "balanced_accuracy": 0.97}, LEAKY),
}
"""A line per probe."""
NAMES = list(CASES)


def judged(
    name: str,
    encoder: nn.Module,
    *,
    noise_std: float = 0.0,
    threat: ThreatModel = THREATS["train"],
    seed: int = 0,
    server: nn.Module | None = None,
) -> tuple[Row, ImageScores | None]:
    found = measure(Case(subject(encoder, noise_std, server), threat), name, CASES[name].options, seed=seed)
    return found.row, found.files.scores


def test_no_probe_is_left_out() -> None:
    assert set(CASES) == set(PROBES)
    for name, probe in PROBES.items():
        assert CASES[name].options.name == name
        assert probe.options_type.model_fields["name"].default == name
        assert isinstance(build_judge(CASES[name].options), probe)
        assert probe(**CASES[name].options.model_dump(exclude={"name"})).options == CASES[name].options


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_leak_is_found(name: str) -> None:
    row, _ = judged(name, CASES[name].leak())
    assert (row.outcome, row.kind, row.reason) == ("ok", "probe", "")
    assert {re.sub(r"@\d+$", "@", measure) for measure in row.scores} <= set(CASES[name].options.measures)
    for measure_name, least in CASES[name].found.items():
        assert row.scores[measure_name].mean >= least - 1e-9, measure_name
        assert row.scores[measure_name].low > row.chance[measure_name]


@pytest.mark.parametrize("noise_std", [0.0, 0.1])
@pytest.mark.parametrize("name", NAMES)
def test_a_constant_gives_chance(name: str, noise_std: float) -> None:
    for encoder in (Constant(), CASES[name].innocent):
        row, _ = judged(name, encoder, noise_std=noise_std, seed=3)
        assert set(row.scores) == set(row.chance)
        for measure_name, chance in row.chance.items():
            score = row.scores[measure_name]
            slack = 1.5 * (score.high - score.low) + 1e-9  # three standard errors
            assert abs(score.mean - chance) <= slack, (measure_name, score, chance)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_of_evaluation_images_and_average_to_the_scores(name: str) -> None:
    row, scores = judged(name, LEAKY, noise_std=0.2)
    assert scores is not None
    assert row.num_images == len(scores.index) <= PARTS["test"]
    assert len(np.unique(scores.index)) == len(scores.index)
    assert (np.diff(scores.index) > 0).all()
    assert set(scores.values) == set(row.scores) == set(row.chance)
    for measure_name, values in scores.values.items():
        assert values.shape == scores.index.shape
        assert values.dtype == np.float64
        assert np.isfinite(values).all()
        assert float(values.mean()) == row.scores[measure_name].mean


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_numbers(name: str) -> None:
    before = torch.get_rng_state()
    first, _ = judged(name, LEAKY, noise_std=0.3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(77)
    again, _ = judged(name, LEAKY, noise_std=0.3)
    other, _ = judged(name, LEAKY, noise_std=0.3, seed=1)
    assert first.scores == again.scores
    assert first.scores != other.scores


@pytest.mark.parametrize("name", NAMES)
def test_the_victim_stays_as_it_is(name: str) -> None:
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3, stride=4), nn.BatchNorm2d(4))
    opened = subject(encoder, 0.1, nn.Sequential(nn.Flatten(), nn.Linear(36, NUM_CLASSES)))
    before = {key: tensor.clone() for key, tensor in opened.model.state_dict().items()}
    case = Case(opened, THREATS["train"])
    released, x = case.released.clone(), case.x.clone()
    assert measure(case, name, CASES[name].options, seed=0).row.ok
    assert all(torch.equal(tensor, before[key]) for key, tensor in opened.model.state_dict().items())
    assert not any(module.training for module in opened.model.modules())
    assert all(parameter.grad is None for parameter in opened.model.parameters())
    assert torch.equal(case.released, released)
    assert torch.equal(case.x, x)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("threat", "lacks"),
    [
        (THREATS["no_access"], {"queries"}),
        (ThreatModel("owns nothing", True, True, "none"), {"images"}),
    ],
    ids=["no_access", "none"],
)
def test_what_the_adversary_lacks_makes_it_not_applicable(name: str, threat: ThreatModel, lacks: set[str]) -> None:
    row, scores = judged(name, LEAKY, threat=threat)
    if PROBES[name].needs & lacks:
        assert (row.outcome, row.scores, row.chance, scores) == ("not_applicable", {}, {}, None)
        assert threat.name in row.reason
    else:
        assert row.ok


@pytest.mark.parametrize("name", NAMES)
def test_more_releases_are_no_hindrance(name: str) -> None:
    """Sixteen releases, as their mean, are worth what noise of a quarter is, or more."""
    first = next(iter(CASES[name].found))
    threat = with_releases(THREATS["train"], 16)
    once, _ = judged(name, CASES[name].leak(), noise_std=0.6)
    often, _ = judged(name, CASES[name].leak(), noise_std=0.6, threat=threat)
    assert often.releases == 16
    assert often.scores[first].mean > once.scores[first].mean
