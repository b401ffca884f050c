"""Nearly equal copies of evaluation images among pictures from elsewhere."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from attncem.data.batches import Images
from attncem.data.readers import read_dataset
from attncem.judging.auditing import audit, guards
from attncem.judging.auditing.guards import near_copies

DATA = read_dataset("fashion_mnist_mini")
X = torch.from_numpy(DATA.test_images[:40]).float() / 255


def smooth(count: int, seed: int) -> Tensor:
    """Pictures that have nothing in common."""
    field = torch.rand(count, 1, 5, 5, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(field, size=(28, 28), mode="bilinear", align_corners=True)


def compressed(x: Tensor) -> Tensor:
    stored = []
    for picture in (x * 255).round().to(torch.uint8):
        file = io.BytesIO()
        Image.fromarray(picture[0].numpy()).save(file, "JPEG", quality=75)
        stored.append(torch.from_numpy(np.array(Image.open(file)))[None].float() / 255)
    return torch.stack(stored)


def counted(own: Tensor, x: Tensor = X) -> list[dict[str, object]]:
    return [dict(item.values) for item in near_copies(Images.of(own), x)]


def test_pictures_of_other_things_are_not_named() -> None:
    assert counted(smooth(300, 0), smooth(40, 1)) == []


@pytest.mark.parametrize("copied", [lambda x: x, compressed, lambda x: (x + 0.01).clamp(0, 1)])
def test_copies_are_counted_wherever_they_are(
    copied: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "_CHUNK", 64)
    x, own = smooth(40, 1), smooth(300, 0)
    own[130:137] = copied(x[20:27])
    (values,) = counted(own, x)
    assert (values["count"], values["total"]) == (7, 40)
    assert 10 < float(str(values["median"])) < 300


def test_a_flat_image_is_not_a_copy_of_another_flat_image() -> None:
    assert counted(torch.full((5, 1, 28, 28), 0.5), torch.full((3, 1, 28, 28), 0.52)) == []


def test_with_many_images_evenly_spread_ones_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    x = smooth(40, 1)
    monkeypatch.setattr(guards, "_PRODUCTS", 10 * len(x) * 256)
    (values,) = counted(x.clone(), x)
    assert (values["count"], values["total"]) == (10, 10)


def test_an_audit_names_them_for_pictures_from_elsewhere_alone(small_run: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, picture in enumerate(DATA.test_images[:25]):
        Image.fromarray(picture[0]).save(folder / f"{number:02}.jpg", quality=90)
    run, only = small_run("demo"), ["mean image"]
    outside = audit(run, "quick", only=only, attacker_data=folder, out=tmp_path / "one")
    usual = audit(run, "quick", only=only, out=tmp_path / "two")
    assert "near_copies" in [item.code for item in outside.findings]
    assert "near_copies" not in [item.code for item in usual.findings]
