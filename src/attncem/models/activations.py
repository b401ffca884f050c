"""Peak memory of activations during one pass of a network, from the tensors that its operations read and write.

At each operation, an activation is alive if this operation or a later one reads it, or if it is part of the result; the
outputs of the operation are alive if something reads them later. Activations are the images and every tensor that the
pass makes; views share the memory of their base. Element-wise operations and normalisations write over an input of the
same size that nothing reads later, as runtimes let them. The peak is the largest sum of bytes over all operations.

Weights, outputs that nothing reads, and working memory inside an operation are not counted. The order of operations is
that of the forward functions; a runtime that changes it may need less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Operation(NamedTuple):
    """The activations that one operation reads and makes; ``in_place``: it may write over one that it reads."""

    reads: set[int]
    makes: set[int]
    in_place: bool


class ActivationTrace(TorchDispatchMode):
    """Records every operation inside its context, and which memory it reads and makes; changes no result."""

    supports_higher_order_operators = True

    def __init__(self, images: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operations: list[_Operation] = []
        self._seen: dict[int, StorageWeakRef] = {}
        """Memory by address; a weak reference frees the data but keeps the address from being used again."""
        self._bytes: dict[int, int] = {}
        """The size of each activation; memory that is seen but has no size here belongs to the weights."""
        self._images = self._activations([images])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and record it."""
        inputs = [self._address(tensor) for tensor in _tensors((args, kwargs))]
        result = func(*args, **(kwargs or {}))
        reads = {address for address in inputs if address in self._bytes}
        self._operations.append(_Operation(reads, self._activations(result), _writes_over(func)))
        return result

    def peak(self, result: Tensor) -> int:
        """Peak bytes of the pass whose output is ``result``."""
        last = {address: step for step, operation in enumerate(self._operations) for address in operation.reads}
        last |= {address: len(self._operations) for address in (self._address(it) for it in _tensors(result))}
        alive = self._images & last.keys()
        peak = self._sum(alive)
        for step, operation in enumerate(self._operations):
            made = operation.makes & last.keys()
            dying = {address for address in operation.reads if last[address] == step}
            alive |= made
            peak = max(peak, self._sum(alive) - (self._shared(made, dying) if operation.in_place else 0))
            alive -= dying
        return peak

    def _activations(self, made: Any) -> set[int]:
        """The memory of these tensors that was not seen before, entered as activations."""
        fresh = {}
        for tensor in _tensors(made):
            if tensor.untyped_storage()._cdata not in self._seen:
                fresh[self._address(tensor)] = tensor.untyped_storage().nbytes()
        self._bytes |= fresh
        return set(fresh)

    def _address(self, tensor: Tensor) -> int:
        """The address of a tensor's memory, which counts as seen from now on."""
        address: int = tensor.untyped_storage()._cdata
        if address not in self._seen:
            self._seen[address] = StorageWeakRef(tensor.untyped_storage())
        return address

    def _sum(self, addresses: set[int]) -> int:
        return sum(self._bytes.get(address, 0) for address in addresses)

    def _shared(self, made: set[int], dying: set[int]) -> int:
        """Bytes of outputs that take the place of inputs of the same size."""
        sizes = sorted(self._bytes[address] for address in dying)
        shared = 0
        for size in (self._bytes[address] for address in made):
            if size in sizes:
                sizes.remove(size)
                shared += size
        return shared


def _tensors(values: Any) -> Iterator[Tensor]:
    """All tensors with memory of their own in nested containers."""
    return (it for it in tree_leaves(values) if isinstance(it, Tensor) and it.layout is torch.strided)


def _writes_over(func: Any) -> bool:
    """Whether each output value needs only the input value at its place, and statistics."""
    named = str(getattr(func, "_schema", ""))
    return torch.Tag.pointwise in getattr(func, "tags", ()) or "norm" in named.partition("(")[0]
