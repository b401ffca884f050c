"""portray(): clouds, faces, weights; the same twice; small; without scikit-learn and for runs without a surrogate."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attncem.judging.opening import open_run
from attncem.records.files import read_record
from attncem.records.portrait import PORTRAIT, STEPS, Face, Portrait
from attncem.records.runs import RunDirectory
from attncem.reporting.explain import portraits
from attncem.reporting.explain.portraits import portray

Make = Callable[..., Path]
GATES = {"surrogate.variant": "002", "training.warmup_epochs": 0}
SLOTS = {"surrogate.name": "slot", "surrogate.slot_dim": 8, "surrogate.num_slots": 3, "surrogate.num_heads": 2}


@pytest.fixture(scope="module")
def gated(small_run: Make) -> Path:
    return small_run("demo", **GATES)


@pytest.fixture(scope="module")
def portrait(gated: Path) -> Portrait:
    return portray(RunDirectory.open(gated))


def test_it_is_small_is_in_the_folder_and_the_same_twice(gated: Path, portrait: Portrait) -> None:
    file = gated / PORTRAIT
    before = file.read_bytes()
    assert len(before) <= 40_000
    assert read_record(Portrait, file) == portrait
    portray(gated)
    assert file.read_bytes() == before


def test_points_are_the_principal_components(gated: Path, portrait: Portrait) -> None:
    opened = open_run(gated)
    labels = opened.data.validation.labels
    order = torch.cat([(labels == label).nonzero().flatten()[:30] for label in range(opened.spec.num_classes)])
    x, y = opened.data.validation.get(order)
    assert portrait.labels == y.tolist()
    with torch.no_grad():
        z = opened.model.encode(x).flatten(1).double().numpy()
    z = z - z.mean(0)
    left, sizes, _ = np.linalg.svd(z, full_matrices=False)
    cloud = portrait.cloud("clean", "pca")
    assert cloud is not None and cloud.kept == pytest.approx((sizes[:2] ** 2).sum() / (sizes**2).sum(), rel=1e-3)
    for axis, found in enumerate((cloud.x, cloud.y)):
        wanted = left[:, axis] * sizes[axis]
        assert np.allclose(np.abs(np.array(found) * cloud.unit), np.abs(wanted), atol=cloud.unit)


def test_releases_lie_on_the_axes_of_the_clean_features(portrait: Portrait) -> None:
    clean, released = portrait.cloud("clean", "pca"), portrait.cloud("released", "pca")
    assert clean is not None and released is not None
    assert clean.unit == released.unit
    moved = (np.array(released.x) - np.array(clean.x)) * clean.unit
    assert moved.std() == pytest.approx(portrait.noise_std, rel=0.3), "along one axis there is one noise"
    assert max(map(abs, [*clean.x, *clean.y, *released.x, *released.y])) == STEPS


def test_attention_and_gates_of_some_classes(portrait: Portrait) -> None:
    assert len(portrait.classes) == 3
    for item in portrait.classes:
        assert len(item.attentions) == item.images == portrait.labels.count(item.label)
        assert sum(item.attentions) == pytest.approx(1, abs=1e-2)
        assert item.attentions == sorted(item.attentions, reverse=True)
        weights = [face.attention for face in item.faces]
        assert weights[0] == item.attentions[0] and weights[-1] == item.attentions[-1]
        assert {gate.name for gate in item.gates} == {"gate_dimension", "gate_snr", "gate_class"}
        for face in item.faces:
            assert max(Image.open(io.BytesIO(base64.b64decode(face.image))).size) <= 16


@pytest.fixture
def components_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No t-SNE, which takes most of the time."""
    monkeypatch.setattr(portraits._Painter, "_neighbours", lambda painter: [])


@pytest.mark.usefixtures("components_alone")
def test_slots_have_shares(small_run: Make) -> None:
    found = portray(small_run("demo", **SLOTS))
    assert found.part == "slot"
    for item in found.classes:
        assert len(item.shares) == 3 and sum(item.shares) == pytest.approx(1, abs=1e-3)
        assert all(math.isclose(sum(face.shares), 1, abs_tol=1e-3) for face in item.faces)


@pytest.mark.usefixtures("components_alone")
def test_gates_of_slots_are_there_where_slots_are(small_run: Make) -> None:
    parts = {"gated.snr_gate": True, "slot.snr_gate": True, "slot.slot_dim": 8, "slot.num_heads": 2}
    options = {f"surrogate.{name}": value for name, value in parts.items()}
    found = portray(small_run("demo", **{"surrogate.name": "hybrid", "surrogate.max_risk_classes": 9}, **options))
    assert any(item.shares for item in found.classes)
    for item in found.classes:
        assert [gate.name for gate in item.gates] == ["gate_snr", *(["slot_gate_snr"] if item.shares else [])]


@pytest.mark.usefixtures("components_alone")
def test_without_a_surrogate_there_are_clouds_alone(small_run: Make) -> None:
    found = portray(small_run("demo-none"))
    assert found.classes == [] and found.part == ""
    assert {cloud.of for cloud in found.clouds} == {"pixels", "clean", "released"}


def test_tsne_keeps_neighbours(portrait: Portrait) -> None:
    pca, tsne = portrait.cloud("clean", "pca"), portrait.cloud("clean", "tsne")
    assert pca is not None and tsne is not None and len(tsne.x) == len(portrait.labels)
    far, near = (np.stack([cloud.x, cloud.y], 1).astype(float) for cloud in (pca, tsne))
    place = np.linalg.norm(near[:, None] - near[None], axis=2) + np.diag(np.full(len(near), np.inf))
    nearest = np.linalg.norm(far - far[place.argmin(1)], axis=1).mean()
    assert nearest < 0.6 * np.linalg.norm(far[:, None] - far[None], axis=2).mean()


def test_too_many_faces_are_left_out(portrait: Portrait) -> None:
    large = [Face("A" * 8000, 0.1, []) for _ in range(6)]
    swollen = replace(portrait, classes=[replace(item, faces=large) for item in portrait.classes])
    small = portraits._smaller(swollen)
    assert len(portraits._packed(small)) <= 40_000
    assert all(len(item.faces) < 6 for item in small.classes)


def test_images_that_are_all_alike_are_a_point() -> None:
    assert portraits._cloud("clean", torch.zeros(5, 2), 1.0).x == [0] * 5
    assert torch.equal(portraits._tsne(torch.zeros(9, 4).double(), 0), torch.zeros(9, 2))
    axes, kept = portraits._axes(torch.zeros(4, 1).double())
    assert axes.shape == (1, 2) and kept == 0
