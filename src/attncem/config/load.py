"""From a packaged name, a YAML file or a mapping, and overrides, to one validated RunConfig."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from attncem.config.overrides import apply_overrides, complete, parse_cli_overrides, parse_overrides, plain
from attncem.config.run import RunConfig
from attncem.config.suggest import (
    Schema,
    children,
    did_you_mean,
    fail,
    nearest,
    object_schema,
    option_tree,
    problem_lines,
    show,
    union_members,
)
from attncem.config.yaml_text import dump_yaml, parse_yaml
from attncem.types import ConfigError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["Loaded", "config_schema", "dump_config", "load_config", "packaged_configs", "parse_cli_overrides"]

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Loaded:
    """A validated configuration, and what a person should know about how it came to be."""

    config: RunConfig
    notes: list[str]


def load_config(
    source: str | Path | Mapping[str, Any] | RunConfig | None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    folder: Traversable | None = None,
) -> Loaded:
    """Read ``source``, lay ``overrides`` over it and validate.

    ``source``: a packaged name, the path of a YAML file (it has a separator or ends in .yaml or .yml), a mapping,
    or None for the defaults. ``overrides``: ``a.b=value`` strings or {dotted key: value}, in any order.
    ``folder`` replaces the folder of the packaged YAMLs. Raises ConfigError that lists every problem.
    """
    tree = option_tree()
    data = complete(_read_source(source, _folder(folder)), tree)
    data, notes = apply_overrides(data, parse_overrides(overrides))
    try:
        config = RunConfig.model_validate(complete(data, tree))
    except ValidationError as error:
        raise fail(problem_lines(error)) from None
    if len(config.channel) > 1:
        notes = [*notes, f"channel: {config.channel_order}"]
    return Loaded(config, notes)


def dump_config(config: RunConfig) -> str:
    """YAML text of the full configuration; loading it gives an equal one."""
    return dump_yaml(plain(config))


def config_schema() -> dict[str, Any]:
    """JSON schema of RunConfig, for editors."""
    return RunConfig.model_json_schema()


def packaged_configs(folder: Traversable | None = None) -> dict[str, str]:
    """Names of the packaged YAMLs, each with the first comment line that is not a command."""
    place = _folder(folder)
    files = sorted(place.iterdir(), key=lambda file: Path(file.name).stem) if place.is_dir() else []
    return {
        file.name.removesuffix(".yaml"): _headline(file.read_text(encoding="utf-8"))
        for file in files
        if file.name.endswith(".yaml")
    }


def _headline(text: str) -> str:
    comments = [line.lstrip("# ").strip() for line in text.splitlines() if line.lstrip().startswith("#")]
    said = [line for line in comments if line]
    return next((line for line in said if not line.lstrip("$ ").startswith("attncem ")), said[0] if said else "")


def _folder(folder: Traversable | None) -> Traversable:
    if folder is not None:
        return folder
    from importlib.resources import files

    return files("attncem").joinpath("configs")


def _read_source(source: str | Path | Mapping[str, Any] | RunConfig | None, folder: Traversable) -> dict[str, Any]:
    if source is None:
        return {}
    if isinstance(source, str | Path):
        return _read_file(_find(source, folder, Path()), folder, ())
    if not isinstance(source, Mapping | BaseModel):
        raise ConfigError(f"{show(source)}: expected a name, the path of a YAML file or a mapping")
    return _with_base(plain(source), "the mapping", folder, Path(), ())


def _find(source: str | Path, folder: Traversable, relative_to: Path) -> Traversable:
    """The file of a packaged name or of a path."""
    text = str(source)
    if isinstance(source, Path) or "/" in text or "\\" in text or text.endswith((".yaml", ".yml")):
        return relative_to / Path(source).expanduser()
    file = folder.joinpath(f"{text}.yaml")
    if _NAME.fullmatch(text) and file.is_file():
        return file
    names = list(packaged_configs(folder))
    allowed = f"one of: {', '.join(names)}" if names else "there are none"
    guess = did_you_mean(nearest(text, names)) or "."
    raise ConfigError(
        f"{show(text)}: no packaged configuration of this name ({allowed}){guess} A file must end in .yaml"
    )


def _read_file(file: Traversable, folder: Traversable, chain: tuple[str, ...]) -> dict[str, Any]:
    """The data of one YAML file with what it extends; ``chain`` are the files that led here."""
    where = str(file)
    identity = str(file.resolve()) if isinstance(file, Path) else where
    if identity in chain:
        names = " → ".join(Path(link).name for link in (*chain[chain.index(identity) :], identity))
        raise ConfigError(f"{where}: extends itself ({names})")
    try:
        data = parse_yaml(file.read_text(encoding="utf-8").removeprefix("\ufeff"), where)
    except FileNotFoundError:
        raise ConfigError(f"{where}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: is not text in UTF-8") from None
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{where}: must hold keys and values at the top, not {show(data)}")
    beside = file.parent if isinstance(file, Path) else Path()
    return _with_base(data or {}, where, folder, beside, (*chain, identity))


def _with_base(
    data: dict[str, Any], where: str, folder: Traversable, beside: Path, chain: tuple[str, ...]
) -> dict[str, Any]:
    """The data laid over what they extend."""
    if "extends" not in data:
        return data
    base = data.pop("extends")
    if not isinstance(base, str):
        raise ConfigError(f"{where}: extends={show(base)}: must be a packaged name or the path of a YAML file")
    try:
        file = _find(base, folder, beside)
    except ConfigError as error:
        raise ConfigError(f"{where}: extends {error}") from None
    if not file.is_file():
        raise ConfigError(f"{where}: extends {base}: no such file: {file}")
    below = complete(_read_file(file, folder, chain), option_tree())
    return _merge(below, data, option_tree())


def _merge(base: dict[str, Any], child: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The child over the base, key by key; another ``name`` in a union of options drops the base's."""
    changed = union_members(schema) and child.get("name", base.get("name")) != base.get("name")
    merged = {} if changed else dict(base)
    concrete = object_schema(schema, {**merged, **child})
    for key, value in child.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = _merge(below, value, next(iter(children(concrete, key)), {}))  # noqa: PLW2901
        merged[key] = value
    return merged
