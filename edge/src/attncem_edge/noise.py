"""Noise that leaves a device: a 256-bit secret → a SHAKE-256 stream → numbers in float64. numpy only, no torch.

The secret comes from the operating system for every release (`fresh`), or by HMAC-SHA-256 from a key and the input
(`keyed`). No intermediate value is shorter than the secret, and a draw depends on no batch, device or library
generator. docs/channels.md gives the reasons, and the claims of `local_dp` that depend on it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Law = Literal["normal", "laplace", "uniform"]

SCHEME = 1
"""Version of this file's scheme: increase it if any draw changes."""
SECRET_BYTES = 32
"""Length of a secret and of a key."""
LEAST = 2.0**-129
"""Smallest possible p; the largest normal number is −Φ⁻¹ of it, 13.11."""
_BYTES_PER_NUMBER = 16
_AT_ONCE = 1 << 14
"""Numbers per block: they fit into a core's cache."""
_BELOW_HALF = float(np.nextafter(0.5, 0))
_BELOW_ONE = float(np.nextafter(1.0, 0))


def fresh_secret() -> bytes:
    """A secret from the operating system, for one release."""
    return secrets.token_bytes(SECRET_BYTES)


def new_key() -> bytes:
    """A key for keyed noise, from the operating system."""
    return secrets.token_bytes(SECRET_BYTES)


def keyed_secret(key: bytes, fingerprint: str, stage: int, pixels: bytes) -> bytes:
    """The secret of one input: HMAC-SHA-256(key, (scheme, fingerprint, stage, pixels))."""
    if len(key) != SECRET_BYTES:
        raise ValueError(f"a key has {SECRET_BYTES} bytes, got {len(key)}")
    message = _joined(b"attncem keyed noise", _number(SCHEME), fingerprint.encode(), _number(stage), pixels)
    return hmac.digest(key, message, "sha256")


def draw(secret: bytes, law: Law, count: int, stage: int = 0) -> Numbers:
    """The first `count` numbers of a secret: standard normal, Laplace of scale 1, or uniform in (0, 1)."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, got {len(secret)}")
    message = _joined(b"attncem noise", _number(SCHEME), law.encode(), _number(stage), secret)
    stream = hashlib.shake_256(message).digest(_BYTES_PER_NUMBER * count)
    words = np.frombuffer(stream, "<u8").reshape(count, 2)
    numbers = np.empty(count)
    for start in range(0, count, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        numbers[part] = LAWS[law](*halves(words[part]))
    return numbers


def halves(words: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], Numbers]:
    """Rows of two 64-bit words → a fair bit, and p uniform in (0, ½).

    p = (m + ½) 2^-128 for the remaining 127 bits m, rounded to 53 significant bits: from 2^-129 on its relative error
    is below 2^-52, so that the tails of a distribution are as fine as its middle.
    """
    high = (words[:, 0] & np.uint64(2**63 - 1)).astype(np.float64)
    p = high * 2.0**-64 + (words[:, 1].astype(np.float64) + 0.5) * 2.0**-128
    return words[:, 0] >> np.uint64(63) == 1, np.minimum(p, _BELOW_HALF)


def normal(upper: NDArray[np.bool_], p: Numbers) -> Numbers:
    """Standard normal: ± −Φ⁻¹(p)."""
    return _signed(upper, normal_quantile(p))


def laplace(upper: NDArray[np.bool_], p: Numbers) -> Numbers:
    """Laplace of scale 1: ± −ln 2p."""
    return _signed(upper, -np.log(2 * p))


def uniform(upper: NDArray[np.bool_], p: Numbers) -> Numbers:
    """Uniform in (0, 1): p or 1 − p."""
    return np.where(upper, np.minimum(1 - p, _BELOW_ONE), p)


LAWS: dict[str, Callable[[NDArray[np.bool_], Numbers], Numbers]] = {
    "normal": normal,
    "laplace": laplace,
    "uniform": uniform,
}
"""The number of each distribution from a fair bit and p in (0, ½)."""


def normal_quantile(p: Numbers) -> Numbers:
    """−Φ⁻¹(p) for p in (0, ½), with relative error 2^-50: Wichura's PPND16 (Algorithm AS 241, 1988)."""
    quantile = np.empty_like(p)
    middle = p > 0.075
    q = 0.5 - p[middle]
    quantile[middle] = q * _ratio(_MIDDLE, 0.180625 - q * q)
    r = np.sqrt(-np.log(p[~middle]))
    near = r <= 5
    tail = np.empty_like(r)
    tail[near] = _ratio(_NEAR, r[near] - 1.6)
    tail[~near] = _ratio(_FAR, r[~near] - 5)
    quantile[~middle] = tail
    return quantile


def noisy_on_grid(z: Numbers, numbers: Numbers, *, clip: float, noise_std: float, grid: float) -> Numbers:
    """Release z · min(1, clip/‖z‖) + noise_std · numbers to the nearest multiple of `grid`, a power of two; row by row.

    The clipping leaves 2^-30 for its own rounding, so that no sample is longer than `clip`; values that are not finite
    count as 0. Rounding follows the noise, and −0 is released as 0: the release shows nothing of z except the multiple.
    """
    finite = np.where(np.isfinite(z), z, 0.0)
    limit = clip * (1 - 2.0**-30)
    with np.errstate(over="ignore", under="ignore"):
        norm = np.sqrt(np.square(finite).sum(axis=1, keepdims=True))
        noisy = finite * (limit / np.maximum(norm, limit)) + noise_std * numbers
    rounded: Numbers = np.rint(noisy / grid) * grid + 0.0
    return rounded


def _signed(upper: NDArray[np.bool_], size: Numbers) -> Numbers:
    return np.where(upper, size, -size)


def _joined(*parts: bytes) -> bytes:
    """The parts, each after its length: different lists of parts never give the same bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], r: Numbers) -> Numbers:
    """The ratio of two polynomials, coefficients from the constant on."""
    above, below = (_polynomial(row, r) for row in coefficients)
    above /= below
    return above


def _polynomial(coefficients: tuple[float, ...], r: Numbers) -> Numbers:
    value = np.full_like(r, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value *= r
        value += coefficient
    return value


_MIDDLE = (
    (
        *(3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4),
        *(4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    ),
    (
        *(1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3),
        *(2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
    ),
)
_NEAR = (
    (
        *(1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504),
        *(1.27045825245236838258, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    ),
    (
        *(1.0, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1),
        *(1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
    ),
)
_FAR = (
    (
        *(6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 2.96560571828504891230e-1),
        *(2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    ),
    (
        *(1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2),
        *(7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
    ),
)
