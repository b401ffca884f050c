"""Surrogates: estimates of the spread of z inside a class, by name."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from attncem.config.surrogates import SurrogateOptions
from attncem.surrogates.base import Surrogate
from attncem.surrogates.capacity import CapacityPenalty
from attncem.surrogates.gated import GatedAttentionCEM
from attncem.surrogates.kmeans import KMeansCEM
from attncem.surrogates.none import NoPenalty
from attncem.types import ConfigError

__all__ = ["SURROGATES", "Surrogate", "build_surrogate"]

SURROGATES: dict[str, type[Surrogate]] = {
    "none": NoPenalty,
    "kmeans": KMeansCEM,
    "capacity": CapacityPenalty,
    "gated": GatedAttentionCEM,
}
"""Every surrogate by the name it has in a configuration."""


def build_surrogate(
    name: str, *, feature_shape: Sequence[int], num_classes: int, noise_std: float, **options: Any
) -> Surrogate:
    """A surrogate by name: ``feature_shape`` is z's shape without the batch, ``options`` those of its options class.

    Raises ConfigError (a ValueError) for an unknown name, an unknown or invalid option, and noise_std=0 where a
    floor is measured in units of the noise.
    """
    if name not in SURROGATES:
        raise ConfigError(f"surrogate.name: {_unknown(name, list(SURROGATES))}")
    surrogate = SURROGATES[name]
    parsed = _parse_options(name, surrogate.options_type, options)
    return surrogate(parsed, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std)


def _parse_options(name: str, options_type: type[SurrogateOptions], options: dict[str, Any]) -> SurrogateOptions:
    try:
        return options_type.model_validate(options)
    except ValidationError as error:
        allowed = sorted(set(options_type.model_fields) - {"name"})
        lines = [_explain(dict(problem), allowed) for problem in error.errors(include_url=False)]
        raise ConfigError(f"surrogate {name}: " + "; ".join(lines)) from None


def _explain(problem: dict[str, Any], allowed: list[str]) -> str:
    """One pydantic error in words: the key, the value given and what is allowed."""
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"option {_unknown(key, allowed)}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"surrogate.{key}: {message}, got {problem['input']!r}" if key else message


def _unknown(given: str, allowed: list[str]) -> str:
    nearest = get_close_matches(str(given), allowed, n=1)
    hint = f", did you mean {nearest[0]!r}?" if nearest else ""
    return f"{given!r} is not known{hint} (allowed: {', '.join(allowed) or 'none'})"
