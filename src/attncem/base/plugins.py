"""Plugins: Python files that a user names or installs, and what they add to the package.

A file runs only when a user names it (`--plugin FILE.py`, `load_plugin`) or installs it (entry points of the group
`attncem.plugins`, which are loaded when a name is unknown). Files of runs and campaigns hold a plugin's name and hash,
never a path. This module does not import torch; a plugin does.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from attncem.base.record import Record
from attncem.base.types import AttncemError, ConfigError

P = ParamSpec("P")
R = TypeVar("R")
GROUP = "attncem.plugins"
"""Group of the entry points of installed plugins."""
_MODULE = "attncem_plugin_"
"""Prefix of the modules of plugin files; their hash follows."""
_LARGEST = 4 * 2**20
"""Largest plugin file in bytes."""


@dataclass(frozen=True)
class Plugin:
    """A loaded plugin: its file, the hash of what ran, and its module."""

    path: str
    sha256: str
    module: str

    @property
    def file(self) -> str:
        """The file's name without its folder."""
        return Path(self.path).name


@dataclass(frozen=True)
class Addition:
    """What a plugin adds: a name of a kind, its options class, and its class or function."""

    kind: str
    name: str
    options: Any
    made: Any
    plugin: Plugin
    number: int = field(default_factory=count(1).__next__)
    """A number of its own, by which trees and schemas of options are kept."""


class PluginUse(Record):
    """Use of a plugin by a run or a campaign, as their files record it: no path, and nothing that is executed.

    ``options`` are those of this use, ``facts`` what pages show and only the plugin's code can compute.
    """

    kind: str
    name: str
    file: str
    sha256: str
    options: dict[str, Any]
    facts: dict[str, Any]

    @property
    def described(self) -> str:
        """The kind, the name, the file and its hash in words."""
        return f"the {self.kind} {self.name} of the plugin {self.file} (sha256 {self.sha256[:12]}…)"


_additions: dict[tuple[str, str], Addition] = {}
_loaded: dict[str, Plugin] = {}
"""Plugins of this process by module."""
_running: list[Plugin] = []
"""The plugin file that is running now, if any."""


def additions(*kinds: str) -> list[Addition]:
    """What plugins have added to these kinds, in order."""
    return [one for one in _additions.values() if one.kind in kinds]


def addition(kind: str, name: str) -> Addition | None:
    """What a plugin has added under this name."""
    return _additions.get((kind, name))


def version() -> tuple[int, ...]:
    """The numbers of all additions: what is made from the options is kept by them."""
    return tuple(one.number for one in _additions.values())


@contextmanager
def standing_in(stand_ins: Iterable[Addition]) -> Iterator[None]:
    """Further additions, for reading only."""
    before = dict(_additions)
    _additions.update({(one.kind, one.name): one for one in stand_ins})
    try:
        yield
    finally:
        _additions.clear()
        _additions.update(before)


def add(kind: str, name: str, options: Any, made: Any) -> Addition:
    """Record an addition of the running plugin, or of the module that defines it."""
    here = Addition(kind, name, options, made, _running[-1] if _running else _plugin_of(made))
    there = _additions.get((kind, name))
    if there is not None and there.plugin.path != here.plugin.path:
        raise ConfigError(
            f"{here.plugin.file}: the plugin {there.plugin.file} already has a {kind} named {name}: rename one"
        )
    _loaded[here.plugin.module] = here.plugin
    _additions[kind, name] = here
    return here


def _plugin_of(made: Any) -> Plugin:
    """The plugin of a class that was registered by an import or in a script."""
    module = sys.modules.get(made.__module__)
    file = getattr(module, "__file__", None)
    if not file or not Path(file).is_file():
        raise ConfigError(
            f"{made.__qualname__} is not defined in a file: write it to a file of its own and call "
            "load_plugin(FILE) of attncem.plugins"
        )
    return Plugin(str(Path(file).absolute()), hashlib.sha256(_read(Path(file))).hexdigest(), made.__module__)


