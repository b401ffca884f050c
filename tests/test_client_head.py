"""The client's own head: where it reads, how it decides, and the thresholds of a share or an accuracy."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config
from attncem.config.options.release import FEWEST, ReleaseOptions
from attncem.data.specs import DATASETS
from attncem.models.client_head import (
    ROUNDING,
    ClientHead,
    confidence,
    doubt,
    layers_of,
    right_by_count,
    sends_about,
    threshold_of_accuracy,
    threshold_of_best,
    threshold_of_share,
)
from attncem.models.cost import count_cost
from attncem.models.networks import with_room_for_head
from attncem.models.split import SplitModel
from attncem.records.selection import Selection
from attncem.training.build import build_model
from attncem.training.choosing_threshold import merit, require_validation, select
from attncem.training.engine import seeded

MINI = DATASETS["fashion_mnist_mini"]
UNSURE = {"release.when": "unsure"}
NARROW = {"model.bottleneck": {"channels": 4, "stride": 1}}
NETWORKS: dict[str, dict[str, Any]] = {
    "small_cnn": {**NARROW, "model.cut": 2, "model.width": 8},
    "vgg11_bn": {**NARROW, "model.cut": 4, "model.width": 8},
    "resnet20": {**NARROW, "model.cut": 3, "model.width": 8},
    "vit_tiny": {**NARROW, "model.cut": 3, "model.width": 64},
    "lean": {"model.macs": 1.0e6, "model.side": 4, "model.cut": 2},
}


def made(name: str, **options: Any) -> SplitModel:
    """A client with a head, with random weights, and batch norm that has seen some images."""
    config = load_config("demo-none", {"model.name": name, **NETWORKS[name], **UNSURE, **options}).config
    with seeded(torch.device("cpu"), 0, "init"):
        model = build_model(config, MINI)
        with torch.no_grad():
            model.train()
            model(some_images(16))
            assert model.head is not None
            for weight in model.head.parameters():
                weight.mul_(20)
    return model.eval()


def some_images(count: int = 64, seed: int = 1) -> Tensor:
    """Coarse patterns of different contrast, about which a head differs more than about noise."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 1, 4, 4, generator=generator) * torch.rand(count, 1, 1, 1, generator=generator)
    return coarse.repeat_interleave(7, 2).repeat_interleave(7, 3)


