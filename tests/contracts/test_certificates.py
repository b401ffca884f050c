"""Every certificate against one contract; a new one is tested by a line in CASES.

Numbers are finite and never negative, the same every time, a claim lies on the safe side of its value, every assumption
has its sentence, and the victim stays as it was. What has no noise, no finite features, one class or a constant
feature gets a clear answer.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncem.base.texts import has_text
from attncem.config.loading.load import load_config
from attncem.config.options.certificates import (
    AccountantOptions,
    BeyondLabelOptions,
    CodeEntropyOptions,
    EvidenceOptions,
    FanoOptions,
    FisherOptions,
    LeakageOptions,
    LocalPrivacyOptions,
    QuantisationOptions,
    ShannonOptions,
    SurrogateLeakageOptions,
)
from attncem.config.threats import THREATS, ThreatModel, with_releases
from attncem.data.batches import DeviceData
from attncem.judging.auditing import Case, measure
from attncem.judging.auditing.judges import CERTIFICATES, build_judge
from attncem.models.channels import build_channel
from attncem.records.audit import Row
from attncem.training.build import RunData
from probing import DATA, LEAKY, NUM_CLASSES, Constant, subject

CASES: dict[str, Any] = {
    "leakage": LeakageOptions(clusters=2),
    "beyond_label": BeyondLabelOptions(clusters=2),
    "surrogate_leakage": SurrogateLeakageOptions(),
    "leakage_evidence": EvidenceOptions(candidates=60),
    "shannon": ShannonOptions(components=32),
    "fisher": FisherOptions(images=40, probes=4, components=16),
    "fano": FanoOptions(candidates=(50, 10**6)),
    "quantisation": QuantisationOptions(),
    "code_entropy": CodeEntropyOptions(),
    "local_privacy": LocalPrivacyOptions(),
    "accountant": AccountantOptions(releases=(1, 8)),
}
"""A line per certificate."""
NAMES = list(CASES)
NEVER = {"surrogate_leakage"}
"""What a foreign encoder has none of; `test_surrogate_bound` judges it on a run."""
CHANNELS: dict[str, list[dict[str, Any]]] = {
    "gaussian": [{"name": "gaussian", "noise_std": 0.2}],
    "laplace": [{"name": "laplace", "noise_std": 0.2}],
    "shaped": [{"name": "shaped", "noise_std": 0.2}],
    "local_dp": [{"name": "local_dp", "clip": 1.0, "epsilon": 5.0}],
    "quantise": [{"name": "quantise", "bits": 2}],
    "gaussian, dropout, quantise": [{"name": "gaussian", "noise_std": 0.2}, {"name": "dropout"}, {"name": "quantise"}],
    "quantise, gaussian": [{"name": "quantise", "bits": 2}, {"name": "gaussian", "noise_std": 0.2}],
    "dropout before": [{"name": "dropout"}, {"name": "gaussian", "noise_std": 0.2, "noise": "keyed"}],
    "dropout": [{"name": "dropout"}],
    "top_k": [{"name": "top_k"}],
    "identity": [{"name": "identity"}],
}
NOISY = {"gaussian", "laplace", "shaped", "local_dp", "dropout before"} | {
    "gaussian, dropout, quantise",
    "quantise, gaussian",
}
BITS = {"quantise", "gaussian, dropout, quantise", "quantise, gaussian"}
CODED = {"quantise", "quantise, gaussian"}


def case_of(encoder: nn.Module, channel: str = "gaussian", threat: ThreatModel = THREATS["train"]) -> Case:
    opened = subject(encoder)
    stages = load_config({"channel": CHANNELS[channel]}).config.channel
    opened.model.channel = build_channel(stages).eval()
    return Case(opened, threat)


def judged(name: str, case: Case, seed: int = 0) -> Row:
    return measure(case, name, CASES[name], seed=seed).row


def expected(name: str, channel: str) -> bool:
    """Whether the certificate says anything about this channel."""
    if name in NEVER:
        return False
    if name == "leakage_evidence":  # that something leaks needs no noise
        return True
    if name == "quantisation":
        return channel in BITS
    if name == "code_entropy":
        return channel in CODED
    if name == "local_privacy":
        return channel == "local_dp"
    if (name, channel) == ("fisher", "quantise, gaussian"):  # what is rounded has no derivative
        return False
    if name == "beyond_label" and channel in CODED:
        return True
    return channel in NOISY or (name in ("shannon", "fano") and channel in BITS)


def test_no_certificate_is_left_out() -> None:
    assert set(CASES) == set(CERTIFICATES)
    for name, certificate in CERTIFICATES.items():
        assert CASES[name].name == name == certificate.options_type.model_fields["name"].default
        assert isinstance(build_judge(CASES[name]), certificate)


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("name", NAMES)
def test_a_bound_where_there_is_one_and_a_reason_where_there_is_none(name: str, channel: str) -> None:
    row = judged(name, case_of(LEAKY, channel))
    assert (row.kind, row.outcome) == ("certificate", "ok" if expected(name, channel) else "not_applicable"), row.reason
    assert bool(row.bounds) == row.ok
    assert row.ok or len(row.reason) > 20
    for bound in row.bounds.values():
        numbers = (bound.value, bound.low, bound.high, bound.claim)
        assert all(math.isfinite(number) and number >= 0 for number in numbers)
        assert bound.low <= bound.value <= bound.high
        assert bound.claim >= bound.value if bound.direction == "at_most" else bound.claim <= bound.value
        assert bound.unit and isinstance(bound.vacuous, bool)
        assert all(has_text(f"assumption.{code}") for code in bound.assumptions)
    for bound_name, bound in row.bounds.items():
        side = CASES[name].bounds[re.sub(r"@\d+$", "@", bound_name)]
        sides = {"leakage": "", "mse": "<"} if bound.direction == "at_least" else {"releases": "<"}
        assert side == sides.get(bound.about, ">"), "the sign of conditions on it"


@pytest.mark.parametrize("name", NAMES)
def test_the_same_case_gives_the_same_numbers(name: str) -> None:
    before = torch.get_rng_state()
    first = judged(name, case_of(LEAKY, "local_dp"))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(9)
    assert judged(name, case_of(LEAKY, "local_dp")).bounds == first.bounds


@pytest.mark.parametrize("name", NAMES)
def test_the_victim_stays_as_it_is(name: str) -> None:
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU())
    case = case_of(encoder)
    before = {key: tensor.clone() for key, tensor in case.model.state_dict().items()}
    released, x = case.released.clone(), case.x.clone()
    judged(name, case)
    assert all(torch.equal(tensor, before[key]) for key, tensor in case.model.state_dict().items())
    assert not any(module.training for module in case.model.modules())
    assert all(parameter.grad is None for parameter in case.model.parameters())
    assert torch.equal(case.released, released) and torch.equal(case.x, x) and not case.x.requires_grad


NO_FEATURE = ("quantisation", "code_entropy", "local_privacy", *NEVER)
"""They read no feature of a noisy channel."""


class Broken(nn.Module):
    """NaN for some images."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x[:, :, :3, :3] > 0.6, torch.nan, x[:, :, :3, :3])


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NO_FEATURE])
def test_features_that_are_no_numbers_are_named(name: str) -> None:
    row = judged(name, case_of(Broken()))
    assert (row.outcome, row.bounds) == ("failed", {})
    assert "not finite" in row.reason


