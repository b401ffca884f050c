"""Packing of codes: golden bytes, every shape and number of bits there and back, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attncem.base.types import DataError
from attncem.config.loading.load import load_config
from attncem.config.options.channels import QuantiseOptions
from attncem.models.channels import QuantiseChannel, build_channel
from attncem.models.cost import count_cost
from attncem.models.packing import pack, pack_codes, packed_size, packing_of, unpack, unpack_codes
from attncem.models.split import SplitModel

GOLDEN = {
    (1, (1, 0, 1, 1, 0, 0, 1, 0, 1)): "b280",
    (2, (0, 1, 2, 3, 3)): "1bc0",
    (3, (5, 2, 7)): "ab80",
    (4, (1, 15, 10)): "1fa0",
    (5, (31, 0, 21)): "f82a",
    (8, (0, 255, 18)): "00ff12",
    (12, (0xABC, 0xDEF)): "abcdef",
    (16, (0x1234, 0xFFFE)): "1234fffe",
}
"""Bytes by bits and codes, as docs/channels.md has them."""


def test_the_documentation_has_these_bytes() -> None:
    page = (Path(__file__).parent.parent / "docs" / "channels.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([\d, ]+) \| `([0-9a-f]+)` \|$", page, re.MULTILINE)
    assert {(int(bits), tuple(map(int, codes.split(", ")))): data for bits, codes, data in rows} == GOLDEN


@pytest.mark.parametrize(("bits", "codes"), GOLDEN)
def test_the_bytes_are_those_of_the_documentation(bits: int, codes: tuple[int, ...]) -> None:
    assert pack_codes(torch.tensor(codes), bits).hex() == GOLDEN[bits, codes]
    assert unpack_codes(bytes.fromhex(GOLDEN[bits, codes]), len(codes), bits).tolist() == list(codes)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(1, 16),
    st.lists(st.integers(1, 4), max_size=4),
    st.sampled_from([(0.0, 1.0), (-0.25, 1.5), (0.1, 0.8), (-3.0, 5.0)]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 10**6),
)
def test_every_release_comes_back(
    bits: int, shape: list[int], span: tuple[float, float], dtype: torch.dtype, seed: int
) -> None:
    options = QuantiseOptions(bits=bits, low=span[0], high=span[1])
    z = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2
    released = QuantiseChannel(options)(z)
    data = pack(released, options)
    assert len(data) == packed_size(z.numel(), bits) == -(-z.numel() * bits // 8)
    assert torch.equal(unpack(data, shape, options, dtype), released)


ONE = QuantiseOptions(bits=1)


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0, 1e-7, float("nan"), float("inf")])
def test_a_value_off_the_grid_is_refused(value: float) -> None:
    with pytest.raises(DataError, match="1 of 3 values are not levels"):
        pack(torch.tensor([0.0, value, 1.0]), ONE)


@pytest.mark.parametrize(("codes", "first"), [((0, 4, 3), 4), ((3, -1, 9), -1)])
def test_a_code_without_a_level_is_refused(codes: tuple[int, ...], first: int) -> None:
    with pytest.raises(DataError, match=rf"codes are not from 0 to 3 \(bits=2\), the first is {first}"):
        pack_codes(torch.tensor(codes), 2)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0"])
def test_another_length_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=f"9 values of 1 bits has 2 bytes, and here are {len(data)}"):
        unpack(data, (3, 3), ONE)


@pytest.mark.parametrize("rest", range(7))
def test_a_rest_that_is_not_zero_is_refused(rest: int) -> None:
    assert unpack(b"\xff\x80", (9,), ONE).tolist() == [1.0] * 9
    with pytest.raises(DataError, match="last 7 bits of the release are not zero"):
        unpack(bytes([0xFF, 0x80 | 1 << rest]), (9,), ONE)


@pytest.mark.parametrize(
    ("stages", "size"),
    [
        ([{"name": "quantise", "bits": 1}], 2),
        ([{"name": "gaussian", "noise_std": 0.1}, {"name": "quantise", "bits": 3}], 6),
        ([{"name": "quantise", "bits": 1}, {"name": "gaussian", "noise_std": 0.1}], 64),
        ([{"name": "quantise", "bits": 1}, {"name": "top_k"}], 64),
        ([{"name": "identity"}], 64),
    ],
)
def test_a_query_costs_its_packed_bytes_where_rounding_is_last(stages: list[dict[str, object]], size: int) -> None:
    channel = build_channel(load_config({"channel": stages}).config.channel)
    model = SplitModel(nn.Conv2d(1, 1, 2, 2), channel, None)
    assert count_cost(model, (1, 8, 8)).bytes_per_query == size


def test_a_module_of_somebody_else_is_never_packed() -> None:
    class Pretended(QuantiseChannel):
        """May release anything."""

        def forward(self, z: Tensor, **_: object) -> Tensor:
            return z

    assert packing_of(Pretended(ONE)) is None and packing_of(nn.Identity()) is None
    assert packing_of(QuantiseChannel(ONE)) == ONE