def noise(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# the two ends


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_thresholds_0_and_1_are_the_head_and_the_full_release_bit_by_bit(name: str) -> None:
    """Z, releases and answers, and the gradient of neither end is needed for it."""
    model, x = made(name), some_images()
    look = model.look(x)
    assert torch.equal(look.z, model.encode(x)), "the head changes nothing that the encoder computes"
    model.threshold = 1.0
    assert bool(model.sends(look.answers).all())
    assert torch.equal(model(x, noise()), model.predict(model.release(x, generator=noise())))
    model.threshold = 0.0
    assert not bool(model.sends(look.answers).any())
    assert torch.equal(model(x, noise()), look.answers)


@torch.no_grad()
def test_in_between_each_image_has_the_answer_of_its_own_way() -> None:
    model, x = made("lean"), some_images()
    answers = model.look(x).answers
    model.threshold = threshold_of_share(confidence(answers), 0.5)
    sent, out = model.sends(answers), model(x, noise())
    assert int(sent.sum()) == 32
    server = model.predict(model.release(x, generator=noise()))
    assert torch.equal(out[sent], server[sent]) and torch.equal(out[~sent], answers[~sent])


@pytest.mark.parametrize("value", [0.0, 60.0, 1e4])
def test_a_head_that_is_wholly_sure_or_wholly_unsure_still_obeys_both_ends(value: float) -> None:
    """A confidence is at most 1 and never 0, also where the softmax saturates."""
    answers = torch.zeros(4, 10)
    answers[:, 3] = value
    sure = confidence(answers)
    assert bool((sure <= 1).all()) and bool((sure > 0).all())
    model = SplitModel(nn.Identity(), nn.Identity(), None, threshold=1.0)
    assert bool(model.sends(answers).all())
    model.threshold = 0.0
    assert not bool(model.sends(answers).any())


# the decision


@torch.no_grad()
def test_the_same_image_is_decided_alike_alone_and_in_any_batch() -> None:
    """Up to rounding: a confidence moves by less than ROUNDING, so only an image so near to the threshold can flip."""
    model, x = made("lean"), some_images(120)
    whole = model.look(x).answers
    sure = confidence(whole)
    alone = torch.cat([confidence(model.look(image).answers) for image in x.split(1)])
    order = torch.randperm(120, generator=noise())
    mixed = torch.cat([confidence(model.look(part).answers) for part in x[order].split(7)])
    assert float((alone - sure).abs().max()) < ROUNDING / 10
    assert float((mixed - sure[order]).abs().max()) < ROUNDING / 10
    model.threshold = threshold_of_share(sure, 0.4)
    clear = (sure - model.threshold).abs() > ROUNDING
    assert int(clear.sum()) > 90
    assert torch.equal((alone <= model.threshold)[clear], model.sends(whole)[clear])
    assert bool(sends_about(whole, model.threshold)[alone <= model.threshold].all())
    assert not bool(sends_about(whole, model.threshold)[sure > model.threshold + 2 * ROUNDING].any())


@torch.no_grad()
def test_a_decision_never_depends_on_noise_or_on_the_channel() -> None:
    x = some_images()
    quiet, loud = (made("small_cnn", channel=[{"name": "gaussian", "noise_std": std}]) for std in (0.01, 5.0))
    loud.load_state_dict(quiet.state_dict())
    first = quiet.look(x).answers
    for seed in range(3):
        loud(x, noise(seed))
        assert torch.equal(loud.look(x).answers, first)


def test_doubt_is_no_way_for_a_gradient() -> None:
    answers = torch.randn(5, 10, requires_grad=True)
    assert not doubt(answers).requires_grad
    assert torch.allclose(doubt(answers).double(), 1 - confidence(answers.detach()), atol=1e-6)


# where the head is


@pytest.mark.parametrize("name", NETWORKS)
def test_the_head_reads_the_trunk_before_what_narrows_it_and_is_counted(name: str) -> None:
    """The pooled width of the trunk, not the few channels of z; its multiply-accumulates are the client's."""
    model = made(name)
    assert model.head is not None and model.head.layers is not None
    linear = [layer for layer in model.head.modules() if isinstance(layer, nn.Linear)][-1]
    z = model.encode(some_images(2))
    assert linear.in_features > (z.shape[2] if z.dim() == 3 else z.shape[1])
    assert model.head.layers <= len(list(layers_of(model.encoder)))
    without = SplitModel(model.encoder, model.channel, model.server)
    more = count_cost(model, MINI.shape).client_macs, count_cost(without, MINI.shape).client_macs
    assert None not in more and more[0] - more[1] == linear.in_features * 10  # type: ignore[operator]


@pytest.mark.parametrize("macs", [3.0e5, 1.0e6, 4.0e6])
def test_a_lean_client_with_its_head_keeps_its_budget(macs: float) -> None:
    config = load_config("demo-none", {"model.name": "lean", "model.cut": 2, "model.macs": macs, **UNSURE}).config
    cost = count_cost(build_model(config, MINI), MINI.shape)
    assert cost.client_macs is not None and 0.95 * macs <= cost.client_macs <= macs
    assert with_room_for_head(MINI, load_config("demo-none").config.model).name != "lean", "others are left as they are"


def test_a_budget_that_has_no_room_for_a_head_is_named() -> None:
    options = load_config("demo-none", {"model.name": "lean", "model.cut": 2, "model.macs": 3008, "model.side": 4})
    with pytest.raises(ConfigError, match=r"model\.macs=3008, of which a head takes 40: .*too small"):
        with_room_for_head(MINI, options.config.model)


def test_a_head_behind_unknown_modules_reads_z() -> None:
    encoder, server = nn.Sequential(nn.Flatten(), nn.Linear(784, 6)), nn.Linear(6, 10)
    model = build_model(load_config("demo-none", UNSURE).config, MINI, (encoder, server)).eval()
    assert isinstance(model.head, ClientHead) and model.head.layers is None
    with torch.no_grad():
        look = model.look(some_images(3))
        assert torch.equal(look.z, model.encode(some_images(3))) and look.answers.shape == (3, 10)


def test_a_client_without_a_head_says_so() -> None:
    model = build_model(load_config("demo-none").config, MINI)
    with pytest.raises(ValueError, match="this client has no head"):
        model.look(some_images(1))


# thresholds


few_confidences = st.lists(st.sampled_from([0.1, 0.3, 0.3 + 1e-9, 0.5, 0.9, 1.0]), min_size=1, max_size=12)
answers_of = st.lists(st.booleans(), min_size=12, max_size=12)


def every_threshold(sure: list[float]) -> list[float]:
    """Thresholds that separate all that can be separated."""
    values = sorted(set(sure))
    return [0.0, *((one + other) / 2 for one, other in pairwise(values)), 1.0]


def sent_by(sure: list[float], threshold: float) -> list[bool]:
    return [value <= threshold for value in sure]


@settings(max_examples=200, deadline=None)
@given(few_confidences, st.floats(0, 1))
def test_a_threshold_sends_the_nearest_possible_share(sure: list[float], share: float) -> None:
    threshold = threshold_of_share(torch.tensor(sure, dtype=torch.float64), share)
    wanted, count = round(share * len(sure)), sum(sent_by(sure, threshold))
    possible = [sum(sent_by(sure, one)) for one in every_threshold(sure)]
    assert 0 <= threshold <= 1
    assert abs(count - wanted) == min(abs(one - wanted) for one in possible)


@settings(max_examples=200, deadline=None)
@given(few_confidences, answers_of, answers_of, st.floats(0.01, 1))
def test_a_threshold_of_an_accuracy_sends_the_fewest(
    sure: list[float], alone: list[bool], sent: list[bool], accuracy: float
) -> None:
    alone, sent = alone[: len(sure)], sent[: len(sure)]
    given_to = torch.tensor(sure, dtype=torch.float64), torch.tensor(alone), torch.tensor(sent)
    threshold = threshold_of_accuracy(*given_to, accuracy)

    def right(one: float) -> int:
        return sum(s if by else a for by, a, s in zip(sent_by(sure, one), alone, sent, strict=True))

    reaching = [sum(sent_by(sure, one)) for one in every_threshold(sure) if right(one) >= accuracy * len(sure) - 1e-9]
    if threshold is None:
        assert not reaching
    else:
        assert right(threshold) >= accuracy * len(sure) - 1e-9
        assert sum(sent_by(sure, threshold)) == min(reaching)
    best, most = threshold_of_best(*given_to), max(map(right, every_threshold(sure)))
    assert right(best) == most
    fewest = min(sum(sent_by(sure, one)) for one in every_threshold(sure) if right(one) == most)
    assert sum(sent_by(sure, best)) == fewest


def test_right_answers_are_counted_from_the_least_sure_on() -> None:
    alone, sent = torch.tensor([False, True, True]), torch.tensor([True, False, True])
    assert right_by_count(alone, sent).tolist() == [2, 3, 2, 2]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.5, 0.9, 1.0])