def test_a_constant_feature_leaks_nothing() -> None:
    case = case_of(Constant())
    assert judged("leakage", case).bounds["leakage"].claim < 1e-6
    fano = judged("fano", case).bounds["rank_1@50"]
    assert fano.value == pytest.approx(1 / 50, rel=1e-2)
    told = judged("leakage_evidence", case).bounds["infonce"]
    assert (told.value, told.vacuous) == (pytest.approx(0, abs=1e-9), True)
    assert "no gradient" in judged("fisher", case).reason
    assert judged("accountant", case).bounds["releases"].value == 2**20


@pytest.mark.parametrize(
    "name", ["leakage", "beyond_label", "leakage_evidence", "shannon", "fisher", "fano", "accountant"]
)
def test_one_class_is_enough(name: str) -> None:
    def of_one(part: DeviceData) -> DeviceData:
        return DeviceData(part.images, torch.zeros_like(part.labels))

    opened = subject(LEAKY, 0.2)
    names = ("train", "validation", "held_out", "test", "infer_auxiliary", "infer_evaluation")
    data: RunData = replace(DATA, **{part: of_one(getattr(DATA, part)) for part in names})
    opened = replace(opened, spec=replace(opened.spec, num_classes=1), reader=lambda: data)
    assert judged(name, Case(opened, THREATS["train"])).ok


def test_what_the_adversary_lacks_does_not_matter() -> None:
    """A bound is on every adversary; only the decoder's evidence needs one that has a decoder."""
    case = case_of(LEAKY, threat=THREATS["no_access"])
    assert judged("leakage", case).bounds == judged("leakage", case_of(LEAKY)).bounds
    assert list(judged("leakage_evidence", case).bounds) == ["infonce"]
    assert list(judged("leakage_evidence", case_of(LEAKY)).bounds) == ["infonce", "decoder"]


