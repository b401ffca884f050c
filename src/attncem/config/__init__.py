"""Options of everything, and the way from a YAML and overrides to a validated RunConfig. Never imports torch.

The names below are loaded when first used, so that importing one options class stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncem.config.describe import OptionHelp, describe_options, format_help
    from attncem.config.load import (
        Loaded,
        config_schema,
        dump_config,
        load_config,
        packaged_configs,
        parse_cli_overrides,
    )
    from attncem.config.run import RunConfig

__all__ = [
    "Loaded",
    "OptionHelp",
    "RunConfig",
    "config_schema",
    "describe_options",
    "dump_config",
    "format_help",
    "load_config",
    "packaged_configs",
    "parse_cli_overrides",
]

_HOMES = {"OptionHelp": "describe", "describe_options": "describe", "format_help": "describe", "RunConfig": "run"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'load')}"), name)
