"""Packing: the codes of a quantised release as bytes, and back.

A value of b bits is the index of its level, 0 to 2^b − 1. The values are taken in the order of memory (the last axis
runs fastest), each with its highest bit first; the first bit is the highest bit of the first byte, and the rest of the
last byte is zero. A release of m values has ⌈m·b/8⌉ bytes; its shape and the channel's options are not part of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from attncem.base.types import DataError
from attncem.config.options.channels import QuantiseOptions
from attncem.models.channels import Channel, QuantiseChannel, levels, nearest_levels

BYTES_PER_VALUE = 4
"""A release that is not quantised is sent as float32."""


def packing_of(channel: nn.Module) -> QuantiseOptions | None:
    """The options of the last stage if that is `quantise`, so that releases can be packed; None: they cannot."""
    last = list(channel.single_stages())[-1] if isinstance(channel, Channel) else channel
    return last.options if type(last) is QuantiseChannel else None


def bytes_of_release(channel: nn.Module, count: int) -> int:
    """The bytes of a release of `count` values: packed where the last stage is `quantise`, else float32."""
    options = packing_of(channel)
    return BYTES_PER_VALUE * count if options is None else packed_size(count, options.bits)


def packed_size(count: int, bits: int) -> int:
    """⌈count · bits / 8⌉."""
    return -(-count * bits // 8)


def pack(released: Tensor, options: QuantiseOptions) -> bytes:
    """The bytes of one release of any shape; DataError where a value is none of the levels."""
    return pack_codes(codes_of_release(released, options), options.bits)


def unpack(data: bytes, shape: Sequence[int], options: QuantiseOptions, dtype: torch.dtype = torch.float32) -> Tensor:
    """The release of this shape; DataError where the length does not fit it, or the last byte's rest is not zero."""
    codes = unpack_codes(data, math.prod(shape), options.bits)
    return levels(codes, options, dtype).reshape(tuple(shape))


def codes_of_release(released: Tensor, options: QuantiseOptions) -> Tensor:
    """The index of each value's level, int64 in the shape of the release; DataError where a value is none of them."""
    codes = nearest_levels(released.detach(), options).long()
    away = levels(codes, options, released.dtype) != released
    if count := int(away.sum()):
        raise DataError(
            f"{count} of {released.numel()} values are not levels of quantise (bits={options.bits}, "
            f"low={options.low:g}, high={options.high:g}), the first is {float(released[away][0]):g}: only what left "
            "this channel is packed"
        )
    return codes


def pack_codes(codes: Tensor, bits: int) -> bytes:
    """Indices of levels as bytes; DataError where one is not from 0 to 2^bits − 1."""
    outside = (codes < 0) | (codes >= 2**bits)
    if count := int(outside.sum()):
        raise DataError(
            f"{count} of {codes.numel()} codes are not from 0 to {2**bits - 1} (bits={bits}), the first is "
            f"{int(codes[outside][0])}"
        )
    flat = codes.detach().cpu().reshape(-1, 1).numpy()
    return np.packbits(flat >> np.arange(bits)[::-1] & 1).tobytes()


def unpack_codes(data: bytes, count: int, bits: int) -> Tensor:
    """The indices of `count` levels, int64 [count]; DataError as for `unpack`."""
    if len(data) != packed_size(count, bits):
        raise DataError(
            f"a release of {count} values of {bits} bits has {packed_size(count, bits)} bytes, and here are {len(data)}"
        )
    each = np.unpackbits(np.frombuffer(data, np.uint8))
    if each[count * bits :].any():
        raise DataError(f"the last {len(each) - count * bits} bits of the release are not zero: it is damaged")
    values = each[: count * bits].reshape(count, bits).astype(np.int64) << np.arange(bits)[::-1]
    return torch.from_numpy(values.sum(1))
