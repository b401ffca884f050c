"""The channel on a device: golden noise of a colour, laws, and options that cannot be applied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edge_channels import EXAMPLES, WRONG, example
from edge_golden import GOLDEN, KEY, pattern

from attncem_edge.channel import SUPPORTED, Channel, coloured
from attncem_edge.errors import BundleError

PRINT = "ab" * 32


def channel(*stages: dict[str, Any]) -> Channel:
    return Channel(stages, PRINT)


@pytest.mark.parametrize("tilt", [1.0, -2.5])
def test_shaped_noise_has_the_bits_that_torch_gave(tilt: float) -> None:
    pixels = np.ascontiguousarray(pattern(12, 9, 3).transpose(2, 0, 1)).tobytes()
    shaped = channel(example("shaped", noise="keyed", noise_std=0.3, tilt=tilt))
    released = shaped.release(np.zeros((2, 6, 5), np.float32), pixels, KEY)
    assert [float(it) for it in released.ravel()] == GOLDEN["shaped"][str(tilt)]


def test_noise_of_a_colour_keeps_its_mean_strength() -> None:
    white = np.random.default_rng(0).normal(size=(2000, 6, 5))
    assert np.sqrt(np.square(coloured(white, 1.5)).mean()) == pytest.approx(1, rel=0.01)
    assert np.array_equal(coloured(white[0], 1.5), white[0]), "only maps have waves"


@pytest.mark.parametrize("name", [name for name in SUPPORTED if "noise" in EXAMPLES[name]])
def test_fresh_noise_never_repeats_and_keyed_noise_always_does(name: str) -> None:
    z = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)
    fresh, keyed = channel(example(name)), channel(example(name, noise="keyed"))
    assert not np.array_equal(fresh.release(z, b"x"), fresh.release(z, b"x"))
    assert np.array_equal(keyed.release(z, b"x", KEY), keyed.release(z, b"x", KEY))
    assert not np.array_equal(keyed.release(z, b"x", KEY), keyed.release(z, b"y", KEY))
    assert not np.array_equal(keyed.release(z, b"x", KEY), keyed.release(z, b"x", KEY[::-1]))
    assert (fresh.repeats, keyed.repeats, keyed.keyed) == (False, True, True)


def test_stages_do_what_they_promise() -> None:
    z = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
    noisy = channel(example("gaussian")).release(z, b"") - z
    assert (noisy.mean(), noisy.std()) == (pytest.approx(0, abs=0.05), pytest.approx(0.5, rel=0.06))
    dropped = channel(example("dropout")).release(z, b"")
    assert (dropped == 0).mean() == pytest.approx(0.25, abs=0.05)
    assert dropped[dropped != 0] == pytest.approx(z[dropped != 0] / 0.75, rel=1e-6)
    kept = channel(example("top_k")).release(z, b"")
    assert (kept != 0).sum() == 500 and kept[kept != 0].min() >= np.sort(z.ravel())[-500]
    codes = channel(example("quantise")).release(z, b"")
    assert len(np.unique(codes)) == 8 and np.abs(codes - np.clip(z, -1, 1)).max() <= 1 / 7 + 1e-6
    private = channel(example("local_dp")).release(z, b"")
    assert np.array_equal(np.rint(private * 2**11), private * 2**11)


def test_stages_follow_each_other_with_noise_of_their_own() -> None:
    z = np.zeros((30, 30), np.float32)
    twice = channel(example("gaussian", noise="keyed"), example("gaussian", noise="keyed"))
    once = channel(example("gaussian", noise="keyed")).release(z, b"x", KEY)
    both = twice.release(z, b"x", KEY)
    assert abs(np.corrcoef(once.ravel(), (both - once).ravel())[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("stage", "words"),
    [*WRONG, ({}, "None is unknown"), (example("gaussian", noise_std=float("nan")), "noise_std=nan")],
)
def test_a_stage_that_cannot_be_applied_is_refused(stage: dict[str, Any], words: str) -> None:
    with pytest.raises(BundleError, match=words):
        channel(stage)


def test_another_scheme_of_noise_is_refused() -> None:
    with pytest.raises(BundleError, match="scheme 0"):
        Channel([example("gaussian")], PRINT, scheme=0)


def test_every_stage_has_an_example() -> None:
    assert EXAMPLES.keys() == set(SUPPORTED)
