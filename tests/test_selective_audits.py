"""Audits of a client that sends only some images: what is judged, what an adversary gets, and what bounds claim."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attncem.judging.certificates.over_all as over_all_module
from attncem.base.progress import silent
from attncem.base.texts.titles import FROM_SENT, row_title, threat_title
from attncem.base.types import ConfigError, NotApplicable
from attncem.campaigns.cell import audit_run
from attncem.cli.main import main
from attncem.config.options.attacks import (
    ClassMeanOptions,
    DecoderOptions,
    MeanImageOptions,
    NearestNeighbourOptions,
    RidgeOptions,
)
from attncem.config.options.campaigns import CampaignAudit
from attncem.config.options.certificates import (
    AccountantOptions,
    CodeEntropyOptions,
    LeakageOptions,
    QuantisationOptions,
)
from attncem.config.options.probes import LabelLeakageOptions, MembershipOptions, ReidentificationOptions
from attncem.config.options.suites import Suite
from attncem.config.threats import THREATS, ThreatModel, extended
from attncem.data.batches import DeviceData
from attncem.judging.attacks.ridge import RidgeAttack
from attncem.judging.auditing import Case, audit, measure
from attncem.judging.auditing.asked import Rows
from attncem.judging.auditing.twins import owned_by, with_twins
from attncem.judging.certificates.making import Numbers
from attncem.judging.opening import OpenRun, open_run
from attncem.judging.selecting import look_at
from attncem.models.client_head import ClientHead, confidence, threshold_of_share
from attncem.records.audit import AuditResult, Row
from attncem.records.bounds import Bound
from attncem.records.checkpoints import Checkpoint
from attncem.records.ledger import Ledger
from attncem.records.repeating import audit_options
from attncem.records.runs import RunDirectory
from probing import DATA, LEAKY, NUM_CLASSES, SPEC, subject
from toys import FloatImages

Make = Callable[..., Path]
SHARE: dict[str, Any] = {"release.when": "unsure", "release.share": 0.3}
CHANNEL = [{"name": "gaussian", "noise_std": 0.1}]
ROWS: dict[str, Any] = {
    "mean image": MeanImageOptions(),
    "class mean": ClassMeanOptions(),
    "ridge": RidgeOptions(),
    "leakage": LeakageOptions(),
    "re-identification": ReidentificationOptions(),
}


def suite(rows: dict[str, Any]) -> Suite:
    return Suite(name="tried", version=1, meaning="for a test", rows=rows)


def with_head(opened: OpenRun, share: float = 0.5, seed: int = 0) -> OpenRun:
    """The same client with a head on z, which sends this share of the test images."""
    x, _ = opened.data.test.get(slice(None))
    with torch.no_grad():
        size = opened.model.encode(x[:1]).numel()
    linear = nn.Linear(size, opened.spec.num_classes)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        linear.weight.copy_(torch.randn(linear.weight.shape, generator=generator))
        linear.bias.zero_()
    opened.model.head = ClientHead(nn.Sequential(nn.Flatten(), linear), None).eval()
    with torch.no_grad():
        opened.model.threshold = threshold_of_share(confidence(opened.model.look(x).answers), share)
    return opened


def toy(share: float = 0.5, noise_std: float = 0.1) -> OpenRun:
    """A leaky client of made-up pictures with a head, and a server."""
    return with_head(subject(LEAKY, noise_std, a_server()), share)


def a_server() -> nn.Module:
    """A server half for the leaky client, always the same."""
    torch.manual_seed(4)
    return nn.Sequential(nn.Flatten(), nn.Linear(144, NUM_CLASSES))


def sent_of(opened: OpenRun, data: DeviceData) -> Tensor:
    """Which images of a part are sent, one by one."""
    with torch.no_grad():
        return torch.cat([opened.model.sends(opened.model.look(x).answers) for x in data.get(slice(None))[0].split(1)])


def row_of(case: Case, options: Any, **how: Any) -> Row:
    return measure(case, "row", options, seed=3, **how).row


# what is judged


def test_only_sent_images_are_judged_and_keep_their_places() -> None:
    opened = toy()
    case = Case(opened, THREATS["train"])
    sent = sent_of(opened, DATA.test)
    assert case.places.tolist() == sent.nonzero().flatten().tolist() and len(case.x) == 60
    x, y = DATA.test.get(slice(None))
    assert torch.equal(case.x, x[sent]) and torch.equal(case.y, y[sent])
    made = measure(case, "ridge", RidgeOptions(), seed=0)
    assert made.files.scores is not None and made.files.scores.index.tolist() == case.places.tolist()
    assert {picture.index for picture in made.row.pictures} <= set(case.places.tolist())
    assert made.row.num_images == 60


def test_the_facts_of_the_plan_are_of_all_images() -> None:
    opened = toy(share=0.3)
    facts = Case(opened, THREATS["train"]).selective
    assert facts is not None and (facts.num_images, facts.num_sent, facts.share) == (120, 36, 0.3)
    x, y = DATA.test.get(slice(None))
    with torch.no_grad():
        look = opened.model.look(x)
        alone = look.answers.argmax(1) == y
    assert facts.alone.mean == pytest.approx(float(alone.double().mean()))
    assert facts.curve[0].accuracy == pytest.approx(facts.alone.mean)
    assert facts.curve[-1].accuracy == pytest.approx(facts.all_sent.mean)
    at = next(point for point in facts.curve if point.share == 0.3)
    assert at.accuracy == pytest.approx(facts.together.mean)
    sent = opened.model.sends(look.answers)
    assert facts.shares == [pytest.approx(float(sent[y == label].double().mean())) for label in range(NUM_CLASSES)]
    assert facts.alone_on_sent == pytest.approx(float(alone[sent].double().mean()))


SAME: dict[str, Any] = {
    "mean image": MeanImageOptions(),
    "class mean": ClassMeanOptions(),
    "nearest neighbour": NearestNeighbourOptions(),
    "ridge": RidgeOptions(),
    "decoder": DecoderOptions(epochs=2, max_epochs=2),
    "leakage": LeakageOptions(),
    "accountant": AccountantOptions(),
    "re-identification": ReidentificationOptions(),
    "label leakage": LabelLeakageOptions(),
}


@pytest.mark.parametrize("name", SAME)
def test_it_is_the_audit_of_a_client_that_releases_just_these_images(name: str) -> None:
    """Floors, attacks, probes, bounds and the accountant: as if the evaluation images were the sent ones alone."""
    opened = toy()
    test = DATA.test.at(sent_of(opened, DATA.test).nonzero().flatten())
    whole = subject(LEAKY, 0.1, opened.model.server, data=replace(DATA, test=test))
    selective, plain = (row_of(Case(one, THREATS["train"]), SAME[name]) for one in (opened, whole))
    assert selective.outcome == plain.outcome == "ok", selective.reason
    assert selective.scores == plain.scores and selective.chance == plain.chance
    bounds = {key: bound for key, bound in selective.bounds.items() if key not in ("over_all", "not_sent")}
    assert bounds == dict(plain.bounds)


def test_images_that_are_not_sent_would_have_told_what_their_own_audit_says() -> None:
    opened = toy()
    rest = DATA.test.at((~sent_of(opened, DATA.test)).nonzero().flatten())
    whole = subject(LEAKY, 0.1, opened.model.server, data=replace(DATA, test=rest))
    made = row_of(Case(opened, THREATS["train"]), LeakageOptions()).bounds["not_sent"]
    assert made.value == pytest.approx(row_of(Case(whole, THREATS["train"]), LeakageOptions()).bounds["leakage"].value)


# what the adversary learns from


def test_attacks_that_own_images_have_a_twin_that_learns_from_the_sent_ones() -> None:
    case, rows = Case(toy(), THREATS["train"]), {**ROWS, "nearest neighbour": NearestNeighbourOptions()}
    loaded = Rows(audit_suite(rows), list(rows))
    names = list(with_twins(loaded, case).wanted)
    assert [name for name in names if name.endswith(FROM_SENT)] == [
        f"{name}{FROM_SENT}" for name in ("mean image", "class mean", "ridge", "nearest neighbour")
    ]
    assert names.index("ridge" + FROM_SENT) == names.index("ridge") + 1
    assert owned_by("ridge" + FROM_SENT) == "sent" and owned_by("ridge") == "all"
    assert row_title("ridge" + FROM_SENT) == "ridge, from sent images"
    only = Rows(audit_suite(rows), ["ridge"])
    assert list(with_twins(only, case).wanted) == ["ridge", "ridge" + FROM_SENT]
    everything = Case(subject(LEAKY, 0.1), THREATS["train"])
    assert list(with_twins(only, everything).wanted) == ["ridge"]


def audit_suite(rows: dict[str, Any]) -> Any:
    from attncem.config.options.suites import load_suite

    return load_suite(suite(rows))


def test_a_twin_owns_exactly_its_sent_images() -> None:
    opened = toy()
    case = Case(opened, THREATS["train"])
    mine = sent_of(opened, DATA.train)
    x, y = DATA.train.get(slice(None))
    blind = measure(case, "blind", MeanImageOptions(), seed=0, owns="sent").row
    error = (case.x - x[mine].mean(0)).square().flatten(1).mean(1)
    assert blind.owns == "sent" and blind.mse.mean == pytest.approx(float(error.mean()), rel=1e-4)
    everything = measure(case, "blind", MeanImageOptions(), seed=0).row
    error = (case.x - x.mean(0)).square().flatten(1).mean(1)
    assert everything.owns == "all" and everything.mse.mean == pytest.approx(float(error.mean()), rel=1e-4)
    view = case.owning_sent()
    assert torch.equal(view.auxiliary.labels, y[mine]) and len(case.auxiliary) == len(y)
    ridge = measure(case, "ridge", RidgeOptions(), seed=0, owns="sent").row
    only = replace(DATA, train=DATA.train.at(mine.nonzero().flatten()))
    alone = with_head(subject(LEAKY, 0.1, opened.model.server, data=only))
    assert ridge.scores == measure(Case(alone, THREATS["train"]), "ridge", RidgeOptions(), seed=0).row.scores


def test_twins_share_what_they_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with other numbers of releases are views of one case: the attacker's images are decided once."""
    case, looked = Case(toy(), THREATS["train"]), list[int]()
    monkeypatch.setattr("attncem.judging.case.look_at", lambda model, x: looked.append(len(x)) or look_at(model, x))
    for releases in (1, 4, 16):
        options = RidgeOptions(releases=releases)
        assert measure(case, "ridge", options, seed=0, owns="sent").row.outcome == "ok"
    assert looked == [len(DATA.train)]


