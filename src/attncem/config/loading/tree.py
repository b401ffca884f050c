"""The tree of options, read from the fields of an options class: the existing keys and their allowed values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from attncem.base.plugins import version
from attncem.config.loading.flat import plain, show
from attncem.config.options.base import Options
from attncem.config.options.opened import Opened

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

BOOLEAN = "true or false"
NULL = "null"
_WORDS = {int: "integer", float: "number", str: "text", bool: BOOLEAN, NoneType: NULL}
_BOUNDS = {"ge": ">= {}", "gt": "> {}", "le": "<= {}", "lt": "< {}"}
_ARTICLES = {"integer": "an ", "number": "a ", "list": "a ", "mapping": "a "}


@dataclass(frozen=True, eq=False)
class Node:
    """The allowed values at one place. If several kinds are allowed, it has the keys, items and values of all."""

    types: tuple[str, ...] = ("value",)
    """The kinds of value in words: ``integer >= 1``, ``one of: a, b``, ``null``."""
    choices: tuple[str, ...] = ()
    """The values of an option with a fixed list of them; the names of a union."""
    keys: Mapping[str, Node] = field(default_factory=dict)
    """The options of an options class."""
    members: Mapping[str, Node] = field(default_factory=dict)
    """The options classes of a union by ``name``."""
    items: Node | None = None
    """The node of a list's items."""
    values: Node | None = None
    """The node of the values in a mapping with free keys."""
    default: Any = ...
    """The default as in a YAML: for options, the name and the differences from their own defaults; ``...``: none."""
    meaning: str = ""
    """Help text of the option."""
    about: str = ""
    """Help text of the options class."""
    word: str = "configuration"
    """Name of the whole in messages; only for a root."""
    allowed: str = ""
    """Text that replaces the list of a root's keys in messages."""

    @property
    def option_items(self) -> Node | None:
        """The node of the items of a list of options; None for everything else."""
        return self.items if self.items and (self.items.keys or self.items.members) else None

    @property
    def type(self) -> str:
        """The allowed values in words: ``number > 0 or null``."""
        return " or ".join(sorted(self.types, key=lambda text: text.startswith("mapping")))

    @property
    def must_be(self) -> str:
        """``must be`` and the allowed values."""
        return f"must be {_with_article(self.type)}"

    def chosen(self, value: Any) -> Node:
        """The options that the ``name`` in a mapping selects; this node if there is nothing to select."""
        if not self.members or isinstance(value, list):
            return self
        name = value.get("name")
        return self.members.get(name, NOWHERE) if isinstance(name, str) else NOWHERE

    def below(self, part: str | int) -> Node:
        """One step down: a key, any key of a free mapping, or an item of a list; NOWHERE if there is none."""
        below = self.items if isinstance(part, int) else self.keys.get(part, self.values)
        return below or NOWHERE

    def all_below(self, part: str) -> list[Node]:
        """Like below, for every options class of a union that has the key."""
        nodes = (member.below(part) for member in [*self.members.values(), self])
        return [node for node in nodes if node is not NOWHERE]


NOWHERE = Node()
"""The node below a place that has nothing below it."""
Root = type[Options] | Node
"""The root of a lookup: an options class, or a tree made by hand."""


def option_tree(root: Root) -> Node:
    """The tree of a root."""
    return root if isinstance(root, Node) else _tree_of_class(root, version())


@cache
def _tree_of_class(root: type[Options], plugins: tuple[int, ...]) -> Node:
    """The tree of a class; ``plugins`` identify what plugins have added to its unions."""
    node = _options_node(root)
    return replace(node, meaning=node.about, word=root.model_config.get("title") or node.word)


def walk(node: Node, prefix: str = "", when: str = "") -> Iterator[tuple[str, Node, str]]:
    """Every option and section below a node: its dotted key, its node, and the choice that it requires."""
    for name, option in node.keys.items():
        key = prefix + name
        yield key, option, when
        inner = option.option_items or option
        for choice, member in inner.members.items():
            yield from walk(member, f"{key}.", f"{key}.name={choice}")
        yield from walk(inner, f"{key}.", when)


def known_keys(tree: Node) -> tuple[str, ...]:
    """Every dotted key, including sections, without list positions."""
    return tuple(dict.fromkeys(key for key, _, _ in walk(tree)))


def merged(base: Mapping[str, Any], child: Mapping[str, Any], node: Node = NOWHERE) -> dict[str, Any]:
    """The child merged over the base, key by key; a different ``name`` in a union of options drops the base's."""
    changed = node.members and child.get("name", base.get("name")) != base.get("name")
    kept = {} if changed else dict(base)
    options = node.chosen({**kept, **child})
    for key, value in child.items():
        nested = isinstance(kept.get(key), dict) and isinstance(value, dict)
        kept[key] = merged(kept[key], value, options.below(key)) if nested else value
    return kept


