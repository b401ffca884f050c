"""From a packaged name, a YAML file or a mapping, and overrides, to one validated object of an options class."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from attncem.config.base import Options
from attncem.config.overrides import Override, apply_overrides, complete, parse_cli_overrides, parse_overrides, plain
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

__all__ = [
    "Loaded",
    "config_schema",
    "dump_config",
    "load",
    "load_config",
    "packaged_configs",
    "parse_cli_overrides",
    "resolve",
]

_NAME = re.compile(r"[A-Za-z0-9._-]+")

PACKAGED: dict[type[Options], str] = {RunConfig: "configs"}
"""Folder of the packaged YAMLs of each root that has some; the module of a root adds its own."""

RootT = TypeVar("RootT", bound=Options)
Source = str | Path | Mapping[str, Any] | Options | None
"""A packaged name, the path of a YAML file (it has a separator or ends in .yaml or .yml), a mapping, options, or
None for the defaults."""


@dataclass(frozen=True)
class Loaded(Generic[RootT]):
    """Validated options, and what a person should know about how they came to be."""

    config: RootT
    notes: list[str]


def load(
    root: type[RootT],
    source: Source,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    folder: Traversable | None = None,
) -> Loaded[RootT]:
    """Read ``source``, lay ``overrides`` over it and validate as ``root``.

    ``overrides``: ``a.b=value`` strings or {dotted key: value}, in any order. ``folder`` replaces the folder of the
    root's packaged YAMLs. Raises ConfigError that lists every problem.
    """
    return resolve(root, source, parse_overrides(overrides, option_tree(root)), folder=folder)


def resolve(
    root: type[RootT], source: Source, overrides: Sequence[Override], *, folder: Traversable | None = None
) -> Loaded[RootT]:
    """As ``load``, with overrides that are parsed already; they are laid over the source in their order."""
    tree = option_tree(root)
    data = complete(_Reader(tree, folder or packaged_folder(root)).read(source), tree)
    data, notes = apply_overrides(data, overrides, tree)
    try:
        return Loaded(root.model_validate(complete(data, tree)), notes)
    except ValidationError as error:
        raise fail(problem_lines(error, tree), tree) from None


def load_config(
    source: Source, overrides: Sequence[str] | Mapping[str, Any] = (), *, folder: Traversable | None = None
) -> Loaded[RunConfig]:
    """``load`` for RunConfig; a note tells the order of a channel with several stages."""
    loaded = load(RunConfig, source, overrides, folder=folder)
    if len(loaded.config.channel) < 2:
        return loaded
    return Loaded(loaded.config, [*loaded.notes, f"channel: {loaded.config.channel_order}"])


def dump_config(config: Options) -> str:
    """YAML text of all options; loading it gives equal ones."""
    return dump_yaml(plain(config))


def config_schema() -> dict[str, Any]:
    """JSON schema of RunConfig, for editors."""
    return RunConfig.model_json_schema()


def packaged_configs(folder: Traversable | None = None) -> dict[str, str]:
    """Names of the packaged run configurations, each with the first comment line that is not a command."""
    return packaged_names(folder or packaged_folder(RunConfig))


def packaged_names(folder: Traversable | None) -> dict[str, str]:
    """Names of the YAMLs in a folder, each with the first comment line that is not a command."""
    inside = folder.iterdir() if folder is not None and folder.is_dir() else ()
    return {
        file.name.removesuffix(".yaml"): _headline(file.read_text(encoding="utf-8"))
        for file in sorted(inside, key=lambda file: Path(file.name).stem)
        if file.name.endswith(".yaml")
    }


def _headline(text: str) -> str:
    comments = [line.lstrip("# ").strip() for line in text.splitlines() if line.lstrip().startswith("#")]
    said = [line for line in comments if line]
    return next((line for line in said if not line.lstrip("$ ").startswith("attncem ")), said[0] if said else "")


def packaged_folder(root: type[Options]) -> Traversable | None:
    """The folder of a root's packaged YAMLs; None where it has none."""
    from importlib.resources import files

    return files("attncem").joinpath(PACKAGED[root]) if root in PACKAGED else None


@dataclass(frozen=True)
class _Reader:
    """Reads sources for the root of ``tree``; packaged names are looked up in ``folder``."""

    tree: Schema
    folder: Traversable | None

    def read(self, source: Source) -> dict[str, Any]:
        """The data of a source, with what it extends."""
        if source is None:
            return {}
        if isinstance(source, str | Path):
            return self._read_file(self._find(source, Path()), ())
        if not isinstance(source, Mapping | BaseModel):
            raise ConfigError(f"{show(source)}: expected a name, the path of a YAML file or a mapping")
        return self._with_base(plain(source), "the mapping", Path(), ())

    def _find(self, source: str | Path, relative_to: Path) -> Traversable:
        """The file of a packaged name or of a path."""
        text = str(source)
        if isinstance(source, Path) or "/" in text or "\\" in text or text.endswith((".yaml", ".yml")):
            return relative_to / Path(source).expanduser()
        if self.folder is not None and _NAME.fullmatch(text):
            file = self.folder.joinpath(f"{text}.yaml")
            if file.is_file():
                return file
        names = list(packaged_names(self.folder))
        allowed = f"one of: {', '.join(names)}" if names else "there are none"
        guess = did_you_mean(nearest(text, names)) or "."
        raise ConfigError(
            f"{show(text)}: no packaged {self.tree['word']} of this name ({allowed}){guess} A file must end in .yaml"
        )

    def _read_file(self, file: Traversable, chain: tuple[str, ...]) -> dict[str, Any]:
        """The data of one YAML file with what it extends; ``chain`` are the files that led here."""
        where = str(file)
        identity = str(file.resolve()) if isinstance(file, Path) else where
        if identity in chain:
            names = " → ".join(Path(link).name for link in (*chain[chain.index(identity) :], identity))
            raise ConfigError(f"{where}: extends itself ({names})")
        beside = file.parent if isinstance(file, Path) else Path()
        return self._with_base(_parse_file(file, where), where, beside, (*chain, identity))

    def _with_base(self, data: dict[str, Any], where: str, beside: Path, chain: tuple[str, ...]) -> dict[str, Any]:
        """The data laid over what they extend."""
        if "extends" not in data:
            return data
        base = data.pop("extends")
        if not isinstance(base, str):
            raise ConfigError(f"{where}: extends={show(base)}: must be a packaged name or the path of a YAML file")
        try:
            file = self._find(base, beside)
        except ConfigError as error:
            raise ConfigError(f"{where}: extends {error}") from None
        if not file.is_file():
            raise ConfigError(f"{where}: extends {base}: no such file: {file}")
        return _merge(complete(self._read_file(file, chain), self.tree), data, self.tree)


def _parse_file(file: Traversable, where: str) -> dict[str, Any]:
    """The keys and values at the top of a YAML file."""
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
    return data or {}


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