def test_too_few_sent_images_make_a_twin_not_applicable() -> None:
    opened = toy(share=0.2)
    few = replace(DATA, train=DATA.train.first(60))
    case = Case(with_head(subject(LEAKY, 0.1, a_server(), data=few), 0.2), THREATS["train"])
    row = measure(case, "ridge", RidgeOptions(), seed=0, owns="sent").row
    assert row.outcome == "not_applicable" and "needs at least 20 of its images to be sent" in str(row.reason)
    assert measure(Case(opened, THREATS["train"]), "ridge", RidgeOptions(), seed=0).row.outcome == "ok"


# an adversary without the encoder


def test_an_adversary_without_the_encoder_gets_releases_of_sent_images_only() -> None:
    opened = toy()
    case = Case(opened, THREATS["query_only"])
    mine = sent_of(opened, DATA.train)
    x, y = DATA.train.get(slice(None))
    assert torch.equal(case.auxiliary.get(slice(None))[0], x[mine]) and torch.equal(case.auxiliary.labels, y[mine])
    assert not case.learns_from_sent, "it has no other images to learn from"
    oracle = case.oracle(RidgeAttack(), 0)
    assert not oracle.may_ask
    assert oracle.release(x[mine]).shape == (int(mine.sum()), 16, 3, 3)
    for asked in (lambda: oracle.release(x), lambda: oracle.owning(x, y), oracle.mirrored):
        with pytest.raises(NotApplicable, match="gets releases only of images that the client would send"):
            asked()
    some = torch.arange(5)
    assert oracle.only(some).release_auxiliary(some).shape == (5, 16, 3, 3)


