"""Re-identification by picture: whose pictures, in which features, and what a reference must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.cli.main import main
from attncem.config.loading.load import load
from attncem.config.options.channels import GaussianOptions
from attncem.config.options.probes import ByPictureOptions
from attncem.config.options.suites import Suite
from attncem.config.threats import THREATS
from attncem.judging.attacks.ridge import RidgeAttack
from attncem.judging.auditing import Case, audit, measure
from attncem.judging.auditing.kept import strongest_kept
from attncem.judging.opening import open_run
from attncem.judging.probes.by_picture import features_of
from attncem.models.channels import build_channel
from attncem.models.split import SplitModel
from attncem.records.audit import AuditResult, Row
from attncem.records.ledger import Ledger
from attncem.reporting.runs.tables import other_numbers
from probing import LEAKY, NUM_CLASSES, Constant, subject

PROBE = {"name": "reidentification_by_picture", "candidates": 50}
BOTH = {"pixel_rank_1", "pixel_rank", "feature_rank_1", "feature_rank"}


def suite_of(rows: Mapping[str, Any]) -> Suite:
    return load(Suite, {"name": "pictured", "version": 1, "meaning": "for a test", "rows": dict(rows)}).config


def audited(run: Path, out: Path, rows: Mapping[str, Any], **options: Any) -> AuditResult:
    return audit(run, suite_of({**rows, "probe": PROBE}), out=out, progress=silent, **options)


def codes(row: Row) -> list[str]:
    return [item.code for item in row.findings]


# ranks


def test_ranks_are_those_of_the_definition() -> None:
    case = Case(subject(LEAKY, 0.5), THREATS["train"])
    row = measure(case, "probe", ByPictureOptions(candidates=1000), seed=4).row
    attack = RidgeAttack()
    attack.fit(case.oracle(attack, 4), seed=4)
    images = attack.reconstruct(case.released)
    ranks = []
    for number, image in enumerate(images):
        away = (case.x - image).flatten(1).square().sum(1)
        ranks.append(1 + int((away < away[number]).sum()))
    assert row.by == "ridge"
    assert row.scores["pixel_rank"].mean == pytest.approx(sum(ranks) / len(ranks))
    assert row.scores["pixel_rank_1"].mean == pytest.approx(sum(rank == 1 for rank in ranks) / len(ranks))
    assert 0.1 < row.scores["pixel_rank_1"].mean < 1


class Sign(nn.Module):
    """A network that only looks at the first pixel of each row of a picture."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, :, :1]


@pytest.mark.parametrize(("encoder", "found"), [(LEAKY, 1.0), (Constant(), 1 / 120)])
def test_features_of_a_reference_are_ranked_too(encoder: nn.Module, found: float) -> None:
    case = Case(subject(encoder), THREATS["train"], reference=subject(Sign()))
    row = measure(case, "probe", ByPictureOptions(candidates=120), seed=0).row
    assert set(row.scores) == set(row.chance) == BOTH
    assert row.scores["feature_rank_1"].mean == pytest.approx(found, abs=1e-6)
    assert row.chance["feature_rank_1"] == 1 / 120
    assert codes(row) == []


def split_model(server: nn.Module | None) -> SplitModel:
    return SplitModel(nn.Conv2d(1, 2, 3), build_channel([GaussianOptions(noise_std=5.0)]), server).eval()


def test_features_are_what_the_last_linear_layer_gets() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Flatten(), nn.Linear(200, 7), nn.ReLU())
    model, x = split_model(nn.Sequential(body, nn.Linear(7, NUM_CLASSES))), torch.rand(300, 1, 12, 12)
    expected = body(model.encode(x))
    assert torch.allclose(features_of(model, x), expected, atol=1e-6), "without the channel's noise"
    assert not any(part._forward_pre_hooks for part in model.modules())


@pytest.mark.parametrize("server", [None, nn.Conv2d(2, NUM_CLASSES, 1)])
def test_without_a_linear_layer_they_are_those_that_are_released(server: nn.Module | None) -> None:
    model, x = split_model(server), torch.rand(10, 1, 12, 12)
    assert torch.allclose(features_of(model, x), model.encode(x).flatten(1))


