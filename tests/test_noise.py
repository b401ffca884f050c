"""Noise that leaves a device: where it comes from, its law to the last grain, and the (ε, δ) it holds."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import special, stats

from attncem.config.options.channels import CELL_DEFECT, CELL_ERROR, SLACK, LocalDPOptions, epsilon_range
from attncem.models.channels import FILLS
from attncem_edge import noise

SECRET = bytes(range(32))
KEY = bytes(range(32, 64))
LAWS: dict[noise.Law, Any] = {"normal": stats.norm, "laplace": stats.laplace, "uniform": stats.uniform}
BOX_MULLER_ENDS = math.sqrt(-2 * math.log(2**-24))
"""Largest normal number that Box–Muller can make of float32 uniforms, 5.77."""
mpmath.mp.dps = 60


def words_of(numbers: Sequence[int]) -> NDArray[np.uint64]:
    """128-bit integers as rows of two words."""
    return np.array([divmod(number, 2**64) for number in numbers], dtype=np.uint64).reshape(-1, 2)


def test_the_stream_is_shake_256_of_the_secret_behind_lengths() -> None:
    parts = [b"attncem noise", (1).to_bytes(8, "big"), b"uniform", (3).to_bytes(8, "big"), SECRET]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    stream = hashlib.shake_256(message).digest(16 * 5)
    for position, number in enumerate(noise.draw(SECRET, "uniform", 5, stage=3)):
        first, second = (int.from_bytes(stream[16 * position + 8 * i :][:8], "little") for i in (0, 1))
        p = ((first % 2**63) * 2**64 + second) / 2**128
        assert number == pytest.approx(1 - p if first >> 63 else p, rel=1e-15)


def test_a_keyed_secret_is_the_hmac_of_what_it_follows() -> None:
    parts = [b"attncem keyed noise", (1).to_bytes(8, "big"), "Ünder".encode(), (2).to_bytes(8, "big"), b"\x00\xff"]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    expected = hmac.new(KEY, message, hashlib.sha256).digest()
    assert noise.keyed_secret(KEY, "Ünder", 2, b"\x00\xff") == expected
    assert noise.SCHEME == 1


def test_secrets_and_keys_have_256_bits_and_never_come_twice() -> None:
    made = {make() for make in (noise.fresh_secret, noise.new_key) for _ in range(100)}
    assert len(made) == 200
    assert {len(secret) for secret in made} == {32}


def test_no_boundary_between_the_parts_of_a_secret_can_move() -> None:
    given = [("ab", 0, b"c"), ("a", 0, b"bc"), ("abc", 0, b""), ("ab", 1, b"c"), ("", 0, b"abc")]
    assert len({noise.keyed_secret(KEY, *parts) for parts in given}) == len(given)


@pytest.mark.parametrize("size", [0, 8, 31, 33])
def test_a_short_secret_or_key_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        noise.draw(bytes(size), "normal", 3)
    with pytest.raises(ValueError, match="32 bytes"):
        noise.keyed_secret(bytes(size), "", 0, b"")


@pytest.mark.parametrize("law", LAWS)
def test_the_first_numbers_do_not_depend_on_how_many_are_drawn(law: noise.Law) -> None:
    many = noise.draw(SECRET, law, 40_000)
    for count in (0, 1, 7, 16_384, 16_385, 39_999):
        assert np.array_equal(noise.draw(SECRET, law, count), many[:count])


def test_numbers_of_other_stages_laws_keys_images_and_models_are_independent() -> None:
    pixels, other = bytes(784), bytes(783) + b"\x01"
    secrets = [SECRET, SECRET[:-1] + b"\x00", noise.keyed_secret(KEY, "f", 0, pixels)]
    secrets += [noise.keyed_secret(KEY, "f", 0, other), noise.keyed_secret(KEY, "f", 1, pixels)]
    secrets += [noise.keyed_secret(KEY, "g", 0, pixels), noise.keyed_secret(SECRET, "f", 0, pixels)]
    rows = [noise.draw(secret, "normal", 10_000) for secret in secrets]
    rows += [noise.draw(SECRET, "normal", 10_000, stage=1), noise.draw(SECRET, "laplace", 10_000)]
    for left, right in combinations(rows, 2):
        assert abs(np.corrcoef(left, right)[0, 1]) * 100 < 5
        assert abs(np.corrcoef(np.abs(left), np.abs(right))[0, 1]) * 100 < 5
    shifted = rows[0]
    assert all(abs(np.corrcoef(shifted[lag:], shifted[:-lag])[0, 1]) * 100 < 5 for lag in (1, 2, 3, 8))


def test_p_is_what_its_words_say_to_52_bits_down_to_the_smallest() -> None:
    generator = np.random.default_rng(0)
    numbers = [int(generator.integers(2**62)) * 2**65 + int(generator.integers(2**62)) for _ in range(200)]
    numbers = [number >> shift for number, shift in zip(numbers, range(200), strict=True) if shift < 127] + [0, 1, 2]
    _, found = noise.halves(words_of(numbers))
    for number, p in zip(numbers, found.tolist(), strict=True):
        exact = Fraction(2 * number + 1, 2**129)
        assert abs(Fraction(p) / exact - 1) <= Fraction(1, 2**52)
    assert found[numbers.index(0)] == noise.LEAST == 2.0**-129


def test_the_first_bit_is_the_side_and_p_stays_inside() -> None:
    words = words_of([0, 2**127 - 1, 2**127, 2**128 - 1])
    upper, p = noise.halves(words)
    assert upper.tolist() == [False, False, True, True]
    assert p[0] == p[2] == 2.0**-129
    assert p[1] == p[3] == np.nextafter(0.5, 0)


@pytest.mark.parametrize("law", LAWS)
def test_no_words_give_anything_that_is_not_finite(law: noise.Law) -> None:
    edges = [0, 1, 2**64 - 1, 2**64, 2**126, 2**127 - 1]
    made = noise.LAWS[law](*noise.halves(words_of([side * 2**127 + edge for side in (0, 1) for edge in edges])))
    assert np.isfinite(made).all()
    if law == "uniform":
        assert (made > 0).all()
        assert (made < 1).all()
    else:
        assert np.array_equal(made[:6], -made[6:]), "the two tails are one another's mirror"
        assert made.max() == pytest.approx({"normal": 13.1086, "laplace": 128 * math.log(2)}[law], rel=1e-5)


def probabilities() -> NDArray[np.float64]:
    generator = np.random.default_rng(1)
    near_half = 0.5 - 2.0 ** -generator.uniform(2, 53, 100)
    edges = [2.0**-129, np.nextafter(0.5, 0), 0.075, math.exp(-25), np.nextafter(0.075, 1)]
    return np.concatenate([2.0 ** -generator.uniform(1, 129, 500), generator.uniform(0, 0.5, 300), near_half, edges])


def test_the_quantile_is_that_of_scipy() -> None:
    p = probabilities()
    np.testing.assert_allclose(noise.normal_quantile(p), -special.ndtri(p), rtol=1e-14)


def test_the_quantile_is_right_to_2_to_the_minus_50() -> None:
    p = probabilities()
    for given, found in zip(p.tolist(), noise.normal_quantile(p).tolist(), strict=True):
        tail, density = mpmath.ncdf(-mpmath.mpf(found)), mpmath.npdf(found)
        off = (mpmath.log(tail) - mpmath.log(mpmath.mpf(given))) * tail / density
        assert abs(off) <= found * 2.0**-50


@pytest.fixture(scope="module")
def many() -> NDArray[np.float64]:
    """Four million normal numbers of one secret."""
    return noise.draw(SECRET, "normal", 4_000_000)


def test_moments_are_those_of_the_normal_law(many: NDArray[np.float64]) -> None:
    root = math.sqrt(len(many))
    for power, moment, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs((many**power).mean() - moment) * root < 5 * math.sqrt(variance)


@pytest.mark.parametrize("bound", [0.5, 1.0, 2.0, 3.0, 4.0, 4.5])
def test_both_tails_have_the_counts_of_the_normal_law(many: NDArray[np.float64], bound: float) -> None:
    expected = len(many) * float(special.ndtr(-bound))
    for count in ((many > bound).sum(), (many < -bound).sum()):
        assert abs(count - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("bound", [4.5, 5.77, 6.5, 9.0, 12.0, 13.0])
def test_far_tails_are_exact_through_the_inverse(bound: float) -> None:
    """The words below the tail's own share of all words are those that give a number beyond the bound."""
    share = int(mpmath.floor(mpmath.ncdf(-bound) * mpmath.mpf(2) ** 128))
    margin = max(1, share >> 40)
    words = words_of([share - margin, share + margin])
    beyond, within = noise.normal(*noise.halves(words))
    assert beyond < -bound < within
    assert within == pytest.approx(-bound, rel=0.02 if bound == 13 else 1e-7)


