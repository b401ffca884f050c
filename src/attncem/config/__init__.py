"""Options of everything, and the way from a YAML and overrides to validated ones. Never imports torch.

The names below are loaded when first used, so that importing one options class stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncem.config.loading.describe import OptionHelp, describe_options, format_help
    from attncem.config.loading.load import Loaded, config_schema, dump_config, load_config, packaged_configs
    from attncem.config.loading.overrides import parse_cli_overrides
    from attncem.config.options.run import RunConfig
    from attncem.config.options.suites import LoadedSuite, Suite, load_suite, packaged_suites

__all__ = [
    "Loaded",
    "LoadedSuite",
    "OptionHelp",
    "RunConfig",
    "Suite",
    "config_schema",
    "describe_options",
    "dump_config",
    "format_help",
    "load_config",
    "load_suite",
    "packaged_configs",
    "packaged_suites",
    "parse_cli_overrides",
]

_HOMES = {
    **dict.fromkeys(("OptionHelp", "describe_options", "format_help"), "loading.describe"),
    **dict.fromkeys(("LoadedSuite", "Suite", "load_suite", "packaged_suites"), "options.suites"),
    "RunConfig": "options.run",
    "parse_cli_overrides": "loading.overrides",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'loading.load')}"), name)