def test_an_adversary_with_the_encoder_computes_any_release_itself() -> None:
    opened = toy()
    x, _ = DATA.train.get(slice(None))
    oracle = Case(opened, THREATS["train"]).oracle(RidgeAttack(), 0)
    assert oracle.may_ask and len(oracle.release(x)) == len(x) and oracle.mirrored().num_auxiliary == len(x)


@pytest.mark.parametrize(
    "options",
    [RidgeOptions(), DecoderOptions(epochs=1, max_epochs=1, mirror=True), ReidentificationOptions()],
    ids=lambda options: options.name,
)
def test_attacks_by_queries_work_with_sent_images_alone(options: Any) -> None:
    assert row_of(Case(toy(), THREATS["query_only"]), options).outcome == "ok"
    limited = row_of(Case(toy(), extended(THREATS["query_only"], queries=40, releases=2)), options)
    assert limited.outcome == ("not_applicable" if isinstance(options, ReidentificationOptions) else "ok")


def test_owned_images_are_chosen_before_the_sent_ones_are() -> None:
    case = Case(toy(), extended(THREATS["query_only"], images=100))
    assert case.chosen is not None and len(case.chosen) == len(case.auxiliary) < 100
    x, _ = DATA.train.get(case.chosen)
    assert torch.equal(case.auxiliary.get(slice(None))[0], x)


