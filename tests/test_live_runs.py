"""From a run and its audits to the folder of a page: the audited attacks, and nothing else."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attncem
from attncem.base.types import RunError
from attncem.cli.main import main
from attncem.config.options.attacks import NearestNeighbourOptions
from attncem.config.threats import THREATS
from attncem.judging.attacks import ATTACKS as ATTACKS_BY_NAME
from attncem.judging.attacks.ridge import RidgeAttack
from attncem.judging.auditing import Case
from attncem.judging.opening import OpenRun, open_run
from attncem.live import decoders
from attncem.live.facts import LiveFacts, open_shown
from attncem.live.packing import Decoders, pack, prepare
from attncem.records.audit import AuditResult
from attncem.records.ledger import joined
from attncem_edge.client import open_session
from live_packs import ATTACKS, SENSIBLE, audited

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(small_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audited(small_run("demo"), tmp_path_factory.mktemp("live") / "run")


@pytest.fixture(scope="module")
def opened(run: Path) -> OpenRun:
    return open_run(run, device="cpu")


@pytest.fixture(scope="module")
def made(opened: OpenRun, run: Path) -> tuple[LiveFacts, Decoders]:
    return prepare(opened, str(run))


@pytest.fixture(scope="module")
def audit(run: Path) -> AuditResult:
    (folder,) = (run / "audits").iterdir()
    return joined(folder)


@pytest.fixture(scope="module")
def kept(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the command writes."""
    folder = tmp_path_factory.mktemp("kept") / "demo"
    assert main(["live", str(run), "--pack", str(folder)]) == 0
    return folder


def without_export(network: nn.Module, x: Tensor, *names: str) -> bytes:
    """In place of an export that takes seconds."""
    raise RunError("not exported")


def test_every_stop_shows_the_strongest_attack_of_the_audit(
    made: tuple[LiveFacts, Decoders], audit: AuditResult, run: Path
) -> None:
    one, sixteen, most = made[0].stops
    for stop, row in ((one, audit.row("ridge")), (sixteen, audit.row("ridge x16"))):
        assert (stop.state, stop.row, stop.mse, stop.images) == ("shown", row.name, row.mse.mean, row.num_images)
        assert stop.blind == min(audit.row(name).mse.mean for name in ("mean image", "class mean"))
        assert stop.checked == 500 and stop.stronger is None
    assert most.state == "not_audited"
    assert most.command == "attncem audit run --suite standard --only 'decoder global x256'", "no absolute path"
    assert sorted(made[1]) == ["decoder-1.onnx", "decoder-16.onnx"] == sorted(made[0].files)
    assert made[0].audits == [audit.plan.id] and made[0].judgement == audit.judgement


@pytest.mark.parametrize("half", [False, True])
def test_a_decoder_has_the_audited_error_on_all_test_images(
    made: tuple[LiveFacts, Decoders], audit: AuditResult, opened: OpenRun, kept: Path, half: bool
) -> None:
    case = Case(opened, THREATS["train"], seed=opened.config.seed)
    graphs = open_shown(kept).files if half else made[1]
    for releases, row in ((1, "ridge"), (16, "ridge x16")):
        decode = open_session(graphs[f"decoder-{releases}.onnx"], "z", ["image"], row)
        seen = torch.cat(list(case.seeing(releases).seen_by(RidgeAttack(), len(case.x))))
        errors = np.square(decode(seen.numpy())[0] - case.x.numpy()).mean((1, 2, 3))
        assert errors.mean() == pytest.approx(audit.row(row).mse.mean, rel=1e-3 if half else 1e-4)


def test_blind_guesses_are_those_of_the_audit(
    made: tuple[LiveFacts, Decoders], audit: AuditResult, opened: OpenRun
) -> None:
    x = opened.data.test.get(slice(None))[0].numpy()
    mean = np.frombuffer(base64.b64decode(made[0].mean), np.uint8).reshape(x.shape[1:]) / 255
    error = np.square(mean - x).mean()
    assert error == pytest.approx(audit.row("mean image").mse.mean, rel=1e-3)
    assert len(made[0].class_means) == opened.spec.num_classes


def test_examples_are_test_images_of_every_class(made: tuple[LiveFacts, Decoders], opened: OpenRun) -> None:
    labels = opened.data.test.get(slice(None))[1]
    assert {it.label for it in made[0].examples} == set(range(10)) and "Zalando" in made[0].source
    assert all(int(labels[it.index]) == it.label for it in made[0].examples) and len(made[0].examples) <= 24


class _Darker(RidgeAttack):
    """An attack that is not the audited one: darker by a tenth."""

    def network(self) -> nn.Module:
        return nn.Sequential(super().network(), _Dark())

    def reconstruct(self, released: Tensor) -> Tensor:
        return super().reconstruct(released) - 0.1


