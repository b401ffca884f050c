"""Options as one list of dotted keys, for comparing and for programs that know no nesting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attncem.config.options.base import Options


def flat_options(options: Options) -> dict[str, Any]:
    """Every option by its key as people write it; the place in a list of options is left out where it has one item."""
    return dict(_leaves("", options.model_dump(mode="json")))


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(f"{key}.{name}".lstrip("."), item)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for place, item in enumerate(value):
            yield from _leaves(key if len(value) == 1 else f"{key}.{place}", item)
    else:
        yield key, value