def test_other_images_are_sent_within_two_points_of_what_was_asked(share: float) -> None:
    """Ten thousand images choose, ten thousand others are counted; a sure head, whose confidences crowd below 1."""
    generator = torch.Generator().manual_seed(0)
    scale = 12 * torch.rand(20_000, 1, generator=generator) ** 2
    answers = scale * torch.randn(20_000, 10, generator=generator)
    sure = confidence(answers)
    threshold = threshold_of_share(sure[:10_000], share)
    others = float((sure[10_000:] <= threshold).double().mean())
    assert abs(others - share) <= 0.02
    assert (others == share) or 0 < share < 1, "nothing and everything are exact"


# the choice of a run


def some_answers(count: int = 1000) -> tuple[Tensor, Tensor, Tensor]:
    """A head that is right as often as it is sure, and a server that is right on nine images of ten."""
    generator = torch.Generator().manual_seed(2)
    sure = 0.3 + 0.7 * torch.rand(count, generator=generator)
    alone = torch.rand(count, generator=generator) < sure
    return sure, alone, torch.rand(count, generator=generator) < 0.9


def test_a_selection_reports_what_its_threshold_gives() -> None:
    sure, alone, sent = some_answers()
    chosen = select(ReleaseOptions(when="unsure", share=0.25), sure, alone, sent)
    assert chosen.share == 0.25 and chosen.images == 1000 and chosen.reached
    assert chosen.alone == pytest.approx(float(alone.double().mean()))
    assert chosen.all_sent == pytest.approx(float(sent.double().mean()))
    assert chosen.alone < chosen.accuracy
    assert select(ReleaseOptions(when="unsure", threshold=0.5), sure, alone, sent).threshold == 0.5
    assert select(ReleaseOptions(when="unsure"), sure, alone, sent).share == 0.2
    nothing, everything = (select(ReleaseOptions(when="unsure", share=it), sure, alone, sent) for it in (0.0, 1.0))
    assert (nothing.threshold, nothing.accuracy) == (0.0, nothing.alone)
    assert (everything.threshold, everything.accuracy) == (1.0, everything.all_sent)