def test_more_releases_tell_more() -> None:
    often = with_releases(THREATS["train"], 16)
    for name in ("leakage", "beyond_label", "leakage_evidence", "fano"):
        once, more = (
            next(iter(judged(name, case_of(LEAKY, threat=it)).bounds.values())) for it in (THREATS["train"], often)
        )
        assert once.value <= more.value, name
    for name in ("shannon", "fisher"):
        rows = [judged(name, case_of(LEAKY, threat=threat)).bounds for threat in (THREATS["train"], often)]
        for key in (key for key in rows[0] if key.startswith("mse")):
            assert rows[0][key].value >= rows[1][key].value, key
    epsilons = [
        judged("local_privacy", case_of(LEAKY, "local_dp", it)).bounds["epsilon"].value
        for it in (THREATS["train"], often)
    ]
    assert epsilons[0] == 5.0 < epsilons[1]


def test_kinks_are_named() -> None:
    bounds = judged("fisher", case_of(nn.Sequential(nn.Conv2d(1, 2, 3, stride=3), nn.ReLU()))).bounds
    assert {bound.by for bound in bounds.values()} == {"ReLU"}
    assert all("not_smooth" in bound.assumptions and bound.kind == "estimate" for bound in bounds.values())
    smooth = judged("fisher", case_of(nn.Sequential(nn.Conv2d(1, 2, 3, stride=3), nn.GELU()))).bounds
    assert smooth["mse_unbiased"].kind == "bound" and "smooth" in smooth["mse_unbiased"].assumptions


def test_bits_bound_a_release_without_noise() -> None:
    nats = judged("quantisation", case_of(LEAKY, "quantise")).bounds["leakage"].value
    assert nats == pytest.approx(144 * 2 * math.log(2))
    often = with_releases(THREATS["train"], 4)
    assert judged("quantisation", case_of(LEAKY, "quantise", often)).bounds["leakage"].value == nats
    after = judged("quantisation", case_of(LEAKY, "quantise, gaussian", often)).bounds["leakage"].value
    assert after == nats, "noise behind the rounding adds nothing"
    noisy = judged("quantisation", case_of(LEAKY, "gaussian, dropout, quantise", often)).bounds["leakage"].value
    assert noisy == pytest.approx(4 * 144 * 8 * math.log(2)), "each release may say something else"


def test_features_that_are_no_numbers_have_no_code() -> None:
    row = judged("code_entropy", case_of(Broken(), "quantise"))
    assert (row.outcome, row.bounds) == ("failed", {}) and "not finite" in row.reason


def test_a_foreign_channel_has_a_law_that_nobody_knows() -> None:
    class Own(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return z + 0.1

    opened = subject(LEAKY)
    opened.model.channel = Own()
    row = judged("leakage", Case(opened, THREATS["train"]))
    assert (row.outcome, row.reason) == ("not_applicable", "none: the distribution of the channel Own is not known")


@pytest.mark.parametrize("scheme", [0, 1])
def test_keyed_noise_counts_while_its_key_is_secret(scheme: int) -> None:
    case = Case(subject(LEAKY, 0.2, noise="keyed"), with_releases(THREATS["train"], 16))
    case.model.channel.bind(bytes(range(32)), "", scheme=scheme)  # type: ignore[operator]
    row = judged("leakage", case)
    if scheme == 0:
        assert row.outcome == "not_applicable" and "scheme 0" in row.reason
    else:
        once = judged("leakage", case_of(LEAKY)).bounds["leakage"]
        assert row.bounds["leakage"].value == pytest.approx(once.value), "sixteen releases are one"
        assert "key_secret" in row.bounds["leakage"].assumptions


def test_pixels_that_move_are_another_question() -> None:
    moving = replace(THREATS["train"], jitter=1, releases_per_input=4)
    row = judged("leakage", case_of(LEAKY, threat=moving))
    assert (row.outcome, row.bounds) == ("not_applicable", {}) and "same pixels" in row.reason


def test_a_fresh_mask_before_keyed_noise_shows_z_without_noise() -> None:
    case = case_of(LEAKY, "dropout before", with_releases(THREATS["train"], 4))
    case.model.channel.bind(bytes(range(32)), "")  # type: ignore[operator]
    assert "fresh noise before keyed noise" in judged("leakage", case).reason
    once = case_of(LEAKY, "dropout before")
    once.model.channel.bind(bytes(range(32)), "")  # type: ignore[operator]
    assert judged("leakage", once).ok


def test_per_image_numbers_average_to_the_bound() -> None:
    found = measure(case_of(LEAKY), "leakage", CASES["leakage"], seed=0)
    assert found.files.scores is not None
    values = found.files.scores.values["leakage"]
    assert len(values) == found.row.num_images == 120
    assert float(values.mean()) == pytest.approx(found.row.bounds["leakage"].value)


def test_probing_data_has_the_classes_that_the_contract_thinks() -> None:
    assert int(DATA.test.labels.max()) + 1 == NUM_CLASSES