@pytest.mark.parametrize("law", LAWS)
def test_the_law_is_that_of_torchs_draws(law: noise.Law) -> None:
    other = torch.empty(200_000)
    FILLS[law](other, torch.Generator().manual_seed(3))
    ours = noise.draw(SECRET, law, 200_000)
    assert stats.kstest(ours, LAWS[law].cdf).pvalue > 1e-4
    assert stats.ks_2samp(ours, other.numpy()).pvalue > 1e-4


def test_clipping_bounds_the_norm_as_real_numbers_have_it() -> None:
    generator = np.random.default_rng(2)
    z = generator.normal(size=(60, 300)) * 10.0 ** generator.uniform(-3, 200, (60, 1))
    released = noise.noisy_on_grid(z, np.zeros_like(z), clip=0.7, noise_std=1.0, grid=2.0**-60)
    for row in released:
        assert sum(Fraction(value) ** 2 for value in row.tolist()) <= Fraction(0.7) ** 2
    short = z[0] / np.abs(z[0]).sum()
    kept = noise.noisy_on_grid(short[None], np.zeros((1, 300)), clip=1.0, noise_std=1.0, grid=2.0**-60)
    np.testing.assert_allclose(kept[0], short, atol=2.0**-60)


def test_what_is_not_finite_is_released_as_if_it_were_zero() -> None:
    z = np.array([[math.nan, 3.0], [math.inf, -math.inf], [1e300, -1e300]])
    released = noise.noisy_on_grid(z, np.zeros_like(z), clip=1.0, noise_std=1.0, grid=2.0**-10)
    assert released.tolist() == [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    below = noise.noisy_on_grid(np.array([[-1e-9]]), np.zeros((1, 1)), clip=1.0, noise_std=1.0, grid=2.0**-10)
    assert not np.signbit(below).any()


CASES = [
    *[LocalDPOptions(), LocalDPOptions(epsilon=30), LocalDPOptions(epsilon=59), LocalDPOptions(epsilon=0.01, clip=7)],
    *[LocalDPOptions(epsilon=70, delta=0.99), LocalDPOptions(clip=1e15), LocalDPOptions(clip=1e-15, delta=1e-20)],
]


def multiples(options: LocalDPOptions, centre: float, upper: bool, numbers: Sequence[int]) -> NDArray[np.float64]:
    """The multiple of the grid that each of these draws is released as, where clip(z) is `centre`."""
    words = words_of([number + upper * 2**127 for number in numbers])
    made = noise.LAWS["normal"](*noise.halves(words))[:, None]
    settings = {"clip": options.clip, "noise_std": options.added_noise_std, "grid": options.grid}
    released = noise.noisy_on_grid(np.full_like(made, centre), made, **settings)
    assert (released == released.astype(np.float32)).all(), "float32 holds every multiple"
    return np.asarray(released[:, 0] / options.grid)


def draws_beyond(options: LocalDPOptions, centre: float, upper: bool, edges: NDArray[np.float64]) -> list[int]:
    """How many of a side's 2^127 draws lie beyond each multiple: by bisection, since farther draws are the smaller."""
    low, high = [0] * len(edges), [2**127] * len(edges)
    for _ in range(128):
        middle = [min((a + b) // 2, 2**127 - 1) for a, b in zip(low, high, strict=True)]
        found = multiples(options, centre, upper, middle)
        beyond = (found > edges if upper else found < edges).tolist()
        low = [
            m + 1 if is_beyond and a < b else a for m, is_beyond, a, b in zip(middle, beyond, low, high, strict=True)
        ]
        high = [b if is_beyond else m for m, is_beyond, b in zip(middle, beyond, high, strict=True)]
    return high


def ideal_beyond(options: LocalDPOptions, centre: float, upper: bool, edge: float) -> Any:
    """The share of ideal noise that is released beyond a multiple."""
    side = 1 if upper else -1
    bound = side * ((mpmath.mpf(edge) + mpmath.mpf(side) / 2) * options.grid - mpmath.mpf(centre))
    return mpmath.ncdf(-bound / mpmath.mpf(options.added_noise_std))


@pytest.mark.parametrize("options", CASES, ids=lambda o: f"{o.epsilon} {o.delta} {o.clip}")
@pytest.mark.parametrize("upper", [True, False])
def test_every_multiple_has_its_ideal_probability_to_kappa(options: LocalDPOptions, upper: bool) -> None:
    """In the middle and in the tails; beyond, where single draws count, to one of the 2^128 draws."""
    places = np.array([0.01, 0.3, 1, 2, 3.3, 4.7, 6.1, 7.5, 8.8, 9.7, 10.4, 10.9, 11.7, 12.6, 13.05, 13.2, 14])
    for share in (-0.999, 0.37):
        centre = share * options.clip
        sign = 1 if upper else -1
        edges = np.rint((centre + sign * places * options.added_noise_std) / options.grid)
        inner = draws_beyond(options, centre, upper, edges - sign)
        outer = draws_beyond(options, centre, upper, edges)
        for edge, more, fewer in zip(edges.tolist(), inner, outer, strict=True):
            drawn = mpmath.mpf(more - fewer) / mpmath.mpf(2) ** 128
            ideal = ideal_beyond(options, centre, upper, edge - sign) - ideal_beyond(options, centre, upper, edge)
            grain = mpmath.mpf(2) ** -128
            assert abs(drawn - ideal) <= 0.7 * CELL_ERROR * ideal + grain
            if ideal > mpmath.mpf(2) ** -93:
                assert abs(mpmath.log(drawn / ideal)) <= CELL_ERROR


def test_kappa_and_tau_are_what_their_parts_add_up_to() -> None:
    """The parts as docs/channels.md has them, in units of 2^-53 and of the narrowest multiple, σ/2^11."""
    unit, end = 2.0**-53, 13.11
    off = (2 * end + 12) * unit + end * 2.0**-50 + 1.26 * 2 * unit
    assert 2 * off * 2**11 * math.exp(end / 2**10) + 2.0**-35 <= CELL_ERROR
    starts = 10.5
    assert stats.norm.pdf(starts) * 2.0**-11 * math.exp(-starts / 2**10) > 2.0**-93
    assert (2 * (end - starts) * 2**11 + 4) * 2.0**-128 <= CELL_DEFECT
    assert noise.normal_quantile(np.array([noise.LEAST]))[0] < end


@pytest.mark.parametrize("options", CASES, ids=lambda o: f"{o.epsilon} {o.delta} {o.clip}")
def test_the_sizes_that_kappa_takes_for_granted(options: LocalDPOptions) -> None:
    sigma = options.added_noise_std
    assert options.clip / sigma < 12
    assert 2.0**-11 < options.grid / sigma <= 2.0**-10
    assert math.frexp(options.grid)[0] == 0.5
    assert (options.clip + 14 * sigma) / options.grid < 2**24
    assert options.grid > 2.0**-126
    assert options.clip + 14 * sigma < 2.0**127


def least_delta(largest: float, epsilon: float, delta: float = 1e-5) -> float:
    """δ that noise ending at `largest` σ cannot be below: what one input is seen at that another never is."""
    options = LocalDPOptions(epsilon=epsilon, delta=delta)
    return float(special.ndtr(2 * options.clip / options.added_noise_std - largest))


@pytest.mark.parametrize(("epsilon", "broken"), [(10, 7.9e-5), (30, 0.13), (59, 0.95)])
def test_the_end_of_our_noise_leaves_delta_alone_and_that_of_box_muller_does_not(epsilon: float, broken: float) -> None:
    ours = float(noise.normal_quantile(np.array([noise.LEAST]))[0])
    assert least_delta(ours, epsilon) < 1e-5 * SLACK
    assert least_delta(BOX_MULLER_ENDS, epsilon) == pytest.approx(broken, rel=0.05)
    assert least_delta(BOX_MULLER_ENDS, epsilon) > 7 * 1e-5


def test_torchs_normal_numbers_end_where_box_muller_does() -> None:
    largest = torch.empty(4_000_000).normal_(generator=torch.Generator().manual_seed(0)).abs().max()
    assert float(largest) <= BOX_MULLER_ENDS + 1e-3


def told_apart(beyond: Callable[[float, NDArray[np.float64]], NDArray[np.float64]], options: LocalDPOptions) -> float:
    """The largest P(S) − e^ε P'(S) over half lines S, for two inputs as far apart as clipping lets them be."""
    limit = options.clip * (1 - 2.0**-30)
    edges = np.rint((np.linspace(-1, 20, 400) * options.added_noise_std - limit) / options.grid)
    here, there = beyond(limit, edges), beyond(-limit, edges)
    return float((here - math.exp(options.epsilon) * there).max())


@pytest.mark.parametrize("epsilon", [1, 10, 30, 59])
def test_no_threshold_tells_two_inputs_apart_better_than_epsilon_and_delta_allow(epsilon: float) -> None:
    options = LocalDPOptions(epsilon=epsilon)

    def as_drawn(centre: float, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        above = np.array([float(count) for count in draws_beyond(options, centre, True, edges)]) * 2.0**-128
        below = np.array([float(count) for count in draws_beyond(options, centre, False, edges + 1)]) * 2.0**-128
        return np.where(above < 0.5, above, 1 - below)

    def box_muller(centre: float, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        t = ((edges + 0.5) * options.grid - centre) / options.added_noise_std
        return np.where(t < BOX_MULLER_ENDS, special.ndtr(-t), 0)

    assert 0.95 * options.delta < told_apart(as_drawn, options) <= options.delta
    assert (told_apart(box_muller, options) > options.delta) == (epsilon >= 10)


@pytest.mark.parametrize(("features", "largest"), [(1, 59.1), (8192, 50.1), (2**20, 45.3), (2**22, 43.9)])
def test_the_stated_epsilon_and_delta_follow_from_those_of_the_ideal_noise(features: int, largest: float) -> None:
    """The sum of docs/channels.md, at the ends of the range."""
    least, most = epsilon_range(1e-5, features)
    assert math.floor(10 * most) / 10 == largest
    for epsilon in (least, min(1.0, most), most):
        apart = features * CELL_ERROR
        assert epsilon * (1 - SLACK) + 2 * apart <= epsilon * (1 + 1e-12)
        defect = features * CELL_DEFECT
        total = math.exp(apart) * (1e-5 * (1 - SLACK) + defect) + math.exp(epsilon) * defect
        assert total <= 1e-5 * (1 - SLACK / 4) * (1 + 1e-9)
    assert epsilon_range(1e-5, 2**22 + 1)[0] == math.inf


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(2.5e-7, 6e-31), (2.5e-7, 1e-5), (1e-3, 1e-12), (0.5, 1e-29), (10, 1e-5), (59, 1e-5), (70, 0.99)],
)
def test_the_noise_is_calibrated_to_a_quarter_of_the_slack(epsilon: float, delta: float) -> None:
    ratio = mpmath.mpf(LocalDPOptions(epsilon=epsilon, delta=delta).added_noise_std) / 2
    kept = mpmath.mpf(epsilon) * (1 - SLACK)
    a, b = 1 / (2 * ratio) - kept * ratio, 1 / (2 * ratio) + kept * ratio
    exact = mpmath.ncdf(a) - mpmath.exp(kept) * mpmath.ncdf(-b)
    assert exact <= delta * (1 - SLACK) * (1 + SLACK / 4)


def test_the_page_has_the_numbers_of_the_code_and_of_the_measurement() -> None:
    root = Path(__file__).parent.parent
    page = (root / "docs/channels.md").read_text(encoding="utf-8")
    measured = json.loads((root / "results/noise_speed.json").read_text())["times_as_long_as_torch"]
    assert "| time over torch's | {normal} | {laplace} | {uniform} |".format(**measured) in page
    stds = [f"{LocalDPOptions(epsilon=epsilon).added_noise_std:#.3g}" for epsilon in (1, 3, 10, 30, 50, 59)]
    assert f"| σ | {' | '.join(stds)} |" in page
    ends = [math.floor(10 * epsilon_range(1e-5, d)[1]) / 10 for d in (1, 100, 8192, 2**16, 2**20, 2**22)]
    assert f"| largest ε | {' | '.join(map(str, ends))} |" in page
