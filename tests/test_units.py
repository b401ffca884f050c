"""Errors in human units: thumbnails and principal components against what is known in closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.base.record import read
from attncem.config.options.attacks import GreyOptions, MeanImageOptions
from attncem.config.options.suites import Suite
from attncem.judging.auditing import audit
from attncem.judging.auditing.units import components, human_units, principal_axes, thumbnails
from attncem.judging.opening import open_run
from attncem.records.audit import AuditPlan
from attncem.records.files import read_record
from attncem.records.ledger import Ledger
from attncem.records.units import Place, Rung, Units, place
from attncem.reporting.explain.explaining import explain
from attncem.reporting.explain.page import describe_recovery
from attncem.reporting.runs.units import describe, short
from probing import LEAKY, subject

CIFAR = Units(
    [Rung(1, 0.0443), Rung(2, 0.0340), Rung(4, 0.0213), Rung(8, 0.0114), Rung(16, 0.0042)],
    [Rung(0, 0.0618), Rung(8, 0.0236), Rung(16, 0.0176), Rung(32, 0.0124), Rung(64, 0.0084)],
)
"""The floors of CIFAR-10's test images, as measured for the specification."""


def blocks(count: int, size: int, std: float, generator: torch.Generator) -> Tensor:
    """Images of 32×32 that are constant on size×size blocks, of independent normal levels."""
    levels = std * torch.randn(count, 1, size, size, generator=generator)
    return nn.functional.interpolate(levels, size=(32, 32), mode="nearest")


# thumbnails


def test_block_means_leave_what_is_finer() -> None:
    """x = Σ_n of levels on n×n blocks with variance v_n: means over m×m leave v_n (1 − (m/n)²) of each finer one."""
    generator = torch.Generator().manual_seed(0)
    variance = {1: 0.04, 4: 0.02, 16: 0.01, 32: 0.005}
    x = torch.stack([blocks(4000, n, v**0.5, generator) for n, v in variance.items()]).sum(0)
    found = {rung.size: rung.mse for rung in thumbnails(x)}
    assert list(found) == [1, 2, 4, 8, 16]
    for size, error in found.items():
        expected = sum(v * (1 - (size / n) ** 2) for n, v in variance.items() if n > size)
        assert error == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("shape", "sizes"), [((28, 28), 5), ((7, 12), 3), ((3, 9), 2), ((1, 1), 1), ((48, 64), 6)])
