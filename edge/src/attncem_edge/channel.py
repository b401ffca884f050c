"""The channel of a bundle: what it does to z before z leaves the device. numpy only; the same numbers as in training.

A stage takes the z of one image in float32, and draws its noise from a 256-bit secret of this release (`fresh`) or of
the device's key, the model and the pixels (`keyed`), as docs/channels.md describes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem_edge import noise
from attncem_edge.errors import BundleError
from attncem_edge.manifest import is_number

Feature = NDArray[np.float32]
Options = Mapping[str, Any]
Draw = Callable[[noise.Law], noise.Numbers]
"""Numbers of a distribution in the shape of z, float64."""
_MAP = 3
"""Axes of the z of one image that is a map: channels, height, width."""


def _identity(z: Feature, options: Options, draw: Draw) -> Feature:
    return z


def _gaussian(z: Feature, options: Options, draw: Draw) -> Feature:
    return _added(z, options["noise_std"], lambda: draw("normal"))


def _laplace(z: Feature, options: Options, draw: Draw) -> Feature:
    return _added(z, options["noise_std"] / 2**0.5, lambda: draw("laplace"))


def _shaped(z: Feature, options: Options, draw: Draw) -> Feature:
    return _added(z, options["noise_std"], lambda: coloured(draw("normal"), options["tilt"]))


def _added(z: Feature, strength: float, numbers: Callable[[], noise.Numbers]) -> Feature:
    return z if strength == 0 else z + np.float32(strength) * numbers().astype(np.float32)


def _local_dp(z: Feature, options: Options, draw: Draw) -> Feature:
    settings = {name: float(options[name]) for name in ("clip", "noise_std", "grid")}
    released = noise.noisy_on_grid(z.astype(np.float64).reshape(1, -1), draw("normal").reshape(1, -1), **settings)
    return released.astype(np.float32).reshape(z.shape)


def _dropout(z: Feature, options: Options, draw: Draw) -> Feature:
    if options["rate"] == 0:
        return z
    kept: Feature = np.where(draw("uniform").astype(np.float32) < np.float32(options["rate"]), np.float32(0), z)
    rescaled: Feature = kept / np.float32(1 - options["rate"])
    return rescaled if options["rescale"] else kept


def _top_k(z: Feature, options: Options, draw: Draw) -> Feature:
    flat = z.reshape(-1)
    kept = np.argsort(-flat, kind="stable")[: max(1, round(options["keep"] * flat.size))]
    released = np.zeros_like(flat)
    released[kept] = flat[kept]
    return released.reshape(z.shape)


def _quantise(z: Feature, options: Options, draw: Draw) -> Feature:
    low, high = (np.float32(options[name]) for name in ("low", "high"))
    step = np.float32((options["high"] - options["low"]) / float(2 ** options["bits"] - 1))
    index = np.rint((np.clip(z, low, high) - low) / step)
    levels: Feature = low + step * index + np.float32(0)
    return levels


_STAGES: dict[str, Callable[[Feature, Options, Draw], Feature]] = {
    "identity": _identity,
    "gaussian": _gaussian,
    "laplace": _laplace,
    "shaped": _shaped,
    "local_dp": _local_dp,
    "dropout": _dropout,
    "top_k": _top_k,
    "quantise": _quantise,
}
"""What each stage does to z."""
SUPPORTED = tuple(_STAGES)
"""Stages that a device can apply."""


class Channel:
    """The stages of a bundle in their order; BundleError where one is unknown or incomplete."""

    def __init__(self, stages: Sequence[Options], fingerprint: str, scheme: int = noise.SCHEME) -> None:
        if scheme != noise.SCHEME:
            raise BundleError(f"the bundle has noise of scheme {scheme}, and this program draws scheme {noise.SCHEME}")
        if problem := next(filter(None, map(_problem_of, stages)), ""):
            raise BundleError(f"the channel of the bundle cannot be applied: {problem}; export the bundle again")
        self.stages, self.fingerprint = [dict(stage) for stage in stages], fingerprint
        self.keyed = any(stage.get("noise") == "keyed" for stage in stages)
        self.repeats = all(stage.get("noise") in (None, "keyed") for stage in stages)
        """Whether the same pixels always give the same release."""
        self.rounds = any(stage["name"] == "quantise" for stage in stages)

    def release(self, z: Feature, pixels: bytes, key: bytes | None = None) -> Feature:
        """What leaves the device for the z of one image; `key` is that of keyed noise."""
        released = z.astype(np.float32)
        for place, stage in enumerate(self.stages):
            released = _STAGES[stage["name"]](released, stage, self._draw(place, z.shape, pixels, key))
        if not np.isfinite(released).all():
            raise BundleError("the channel of the bundle gave numbers that are not finite; nothing was sent")
        return released

    def _draw(self, place: int, shape: tuple[int, ...], pixels: bytes, key: bytes | None) -> Draw:
        def draw(law: noise.Law) -> noise.Numbers:
            if self.stages[place]["noise"] == "keyed":
                assert key is not None, "keyed noise needs the key of the device"
                secret = noise.keyed_secret(key, self.fingerprint, place, pixels)
            else:
                secret = noise.fresh_secret()
            return noise.draw(secret, law, math.prod(shape), place if self.keyed else 0).reshape(shape)

        return draw


# noise of a colour


def coloured(white: noise.Numbers, tilt: float) -> noise.Numbers:
    """White noise [C, H, W] with the strength (1 + f)^−tilt on waves of f half periods; other shapes stay white."""
    if white.ndim != _MAP:
        return white
    rows, columns, gains = _waves(*white.shape[1:], tilt)
    shaded: noise.Numbers = rows.T @ (gains * white) @ columns
    return shaded


@cache
def _waves(height: int, width: int, tilt: float) -> tuple[noise.Numbers, noise.Numbers, noise.Numbers]:
    """Orthonormal cosine transforms of columns and rows, and the gain of each pair of waves, mean square 1."""
    gains = (1 + np.hypot(*np.ogrid[:height, :width])) ** -tilt
    gains /= np.sqrt(np.square(gains).mean())
    return _cosines(height), _cosines(width), gains


def _cosines(size: int) -> noise.Numbers:
    """The orthonormal cosine transform of a line, type II."""
    wave, place = np.ogrid[:size, :size]
    lines: noise.Numbers = np.sqrt(2 / size) * np.cos(np.pi * wave * (2 * place + 1) / (2 * size))
    lines[0] = np.sqrt(1 / size)
    return lines


# options


def _number(low: float, high: float = math.inf, *, open_low: bool = False) -> Callable[[Any], bool]:
    def right(value: Any) -> bool:
        return is_number(value) and low <= value <= high and not (open_low and value == low)

    return right


def _is_noise(value: Any) -> bool:
    return value in ("fresh", "keyed")


def _is_power(value: Any) -> bool:
    return _POSITIVE(value) and math.frexp(value)[0] == 0.5


_ANY, _POSITIVE, _STRENGTH = _number(-math.inf), _number(0, open_low=True), _number(0)
_OPTIONS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "identity": {},
    "gaussian": {"noise": _is_noise, "noise_std": _STRENGTH},
    "laplace": {"noise": _is_noise, "noise_std": _STRENGTH},
    "shaped": {"noise": _is_noise, "noise_std": _STRENGTH, "tilt": _number(-3, 3)},
    "local_dp": {
        **{"noise": _is_noise, "noise_std": _POSITIVE, "clip": _POSITIVE, "grid": _is_power},
        **{"epsilon": _POSITIVE, "delta": _number(0, 1, open_low=True)},
    },
    "dropout": {
        "noise": _is_noise,
        "rate": lambda value: _STRENGTH(value) and value < 1,
        "rescale": lambda value: isinstance(value, bool),
    },
    "top_k": {"keep": _number(0, 1, open_low=True)},
    "quantise": {
        "bits": lambda value: type(value) is int and 1 <= value <= 16,
        "low": _ANY,
        "high": _ANY,
    },
}
"""What each option of a stage must be."""
_EXTRA = {"laplace": {"scale"}}
"""Options that say the same as another one."""


def _problem_of(stage: Options) -> str:
    """Why a stage cannot be applied; empty where it can."""
    name = stage.get("name")
    if not isinstance(name, str) or name not in _STAGES:
        return f"its stage {name!r} is unknown: this program knows {', '.join(SUPPORTED)}"
    options = {key: value for key, value in stage.items() if key != "name" and key not in _EXTRA.get(name, ())}
    if options.keys() != _OPTIONS[name].keys():
        return f"{name} has the options {', '.join(options) or 'none'} and needs {', '.join(_OPTIONS[name]) or 'none'}"
    for key, right in _OPTIONS[name].items():
        if not right(options[key]):
            return f"{name} cannot have {key}={options[key]!r}"
    return "quantise has an empty range" if name == "quantise" and options["low"] >= options["high"] else ""
