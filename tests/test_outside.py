"""An adversary with pictures from elsewhere, with few own images, or with few answered queries."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from attncem.base.shown_paths import without_paths_in
from attncem.base.texts.titles import threat_title
from attncem.base.types import ConfigError, DataError, NotApplicable
from attncem.campaigns import results
from attncem.campaigns.expansion import expand
from attncem.cli.main import main
from attncem.config.options.attacks import ClassMeanOptions, DecoderOptions, MeanImageOptions, RidgeOptions
from attncem.config.options.campaigns import CampaignAudit, load_campaign
from attncem.config.options.probes import LabelLeakageOptions, MembershipOptions, ReidentificationOptions
from attncem.config.options.suites import Suite
from attncem.config.threats import (
    THREATS,
    Pictures,
    ThreatModel,
    with_images,
    with_pictures,
    with_queries,
    with_releases,
)
from attncem.data.outside import Outside
from attncem.data.readers import read_dataset
from attncem.judging.answers import Answers
from attncem.judging.attacks import build_attack
from attncem.judging.auditing import audit
from attncem.judging.auditing.asked import Adversary
from attncem.judging.auditing.judges import build_judge
from attncem.judging.case import Case
from attncem.judging.opening import open_run
from attncem.records.audit import AuditResult
from attncem.records.ledger import Ledger
from attncem.records.repeating import audit_options
from attncem.records.statistics import bootstrap_mean
from attncem.records.study.runs import load_runs
from attncem.reporting import compare, report
from attncem.reporting.runs import leak_costs
from attncem.reporting.runs.methods import Entry
from attncem.reporting.wording import describe_threat
from tests.made_runs import make_audit, make_run, rows
from tests.toys import Toy

SHAPE = (1, 28, 28)
ASKING = THREATS["query_only"]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty coloured pictures of several sizes, in folders at two depths, among other files."""
    folder, rng = tmp_path_factory.mktemp("elsewhere") / "my faces", np.random.default_rng(0)
    for number in range(40):
        place = folder / ("deep/er" if number % 2 else "")
        place.mkdir(parents=True, exist_ok=True)
        size = (30 + number, 40, 3)
        Image.fromarray(rng.integers(0, 256, size, np.uint8)).save(place / f"{number:02}.png")
    (folder / "notes.txt").write_text("no picture")
    (folder / ".hidden.png").write_text("no picture")
    return folder


# the pictures


def test_all_pictures_of_a_folder_are_scaled_to_the_models_images(elsewhere: Path) -> None:
    images, facts = Outside(str(elsewhere)).read(SHAPE)
    assert images.shape == (40, *SHAPE) and images.dtype == np.uint8
    assert (facts.name, facts.count) == ("my faces", 40)
    assert facts.sha256 == hashlib.sha256(images.tobytes()).hexdigest()
    names = sorted(elsewhere.rglob("[0-9]*.png"))
    expected = {_grey(path).tobytes() for path in names}
    assert {image.tobytes() for image in images} == expected and len(expected) == 40
    coloured, _ = Outside(str(elsewhere)).read((3, 20, 24))
    assert coloured.shape == (40, 3, 20, 24)


def _grey(path: Path) -> np.ndarray[Any, Any]:
    with Image.open(path) as image:
        return np.asarray(image.convert("L").resize((28, 28), Image.Resampling.LANCZOS))


def test_pictures_behind_links_count_once(elsewhere: Path, tmp_path: Path) -> None:
    folder = tmp_path / "linked"
    folder.mkdir()
    (folder / "faces").symlink_to(elsewhere)
    (folder / "again").symlink_to(elsewhere)
    (folder / "loop").symlink_to(folder)
    before = Outside(str(folder)).read(SHAPE)[1]
    assert before.count == 40
    picture = elsewhere / "00.png"
    content = picture.read_bytes()
    try:
        Image.new("L", (30, 40)).save(picture)
        assert Outside(str(folder)).read(SHAPE)[1].sha256 != before.sha256
    finally:
        picture.write_bytes(content)


def test_pictures_of_a_home_folder_do_not_name_its_user(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(elsewhere))
    monkeypatch.setenv("USERPROFILE", str(elsewhere))
    _, facts = Outside(str(elsewhere), 21).read(SHAPE)
    assert facts.name == "~" and with_pictures(THREATS["train"], facts).name == "outside+_"