def load_plugin(path: str | Path) -> Plugin:
    """Run a plugin file and register what it defines. The same file again does nothing; a changed one replaces itself.

    ConfigError if the file cannot be read, fails, or registers nothing.
    """
    where = str(Path(path).expanduser().absolute())
    source = _read(Path(where))
    sha256 = hashlib.sha256(source).hexdigest()
    plugin = Plugin(where, sha256, f"{_MODULE}{sha256[:16]}")
    same = [one for one in _loaded.values() if (one.path, one.sha256) == (where, sha256)]
    if same:
        return same[0]
    before = dict(_additions)
    with _restored_on_error(plugin, before):
        _forget(where)
        _run(plugin, source)
        if not any(one.plugin == plugin for one in _additions.values()):
            raise ConfigError(f"{where}: registers nothing: use register of attncem.plugins, see docs/plugins.md")
    _loaded[plugin.module] = plugin
    return plugin


def _read(file: Path) -> bytes:
    if file.suffix != ".py":
        raise ConfigError(f"{file}: a plugin is a Python file, whose name ends in .py")
    try:
        source = file.read_bytes() if file.stat().st_size <= _LARGEST else b"\0"
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
    if b"\0" in source:
        raise ConfigError(f"{file}: is not a Python file, or larger than {_LARGEST >> 20} MiB")
    return source


def _run(plugin: Plugin, source: bytes) -> None:
    """Run the bytes that were hashed as a module of their own."""
    module = ModuleType(plugin.module)
    module.__file__ = plugin.path
    sys.modules[plugin.module] = module
    _running.append(plugin)
    try:
        exec(compile(source, plugin.path, "exec"), module.__dict__)
    except AttncemError as error:
        raise ConfigError(f"plugin {plugin.file}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"plugin {plugin.file}{_line(error, plugin.path)}: {type(error).__name__}: {error}"
        ) from error
    finally:
        _running.pop()


def _line(error: BaseException, path: str) -> str:
    """The last line of the file that an error passed through."""
    trace, number = error.__traceback__, getattr(error, "lineno", None)
    while trace is not None:
        number = trace.tb_lineno if trace.tb_frame.f_code.co_filename == path else number
        trace = trace.tb_next
    return "" if number is None else f", line {number}"


@contextmanager
def _restored_on_error(plugin: Plugin, before: dict[tuple[str, str], Addition]) -> Iterator[None]:
    """Take back what a plugin has registered if it fails."""
    try:
        yield
    except BaseException:
        _additions.clear()
        _additions.update(before)
        _loaded.pop(plugin.module, None)
        sys.modules.pop(plugin.module, None)
        raise


def _forget(path: str) -> None:
    """Drop the additions of an earlier version of the file."""
    for key in [key for key, one in _additions.items() if one.plugin.path == path]:
        del _additions[key]


_installed: list[str] = []
"""Names of the entry points that were loaded; a first entry marks that they were looked for."""


def load_installed() -> bool:
    """Load the installed plugins, once; whether this added anything."""
    if _installed:
        return False
    from importlib.metadata import entry_points  # it takes longer to import than a help text may

    _installed.append("")
    before = version()
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except AttncemError as error:
            raise ConfigError(f"the installed plugin {point.name} ({point.value}): {error}") from error
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise ConfigError(f"the installed plugin {point.name} ({point.value}) cannot be loaded: {said}") from error
        _installed.append(point.name)
    return version() != before


class UnknownName(ConfigError):
    """A configuration with a name or key that is unknown; an installed plugin may know it."""


def with_installed(function: Callable[P, R]) -> Callable[P, R]:
    """Call the function again with the installed plugins where it meets an unknown name."""

    @wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return function(*arguments, **options)
        except UnknownName:
            if not load_installed():
                raise
            return function(*arguments, **options)

    return called


def named_plugins() -> list[Plugin]:
    """The plugins of this process, for the processes that it starts."""
    return list(_loaded.values())


def load_same(plugins: Sequence[Plugin]) -> None:
    """Load the plugins of the process that started this one; ConfigError if a file has changed since."""
    for plugin in plugins:
        if not any(one.sha256 == plugin.sha256 for one in _loaded.values()):
            _load_as(plugin)
        if not any(one.sha256 == plugin.sha256 for one in _loaded.values()):
            raise ConfigError(f"{plugin.path} has changed since the work began: start the work again")


def _load_as(plugin: Plugin) -> None:
    """Import an installed module by its name, run any other file by its path."""
    if not plugin.module.startswith((_MODULE, "__")):
        try:
            import_module(plugin.module)
        except ImportError:
            load_plugin(plugin.path)
    else:
        load_plugin(plugin.path)
