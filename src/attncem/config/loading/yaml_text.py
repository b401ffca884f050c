"""YAML text to plain data and back, by the rules of YAML 1.2 that users expect.

Differences from PyYAML's safe loader: ``1e-4`` is a number, ``002`` and ``2024-01-01`` stay text, ``yes`` and
``off`` stay words (a true/false option still accepts them), a repeated key is an error, aliases are refused, and
only the tags of plain data (``!!int``) are accepted, on a value of their kind.
"""

from __future__ import annotations

import copy
import math
import re
from functools import lru_cache
from typing import Any, ClassVar

import yaml

from attncem.base.types import ConfigError

LONGEST = 100_000
"""Maximum number of characters of a text; no configuration comes near."""
DEEPEST = 50
"""Maximum nesting depth of mappings and lists."""
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


def _refusal(problem: str, mark: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, mark)


class _Loader(yaml.SafeLoader):
    """The safe loader with YAML 1.2 scalars and the tags of plain data, without aliases and repeated keys."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (the name and kind are PyYAML's)
    yaml_constructors: ClassVar[dict[str | None, Any]] = {}
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node; an alias is an error, so that a small file cannot expand into a huge one."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refusal("aliases (*name) are not supported: write the value out", event.start_mark)
        if self.depth > DEEPEST:
            raise _refusal(f"nested too deeply: {DEEPEST} levels at most", event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping; a repeated key is an error."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise _refusal(f"the key {key.value} is given twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep=deep)

    def construct_checked(self, node: yaml.Node) -> Any:
        """Construct null, a truth value or a number; a tag (``!!int x``) on a value of another kind is an error."""
        kind = node.tag.rpartition(":")[2]
        pattern = next(pattern for name, pattern, _ in _RESOLVERS if name == kind)
        fits = isinstance(node, yaml.ScalarNode) and (pattern.match(node.value) or _is_whole(kind, node.value))
        if not fits:
            raise _refusal(f"!!{kind} does not fit its value", node.start_mark)
        return yaml.SafeLoader.yaml_constructors[node.tag](self, node)


def _is_whole(kind: str, value: str) -> bool:
    """Whether it is a float without a point: ``!!float 1``."""
    return kind == "float" and bool(_RESOLVERS[2][1].match(value)) and "x" not in value


class _Dumper(yaml.SafeDumper):
    """The safe dumper with short floats, and quotes around any text that ``_Loader`` would read as a number."""


for _tag, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first)
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_checked)
for _known in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map", None):
    _Loader.add_constructor(_known, yaml.SafeLoader.yaml_constructors[_known])
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
    if len(text) > LONGEST:
        raise ConfigError(f"{where}: longer than {LONGEST} characters")
    try:
        return copy.deepcopy(_parsed(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}{_position(error)}: {_problem(error)}") from None
    except (ValueError, OverflowError) as error:  # numbers of thousands of digits, invalid characters
        raise ConfigError(f"{where}: {str(error).partition(';')[0]}") from None


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """The data of a text; a run, its audits and a campaign read the same files again and again."""
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def dump_yaml(data: Any, *, plain: bool = False) -> str:
    """YAML text of plain data, keys in their order; `plain` writes non-ASCII letters as YAML escapes."""
    return yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=not plain, default_flow_style=False, width=110
    )


def _position(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None)
    context = getattr(error, "context", None)
    if problem is None:
        return " ".join(str(error).split())
    return f"{problem} ({context})" if context else str(problem)