def test_an_adversary_that_would_get_too_few_releases_is_refused() -> None:
    few = replace(DATA, train=DATA.train.first(40))
    with pytest.raises(ConfigError, match=r"the client sends \d+ of the 40 images .*raise release\.share"):
        Case(with_head(subject(LEAKY, 0.1, a_server(), data=few), 0.2), THREATS["query_only"])


def test_an_adversary_without_images_needs_none() -> None:
    nothing = ThreatModel("nothing", knows_encoder=False, knows_channel=False, auxiliary="none")
    assert len(Case(toy(), nothing).auxiliary) == 0


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_client_that_sends_too_few_cannot_be_judged(share: float) -> None:
    with pytest.raises(ConfigError, match=r"the client sends \d+ of 120 images .*what is not sent reveals nothing"):
        Case(toy(share=share), THREATS["train"])


# membership


def test_membership_looks_only_at_images_that_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    case, asked = Case(toy(), THREATS["train"]), list[Tensor]()
    plain = case.seen_of

    def seen_of(x: Tensor, *stream: str | int) -> Tensor:
        asked.append(x)
        return plain(x, *stream)

    monkeypatch.setattr(case, "seen_of", seen_of)
    made = measure(case, "membership", MembershipOptions(), seed=0)
    assert made.row.outcome == "ok", made.row.reason
    members = torch.cat(asked)
    assert len(members) > 20 and bool(look_at(case.model, members).sent.all())
    assert made.files.scores is not None and set(made.files.scores.index.tolist()) <= set(case.places.tolist())


# adversaries that see answers


def test_an_adversary_that_sees_answers_has_a_name_of_its_own() -> None:
    threat = extended(THREATS["train"], releases=4, sees_answers=True)
    assert (threat.name, threat.base, threat.is_raised) == ("train-x4-answers", "train", True)
    assert threat_title(threat.name) != threat_title("train-x4")
    assert "sees_answers" not in THREATS["train"].to_dict() and threat.to_dict()["sees_answers"] is True
    asked = CampaignAudit(sees_answers=True)
    assert asked.rows() and asked.key != CampaignAudit().key
    assert CampaignAudit(queries=0, threat="query_only").model_dump()["queries"] == 0
    assert "sees_answers" not in CampaignAudit().model_dump()