class _Dark(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images - 0.1


def test_an_attack_with_other_errors_than_the_audited_one_is_refused(
    run: Path, opened: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ATTACKS_BY_NAME, "ridge", _Darker)
    with pytest.raises(RunError, match=r"ridge: its state rebuilds .*: this is not the audited attack; repeat"):
        prepare(opened, str(run))


def test_a_file_that_rebuilds_other_images_is_refused(
    run: Path, opened: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = RidgeAttack.network
    monkeypatch.setattr(RidgeAttack, "network", lambda self: nn.Sequential(network(self), nn.Threshold(0.5, 0.0)))
    with pytest.raises(RunError, match="ridge: the exported attack rebuilds other images than the audited one"):
        prepare(opened, str(run))


def test_an_attack_that_no_page_can_run_is_named_with_its_error(
    run: Path, opened: OpenRun, audit: AuditResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoders, "onnx_of", without_export)
    facts, graphs = prepare(opened, str(run))
    assert [it.state for it in facts.stops] == ["not_exported", "not_exported", "not_audited"] and graphs == {}
    assert facts.stops[0].stronger is not None and facts.stops[0].stronger.mse == audit.row("ridge").mse.mean


def test_an_attack_whose_state_was_not_kept_is_audited_again(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    for file in copy.glob("audits/*/*.safetensors"):
        file.unlink()
    stops = prepare(open_run(copy, device="cpu"), "copy")[0].stops
    assert [it.state for it in stops] == ["not_kept", "not_kept", "not_audited"]
    assert stops[0].command == "attncem audit copy --suite tiny --threat train --fresh", "whole: it is newer"


def test_an_attack_without_a_network_is_named_and_another_one_is_asked_for(
    small_run: Callable[..., Path], tmp_path: Path
) -> None:
    folder = audited(small_run("demo"), tmp_path / "run", neighbour=NearestNeighbourOptions())
    stop = prepare(open_run(folder, device="cpu"), "run")[0].stops[0]
    assert (stop.state, stop.row) == ("not_exported", "neighbour")
    assert stop.command == "attncem audit run --suite standard --only 'decoder small'"


def test_errors_agree_to_rounding_or_within_the_noise_of_another_device() -> None:
    kept = np.random.default_rng(0).uniform(0.01, 0.05, 500)
    noise = np.random.default_rng(1).normal(0, 0.003, 500)
    assert decoders._agree(kept, kept) and decoders._agree(kept * 1.0005, kept)
    assert decoders._agree(kept + noise, kept), "other noise moves each image, and the mean hardly"
    assert not decoders._agree(kept * 1.01, kept) and not decoders._agree(kept + 0.003 + noise, kept)


def test_without_an_audit_the_page_has_pictures_and_commands(small_run: Callable[..., Path]) -> None:
    facts, graphs = prepare(open_run(small_run("demo"), device="cpu"), "runs/demo")
    assert facts.audits == [] and facts.judgement is None and graphs == {}
    assert {it.state for it in facts.stops} == {"not_audited"} and len(facts.examples) == 20
    assert [it.command.split()[2] for it in facts.stops] == ["runs/demo"] * 3


def test_an_audit_of_another_model_is_refused(run: Path, small_run: Callable[..., Path], audit: AuditResult) -> None:
    other = open_run(small_run("demo", seed=5), device="cpu")
    with pytest.raises(RunError, match="it judged another model, or another checkpoint, than demo-gated"):
        prepare(other, "other", [audit.folder])


def test_the_folder_of_a_page_is_a_bundle_and_is_written_whole_or_not_at_all(
    run: Path, kept: Path, made: tuple[LiveFacts, Decoders], tmp_path: Path
) -> None:
    shown = open_shown(kept)
    assert shown.facts.identity == shown.manifest.identity and set(shown.files) == set(shown.facts.files)
    assert all(len(data) < 0.6 * len(made[1][name]) for name, data in shown.files.items()), "weights of 16 bits"
    with pytest.raises(RunError, match=r"would take .* MB, and at most 0\.1 MB are kept: decoder-"):
        pack(run, tmp_path / "small", largest=100_000)
    with pytest.raises(RunError, match="already exists"):
        pack(run, kept)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_loaded_without_torch_and_answers_as_the_run(kept: Path, run: Path, opened: OpenRun) -> None:
    code = f"import sys, attncem; attncem.load({str(kept)!r}); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    model = attncem.load(kept)
    x, y = opened.data.test.get(slice(0, 200))
    pixels = (x * 255).round().to(torch.uint8).numpy()
    answers = [model.predict(image) for image in pixels]
    right = np.mean([model.manifest.labels.index(it.label) == label for it, label in zip(answers, y, strict=True)])
    accuracy = attncem.predict(run, [f"test:{place}" for place in range(200)]).predictions
    assert right == pytest.approx(np.mean([it.top[0].label == it.true_label for it in accuracy]), abs=0.06)
    assert model.card is not None and "audited attacks at 1, 16 releases" in repr(model)
    errors = [
        np.square(model.rebuild(it.released) - image / 255).mean() for it, image in zip(answers, pixels, strict=True)
    ]  # type: ignore[arg-type]
    assert np.mean(errors) == pytest.approx(model.stops[0].mse, rel=0.15)
    with pytest.raises(RunError, match="no attack on 256 averaged releases; it has: 1, 16"):
        model.rebuild(answers[0].released, releases=256)  # type: ignore[arg-type]


def test_a_client_with_a_head_guesses_from_sent_images_and_offers_all(
    small_run: Callable[..., Path], tmp_path: Path
) -> None:
    folder = audited(small_run("demo-selective", **SENSIBLE), tmp_path / "run", ridge=ATTACKS["ridge"])
    opened = open_run(folder, device="cpu")
    facts, _ = prepare(opened, "run")
    assert len(facts.examples) == 20, "of all images, sent or not"
    (audit,) = (joined(place) for place in (folder / "audits").iterdir())
    assert facts.stops[0].images == audit.plan.selective.num_sent  # type: ignore[union-attr]
    assert audit.row(facts.stops[0].floor).owns == "sent"
    case = Case(opened, THREATS["train"], seed=opened.config.seed).owning_sent()
    mean = np.frombuffer(base64.b64decode(facts.mean), np.uint8) / 255
    assert np.abs(mean - case.auxiliary.in_parts[:].mean(0).numpy().ravel()).max() < 0.51 / 255
