"""Arithmetic in float32 inside networks in bfloat16, forward and backward."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_KNOWN = frozenset(kind for kind in ("cpu", "cuda", "mps", "xpu") if torch.amp.is_autocast_available(kind))
"""Kinds of devices with autocast. Read once: some versions of torch cannot compile the query."""


def full_precision(device: str) -> AbstractContextManager[object]:
    """Context without bfloat16, on a kind of device."""
    return torch.autocast(device, enabled=False) if device in _KNOWN else nullcontext()


def product(x: Tensor, m: Tensor) -> Tensor:
    """X mᵀ of x [..., n] and m [k, n], as one product for all lines of x; called inside `full_precision`."""
    made: Tensor = _Product.apply(x, m)  # type: ignore[no-untyped-call]
    return made


class _Product(torch.autograd.Function):
    """A product with float32 gradients: a compiler takes those of torch's product in the networks' precision."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, m: Tensor) -> Tensor:
        ctx.save_for_backward(x, m)
        return F.linear(x, m)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, m = ctx.saved_tensors
        of_x, of_m = ctx.needs_input_grad
        with full_precision(x.device.type):
            for_x = gradient @ m if of_x else None
            for_m = gradient.flatten(0, -2).mT @ x.flatten(0, -2) if of_m else None
        return for_x, for_m