def test_answers_add_their_entropy_to_the_mean_over_all() -> None:
    plain, seeing = (
        row_of(Case(toy(), extended(THREATS["train"], sees_answers=sees)), LeakageOptions()).bounds
        for sees in (False, True)
    )
    assert seeing["leakage"] == plain["leakage"], "a sent image says nothing by its answer that z does not"
    more = seeing["over_all"].value - plain["over_all"].value
    assert 0 < more <= 0.5 * np.log(NUM_CLASSES) + 0.2


# the mean over all, against an exact law


class Prototypes:
    """Twelve pictures, each as likely: half of them are sent; z of the sent ones is one number, plus noise.

    Pixels 0 to 3 are the head's logits, pixel 4 is z. All nats are known: of silence, releases and answers.
    """

    noise = 0.5

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.sent = np.arange(12) % 2 == 0
        self.answer = np.array([0, 0, 1, 0, 2, 1, 3, 2, 0, 0, 1, 1])
        self.z = rng.uniform(0, 1, 12)
        pictures = np.zeros((12, 1, 3, 3), dtype=np.float32)
        logits = np.where(self.sent, 0.1, 1.0)[:, None] * np.eye(4)[self.answer]
        pictures.reshape(12, 9)[:, :4] = logits
        pictures.reshape(12, 9)[:, 4] = self.z
        self.pictures = torch.from_numpy(pictures)

    def opened(self, evaluation: int = 6000) -> OpenRun:
        """The client of these pictures, which has chosen its threshold on validation images."""
        parts = {}
        for seed, (part, count) in enumerate({"train": 2000, "test": evaluation}.items()):
            drawn = torch.randint(12, (count,), generator=torch.Generator().manual_seed(seed))
            parts[part] = FloatImages(self.pictures[drawn], torch.from_numpy(self.answer)[drawn])
        encoder, classifier = nn.Sequential(nn.Flatten(), nn.Linear(9, 1)), nn.Linear(9, 4)
        with torch.no_grad():
            for layer in (encoder[1], classifier):
                layer.weight.zero_()
                layer.bias.zero_()
            encoder[1].weight[0, 4] = 1
            classifier.weight[:, :4] = 10 * torch.eye(4)
        spec = replace(SPEC, shape=(1, 3, 3))
        opened = subject(encoder, self.noise, nn.Linear(1, 4), data=replace(DATA, spec=spec, **parts))
        opened.model.head, opened.model.threshold = ClientHead(classifier, 1), 0.6
        facts = {"release": {"threshold": 0.6, "share": 0.5, "images": 5000}}
        return replace(opened, spec=spec, checkpoint=Checkpoint("best", {}, {}, facts, Path()))

    def nats_of_sent(self) -> float:
        """I(x; z | sent): the entropy of the mixture of normal laws, minus that of the noise."""
        grid = np.linspace(-4, 5, 20_001)
        laws = np.exp(-0.5 * ((grid[:, None] - self.z[self.sent]) / self.noise) ** 2) / self.noise / np.sqrt(2 * np.pi)
        density = laws.mean(1)
        entropy = -np.trapezoid(density * np.log(density), grid)
        return float(entropy - 0.5 * np.log(2 * np.pi * np.e * self.noise**2))

    def nats(self, *, answers: bool) -> float:
        """All that the adversary learns: h₂(½) + ½ I(x; z | sent) + ½ H(answer | not sent)."""
        shares = np.bincount(self.answer[~self.sent], minlength=4) / 6
        entropy = -float(np.sum(shares[shares > 0] * np.log(shares[shares > 0])))
        return float(np.log(2) + 0.5 * self.nats_of_sent() + (0.5 * entropy if answers else 0))


def bounds_of(opened: OpenRun, *, answers: bool = False, releases: int = 1) -> dict[str, Bound]:
    threat = extended(THREATS["train"], sees_answers=answers, releases=releases)
    return dict(row_of(Case(opened, threat), LeakageOptions()).bounds)