# whose pictures


def test_the_strongest_attack_is_taken_as_it_was(
    small_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, decoder = small_run("demo-none"), {"name": "decoder", "epochs": 8, "max_epochs": 8}
    monkeypatch.setattr(Case, "_ridge", None)  # it must not be asked
    result = audited(run, tmp_path, {"grey": {"name": "grey"}, "learned": decoder})
    row = result.row("probe")
    assert (result.strongest, row.by) == ("learned", "learned")
    case = Case(open_run(run), THREATS["train"])
    kept = strongest_kept(Ledger.open(Path(result.folder)), case.released[:1])
    assert kept is not None
    images = kept[1].reconstruct(case.released)
    errors = (images - case.x).square().flatten(1).mean(1)
    assert float(errors.mean()) == pytest.approx(result.row("learned").mse.mean, rel=1e-4)
    assert "from the reconstructions of “learned”" in other_numbers(row)


def test_without_a_state_it_is_a_ridge(small_run: Callable[..., Path], tmp_path: Path) -> None:
    result = audited(small_run("demo-none"), tmp_path, {"near": {"name": "nearest_neighbour"}})
    assert (result.strongest, result.row("probe").by) == ("near", "ridge")
    alone = audited(small_run("demo-none"), tmp_path / "alone", {})
    assert alone.row("probe").by == "ridge"


def test_a_state_that_does_not_fit_costs_the_row(
    small_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"ridge": {"name": "ridge"}}
    first = audited(small_run("demo-none"), tmp_path, rows, only=["ridge"])
    state = Path(first.folder) / "ridge.safetensors"
    state.write_bytes(state.read_bytes()[:-100])
    row = audited(small_run("demo-none"), tmp_path, rows).row("probe")
    assert row.outcome == "failed"
    assert "ridge.safetensors" in row.reason


# the reference


def test_without_a_reference_pixels_are_told_and_why_nothing_else(
    small_run: Callable[..., Path], tmp_path: Path
) -> None:
    row = audited(small_run("demo-none"), tmp_path, {}).row("probe")
    assert set(row.scores) == {"pixel_rank_1", "pixel_rank"}
    assert codes(row) == ["pixels_alone"]


def test_a_reference_is_part_of_the_question(small_run: Callable[..., Path], tmp_path: Path) -> None:
    run, reference = small_run("demo"), small_run("demo-none")
    bare = audited(run, tmp_path, {})
    result = audited(run, tmp_path, {}, reference=reference)
    other = audited(run, tmp_path, {}, reference=small_run("demo-none", seed=1))
    mark = open_run(reference).fingerprint
    assert (bare.plan.reference, result.plan.reference) == ("", f"demo-none {mark}")
    assert len({bare.plan.id, result.plan.id, other.plan.id}) == 3
    row = result.row("probe")
    assert set(row.scores) == BOTH
    assert codes(row) == []
    assert row.scores["feature_rank_1"].mean > row.chance["feature_rank_1"]
    assert result.row("probe").scores["pixel_rank"] == bare.row("probe").scores["pixel_rank"]


def test_a_defended_reference_is_named(small_run: Callable[..., Path], tmp_path: Path) -> None:
    row = audited(small_run("demo-none"), tmp_path, {}, reference=small_run("demo")).row("probe")
    assert codes(row) == ["reference_defended"]


def test_other_data_are_refused(
    small_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = small_run("demo-none"), small_run("demo-none", **{"data.held_out_fraction": 0.7})
    with pytest.raises(ConfigError, match="another split"):
        audited(run, tmp_path / "a", {}, reference=other)
    capsys.readouterr()
    words = ["--only", "grey", "--out", str(tmp_path / "b"), "--device", "cpu"]
    assert main(["audit", str(run), "--reference", str(other), *words]) == 2
    assert "reference=demo-none: it was trained on other data" in capsys.readouterr().err
    assert main(["audit", str(run), "--reference", str(tmp_path / "nowhere"), *words]) == 2
    assert "nowhere is not a run folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "nothing was made"
    assert main(["audit", str(run), "--reference", str(run), *words]) == 0
