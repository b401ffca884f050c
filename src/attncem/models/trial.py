"""Check on a few images whether an encoder can be audited, and whether a user's two halves fit together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attncem.base.types import ConfigError, DatasetSpec, RunError
from attncem.models.split import evaluation

TRIED = 6
"""Number of images for the check."""
LARGEST = 2**24
"""Largest number of values of a feature: 64 MiB per image."""
LARGEST_NUMBER = 1e15
"""Largest number in a feature: sums of squares of larger ones are infinite in float32."""
_ROUNDING = 1e-3
"""Largest relative difference of features from a different order of summation."""


@torch.no_grad()
def try_encoder(encoder: nn.Module, x: Tensor) -> None:
    """RunError unless the feature of each image is finite, repeatable and independent of other images."""
    z = encoder(x)
    if not isinstance(z, Tensor) or z.ndim < 2 or len(z) != len(x) or not z.is_floating_point():
        found = f"a tensor {list(z.shape)} of {z.dtype}" if isinstance(z, Tensor) else type(z).__name__
        raise RunError(
            f"the encoder gives {found} for images {list(x.shape)}; it must give a tensor [B, …] of floating-point "
            "numbers, one row for each image"
        )
    if z[0].numel() > LARGEST:
        raise RunError(f"the encoder's feature has {z[0].numel()} values, more than {LARGEST}: cut it elsewhere")
    if not bool(z.isfinite().all()):
        raise RunError("the encoder's features hold NaN or infinity for images in [0, 1]: check mean, std and layout")
    if float(z.abs().max()) > LARGEST_NUMBER:
        raise RunError(
            f"the encoder's features reach {float(z.abs().max()):.0e} for images in [0, 1], too large to compute with "
            f"(at most {LARGEST_NUMBER:.0e}): check mean, std and layout, or scale them in the encoder"
        )
    size = _ROUNDING * float(z.abs().max())
    if _apart(encoder(x), z) > size:
        raise RunError(
            "the encoder is not deterministic: encoding the same images again gives other features. "
            "Randomness must be a stage of the channel, so that it can be audited"
        )
    if _apart(torch.cat([encoder(part) for part in x.split(1)]), z) > size:
        raise RunError(
            "the encoder's feature of an image depends on the other images of its batch, as with batch statistics: "
            "export it in evaluation mode"
        )


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max()) if one.shape == other.shape else float("inf")


def check_pair(modules: object) -> tuple[nn.Module, nn.Module]:
    """The user's (encoder, server); ConfigError if it is not a pair of modules."""
    pair = tuple(modules) if isinstance(modules, tuple | list) else ()
    if len(pair) == 2 and all(isinstance(half, nn.Module) for half in pair):
        return pair
    inside = f" of {', '.join(type(half).__name__ for half in pair)}" if pair else ""
    raise ConfigError(
        f"modules={type(modules).__name__}{inside}: must be a pair (encoder, server) of torch modules, which replaces "
        "the network"
    )


def try_halves(encoder: nn.Module, server: nn.Module, spec: DatasetSpec) -> None:
    """ConfigError unless the user's halves turn two blank images into features and those into logits."""
    first = next(encoder.parameters(), None)
    x = torch.zeros(2, *spec.shape, device=first.device if first is not None else None)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), evaluation(encoder), evaluation(server):
        z = _answer(encoder, x, f"the encoder does not take images {list(x.shape)}")
        if not isinstance(z, Tensor) or z.ndim < 2 or len(z) != len(x):
            raise ConfigError(f"modules: the encoder gives {_named(z)}; it must give a tensor [B, …], a row per image")
        logits = _answer(server, z, f"the server does not take the encoder's features {list(z.shape)}")
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(x):
        raise ConfigError(f"modules: the server gives {_named(logits)}; it must give logits [B, {spec.num_classes}]")
    if logits.shape[1] < spec.num_classes:
        raise ConfigError(
            f"modules: the server gives {logits.shape[1]} logits, but {spec.name} has {spec.num_classes} classes"
        )


def _answer(half: nn.Module, x: Tensor, problem: str) -> object:
    try:
        return half(x)
    except Exception as error:  # a user's forward may fail in any way
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ConfigError(f"modules: {problem} ({reason})") from error


def _named(value: object) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