@pytest.mark.parametrize("answers", [False, True])
def test_an_adversary_learns_no_more_than_claimed_and_little_less(answers: bool) -> None:
    """Silence, releases and answers of a client whose law is known: the claim is above the truth, by less than 10 %."""
    law = Prototypes()
    made = bounds_of(law.opened(), answers=answers)
    truth, sent = law.nats(answers=answers), law.nats_of_sent()
    assert truth <= made["over_all"].claim <= 1.1 * truth
    assert sent <= made["leakage"].claim <= 1.5 * sent + 0.05
    assert made["over_all"].about == "over_all" and not made["over_all"].vacuous


def test_a_claim_that_forgets_a_term_is_below_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy is sharp enough to catch it: without answers, without silence, without releases."""
    law = Prototypes()
    opened, truth = law.opened(), law.nats(answers=True)
    assert bounds_of(opened, answers=True)["over_all"].claim >= truth
    assert bounds_of(opened)["over_all"].claim < truth, "what silence and releases tell is not all"
    case = Case(opened, extended(THREATS["train"], sees_answers=True))
    nothing: Numbers = np.zeros(len(case.x))
    assert over_all_module.over_all(case, nothing, [])["over_all"].claim < truth, "releases tell something"
    monkeypatch.setattr(over_all_module, "_share_sent", lambda case, asked: 1.0)
    assert bounds_of(opened, answers=True)["over_all"].claim < truth, "silence tells something"


def test_a_share_that_was_chosen_on_too_few_images_costs_more_not_less() -> None:
    law = Prototypes()
    opened = law.opened()
    exact = bounds_of(opened)["over_all"].value
    assert opened.checkpoint is not None
    facts = {"release": {"threshold": 0.6, "share": 0.8, "images": 10}}
    wrong = bounds_of(replace(opened, checkpoint=replace(opened.checkpoint, facts=facts)))["over_all"].value
    assert wrong > exact


def test_more_releases_of_one_image_tell_no_more_about_whether_it_is_sent() -> None:
    law = Prototypes()
    opened = law.opened(1000)
    one, four = (bounds_of(opened, releases=count) for count in (1, 4))
    more = four["leakage"].value - one["leakage"].value
    sent = float(np.mean(Case(opened, THREATS["train"]).looked.sent.numpy()))  # type: ignore[union-attr]
    assert four["over_all"].value - one["over_all"].value == pytest.approx(sent * more, rel=1e-6)


def test_moved_pixels_may_be_decided_otherwise_so_nothing_is_claimed() -> None:
    case = Case(toy(), THREATS["train"]).seeing(2, jitter=4)
    assert over_all_module.over_all(case, 1.0, []) == {}


# runs


@pytest.fixture(scope="module")
def joint(small_run: Make) -> Path:
    """A run whose head learns with client and server."""
    return small_run("demo", **SHARE)


@pytest.fixture(scope="module")
def base(small_run: Make) -> Path:
    """A run without a head."""
    return small_run("demo-none", channel=CHANNEL)


@pytest.fixture(scope="module")
def everything(base: Path, small_run: Make) -> Path:
    """The same client with a head that sends everything."""
    head = {"release.when": "unsure", "release.threshold": 1.0, "release.learn": "head", "surrogate": {"name": "none"}}
    return small_run("demo-none", channel=CHANNEL, **head, **{"model.init_from": str(base)})


@pytest.fixture(scope="module")
def audited(joint: Path, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """An audit of the run with twins."""
    return audit(joint, suite(ROWS), out=tmp_path_factory.mktemp("audited"), progress=silent)


def test_with_a_threshold_of_1_every_number_is_that_of_the_full_release(
    base: Path, everything: Path, tmp_path: Path
) -> None:
    """Attacks, floors, probes and bounds, image by image."""
    plain, sent = (
        audit(run, suite(ROWS), out=tmp_path / run.parent.name, progress=silent) for run in (base, everything)
    )
    assert sent.plan.num_evaluation == plain.plan.num_evaluation == 1000
    for name in ROWS:
        one, other = plain.row(name), sent.row(name)
        assert other.scores == one.scores
        assert all(other.bounds[key] == bound for key, bound in one.bounds.items())
        if one.kind == "attack":
            both = [Ledger.open(Path(result.folder)).scores(name) for result in (plain, sent)]
            assert np.array_equal(both[0].index, both[1].index)
            assert np.array_equal(both[0].values["mse"], both[1].values["mse"])
    assert sent.plan.selective is not None and sent.plan.selective.share == 1.0
    assert sent.plan.accuracy == plain.plan.accuracy == sent.plan.selective.all_sent


def test_an_audit_has_twins_places_and_the_facts_of_the_client(audited: AuditResult, joint: Path) -> None:
    plan = audited.plan
    assert plan.selective is not None and plan.num_evaluation == plan.selective.num_sent < 1000
    assert plan.accuracy == plan.selective.together
    twins = {row.name for row in audited.rows if row.owns == "sent"}
    assert twins == {name + FROM_SENT for name in ("mean image", "class mean", "ridge")}
    opened = open_run(joint)
    places = look_at(opened.model, opened.data.test.get(slice(None))[0]).places
    ledger = Ledger.open(Path(audited.folder))
    for name in ("ridge", "ridge" + FROM_SENT, "re-identification"):
        assert np.array_equal(ledger.scores(name).index, places)
    assert {"leakage", "over_all", "not_sent"} == set(audited.row("leakage").bounds)


def test_an_interrupted_audit_resumes_with_the_missing_twins(joint: Path, tmp_path: Path, audited: AuditResult) -> None:
    class Killed(BaseException):
        """The end of a process."""

    def stopping(stage: str, done: float, total: float, numbers: Any) -> None:
        if done == 3 and total == 8:
            raise Killed

    with pytest.raises(Killed):
        audit(joint, suite(ROWS), out=tmp_path, progress=stopping)
    written = {file.name for file in next(tmp_path.iterdir()).glob("*.json")}
    result = audit(joint, suite(ROWS), out=tmp_path, progress=silent)
    assert len(list(tmp_path.iterdir())) == 1 and len(written) < 8
    assert [replace(row, seconds=0.0) for row in result.rows] == [replace(row, seconds=0.0) for row in audited.rows]


@pytest.mark.slow
def test_two_workers_give_the_same_numbers(joint: Path, tmp_path: Path, audited: AuditResult) -> None:
    result = audit(joint, suite(ROWS), out=tmp_path, workers=2, progress=silent)
    assert [replace(row, seconds=0.0) for row in result.rows] == [replace(row, seconds=0.0) for row in audited.rows]


def test_another_threshold_is_another_audit(joint: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(joint, tmp_path / "run"))
    options: dict[str, Any] = {"out": tmp_path / "audits", "only": ["mean image"], "progress": silent}
    first = audit(run, suite(ROWS), **options)
    for file in run.glob("checkpoints/*/checkpoint.json"):
        facts = json.loads(file.read_text())
        facts["release"]["threshold"] = 1.0
        file.write_text(json.dumps(facts))
    second = audit(run, suite(ROWS), **options)
    assert first.plan.id != second.plan.id and second.plan.num_evaluation == 1000


def test_the_command_line_the_repeated_command_and_campaigns_see_answers(
    joint: Path, tmp_path: Path, capfd: Any
) -> None:
    words = ["audit", str(joint), "--suite", "certificates", "--only", "leakage", "--sees-answers"]
    assert main([*words, "--out", str(tmp_path / "audits"), "--json"]) == 0
    capfd.readouterr()
    ledger = Ledger.open(next((tmp_path / "audits").iterdir()))
    assert ledger.plan.threat.name == "train-answers" and ledger.plan.threat.sees_answers
    assert audit_options(ledger.plan)[2:5] == ["--threat", "train", "--sees-answers"]
    run = Path(shutil.copytree(joint, tmp_path / "run"))
    asked = CampaignAudit(suite="certificates", only=["leakage"], sees_answers=True)
    assert audit_run(run, asked, silent).plan.threat.sees_answers


def test_a_run_that_sends_nothing_ends_with_one_line(joint: Path, tmp_path: Path, capfd: Any) -> None:
    run = Path(shutil.copytree(joint, tmp_path / "run"))
    for file in run.glob("checkpoints/*/checkpoint.json"):
        facts = json.loads(file.read_text())
        facts["release"]["threshold"] = 0.0
        file.write_text(json.dumps(facts))
    assert main(["audit", str(run), "--suite", "quick"]) == 2
    err = capfd.readouterr().err
    assert "the client sends 0 of 1000 images" in err and "Traceback" not in err


FOREIGN = ["--encoder", "x.onnx", "--data", "fashion_mnist_mini", "--channel", "gaussian", "--out", "audits"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*FOREIGN, "release.when=unsure"], "release.when=unsure: an encoder from an ONNX file has no head"),
        ([*FOREIGN, "--sees-answers"], "--sees-answers: an encoder from an ONNX file has no head"),
        (["RUN", "release.share=0.5"], "release.share=0.5: what a run sends is decided when it is trained"),
        (["RUN", "--release.share=0.5"], "release.share=0.5: what a run sends is decided when it is trained"),
    ],
)
def test_a_head_cannot_be_asked_of_an_audit(joint: Path, capfd: Any, words: list[str], message: str) -> None:
    assert main(["audit", *(str(joint) if word == "RUN" else word for word in words)]) == 2
    err = " ".join(capfd.readouterr().err.split())
    assert message in err and "Traceback" not in err


# with bits, and with keyed noise


def test_a_code_or_nothing_counts_its_bits_for_sent_images(small_run: Make, tmp_path: Path) -> None:
    channel = [{"name": "quantise", "bits": 1}]
    run = small_run("demo-none", channel=channel, **SHARE)
    rows: dict[str, Any] = {"quantisation": QuantisationOptions(), "accountant": AccountantOptions()}
    rows["entropy"] = CodeEntropyOptions()
    result = audit(run, suite(rows), out=tmp_path, progress=silent)
    bounds, facts = result.row("quantisation").bounds, result.plan.selective
    assert facts is not None
    nats = np.prod(RunDirectory.open(run).manifest["feature_shape"]) * np.log(2)
    assert bounds["leakage"].value == pytest.approx(nats) and bounds["leakage"].any_number
    silence = -facts.share * np.log(facts.share) - (1 - facts.share) * np.log(1 - facts.share)
    assert bounds["over_all"].value == pytest.approx(silence + facts.share * nats, rel=0.01)
    assert result.row("accountant").outcome == "not_applicable", "there is no noise to count"
    entropy = result.row("entropy").bounds
    assert entropy["entropy"].value <= nats and 0 < entropy["over_all"].value <= bounds["over_all"].value


def test_keyed_noise_repeats_for_a_sent_image_and_counts_once(small_run: Make, tmp_path: Path) -> None:
    run = small_run("demo", **SHARE, **{"channel.noise": "keyed"})
    rows = suite({"leakage": LeakageOptions(), "accountant": AccountantOptions(releases=[1, 16])})
    once, often = (audit(run, rows, out=tmp_path, releases=count, progress=silent) for count in (1, 16))
    assert once.row("leakage").bounds["over_all"] == often.row("leakage").bounds["over_all"]
    counted = once.row("accountant").bounds
    assert counted["leakage@1"].value == counted["leakage@16"].value == once.row("leakage").bounds["leakage"].value
    opened = open_run(run)
    x, _ = opened.data.test.get(slice(0, 4))
    with torch.no_grad():
        assert torch.equal(opened.model.release(x), opened.model.release(x))


def test_the_accountant_counts_releases_of_an_image_that_is_sent(joint: Path, tmp_path: Path) -> None:
    rows = suite({"leakage": LeakageOptions(), "accountant": AccountantOptions(releases=[1, 4])})
    result = audit(joint, rows, out=tmp_path, progress=silent)
    counted, bound = result.row("accountant").bounds, result.row("leakage").bounds["leakage"]
    assert counted["leakage@1"].value == bound.value < counted["leakage@4"].value
    assert counted["releases"].value >= 1, "a budget of twice the leakage allows at least one"
