"""Asking again: what several releases of one image tell, of the very same pixels and of pixels that move."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.config.options.attacks import (
    DecoderOptions,
    GreyOptions,
    NearestNeighbourOptions,
    OptimisationOptions,
    RidgeOptions,
    SeeingOptions,
)
from attncem.config.options.channels import (
    DropoutOptions,
    GaussianOptions,
    IdentityOptions,
    LaplaceOptions,
    LocalDPOptions,
    QuantiseOptions,
    ShapedOptions,
    TopKOptions,
)
from attncem.config.options.suites import Suite, load_suite
from attncem.config.threats import THREATS
from attncem.judging.attacks import ATTACKS
from attncem.judging.attacks.base import Attack
from attncem.judging.attacks.seeing import Sight, jittered, mean_of, quieter
from attncem.judging.auditing import Case, audit, measure
from attncem.judging.opening import open_encoder
from attncem.judging.oracle import Oracle
from attncem.models.channels import Channel, build_channel
from attncem.models.split import SplitModel
from attncem.records.audit import AuditResult, Row
from attncem.records.ledger import Ledger
from probing import DATA, LEAKY, SPEC, pictures, subject

STD = 0.3
FULL = THREATS["train"]
GAUSSIAN = GaussianOptions(noise_std=STD)
KEYED = GaussianOptions(noise_std=STD, noise="keyed")
ASKING = (1, 4, 16)
"""Numbers of releases that are compared."""


def x_of(count: int = 200, seed: int = 5) -> Tensor:
    return pictures(count, seed).get(slice(None))[0]


def channel_of(*stages: Any) -> Channel:
    """A channel with a key, for those of its stages that want one."""
    return build_channel(stages).eval().bind(bytes(range(32)), "mark")


def model_of(*stages: Any) -> SplitModel:
    return SplitModel(LEAKY, channel_of(*stages), None).eval()


def opened(channel: list[dict[str, Any]], *, encoder: nn.Module = LEAKY) -> Any:
    """The made-up pictures behind this channel."""
    made = open_encoder(encoder, data={"name": "fashion_mnist_mini"}, channel=channel, key=bytes(range(32)))
    return replace(made, spec=SPEC, reader=lambda: DATA)


def stream() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def suite_of(rows: dict[str, Any]) -> Suite:
    return Suite.model_construct(name="again", version=1, meaning="again", rows=rows)


RIDGES = {
    "grey": GreyOptions(),
    "ridge": RidgeOptions(),
    "ridge x4": RidgeOptions(releases=4),
    "ridge x16": RidgeOptions(releases=16),
    "ridge x16 jitter": RidgeOptions(releases=16, jitter=1, num_releases=1),
}


def asked(noise: str, folder: Path, **options: Any) -> AuditResult:
    return audit(subject(LEAKY, STD, noise=noise), suite_of(RIDGES), out=folder, progress=silent, **options)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    return asked("fresh", tmp_path_factory.mktemp("fresh"))


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    return asked("keyed", tmp_path_factory.mktemp("keyed"))


# what must be shown


def test_fresh_noise_is_averaged_away(fresh: AuditResult) -> None:
    errors = [fresh.row(name).mse.mean for name in ("ridge", "ridge x4", "ridge x16")]
    assert errors[1] < 0.8 * errors[0]
    assert errors[2] < 0.6 * errors[0]
    assert [item.row for item in fresh.averaging if item.helps] == ["ridge x4", "ridge x16", "ridge x16 jitter"]
    told = next(item for item in fresh.findings if item.code == "averaging_helps")
    assert (told.about, told.values["releases"]) == ("ridge x16", 16)
    assert not any(item.code == "jitter_helps" for item in fresh.findings)


def test_keyed_noise_makes_the_averaging_row_flat_for_equal_images(keyed: AuditResult) -> None:
    errors = [keyed.row(name).mse.mean for name in ("ridge", "ridge x4", "ridge x16")]
    assert errors == pytest.approx([errors[0]] * 3, rel=0.01)
    assert not any(item.helps for item in keyed.averaging if not item.jitter)


def test_jitter_shows_what_keyed_noise_does_not_stop(fresh: AuditResult, keyed: AuditResult) -> None:
    """One grey level is enough: every release has noise of its own, and the row is where fresh noise has it."""
    moved = keyed.row("ridge x16 jitter").mse.mean
    assert moved < 0.6 * keyed.row("ridge x16").mse.mean
    assert moved == pytest.approx(fresh.row("ridge x16 jitter").mse.mean, rel=0.05)
    told = next(item for item in keyed.findings if item.code == "jitter_helps")
    assert (told.about, told.values["releases"], told.values["jitter"]) == ("ridge x16 jitter", 16, 1)


@pytest.mark.parametrize(
    ("channel", "flat"),
    [
        ([{"name": "identity"}], True),
        ([{"name": "gaussian", "noise_std": 0.0}], True),
        ([{"name": "top_k", "keep": 0.3}], True),
        ([{"name": "quantise", "bits": 2, "low": 0.0, "high": 1.0}], True),
        ([{"name": "dropout", "rate": 0.5, "noise": "keyed"}], True),
        ([{"name": "dropout", "rate": 0.5}], False),
        ([{"name": "gaussian", "noise_std": STD}, {"name": "top_k", "keep": 0.5}], False),
        ([{"name": "gaussian", "noise_std": STD}, {"name": "quantise", "bits": 3, "low": -1.0, "high": 2.0}], False),
        ([{"name": "laplace", "noise_std": STD}], False),
        ([{"name": "shaped", "noise_std": STD}], False),
        ([{"name": "local_dp", "clip": 9.0, "epsilon": 50.0}], False),
    ],
    ids=lambda value: "+".join(stage["name"] for stage in value) if isinstance(value, list) else "",
)
def test_averaging_helps_where_a_channel_draws_anew(channel: list[dict[str, Any]], flat: bool) -> None:
    case = Case(opened(channel), FULL)
    one, many = (measure(case, "ridge", RidgeOptions(releases=k), seed=1).row for k in (1, 16))
    assert one.ok and many.ok, many.reason
    assert (many.mse.mean == pytest.approx(one.mse.mean, rel=1e-3)) if flat else many.mse.mean < 0.85 * one.mse.mean


# the strongest of those that saw as much


def test_the_strongest_saw_what_the_threat_model_grants(fresh: AuditResult) -> None:
    assert fresh.strongest == "ridge"
    assert fresh.leaders == ["ridge", "ridge x4", "ridge x16", "ridge x16 jitter"]
    assert {sight: row.name for sight, row in fresh.by_releases.items()} == {
        (1, 0): "ridge",
        (4, 0): "ridge x4",
        (16, 0): "ridge x16",
        (16, 1): "ridge x16 jitter",
    }
    assert [(row.releases, row.jitter) for row in fresh.rows] == [(1, 0), (1, 0), (4, 0), (16, 0), (16, 1)]


def test_what_is_learned_is_kept_of_the_strongest_and_of_it_at_the_stops_of_the_live_page(fresh: AuditResult) -> None:
    kept = {file.name for file in Path(fresh.folder).glob("*.safetensors")}
    assert kept == {"ridge.safetensors", "ridge-x16.safetensors"}, "4 releases are no stop"


def test_who_is_granted_more_releases_has_another_strongest(tmp_path: Path) -> None:
    found = asked("fresh", tmp_path, releases=16)
    assert found.row("ridge").releases == 16
    assert found.strongest in ("ridge", "ridge x16")
    assert [item.row for item in found.averaging] == ["ridge x4", "ridge x16 jitter"]
    assert found.averaging[0].gain < 0, "fewer releases tell less"


def test_a_row_does_not_lose_to_one_that_saw_more(tmp_path: Path) -> None:
    """A decoder that sees one release is not under-trained because sixteen tell ridge more."""
    short = {"epochs": 0.5, "max_epochs": 0.5}
    rows = {"ridge x16": RidgeOptions(releases=16), "decoder": DecoderOptions.model_validate(short)}
    found = audit(subject(LEAKY, STD), suite_of(rows), out=tmp_path, progress=silent)
    assert found.row("ridge x16").mse.mean < found.row("decoder").mse.mean
    assert not any(item.code == "loses_to" for item in found.findings)
    rows = {**rows, "decoder x16": DecoderOptions.model_validate({**short, "releases": 16})}
    found = audit(subject(LEAKY, STD), suite_of(rows), out=tmp_path, progress=silent)
    assert [item.about for item in found.findings if item.code == "loses_to"] == ["decoder x16"]
    (rival,) = found.rivals
    one, other = (Ledger.open(Path(found.folder)).scores(name).values["mse"] for name in ("decoder x16", "ridge x16"))
    assert (rival.row, rival.other, rival.level) == ("decoder x16", "ridge x16", False)
    assert rival.excess == pytest.approx(one.mean() / other.mean() - 1) and 0 < rival.low < rival.excess < rival.high
    assert Ledger.open(Path(found.folder)).result() == found, "from joined.json"


def test_the_gain_is_that_of_the_same_images(fresh: AuditResult) -> None:
    ledger = Ledger.open(Path(fresh.folder))
    before, after = (ledger.scores(name).values["mse"] for name in ("ridge", "ridge x16"))
    found = next(item for item in fresh.averaging if item.row == "ridge x16")
    assert found.base == "ridge"
    assert found.gain == pytest.approx(1 - after.mean() / before.mean())
    paired = 1.96 * np.std(before - after) / len(before) ** 0.5 / before.mean()
    assert found.high - found.low == pytest.approx(2 * paired, rel=0.2)
    assert ledger.result() == fresh


def test_rows_that_ask_otherwise_are_no_base(tmp_path: Path) -> None:
    rows = {"ridge": RidgeOptions(strengths=(1.0,)), "ridge x4": RidgeOptions(releases=4)}
    assert audit(subject(LEAKY, STD), suite_of(rows), out=tmp_path, progress=silent).averaging == []
    rows = {"ridge": RidgeOptions(num_releases=3), "ridge x4": RidgeOptions(releases=4)}
    (found,) = audit(subject(LEAKY, STD), suite_of(rows), out=tmp_path, progress=silent).averaging
    assert found.base == "ridge", "what it learns from is not what it asks"


def test_every_row_of_the_standard_suite_that_asks_again_has_a_base() -> None:
    rows = {
        name: Row(name, options.name, "attack", "ok", "", options.model_dump(mode="json"), 0, options.releases or 1)
        for name, options in load_suite("standard").suite.rows.items()
        if isinstance(options, SeeingOptions)
    }
    once = {row.question: name for name, row in rows.items() if row.releases == 1}
    often = {name: once.get(row.question) for name, row in rows.items() if row.releases > 1}
    assert often == {name: name.split(" x")[0] for name in often}
    assert {"ridge x4", "ridge x16", "ridge x64", "ridge x256", "ridge x16 jitter"} < set(often)


# every attack can be asked so


@pytest.mark.parametrize(
    "options",
    [
        NearestNeighbourOptions(releases=3, jitter=2),
        RidgeOptions(releases=3, jitter=2),
        DecoderOptions(epochs=0.5, max_epochs=0.5, releases=3, jitter=2),
        OptimisationOptions(steps=2, max_steps=2, releases=3, jitter=2, tuning_images=4, smoothness=(0,), pulls=(1,)),
    ],
    ids=lambda options: options.name,
)
@pytest.mark.parametrize("noise", ["fresh", "keyed"])
def test_attacks_work_on_pixels_that_move(options: Any, noise: str) -> None:
    found = measure(Case(subject(LEAKY, 0.1, noise=noise), FULL), "row", options, seed=0)
    assert found.row.ok, found.row.reason
    assert (found.row.releases, found.row.jitter) == (3, 2)
    assert found.row.mse.mean < 0.1


@pytest.mark.parametrize("threat", ["query_only", "no_access"])
def test_the_threat_model_still_says_what_is_granted(threat: str) -> None:
    row = measure(Case(subject(LEAKY, STD), THREATS[threat]), "row", RidgeOptions(releases=4, jitter=1), seed=0).row
    assert row.outcome == ("ok" if threat == "query_only" else "not_applicable")
    assert threat == "query_only" or f"threat model {threat} can" in row.reason


def test_who_knows_no_channel_and_cannot_query_moves_its_own_pixels() -> None:
    alone = replace(FULL, may_query=False, knows_channel=False)
    still, moved = (replace(alone, releases_per_input=k, jitter=j) for k, j in ((4, 0), (4, 8)))
    x, y = x_of(), torch.zeros(200, dtype=torch.long)
    released = [Oracle(model_of(GAUSSIAN), threat, x, y, num_classes=4).release(x) for threat in (still, moved)]
    assert torch.equal(released[0], LEAKY(x))
    assert 0 < float((released[1] - LEAKY(x)).abs().max()) < 8.01 / 255


# the law


def test_jitter_is_whole_grey_levels_and_stays_inside() -> None:
    x = torch.cat([torch.zeros(1, 1, 40, 40), torch.ones(1, 1, 40, 40), torch.full((8, 1, 40, 40), 100 / 255)])
    moved = jittered(x, 2, stream())
    levels = (moved - x) * 255
    assert torch.allclose(levels, levels.round(), atol=1e-4)
    assert float(moved.min()) >= 0 and float(moved.max()) <= 1
    counts = levels[2:].round().flatten().unique(return_counts=True)
    assert counts[0].tolist() == [-2, -1, 0, 1, 2]
    assert float(counts[1].max()) < 1.1 * float(counts[1].min())
    assert not torch.equal(jittered(x, 2, stream())[2], jittered(x, 2, stream())[3])


@pytest.mark.parametrize("noise", ["fresh", "keyed"])
def test_every_release_is_of_other_pixels(noise: str) -> None:
    """Without channel noise, k releases of moving pixels differ from the mean image by their averaged jitter."""
    model, x = model_of(GaussianOptions(noise_std=0.0, noise=noise)), x_of(100).clamp(0.2, 0.8)  # type: ignore[arg-type]
    one = (80 / 12) ** 0.5 / 255  # deviation of a uniform whole number in −4 … 4
    for count in ASKING:
        seen = Sight(model, replace(FULL, releases_per_input=count, jitter=4))(x, stream())
        assert float((seen - LEAKY(x)).std()) == pytest.approx(one / count**0.5, rel=0.03)


@pytest.mark.parametrize(
    "stages",
    [
        (GAUSSIAN,),
        (TopKOptions(keep=0.5), GAUSSIAN),
        (QuantiseOptions(bits=2, low=0.0, high=1.0), IdentityOptions(), GAUSSIAN),
        (DropoutOptions(rate=0.5, noise="keyed"), GAUSSIAN),
        (LocalDPOptions(clip=2.0, epsilon=20.0),),
        (ShapedOptions(noise_std=STD, tilt=0.5),),
        (LaplaceOptions(noise_std=STD),),
        (QuantiseOptions(bits=2, low=0.0, high=1.0), LaplaceOptions(noise_std=STD)),
        (DropoutOptions(rate=0.3),),
        (TopKOptions(keep=0.5), DropoutOptions(rate=0.3, rescale=False)),
    ],
    ids=lambda stages: "+".join(stage.name for stage in stages),
)
def test_the_short_cut_has_the_law_of_the_stream(stages: tuple[Any, ...]) -> None:
    """Same mean, deviation and distribution as drawing all releases and averaging them."""
    model, x, count = model_of(*stages), x_of(4), 9
    assert quieter(model.channel, count) is not None
    threat = replace(FULL, releases_per_input=count)

    def drawn(releases: Iterable[Tensor]) -> Tensor:
        return mean_of(releases)

    noise, short, streamed = stream(), Sight(model, threat), Sight(model, threat, drawn)
    many = [torch.stack([sight(x, noise) for _ in range(400)]) for sight in (short, streamed)]
    scale = float(many[1].std(0).mean())
    assert float(many[0].std(0).mean()) == pytest.approx(scale, rel=0.03)
    largest = float(many[1].std(0).max())
    assert float((many[0].mean(0) - many[1].mean(0)).abs().max()) < 6 * largest * (2 / 400) ** 0.5
    off = [(1e3 * (part - many[1].mean(0)).flatten() / scale).round().sort().values for part in many]
    below = [torch.searchsorted(part, off[0].unique(), right=True) / part.numel() for part in off]
    assert float((below[0] - below[1]).abs().max()) < 0.01, "Kolmogorov and Smirnov: 0.006 by chance"
    assert scale == pytest.approx(model.channel.noise_std / 3, rel=0.05) or model.channel.noise_std == 0


@pytest.mark.parametrize(
    "stages",
    [
        (LaplaceOptions(noise_std=STD), TopKOptions(keep=0.5)),
        (DropoutOptions(rate=0.5, noise="keyed"),),
        (GAUSSIAN, TopKOptions(keep=0.5)),
        (GAUSSIAN, GAUSSIAN),
        (GAUSSIAN, LaplaceOptions(noise_std=STD)),
        (DropoutOptions(rate=0.5), GAUSSIAN),
        (GAUSSIAN, KEYED),
        (KEYED,),
        (IdentityOptions(),),
    ],
    ids=lambda stages: "+".join(stage.name for stage in stages),
)
def test_no_short_cut_where_it_would_be_wrong(stages: tuple[Any, ...]) -> None:
    assert quieter(channel_of(*stages), 9) is None


def test_no_short_cut_for_who_combines_otherwise_or_sees_one() -> None:
    assert quieter(channel_of(GAUSSIAN), 1) is None
    assert quieter(nn.Identity(), 9) is None
    counted = []

    def first(releases: Iterable[Tensor]) -> Tensor:
        several = list(releases)
        counted.append(len(several))
        return several[0]

    Sight(model_of(GAUSSIAN), replace(FULL, releases_per_input=5), first)(x_of(3), stream())
    Sight(model_of(KEYED), replace(FULL, releases_per_input=6), first)(x_of(3), stream())
    assert counted == [5, 6]


def test_the_short_cut_leaves_the_victims_channel_alone() -> None:
    model = model_of(GAUSSIAN)
    Sight(model, replace(FULL, releases_per_input=16))(x_of(3), stream())
    assert model.channel.noise_std == STD


@pytest.mark.parametrize("jitter", [0, 1])
@pytest.mark.parametrize(
    "stages", [(KEYED,), (LaplaceOptions(noise_std=STD), TopKOptions(keep=0.5))], ids=["keyed", "laplace"]
)
def test_many_releases_are_never_held_at_once(stages: tuple[Any, ...], jitter: int) -> None:
    """They are combined while they come: at most a few tensors of a batch are alive."""
    made: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    class Watched(SplitModel):
        def transmit(self, *given: Any) -> Tensor:
            released = super().transmit(*given).clone()
            made.append(weakref.ref(released))
            alive.append(sum(one() is not None for one in made))
            return released

    model = Watched(LEAKY, channel_of(*stages), None).eval()
    Sight(model, replace(FULL, releases_per_input=64, jitter=jitter))(x_of(10), stream())
    assert len(made) == (64 if jitter or stages[0].name == "laplace" else 1)
    assert max(alive) <= 3


def test_keyed_noise_is_drawn_once_for_equal_images(monkeypatch: pytest.MonkeyPatch) -> None:
    from attncem.models import channels

    drawn, real = [], channels.drawn
    monkeypatch.setattr(channels, "drawn", lambda secrets, *more: drawn.append(len(secrets)) or real(secrets, *more))
    model, x = model_of(KEYED), x_of(5)
    one = model.release(x)
    drawn.clear()
    assert torch.equal(Sight(model, replace(FULL, releases_per_input=64))(x, stream()), one)
    assert sum(drawn) == 5


# the case's views


def test_a_view_shares_what_was_computed() -> None:
    case = Case(subject(LEAKY, STD), FULL)
    view = case.seeing(16)
    assert (view.threat.releases_per_input, view.threat.name) == (16, FULL.name)
    assert case.threat == FULL
    attack: Attack = ATTACKS["ridge"]()
    view.oracle(attack, 0)
    assert case._known.features is not None
    assert view.oracle(attack, 0)._features is case.oracle(attack, 0)._features
    assert view.x is case.x and view.released is case.released
    assert case.seeing() is case.seeing(1) is case
    assert case.seeing(16, 1).oracle(attack, 0)._features is None


def test_own_and_evaluation_images_are_seen_by_the_same_law() -> None:
    case = Case(subject(LEAKY, STD), FULL).seeing(9, 3)
    attack: Attack = ATTACKS["ridge"]()
    x, _ = case.auxiliary.get(slice(None))
    own = case.oracle(attack, 0).release_auxiliary(torch.arange(len(x))) - LEAKY(x)
    seen = torch.cat(list(case.seen_by(attack, len(case.x)))) - LEAKY(case.x)
    assert float(own.std()) == pytest.approx(float(seen.std()), rel=0.03)
    assert float(own.std()) == pytest.approx(STD / 3, rel=0.05)


@pytest.mark.parametrize("noise", ["fresh", "keyed"])
def test_own_images_move_as_the_victims_do(noise: str) -> None:
    """Without noise of the channel, all that own and evaluation images are off by is the averaged jitter."""
    case = Case(subject(LEAKY, 0.0, noise=noise), FULL).seeing(4, 8)
    attack: Attack = ATTACKS["ridge"]()
    x, _ = case.auxiliary.get(slice(None))
    own = (case.oracle(attack, 0).release_auxiliary(torch.arange(len(x))) - LEAKY(x)).std()
    handed_in = (case.oracle(attack, 0).release(x) - LEAKY(x)).std()
    seen = (torch.cat(list(case.seen_by(attack, len(case.x)))) - LEAKY(case.x)).std()
    expected = (288 / 12) ** 0.5 / 255 / 2  # of the mean of four uniform numbers in −8 … 8
    assert [float(own), float(handed_in), float(seen)] == pytest.approx([expected] * 3, rel=0.05)


def test_one_release_is_the_one_that_the_server_answers_to() -> None:
    case = Case(subject(LEAKY, STD), FULL)
    attack: Attack = ATTACKS["ridge"]()
    assert torch.equal(torch.cat(list(case.seen_by(attack, 40))), case.released[:40])
    assert not torch.equal(torch.cat(list(case.seeing(1, 1).seen_by(attack, 40))), case.released[:40])


def test_the_same_seed_sees_the_same_again() -> None:
    attack: Attack = ATTACKS["ridge"]()
    first, again = (
        torch.cat(list(Case(subject(LEAKY, STD), FULL, seed=3).seeing(4, 1).seen_by(attack, 60))) for _ in range(2)
    )
    assert torch.equal(first, again)
