"""From a packaged name, a YAML file or a mapping, and overrides, to one validated object of an options class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from attncem.base.plugins import UnknownName, with_installed
from attncem.base.shown_paths import shown_path
from attncem.base.types import ConfigError
from attncem.config.loading.flat import plain, show
from attncem.config.loading.overrides import Override, apply_overrides, complete, parse_overrides
from attncem.config.loading.suggest import did_you_mean, fail, nearest, problem_lines
from attncem.config.loading.tree import Node, merged, option_tree
from attncem.config.loading.yaml_text import LONGEST, dump_yaml, parse_yaml
from attncem.config.options.base import Options
from attncem.config.options.run import RunConfig

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_LARGEST = 1e30
"""Largest float: arithmetic has 32 bits, and squares must be finite there."""
_INTEGERS = range(-(2**63), 2**63)
_LONGEST_CHAIN = 20
"""Maximum number of files that extend one another."""

OWN_PICTURES = "image_folder"
"""The data set for a folder of the user's own pictures."""
_DATA_OF_NAMES = ("demo-", "cifar10-")
"""Prefixes of packaged configurations that are named after their data."""
_NAMES_NO_METHOD = (RunConfig().name, "own-pictures")
"""Names that do not describe the training method: the folder's name is enough."""
_LONGEST_FOLDER = 50
"""Maximum number of characters of the folder's name in a run's name."""

RootT = TypeVar("RootT", bound=Options)
Source = str | Path | Mapping[str, Any] | Options | None
"""A packaged name, the path of a YAML file (it has a separator or ends in .yaml or .yml), a mapping, options, or
None for the defaults."""


@dataclass(frozen=True)
class Loaded(Generic[RootT]):
    """Validated options, and notes for the user on how they were made."""

    config: RootT
    notes: list[str]


def load(
    root: type[RootT],
    source: Source,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    folder: Traversable | None = None,
) -> Loaded[RootT]:
    """Read ``source``, apply ``overrides`` and validate as ``root``.

    ``overrides``: ``a.b=value`` strings or {dotted key: value}, in any order. ``folder`` replaces the folder of the
    root's packaged YAMLs. Raises a ConfigError that lists every problem.
    """
    return resolve(root, source, parse_overrides(overrides, option_tree(root)), folder=folder)


@with_installed
def resolve(
    root: type[RootT], source: Source, overrides: Sequence[Override], *, folder: Traversable | None = None
) -> Loaded[RootT]:
    """Like ``load``, with parsed overrides, which are applied in their order."""
    tree = option_tree(root)
    data = complete(_Reader(tree, folder or packaged_folder(root)).read(source), tree)
    data, notes = apply_overrides(data, overrides, tree)
    data = complete(data, tree)
    problems = list(_impossible(data))
    if problems:
        raise fail(problems, tree)
    try:
        return Loaded(root.model_validate(data), notes)
    except ValidationError as error:
        said = fail(problem_lines(error, tree), tree)
        unknown = any(problem["type"] == "union_tag_invalid" for problem in error.errors())
        raise (UnknownName(*said.args) if unknown else said) from None


def _impossible(value: Any, key: str = "") -> Iterator[str]:
    """A line for every number that no option accepts, whatever its class says; validators need not handle these."""
    if isinstance(value, dict | list):
        for part, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _impossible(item, f"{key}.{part}" if key else str(part))
    elif isinstance(value, int) and value not in _INTEGERS:
        yield f"{key}={show(value)}: whole numbers have at most 64 bits"
    elif isinstance(value, float) and abs(value) > _LARGEST and value - value == 0:
        yield f"{key}={show(value)}: numbers must lie between {-_LARGEST:g} and {_LARGEST:g}"


def load_config(
    source: Source, overrides: Sequence[str] | Mapping[str, Any] = (), *, folder: Traversable | None = None
) -> Loaded[RunConfig]:
    """``load`` for RunConfig; a note states the order of a channel with several stages.

    A run on the user's own pictures is named after their folder, unless the user named it: a packaged configuration's
    name describes the data it was made for.
    """
    loaded = load(RunConfig, source, overrides, folder=folder)
    if loaded.config.data.name == OWN_PICTURES and not _is_named(source, overrides):
        loaded = replace(loaded, config=loaded.config.model_copy(update={"name": _after_data(loaded.config)}))
    if len(loaded.config.channel) < 2:
        return loaded
    return Loaded(loaded.config, [*loaded.notes, f"channel: {loaded.config.channel_order}"])


def _is_named(source: Source, overrides: Sequence[str] | Mapping[str, Any]) -> bool:
    """Whether the run's name comes from an override, a mapping, or the user's own file."""
    if any(override.path == ("name",) for override in parse_overrides(overrides, option_tree(RunConfig))):
        return True
    if isinstance(source, str | Path):
        return is_path(source) and "name" in _parse_file(Path(source).expanduser(), str(source))
    return source is not None


