from __future__ import annotations

import pytest
import torch

from attncem.base.seeding import derive_seed, make_generator


def test_a_stream_has_one_seed_of_63_bits() -> None:
    seeds = [derive_seed(seed, "noise", epoch) for seed in range(20) for epoch in range(20)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == len(seeds)
    assert derive_seed(3, "noise", 7) == derive_seed(3, "noise", 7)


def test_seeds_never_change_between_versions() -> None:
    assert derive_seed(0, "data", 0) == 2740297886984710817
    assert derive_seed(125, "init") == 5829453451581109442


@pytest.mark.parametrize("other", [(1, "noise", 0), (0, "data", 0), (0, "noise", 1), (0, "noise")])
def test_every_part_of_the_name_counts(other: tuple[int, str, int]) -> None:
    assert derive_seed(*other) != derive_seed(0, "noise", 0)


def test_generators_of_a_stream_draw_the_same_and_leave_the_global_one_alone() -> None:
    before = torch.get_rng_state()
    first = torch.rand(5, generator=make_generator("cpu", 4, "noise", 2))
    assert torch.equal(first, torch.rand(5, generator=make_generator("cpu", 4, "noise", 2)))
    assert not torch.equal(first, torch.rand(5, generator=make_generator("cpu", 4, "noise", 3)))
    assert torch.equal(before, torch.get_rng_state())