def _options_node(options: type[Options]) -> Node:
    about = " ".join((options.__doc__ or "").split())
    keys = {name: _field_node(option, about) for name, option in options.model_fields.items()}
    return Node((f"mapping with keys: {', '.join(keys)}",), keys=keys, about=about)


def _field_node(option: FieldInfo, about: str) -> Node:
    node = _node(option.annotation, option.metadata)
    meaning = option.description or node.about or (about if len(node.choices) == 1 else "")
    default = ... if option.is_required() or option.default_factory else _written(option.default)
    return replace(node, default=default, meaning=" ".join(meaning.split()))


def _written(default: Any) -> Any:
    """A default as in a YAML."""
    if isinstance(default, list):
        return [_written(item) for item in default]
    if not isinstance(default, Options):
        return plain(default)
    name = {"name": default.name} if hasattr(default, "name") else {}
    return {**name, **plain(default.model_dump(exclude_defaults=True))}


def _node(annotation: Any, limits: Sequence[Any] = ()) -> Node:
    """The node of a type, with the limits that its field sets."""
    kinds = [*_kinds(annotation, limits), *_added(limits)]
    options = [kind for kind, _ in kinds if _is_options(kind)]
    if len(options) > 1:
        members = {one.model_fields["name"].default: _options_node(one) for one in options}
        return Node((f"mapping with a name, one of: {', '.join(members)}",), tuple(members), members=members)
    nodes = [_node_of_kind(kind, its_limits) for kind, its_limits in kinds]
    if len(nodes) == 1:
        return nodes[0]
    parts: dict[str, Any] = {}
    for node in reversed(nodes):
        parts |= {part: value for part in ("keys", "items", "values", "about") if (value := getattr(node, part))}
    return Node(tuple(node.type for node in nodes), **parts)


def _kinds(annotation: Any, limits: Sequence[Any]) -> Iterator[tuple[Any, Sequence[Any]]]:
    """The kinds of value of a type, each with its limits."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        unfolded = [limit for one in more for limit in getattr(one, "metadata", [one])]
        yield from _kinds(inner, [*limits, *unfolded])
        yield from _added(unfolded)
    elif get_origin(annotation) in (Union, UnionType):
        for inner in get_args(annotation):
            yield from _kinds(inner, limits)
    else:
        yield annotation, limits


def _added(limits: Sequence[Any]) -> Iterator[tuple[Any, Sequence[Any]]]:
    """The options classes that plugins add to a union."""
    return ((kind, ()) for limit in limits if isinstance(limit, Opened) for kind in limit.added())


def _is_options(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Options)


def _node_of_kind(kind: Any, limits: Sequence[Any]) -> Node:
    origin, inner = get_origin(kind), get_args(kind)
    if _is_options(kind):
        return _options_node(kind)
    if origin is Literal:
        choices = tuple(show(value) for value in inner)
        return Node((f"one of: {', '.join(choices)}",), choices)
    if origin in (list, tuple):
        items = _node(inner[0])
        return Node((f"list{_count_text(limits)}, each {_with_article(items.type)}",), items=items)
    if origin is dict:
        return Node(("mapping with any keys",), values=None if inner[1] is Any else _node(inner[1]))
    return Node((_scalar_text(kind, limits),))


def _texts(limits: Sequence[Any], words: Mapping[str, str]) -> list[str]:
    """One text for each of these limits that is set."""
    values = {name: getattr(limit, name) for name in words for limit in limits if hasattr(limit, name)}
    return [words[name].format(show(value)) for name, value in values.items() if value is not None]


def _scalar_text(kind: Any, limits: Sequence[Any]) -> str:
    if kind is NoneType:
        return NULL
    bounds = " and ".join(_texts(limits, _BOUNDS))
    shape = _texts(limits, {"max_length": "of at most {} letters", "pattern": "matching {}"})
    return " ".join(filter(None, [_WORDS.get(kind, "value"), bounds, *shape]))


def _count_text(limits: Sequence[Any]) -> str:
    """The allowed number of items of a list, in words."""
    least, most = _texts(limits, {"min_length": "{}"}), _texts(limits, {"max_length": "{}"})
    if most:
        return f" of {least[0] if least else 0} to {most[0]}"
    return f" of at least {least[0]}" if least else ""


def _with_article(text: str) -> str:
    return _ARTICLES.get(text.split(maxsplit=1)[0].rstrip(","), "") + text.replace(" or mapping", " or a mapping")
