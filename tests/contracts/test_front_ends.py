"""Every front end against one contract; a new one is tested by adding a line to CASES."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import fft, ndimage
from torch import Tensor, nn

from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.loading.load import load_config
from attncem.config.options.channels import IdentityOptions
from attncem.config.options.model import (
    BlockDCTOptions,
    HighPassOptions,
    HighPassStandardiseOptions,
    LearnedContrastOptions,
    LocalContrastOptions,
    ModelOptions,
    NoFrontEndOptions,
    StandardiseOptions,
)
from attncem.models.channels import build_channel
from attncem.models.cost import count_cost
from attncem.models.front_ends import FRONT_ENDS, as_seen, blur_radius, build_front_end, dct_basis, front_end_of
from attncem.models.networks import build_halves
from attncem.models.split import SplitModel
from attncem.records.fingerprints import fingerprint

CASES: dict[str, Any] = {
    "none": NoFrontEndOptions(),
    "standardise": StandardiseOptions(),
    "high_pass": HighPassOptions(),
    "high_pass a": HighPassOptions(s=1.3, a=0.2),
    "high_pass_standardise": HighPassStandardiseOptions(s=2, a=0.2),
    "local_contrast": LocalContrastOptions(),
    "local_contrast a": LocalContrastOptions(s=1.5, a=0.2),
    "learned_contrast": LearnedContrastOptions(),
    "learned_contrast a": LearnedContrastOptions(s=1.5, a=0.2),
    "block_dct": BlockDCTOptions(),
    "block_dct a": BlockDCTOptions(n=6, a=0.3),
}
REMOVING = [name for name in CASES if name != "none"]
LEARNED = {"learned_contrast": {"changes"}}
"""Names of the weights of those that have any."""
SHAPES = [(3, 32, 32), (1, 28, 28), (3, 20, 44), (2, 64, 64), (1, 7, 9), (1, 1, 1), (3, 1, 16)]


def spec_of(shape: tuple[int, int, int]) -> DatasetSpec:
    mean, std = tuple(0.4 + 0.05 * c for c in range(shape[0])), tuple(0.2 + 0.03 * c for c in range(shape[0]))
    return DatasetSpec("made_up", shape, 10, mean, std, tuple(map(str, range(10))))


def images(shape: tuple[int, ...], count: int = 5, seed: int = 0) -> Tensor:
    smooth = torch.nn.functional.interpolate(
        torch.rand(count, shape[0], 4, 4, generator=torch.Generator().manual_seed(seed)), shape[1:], mode="bilinear"
    )
    fine = torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed + 1))
    return (0.7 * smooth + 0.3 * fine).clamp(0, 1)


def expected(options: Any, x: np.ndarray, spec: DatasetSpec) -> np.ndarray:
    """The definitions again, image by image in double precision with scipy's filters and transforms."""
    mean, std = (np.reshape(values, (-1, 1, 1)) for values in (spec.mean, spec.std))
    return np.stack([_one(options, (image.astype(np.float64) - mean) / std) for image in x])


def _one(options: Any, x: np.ndarray) -> np.ndarray:
    if options.name == "none":
        return x
    if options.name == "standardise":
        centred = x - x.mean((1, 2), keepdims=True)
        return centred / np.sqrt((centred**2).mean() + 0.01)
    if options.name == "block_dct":
        return _one_block_dct(options, x)
    h = x - (1 - options.a) * np.stack([_blur(channel, options.s) for channel in x])
    if options.name == "high_pass":
        return 2 * h
    if options.name == "high_pass_standardise":
        return h / np.sqrt((h**2).mean() + 0.01)
    return h / np.sqrt(_blur((h**2).mean(0), options.s) + 0.02)


def _blur(image: np.ndarray, s: float) -> np.ndarray:
    # scipy's "mirror" is what others call reflected: the last pixel does not come twice
    return ndimage.gaussian_filter(image, s, mode="mirror", radius=int(2.5 * s + 0.5))


