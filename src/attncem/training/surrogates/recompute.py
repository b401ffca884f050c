"""Large tables are computed again in the backward pass instead of being stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attncem.training.surrogates.base import exact_arithmetic

LARGE = 2**20
"""Smallest table, in values, that is computed again (4 MB in float32); smaller ones are cheaper to store."""

Result = TypeVar("Result")


def recomputed(function: Callable[..., Result], *tensors: Tensor, values: int) -> Result:
    """``function(*tensors)``, whose tables have up to ``values`` values each; it must draw no random numbers.

    If they are large, only ``tensors`` are stored for the backward pass, which calls the function again. A compiler
    chooses by itself what it stores.
    """
    if values < LARGE or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return function(*tensors)

    def exactly(*inputs: Tensor) -> Result:
        # The backward pass runs outside the forward's settings.
        with exact_arithmetic(inputs[0]):
            return function(*inputs)

    result: Result = checkpoint(exactly, *tensors, use_reentrant=False, preserve_rng_state=False)
    return result