def test_some_pictures_are_always_the_same_ones(elsewhere: Path) -> None:
    every, _ = Outside(str(elsewhere)).read(SHAPE)
    some, facts = Outside(str(elsewhere), 25).read(SHAPE)
    assert facts.count == 25 and np.array_equal(some, every[:25])


def test_a_changed_file_changes_the_hash(elsewhere: Path, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    for path in elsewhere.rglob("[0-9]*.png"):
        (folder / path.name).write_bytes(path.read_bytes())
    before = Outside(str(folder)).read(SHAPE)[1]
    Image.new("L", (28, 28)).save(folder / "00.png")
    after = Outside(str(folder)).read(SHAPE)[1]
    assert before.sha256 != after.sha256 and before.count == after.count


def test_a_data_set_is_scaled_and_coloured() -> None:
    images, facts = Outside("fashion_mnist_mini", 30).read((3, 32, 32))
    assert (facts.name, facts.count, images.shape) == ("fashion_mnist_mini", 30, (30, 3, 32, 32))
    assert np.array_equal(images[:, 0], images[:, 2])
    plain, _ = Outside("fashion_mnist_mini", 30).read(SHAPE)
    every = {image.tobytes() for image in read_dataset("fashion_mnist_mini").train_images}
    assert all(image.tobytes() in every for image in plain)


@pytest.mark.parametrize(
    ("source", "count", "said"),
    [
        ("nowhere", None, "there is no such folder or data set"),
        ("cifar1", None, "did you mean cifar10"),
        ("", None, "there is no such folder"),
    ],
)
def test_a_wrong_source_is_named(source: str, count: int | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Outside(source, count)


def test_too_few_pictures_and_damaged_ones_are_named(elsewhere: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 40 pictures; 41 are needed"):
        Outside(str(elsewhere), 41).read(SHAPE)
    with pytest.raises(DataError, match="has no pictures"):
        Outside(str(tmp_path)).read(SHAPE)
    for number in range(20):
        (tmp_path / f"{number}.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="20 files cannot be used"):
        Outside(str(tmp_path)).read(SHAPE)


# the adversary


def test_an_older_threat_model_is_written_as_before() -> None:
    assert set(THREATS["train"].to_dict()) == {
        *("name", "knows_encoder", "knows_channel", "auxiliary", "releases_per_input", "may_query", "jitter")
    }
    few = with_queries(with_images(ASKING, 50), 0).to_dict()
    assert (few["images"], few["queries"]) == (50, 0) and "pictures" not in few


@pytest.mark.parametrize("base", ["train", "query_only", "no_access"])
def test_an_extended_adversary_knows_its_base(base: str, elsewhere: Path) -> None:
    facts = Outside(str(elsewhere)).read(SHAPE)[1]
    changed = with_releases(with_images(THREATS[base], 30), 4)
    extended = with_pictures(changed, facts)
    assert extended.name == f"{'outside' if base == 'train' else base}-n30-x4+my_faces"
    assert (changed.base, extended.base, extended.auxiliary) == (base, base, "outside")
    assert threat_title(extended.name) == extended.name
    assert "40 pictures from elsewhere (my faces), without labels" in describe_threat(extended)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: with_queries(THREATS["train"], 10), "knows the encoder"),
        (lambda: with_queries(THREATS["no_access"], 10), "cannot query"),
        (lambda: with_queries(ASKING, -1), "must be 0, or at least 20"),
        (lambda: with_queries(ASKING, 19), "must be 0, or at least 20"),
        (lambda: with_images(ASKING, 19), "at least 20"),
        (lambda: with_images(replace(ASKING, auxiliary="none"), 30), "owns no images"),
    ],
)
def test_an_adversary_that_cannot_be_is_refused(change: Callable[[], ThreatModel], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        change()


# the answers


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"knows_encoder": True, "queries": 100}, "knows the encoder"),
        ({"knows_encoder": False, "queries": 0}, "may_query of threat=mine is True"),
        ({"knows_encoder": False, "queries": 100, "may_query": False}, "may_query of threat=mine is False"),
        ({"knows_encoder": False, "queries": -3, "may_query": False}, "queries=-3"),
    ],
)
def test_a_users_adversary_does_not_contradict_itself(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TOY.case(600, ThreatModel("mine", knows_channel=False, auxiliary="train", **fields))


def test_a_users_adversary_needs_its_images() -> None:
    mine = ThreatModel("mine", knows_encoder=True, knows_channel=True, auxiliary="train")
    for threat, said in (
        (replace(mine, auxiliary="outside"), "attacker_data must say which"),
        (replace(mine, images=5), "leaves the attacker 5 images"),
        (replace(mine, images=601), "attacker_images=601: there are only 600 images"),
    ):
        with pytest.raises(ConfigError, match=said):
            TOY.case(600, threat)


def test_no_answer_changes_nobody_that_cannot_ask() -> None:
    assert with_queries(THREATS["no_access"], 0) == THREATS["no_access"]


def test_every_answer_is_to_its_own_image_and_all_are_used() -> None:
    z = torch.arange(25.0)[:, None]  # answer j is to image j mod 10
    answers, noise = Answers.of(z, 10), torch.Generator().manual_seed(0)
    index = torch.randint(10, (4000,), generator=noise)
    drawn = answers.draw(index, noise)[:, 0].long()
    assert torch.equal(drawn % 10, index)
    counts = drawn.bincount(minlength=25)
    assert counts[:5].min() > 90 and counts[:5].max() < 180 and counts[20:].min() > 90  # three answers each
    assert counts[5:10].min() > 150 and counts[15:20].min() > 150  # two answers each
    some = answers.only(torch.tensor([7, 2]))
    assert set(some.draw(torch.tensor([0, 1] * 50), noise)[:, 0].long().tolist()) == {7, 17, 2, 12, 22}


def test_fewer_answers_than_images_leave_the_rest_without() -> None:
    answers = Answers.of(torch.arange(6.0)[:, None], 10)
    assert torch.equal(answers.images, torch.arange(6))
    assert torch.equal(answers.draw(torch.tensor([5, 0]), torch.Generator())[:, 0], torch.tensor([5.0, 0.0]))


TOY = Toy.drawn(3, side=6, features=12, rank=12, std=0.02)


def asked(queries: int | None, images: int | None = None, releases: int | None = None, count: int = 600) -> Case:
    threat = with_releases(with_queries(with_images(ASKING, images), queries), releases)
    return TOY.case(count, threat)


def test_the_client_answers_nothing_else() -> None:
    case = asked(50)
    ridge = build_attack(RidgeOptions())
    oracle = case.oracle(ridge, 0)
    assert oracle.num_auxiliary == 50 and not oracle.may_ask
    for more in (
        lambda: oracle.release(case.x),
        oracle.mirrored,
        lambda: oracle.owning(case.x, case.y),
    ):
        with pytest.raises(NotApplicable, match="answers to 50 queries only"):
            more()
    index, noise = torch.arange(50), torch.Generator()
    first = oracle.release_auxiliary(index, generator=noise)
    assert torch.equal(first, oracle.release_auxiliary(index, generator=noise)), "an answer is not drawn again"
    assert torch.equal(first, case.oracle(ridge, 1).release_auxiliary(index)), "all attacks have the same answers"
    part = oracle.only(torch.tensor([7, 3]))
    assert torch.equal(part.release_auxiliary(torch.tensor([1, 0])), first[[3, 7]])
    assert torch.equal(part.auxiliary()[0], oracle.auxiliary()[0][[7, 3]])


def test_a_row_with_more_releases_has_answers_of_its_own() -> None:
    one, several = RidgeOptions(), RidgeOptions(releases=16)
    index, last = torch.arange(50), {}
    for order in ((one, several, one), (several, one)):
        case = asked(50)
        for options in order:
            ridge = build_attack(options)
            last[options.releases, order] = case.for_row(options).oracle(ridge, 0).release_auxiliary(index)
    assert torch.equal(last[None, (one, several, one)], last[None, (several, one)]), "whichever row comes first"
    averaged = last[16, (one, several, one)]
    assert torch.equal(averaged, last[16, (several, one)])
    clean = case.model.encode(case.auxiliary.in_parts[index])
    errors = [(z - clean).std() for z in (last[None, (several, one)], averaged)]
    assert 3 < float(errors[0] / errors[1]) < 5, "the mean of 16 releases has a quarter of the noise"


def test_who_needs_no_answers_has_all_images() -> None:
    case = asked(50, images=200)
    assert case.oracle(build_attack(MeanImageOptions()), 0).num_auxiliary == 200
    assert case.oracle(build_attack(RidgeOptions()), 0).num_auxiliary == 50


def test_no_answers_are_no_access() -> None:
    case = asked(0)
    with pytest.raises(NotApplicable):
        case.oracle(build_attack(RidgeOptions()), 0)
    assert case.oracle(build_attack(MeanImageOptions()), 0).num_auxiliary == 600


def error_of(case: Case) -> Tensor:
    """The errors of a ridge on the judged images."""
    ridge = build_attack(RidgeOptions())
    ridge.fit(case.oracle(ridge, 0), seed=0)
    images = torch.cat([ridge.reconstruct(seen) for seen in case.seen_by(ridge, len(case.x))])
    return (images - case.x).square().flatten(1).mean(1)


def test_more_answers_help_and_none_beats_the_least_error() -> None:
    errors = [error_of(asked(queries)) for queries in (30, 300, 600, 3000)]
    means = [float(error.mean()) for error in errors]
    assert means == sorted(means, reverse=True) and means[0] > 1.5 * means[2]
    for error in errors:
        assert bootstrap_mean(error.double().numpy()).high > TOY.mmse
    assert means[3] < 1.15 * TOY.mmse
    least = replace(TOY, std=TOY.std / 16**0.5).mmse
    averaged = error_of(asked(600, releases=16))
    assert averaged.mean() < errors[2].mean() and bootstrap_mean(averaged.double().numpy()).high > least


# in an audit


@pytest.fixture(scope="module")
def run(small_run: Callable[..., Path]) -> Path:
    return small_run("demo-none")


ROWS = Suite(
    name="outside",
    version=1,
    meaning="a few rows",
    rows={
        "mean image": MeanImageOptions(),
        "class mean": ClassMeanOptions(),
        "ridge": RidgeOptions(),
        "decoder": DecoderOptions(size="small", epochs=1, max_epochs=1, least_steps=1),
        "re-identification": ReidentificationOptions(),
        "labels": LabelLeakageOptions(labels=[1]),
        "membership": MembershipOptions(),
    },
)


def outcomes(result: AuditResult) -> dict[str, str]:
    return {row.name: row.outcome for row in result.rows}


def test_pictures_from_elsewhere_have_no_labels(run: Path, elsewhere: Path, tmp_path: Path) -> None:
    result = audit(run, ROWS, attacker_data=elsewhere, attacker_images=30, out=tmp_path)
    plan = result.plan
    assert (plan.num_auxiliary, plan.threat.name) == (30, "outside-n30+my_faces")
    assert outcomes(result) == {
        **{"mean image": "ok", "class mean": "not_applicable", "ridge": "ok", "decoder": "ok"},
        **{"re-identification": "ok", "labels": "not_applicable", "membership": "not_applicable"},
    }
    images, facts = Outside(str(elsewhere), 30).read(SHAPE)
    assert plan.threat.pictures == facts
    floor = result.row("mean image").scores["mse"].mean
    case = Adversary(THREATS["train"], outside=Outside(str(elsewhere), 30)).against(open_run(run))
    mean = torch.from_numpy(images.copy()).float().mean(0) / 255
    assert floor == pytest.approx(float((case.x - mean).square().mean()))
    assert Ledger.open(Path(result.folder)).plan.threat == plan.threat
    again = audit(run, ROWS, attacker_data=elsewhere, attacker_images=30, out=tmp_path)
    assert again.folder == result.folder and again.rows == result.rows
    other = audit(run, ROWS, attacker_data=elsewhere, attacker_images=31, out=tmp_path, only=["mean image"])
    assert other.folder != result.folder
    options = audit_options(plan)
    assert options[2:8] == ["--threat", "train", "--attacker-data", "my faces", "--attacker-images", "30"]


@pytest.mark.slow
def test_several_workers_find_the_same(run: Path, elsewhere: Path, tmp_path: Path) -> None:
    words: dict[str, Any] = {"attacker_data": elsewhere, "only": ["ridge", "mean image"]}
    one, two = (audit(run, ROWS, **words, out=tmp_path / str(count), workers=count) for count in (1, 2))
    assert [row.scores for row in one.rows] == [row.scores for row in two.rows]


def test_a_few_answers_are_all_that_any_row_gets(run: Path, tmp_path: Path) -> None:
    result = audit(run, ROWS, threat="query_only", queries=100, attacker_images=200, out=tmp_path)
    assert result.plan.threat.name == "query_only-n200-q100" and result.plan.num_auxiliary == 200
    assert outcomes(result) == {
        **{"mean image": "ok", "class mean": "ok", "ridge": "ok", "decoder": "ok"},
        **{"re-identification": "not_applicable", "labels": "ok", "membership": "not_applicable"},
    }
    assert "gets answers to 100 queries" in describe_threat(result.plan.threat)
    assert "owns only 200 of the training images" in result.row("membership").reason


def test_own_images_are_a_random_choice_of_them(run: Path) -> None:
    every = Adversary(THREATS["train"]).against(open_run(run)).auxiliary
    some = Adversary(with_images(THREATS["train"], 40)).against(open_run(run))
    assert some.chosen is not None and torch.equal(some.auxiliary.images, every.images[some.chosen])
    assert len(some.auxiliary) == 40 and some.chosen.max() > 40 and len(some.auxiliary.labels.unique()) > 5


def test_the_folder_of_an_audit_has_a_harmless_name(run: Path, tmp_path: Path) -> None:
    threat = replace(THREATS["train"], name="a/../b\\c:<d>")
    result = audit(run, ROWS, only=["mean image"], threat=threat, out=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert folder.name == result.plan.id and folder.name.startswith("outside-a_.._b_c__d_-test-")


def test_changed_pictures_are_another_adversary(elsewhere: Path) -> None:
    facts = Outside(str(elsewhere)).read(SHAPE)[1]
    threat = with_pictures(THREATS["train"], facts)
    assert with_pictures(threat, facts) is threat
    with pytest.raises(ConfigError, match="has changed"):
        with_pictures(threat, replace(facts, sha256="0"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--attacker-data", "nowhere"], "there is no such folder or data set"),
        (["--queries", "10"], "threat=query_only"),
        (["--threat", "query_only", "--queries", "-1"], "must be 0, or at least 20"),
        (["--attacker-images", "3"], "at least 20"),
    ],
)
def test_a_wrong_option_is_answered(run: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(run), "--suite", "quick", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_campaign_names_the_adversary(elsewhere: Path, tmp_path: Path) -> None:
    file = tmp_path / "asked.yaml"
    beside = tmp_path / "pictures"
    beside.symlink_to(elsewhere)
    file.write_text(
        "name: asked\nconfig: demo-none\narms: {plain: {}}\n"
        "audits:\n  - {suite: quick, attacker_data: pictures, attacker_images: 30}\n"
        "  - {suite: quick, threat: query_only, queries: 100}\n  - {suite: quick, attacker_data: cifar10}\n"
    )
    first, second, third = load_campaign(file).audits
    assert first.attacker_data == str(elsewhere) and second.queries == 100 and third.attacker_data == "cifar10"
    file.write_text(file.read_text().replace("threat: query_only, ", ""))
    with pytest.raises(ConfigError, match="knows the encoder"):
        load_campaign(file)


def test_a_campaign_checks_its_pictures_before_any_work() -> None:
    campaign = {"name": "asked", "arms": {"plain": {}}, "audits": [{"suite": "quick", "attacker_data": "nowhere"}]}
    with pytest.raises(ConfigError, match="attacker_data=nowhere: there is no such folder"):
        expand(load_campaign(campaign))


@pytest.mark.parametrize("option", [{"releases": 4}, {"queries": 100}, {"attacker_images": 50}])
def test_a_file_of_results_names_an_adversary_that_was_changed(option: dict[str, int]) -> None:
    adversary = with_releases(ASKING, 4)
    judged: list[Any] = [SimpleNamespace(devices=["cpu"], adversaries=[adversary])]
    asked = CampaignAudit(suite="quick", threat="query_only", **option)
    assert results._asked(asked, judged, 0).adversary == adversary
    assert results._asked(CampaignAudit(suite="quick"), judged, 0).adversary is None


def test_an_audit_keeps_its_name_in_an_archive(elsewhere: Path) -> None:
    audit = CampaignAudit(suite="quick", attacker_data=str(elsewhere))
    there = CampaignAudit(
        suite="quick", attacker_data=without_paths_in({"attacker_data": str(elsewhere)})["attacker_data"]
    )
    assert there.attacker_data == elsewhere.name and there.key == audit.key
    assert audit.key != CampaignAudit(suite="quick", attacker_data="others").key
    twice = [{"attacker_data": "a/faces"}, {"attacker_data": "b/faces"}]
    with pytest.raises(ConfigError, match="need different names"):
        load_campaign({"name": "asked", "arms": {"plain": {}}, "audits": twice})


def test_probes_of_queries_know_their_limit() -> None:
    case = asked(50)
    with pytest.raises(NotApplicable, match="answers to 50 queries only"):
        build_judge(ReidentificationOptions()).score(case, seed=0)  # type: ignore[union-attr]


# on a page


def audited(mse: float, threat: ThreatModel, owned: int = 4000) -> AuditResult:
    """An audit of a made-up run by this adversary, whose strongest attack has this error."""
    return make_audit("none", rows(mse), threat=threat, num_auxiliary=owned, id=f"quick-{threat.name}-{owned}")


FACES = Pictures("faces", 100, "0")
ASKED = [
    audited(0.02, ASKING),
    audited(0.05, with_queries(ASKING, 0)),
    audited(0.03, with_queries(ASKING, 1000)),
    audited(0.04, with_queries(with_images(ASKING, 1000), 1000), 1000),
    audited(0.051, with_pictures(with_images(THREATS["train"], 100), FACES), 100),
    audited(0.045, with_pictures(THREATS["train"], replace(FACES, count=900, sha256="1")), 900),
    audited(0.01, THREATS["train"]),
]


def test_a_curve_changes_one_number_alone(tmp_path: Path) -> None:
    drawn = _curves(make_run(tmp_path, audits=ASKED))
    points = [
        (curve.axis, [(leak_costs.count(it, curve.axis), it.audit.strongest_attack.mse.mean) for it in curve.entries])
        for curve in drawn
    ]
    assert sorted(points) == [
        ("images", [(100, 0.051), (900, 0.045)]),
        ("images", [(1000, 0.04), (4000, 0.03)]),
        ("queries", [(0, 0.05), (1000, 0.03), (math.inf, 0.02)]),
    ]
    sentences = [curve.sentence for curve in drawn]
    assert sentences[0] == "Adversary query_only: MSE 0.0500 with 0 answered queries, 0.0200 with any number."
    assert "Adversary outside+faces: MSE 0.0510 with 100 images, 0.0450 with 900." in sentences


@pytest.mark.parametrize("what", ["seed", "weights", "rows", "folder"])
def test_a_curve_mixes_no_audits_that_differ_in_more(what: str, tmp_path: Path) -> None:
    threat = with_queries(ASKING, 1000)
    if what == "folder":  # two folders of one name, each whole
        few, many = (with_pictures(THREATS["train"], replace(FACES, count=n, sha256=str(n))) for n in (100, 900))
        pair = [audited(0.05, few, 100), audited(0.045, many, 900)]
    else:
        pair = [audited(0.02, ASKING), audited(0.03, threat)]
    path = make_run(tmp_path / "same", audits=pair)
    assert len(_curves(path)) == (what != "folder")
    last = pair[1]
    if what == "seed":
        last = replace(last, plan=replace(last.plan, seed=7))
    elif what == "weights":
        last = replace(last, plan=replace(last.plan, subject=replace(last.plan.subject, weights="epoch-00001")))
    elif what == "rows":
        last = replace(last, rows=last.rows[:-1])
    assert not _curves(make_run(tmp_path / "other", audits=[pair[0], last]))


def _curves(path: Path) -> list[leak_costs.Curve]:
    (run,) = load_runs([path])
    return leak_costs.curves([Entry(run, result, "none", 0) for result in run.results])


def test_a_comparison_tells_pictures_of_one_name_apart(tmp_path: Path) -> None:
    runs = []
    for mark in ("a" * 64, "b" * 64):
        pictures = with_pictures(THREATS["train"], replace(FACES, sha256=mark))
        runs.append(make_run(tmp_path / mark[0], audits=[audited(0.05, pictures, 100)]))
    (note,) = [it for it in compare(runs).findings if it.code == "compare_no_common_audit"]
    assert "outside+faces aaaaaaaaaaaa" in str(note) and "outside+faces bbbbbbbbbbbb" in str(note)


def test_the_page_shows_what_a_leak_costs(tmp_path: Path) -> None:
    path = make_run(tmp_path, audits=ASKED)
    page = report([path], tmp_path / "page.html").read_text(encoding="utf-8")
    section = page.partition('<section id="costs"')[2].partition("</section>")[0]
    assert "What a leak costs" in section and section.count("<svg") == 2
    for shown in ("Answered queries", "Images of the attacker", "any number", "not enough to tell", "0.0450"):
        assert shown in section
    alike = [
        audited(0.05, with_pictures(THREATS["train"], replace(FACES, count=n, sha256=str(n))), n) for n in (70, 90)
    ]
    page = report([make_run(tmp_path / "other", audits=alike)], tmp_path / "other.html").read_text(encoding="utf-8")
    assert 'id="costs"' not in page, "these pictures are from two folders"
    assert "owns 70 pictures from elsewhere (faces)" in page and "owns 90 pictures from elsewhere (faces)" in page
