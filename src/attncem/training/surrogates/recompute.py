"""Large tables are computed again in the backward pass instead of being kept for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attncem.training.surrogates.base import exact_arithmetic

LARGE = 2**20
"""Values of one table from which on it is computed again (4 MB in float32); smaller ones are cheaper to keep."""

Result = TypeVar("Result")


def recomputed(function: Callable[..., Result], *tensors: Tensor, values: int) -> Result:
    """``function(*tensors)``, whose tables have up to so many ``values`` each; it must draw no random number.

    Where they are large only ``tensors`` are kept for the backward pass, which calls the function again. A compiler
    decides for itself what it keeps.
    """
    if values < LARGE or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return function(*tensors)

    def exactly(*inputs: Tensor) -> Result:
        # The backward pass runs outside the forward's settings.
        with exact_arithmetic(inputs[0]):
            return function(*inputs)

    result: Result = checkpoint(exactly, *tensors, use_reentrant=False, preserve_rng_state=False)
    return result