def _after_data(config: RunConfig) -> str:
    """FOLDER-CONFIGURATION, with only the characters allowed in a name."""
    if config.data.root is None:
        return config.name
    folder = shown_path(Path(config.data.root).expanduser().absolute())  # a home folder has the user's name
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", folder).strip("._-")[:_LONGEST_FOLDER] or OWN_PICTURES
    named = next(
        (config.name.removeprefix(data) for data in _DATA_OF_NAMES if config.name.startswith(data)), config.name
    )
    return words if config.name in _NAMES_NO_METHOD else f"{words}-{named}"


def dump_config(config: Options, *, ascii_only: bool = False) -> str:
    """YAML text of all options; loading it gives equal options."""
    return dump_yaml(plain(config), plain=ascii_only)


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
    written = [line for line in comments if line]
    sentences = [line for line in written if not line.lstrip("$ ").startswith("attncem ")]
    return next(iter(sentences or written), "")


def packaged_folder(root: type[Options]) -> Traversable | None:
    """The folder of a root's packaged YAMLs; None if it has none."""
    from importlib.resources import files

    return files("attncem").joinpath("config", "packaged", root.packaged) if root.packaged else None


@dataclass(frozen=True)
class _Reader:
    """Reads sources for the root of ``tree``; packaged names are looked up in ``folder``."""

    tree: Node
    folder: Traversable | None

    def read(self, source: Source) -> dict[str, Any]:
        """The data of a source, merged with the files that it extends."""
        if source is None:
            return {}
        if isinstance(source, str | Path):
            return self._read_file(self._find(source, Path()), ())
        if not isinstance(source, Mapping | BaseModel):
            raise ConfigError(f"{show(source)}: expected a name, the path of a YAML file or a mapping")
        return self._with_base(plain(source), "the mapping", Path(), ())

    def _find(self, source: str | Path, relative_to: Path) -> Traversable:
        """The file for a packaged name or a path."""
        text = str(source)
        if is_path(source):
            with _readable(text):
                return relative_to / Path(source).expanduser()
        if self.folder is not None and _NAME.fullmatch(text):
            file = self.folder.joinpath(f"{text}.yaml")
            if file.is_file():
                return file
        names = list(packaged_names(self.folder))
        allowed = f"one of: {', '.join(names)}" if names else "there are none"
        guess = did_you_mean(nearest(text, names)) or "."
        raise ConfigError(
            f"{show(text)}: no packaged {self.tree.word} of this name ({allowed}){guess} A file must end in .yaml"
        )

    def _read_file(self, file: Traversable, chain: tuple[str, ...]) -> dict[str, Any]:
        """The data of one YAML file, merged with the files that it extends; ``chain`` are the files that led here."""
        where = str(file)
        with _readable(where):
            identity = str(file.resolve()) if isinstance(file, Path) else where
        if identity in chain:
            names = " → ".join(Path(link).name for link in (*chain[chain.index(identity) :], identity))
            raise ConfigError(f"{where}: extends itself ({names})")
        if len(chain) >= _LONGEST_CHAIN:
            raise ConfigError(f"{where}: more than {_LONGEST_CHAIN} files extend one another")
        beside = file.parent if isinstance(file, Path) else Path()
        return self._with_base(_parse_file(file, where), where, beside, (*chain, identity))

    def _with_base(self, data: dict[str, Any], where: str, beside: Path, chain: tuple[str, ...]) -> dict[str, Any]:
        """The data merged over the data that they extend."""
        if "extends" not in data:
            return data
        base = data.pop("extends")
        if not isinstance(base, str):
            raise ConfigError(f"{where}: extends={show(base)}: must be a packaged name or the path of a YAML file")
        try:
            file = self._find(base, beside)
        except ConfigError as error:
            raise ConfigError(f"{where}: extends {error}") from None
        with _readable(f"{where}: extends {base}"):
            there = file.is_file()
        if not there:
            raise ConfigError(f"{where}: extends {base}: no such file: {file}")
        return merged(complete(self._read_file(file, chain), self.tree), data, self.tree)


def is_path(source: str | Path) -> bool:
    """Whether a source is a file's path and not a packaged name."""
    text = str(source)
    return isinstance(source, Path) or "/" in text or "\\" in text or text.endswith((".yaml", ".yml"))


def _parse_file(file: Traversable, where: str) -> dict[str, Any]:
    """The top-level keys and values of a YAML file."""
    with _readable(where), file.open("rb") as stream:
        content = stream.read(4 * LONGEST + 1)  # /dev/zero never ends
    if len(content) > 4 * LONGEST:
        raise ConfigError(f"{where}: longer than {LONGEST} characters")
    try:
        data = parse_yaml(content.decode().removeprefix("\ufeff"), where)
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: is not text in UTF-8") from None
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{where}: must hold keys and values at the top, not {show(data)}")
    return data or {}


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """Turn errors about a path (missing, a loop of links, too long, no home) into a ConfigError."""
    shown = where if len(where) <= 300 else f"{where[:297]}..."
    try:
        yield
    except FileNotFoundError:
        raise ConfigError(f"{shown}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read ({error.strerror})") from None
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"{shown}: cannot be read ({str(error).partition(' from ')[0]})") from None