def test_a_wanted_accuracy_is_reached_with_the_fewest_images_or_reported_as_missed() -> None:
    sure, alone, sent = some_answers()
    reached = select(ReleaseOptions(when="unsure", accuracy=0.8), sure, alone, sent)
    assert reached.reached and 0.8 <= reached.accuracy < 0.802 and 0 < reached.share < 1
    missed = select(ReleaseOptions(when="unsure", accuracy=0.99), sure, alone, sent)
    assert not missed.reached and missed.accuracy > 0.89


def test_of_checkpoints_that_reach_the_accuracy_the_best_sends_least() -> None:
    def chosen(share: float, accuracy: float, reached: bool) -> Selection:
        return Selection(0.5, share, accuracy, 0.7, 0.9, 500, reached)

    wanted = ReleaseOptions(when="unsure", accuracy=0.8)
    least, more, missed = chosen(0.2, 0.8, True), chosen(0.4, 0.804, True), chosen(0.1, 0.79, False)
    assert merit(wanted, least) > merit(wanted, more) > merit(wanted, missed)
    by_share = ReleaseOptions(when="unsure", share=0.3)
    assert merit(by_share, more) > merit(by_share, least)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan])
def test_no_other_number_is_a_threshold(threshold: float) -> None:
    with pytest.raises(ValueError, match="a threshold from 0 to 1"):
        Selection(threshold, 0.5, 0.5, 0.5, 0.5, 500)


def test_too_few_validation_images_choose_no_threshold() -> None:
    with pytest.raises(ConfigError, match=r"there are 199 of them: at least 200 .*data\.validation_fraction"):
        require_validation(ReleaseOptions(when="unsure"), FEWEST - 1)
    for fine, count in ((ReleaseOptions(when="unsure"), FEWEST), (ReleaseOptions(when="unsure", threshold=0.5), 3)):
        require_validation(fine, count)
    require_validation(ReleaseOptions(), 3)


# wrong options


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a share without a head": ({"release.share": 0.3}, r"share=0.3 needs a head .*set when=unsure"),
    "two goals": ({**UNSURE, "release.share": 0.3, "release.accuracy": 0.8}, "share=0.3 and accuracy=0.8: .*give one"),
    "an unknown goal": ({**UNSURE, "release.shaer": 0.3}, r"shaer: unknown key; did you mean release\.share"),
    "an unknown when": ({"release.when": "unsur"}, "did you mean unsure"),
    "a share above 1": ({**UNSURE, "release.share": 1.3}, r"release\.share"),
    "no accuracy": ({**UNSURE, "release.accuracy": 0}, r"release\.accuracy"),
    "pruning": (
        {**UNSURE, "model.pruning": {"ratio": 0.3}},
        r"release\.when=unsure cannot be combined with model\.pruning",
    ),
    "a head on nothing": ({**UNSURE, "release.learn": "head"}, r"model\.init_from must name its run"),
    "a head on half a run": (
        {**UNSURE, "release.learn": "head", "model.init_from": "x", "model.init_parts": "client"},
        r"model\.init_parts must be both",
    ),
    "a penalty that changes nothing": (
        {
            **{**UNSURE, "release.learn": "head", "model.init_from": "x", "training.penalty_weight": 1.0},
            "surrogate": {"name": "capacity"},
        },
        r"training\.penalty_weight=0",
    ),
    "doubt without a head": (
        {"surrogate": {"name": "capacity", "sample_weights": "doubt"}},
        r"surrogate\.sample_weights=doubt follows .*set release\.when=unsure",
    ),
    "the client alone": ({**UNSURE, "on_device": True}, r"release\.when=always"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_named(name: str) -> None:
    options, words = WRONG[name]
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        load_config("demo-none", {"model.width": 4, **options})