def _one_block_dct(options: BlockDCTOptions, x: np.ndarray) -> np.ndarray:
    height, width = x.shape[1:]
    filled = np.pad(x, [(0, 0), (0, -height % 8), (0, -width % 8)], mode="reflect")
    zig_zag = [(0, 0), (0, 1), (1, 0), (2, 0), (1, 1), (0, 2), (0, 3), (1, 2), (2, 1), (3, 0)]
    for top in range(0, filled.shape[1], 8):
        for left in range(0, filled.shape[2], 8):
            block = fft.dctn(filled[:, top : top + 8, left : left + 8], axes=(1, 2), norm="ortho")
            for row, column in zig_zag[: options.n]:
                block[:, row, column] *= options.a
            filled[:, top : top + 8, left : left + 8] = fft.idctn(block, axes=(1, 2), norm="ortho")
    return filled[:, :height, :width]


def test_every_front_end_has_a_case() -> None:
    assert {options.name for options in CASES.values()} == set(FRONT_ENDS)
    assert all(kind.options_type.model_fields["name"].default == name for name, kind in FRONT_ENDS.items())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_it_is_its_definition_at_any_size_and_channel_count(name: str, shape: tuple[int, int, int]) -> None:
    spec, x = spec_of(shape), images(shape)
    out = build_front_end(CASES[name], spec)(x).detach()
    assert out.shape == x.shape and out.dtype == torch.float32
    np.testing.assert_allclose(out, expected(CASES[name], x.numpy(), spec), atol=2e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("value", [0.0, 0.37, 1.0])
@pytest.mark.parametrize("name", CASES)
def test_constant_images_stay_finite_and_flat(name: str, value: float, shape: tuple[int, int, int]) -> None:
    x = torch.full((2, *shape), value)
    out = build_front_end(CASES[name], spec_of(shape))(x).detach()
    assert out.isfinite().all()
    assert float((out - out.mean((2, 3), keepdim=True)).abs().max()) < 1e-5


@pytest.mark.parametrize("name", CASES)
def test_each_image_is_for_itself_and_gradients_reach_it(name: str) -> None:
    spec, x = spec_of((3, 32, 32)), images((3, 32, 32)).requires_grad_()
    front_end = build_front_end(CASES[name], spec)
    out = front_end(x)
    torch.testing.assert_close(out[2:3], front_end(x[2:3]), atol=1e-6, rtol=1e-5)
    out[1].square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    assert x.grad[1].abs().max() > 0 and x.grad[[0, 2, 3, 4]].abs().max() == 0


@pytest.mark.parametrize("name", REMOVING)
def test_what_it_takes_out_makes_no_difference(name: str) -> None:
    options = CASES[name].model_copy(update={"a": 0.0}) if "a" in type(CASES[name]).model_fields else CASES[name]
    spec = spec_of((3, 32, 32))
    x = 0.2 + 0.3 * images(spec.shape)
    lighter = x + 0.3 * torch.tensor(spec.std).view(1, -1, 1, 1)
    front_end = build_front_end(options, spec)
    torch.testing.assert_close(front_end(lighter), front_end(x), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_it_shifts_no_name_and_has_no_weights_but_those_it_learns(name: str) -> None:
    spec = spec_of((3, 32, 32))
    client, _ = build_halves(spec, ModelOptions(front_end=CASES[name]))
    plain, _ = build_halves(spec, ModelOptions())
    learned = {f"0.{weight}" for weight in LEARNED.get(CASES[name].name, ())}
    assert [name for name in client.state_dict() if name not in learned] == list(plain.state_dict())
    assert {f"0.{name}" for name in client[0].state_dict()} == learned
    assert {f"0.{name}" for name, _ in client[0].named_parameters()} == learned
    assert type(client[0]) is FRONT_ENDS[CASES[name].name] and not list(client[0].children()), "pruning wants a chain"


@pytest.mark.parametrize("name", CASES)
def test_its_work_stands_in_the_clients_count(name: str) -> None:
    spec = spec_of((3, 32, 32))
    encoder = nn.Sequential(build_front_end(CASES[name], spec), nn.Conv2d(3, 4, 1))
    cost = count_cost(SplitModel(encoder, build_channel([IdentityOptions()]), None), spec.shape)
    taps = 2 * (2 * int(2.5 * getattr(CASES[name], "s", 0) + 0.5) + 1)
    own = {
        "none": 0,
        "standardise": 0,
        "high_pass": 3072 * taps,
        "high_pass_standardise": 3072 * taps,
        "local_contrast": 4096 * taps,
        "learned_contrast": 4096 * taps,
        "block_dct": 2 * getattr(CASES[name], "n", 0) * 3072,
    }[CASES[name].name]
    assert cost.client_macs == own + 12 * 1024
    assert cost.client_parameters == 16 + (taps // 2 + 1 if CASES[name].name in LEARNED else 0)


@pytest.mark.parametrize("name", CASES)
def test_it_stays_in_full_precision_beside_networks_in_bfloat16(name: str) -> None:
    spec, x = spec_of((3, 32, 32)), images((3, 32, 32))
    front_end = build_front_end(CASES[name], spec)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = front_end(x)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, front_end(x), atol=0, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_it_can_be_exported_in_one_piece(name: str) -> None:
    spec, x = spec_of((3, 20, 44)), images((3, 20, 44))
    front_end = build_front_end(CASES[name], spec).eval()
    exported = torch.export.export(front_end, (x,)).module()
    torch.testing.assert_close(exported(x), front_end(x))


@pytest.mark.parametrize("name", REMOVING)
def test_what_the_encoder_sees_can_be_shown(name: str) -> None:
    spec, x = spec_of((3, 32, 32)), images((3, 32, 32))
    client, _ = build_halves(spec, ModelOptions(front_end=CASES[name]))
    seen = as_seen(client, x)
    assert seen is not None and seen.shape == x.shape
    assert float(seen.min()) >= 0 and float(seen.max()) <= 1
    picture = client[0](x)
    torch.testing.assert_close((seen - 0.5).sign(), picture.sign())


def test_without_a_front_end_the_encoder_sees_the_image() -> None:
    client, _ = build_halves(spec_of((3, 32, 32)), ModelOptions())
    assert front_end_of(client) is None and as_seen(client, images((3, 32, 32))) is None


def test_the_cosines_are_orthonormal() -> None:
    np.testing.assert_allclose(dct_basis() @ dct_basis().T, np.eye(64), atol=1e-12)


def test_the_blur_reaches_as_far_as_the_definition_says() -> None:
    assert [blur_radius(s) for s in (0.1, 1, 1.5, 2, 3)] == [0, 3, 4, 5, 8]


def test_fingerprints_tell_front_ends_apart_and_leave_old_ones_as_they_were() -> None:
    channel = [{"name": "identity"}]
    plain = fingerprint("a", channel)
    assert fingerprint("a", channel, {"name": "none"}) == plain
    marks = {fingerprint("a", channel, options.model_dump()) for options in CASES.values()}
    assert len(marks) == len(CASES) and plain in marks


@pytest.mark.parametrize(
    "given",
    [
        "model.front_end.name=blur",
        "model.front_end.s=3",
        "model.front_end={name: local_contrast, s: 0}",
        "model.front_end={name: high_pass, a: 1.5}",
        "model.front_end={name: block_dct, n: 65}",
    ],
)
def test_wrong_options_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="front_end"):
        load_config("demo-none", [given])


def test_it_is_named_in_the_defence() -> None:
    config = load_config("demo-kmeans", ["model.front_end.name=local_contrast"]).config
    assert config.defence == "kmeans + local contrast"