def test_any_size_of_image_has_its_blocks(shape: tuple[int, int], sizes: int) -> None:
    x = torch.rand(20, 3, *shape, generator=torch.Generator().manual_seed(1))
    found = thumbnails(x)
    assert [rung.size for rung in found] == [2**step for step in range(sizes)]
    assert found[0].mse == pytest.approx(float((x - x.mean((2, 3), keepdim=True)).square().mean()), abs=1e-7)
    size = found[-1].size
    expected = torch.empty_like(x)
    for row in range(size):
        for column in range(size):
            rows = [it for it in range(shape[0]) if it * size // shape[0] == row]
            columns = [it for it in range(shape[1]) if it * size // shape[1] == column]
            part = x[:, :, rows][..., columns].mean((2, 3), keepdim=True)
            expected[:, :, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = part
    assert found[-1].mse == pytest.approx(float((x - expected).square().mean()), abs=1e-7)


# principal components


def test_components_leave_the_rest_of_the_spectrum() -> None:
    """Normal images whose variances along known axes fall as 1/j²: k components leave the sum of the others."""
    generator = torch.Generator().manual_seed(0)
    pixels = 300
    axes = torch.linalg.qr(torch.randn(pixels, pixels, generator=generator)).Q
    spectrum = torch.arange(1, pixels + 1).float() ** -2
    own, x = (
        (0.5 + torch.randn(count, pixels, generator=generator) * spectrum.sqrt() @ axes.T).view(count, 3, 10, 10)
        for count in (4000, 3000)
    )
    found = {rung.size: rung.mse for rung in components(x, own)}
    assert list(found) == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
    for count, error in found.items():
        allowed = 0.08 if count < 256 else 0.2  # the last axes are learned from 4000 images only roughly
        assert error == pytest.approx(float(spectrum[count:].sum()) / pixels, rel=allowed)


def test_the_axes_are_those_of_an_exact_decomposition() -> None:
    generator = torch.Generator().manual_seed(2)
    data = torch.randn(900, 500, generator=generator) * torch.arange(1, 501) ** -0.7
    data = data - data.mean(0)
    axes = principal_axes(data)
    torch.testing.assert_close(axes.T @ axes, torch.eye(256), atol=1e-4, rtol=0)
    exact = torch.linalg.svd(data, full_matrices=False).S.square()
    for count in (1, 16, 256):
        kept = float((data @ axes[:, :count]).square().sum())
        assert kept == pytest.approx(float(exact[:count].sum()), rel=2e-3)
    assert torch.equal(principal_axes(data), axes)


@pytest.mark.parametrize("rows", [2, 5, 40])
def test_few_images_have_few_components(rows: int) -> None:
    own = torch.rand(rows, 1, 6, 6, generator=torch.Generator().manual_seed(3))
    found = components(own, own)
    assert found[-1].size <= min(rows - 1, 36)
    assert all(first.mse >= second.mse for first, second in pairwise(found))
    if rows == 5:
        assert found[-1].mse == pytest.approx(0, abs=1e-6), "all that five images differ in"


# from an error to a size


def test_the_specifications_own_reading_of_cifar() -> None:
    """MSE 0.02 is a 4×4 thumbnail or 10 to 16 numbers."""
    thumbnail, component = CIFAR.thumbnail(0.02), CIFAR.component(0.02)
    assert thumbnail is not None and component is not None
    assert (thumbnail.low, thumbnail.high) == (4, 8)
    assert thumbnail.size == pytest.approx(4.3, abs=0.1)
    assert 10 < component.size < 16
    said = "as much as a thumbnail of 4×4 pixels, or 12 principal components of this data set"
    assert describe(CIFAR, 0.02) == said


@pytest.mark.parametrize("rungs", [CIFAR.thumbnails, CIFAR.components])
def test_a_rung_is_its_own_size_and_less_error_is_more(rungs: list[Rung]) -> None:
    for rung in rungs:
        found = place(rungs, rung.mse)
        assert found is not None and found.size == pytest.approx(rung.size)
    sizes = [found.size for step in range(60) if (found := place(rungs, 0.09 * 0.92**step))]
    assert sizes == sorted(sizes)


def test_beyond_the_ends() -> None:
    assert place([], 0.1) is None
    assert place(CIFAR.thumbnails, 0.05) == Place(None, 1, 1)
    assert place(CIFAR.thumbnails, 0.004) == Place(16, None, 16)
    flat = [Rung(1, 0.0), Rung(2, 0.0)]
    assert place(flat, 0.0) == Place(2, None, 2)
    assert place(flat, 0.1) == Place(None, 1, 1)


@pytest.mark.parametrize(
    ("mse", "said", "brief"),
    [
        (0.07, "no more than the mean image", "mean image"),
        (0.05, "less than its mean colour, or 2 principal components of this data set", "< 1×1, 2 PC"),
        (
            0.0270,
            "as much as a thumbnail of 2×2–4×4 pixels, or 7 principal components of this data set",
            "2×2–4×4, 7 PC",
        ),
        (0.0115, "as much as a thumbnail of 8×8 pixels, or 37 principal components of this data set", "8×8, 37 PC"),
        (
            0.0030,
            "more than a thumbnail of 16×16 pixels, or more than 64 principal components of this data set",
            "> 16×16, > 64 PC",
        ),
    ],
)
def test_an_error_in_words(mse: float, said: str, brief: str) -> None:
    assert describe(CIFAR, mse) == said
    assert short(CIFAR, mse) == brief


def test_what_was_not_measured_is_not_said() -> None:
    assert describe(None, 0.02) == short(None, 0.02) == ""
    assert describe(Units(), 0.02) == ""


# in an audit


def test_an_audit_has_its_data_sets_floors(tmp_path: Path) -> None:
    opened = subject(LEAKY, 0.1)
    suite = Suite.model_construct(
        name="blind", version=1, meaning="blind", rows={"grey": GreyOptions(), "mean image": MeanImageOptions()}
    )
    found = audit(opened, suite, out=tmp_path, progress=silent)
    units = found.plan.units
    assert units is not None
    assert units == human_units(opened.data.test.get(slice(None))[0], opened.data.train)
    assert units.components[0].mse == pytest.approx(found.row("mean image").mse.mean, rel=1e-5)
    assert Ledger.open(Path(found.folder)).plan.units == units


def test_audits_without_units_are_still_read(tmp_path: Path) -> None:
    suite = Suite.model_construct(name="blind", version=1, meaning="blind", rows={"grey": GreyOptions()})
    found = audit(subject(LEAKY, 0.1), suite, out=tmp_path, progress=silent)
    old = read_record(AuditPlan, Path(found.folder) / "audit.json").to_dict()
    del old["units"]
    assert read(AuditPlan, old, "old").units is None


def test_one_image_is_measured_by_its_own_ladders(small_run: Callable[..., Path]) -> None:
    found = explain(small_run(), "test:3", progress=silent)
    assert found.units is not None
    opened = open_run(small_run())
    x = opened.data.test.get(slice(3, 4))[0]
    assert found.units == human_units(x, opened.data.train)
    best = min(row.mse for row in found.recoveries if row.kind == "attack")
    assert f"For this image that is {describe(found.units, best)}." in describe_recovery(found)
    assert "For this image" not in " ".join(describe_recovery(replace(found, units=None)))
