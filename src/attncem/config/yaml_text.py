"""YAML text to plain data and back, by the rules of YAML 1.2 that people expect.

Beside PyYAML's safe loader: ``1e-4`` is a number, ``002`` and ``2024-01-01`` stay text, ``yes`` and ``off``
stay words (a true/false option still accepts them), a key given twice is an error, aliases are refused.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from attncem.types import ConfigError

_FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+[eE][-+]?[0-9]+
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
_RESOLVERS = (
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$"), list("-+0123456789")),
    ("float", _FLOAT, list("-+0123456789.")),
)


class _Loader(yaml.SafeLoader):
    """The safe loader with YAML 1.2 scalars, without aliases and without repeated keys."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (the name and kind are PyYAML's)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node; an alias is an error, so that a small file cannot unfold into a huge one."""
        if self.check_event(yaml.AliasEvent):
            event: Any = self.get_event()  # type: ignore[no-untyped-call]
            problem = "aliases (*name) are not supported: write the value out"
            raise yaml.constructor.ConstructorError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping; a key given twice is an error."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the key {key.value} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """The safe dumper with short floats, and quotes around all that ``_Loader`` would read as a number."""


for _tag, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    if not math.isfinite(value):
        return dumper.represent_float(value)
    return dumper.represent_scalar("tag:yaml.org,2002:float", repr(value))


def _represent_list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.Node:
    flow = not any(isinstance(item, dict | list) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flow)


_Dumper.add_representer(float, _represent_float)
_Dumper.add_representer(list, _represent_list)


def parse_yaml(text: str, where: str) -> Any:
    """Plain data of one YAML document; ``where`` names it in errors."""
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}{_position(error)}: {_problem(error)}") from None
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{where}: nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()


def dump_yaml(data: Any) -> str:
    """YAML text of plain data, keys in the given order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=110)


def _position(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None)
    context = getattr(error, "context", None)
    if problem is None:
        return " ".join(str(error).split())
    return f"{problem} ({context})" if context else str(problem)
