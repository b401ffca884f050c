"""attncem completion: scripts that complete verbs, options, packaged names and KEY=VALUE in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from attncem.cli.verbs.base import Verbs, verb
from attncem.cli.verbs.shells import SCRIPTS, Option, VerbWords

_CHOICES = {
    "--weights": ("best", "last"),
    "--device": ("auto", "cpu", "cuda"),
    "--on": ("test", "validation"),
    "--engine": ("local", "slurm", "ray"),
    "--save-as": ("packed", "safetensors", "npy"),
    "--layout": ("nchw", "nhwc"),
}
"""Values of options that have few of them, where the parser does not know them."""


def add(verbs: Verbs) -> None:
    """The verb `completion`."""
    parser = verb(verbs, "completion", "Print the shell completion script of attncem.")
    parser.epilog = "To install it: docs/terminal.md"
    parser.add_argument("shell", choices=list(SCRIPTS), metavar="SHELL", help=f"one of: {', '.join(SCRIPTS)}")
    parser.set_defaults(run=partial(_completion, verbs))


def _completion(verbs: Verbs, known: argparse.Namespace, rest: Sequence[str]) -> None:
    print(SCRIPTS[known.shell](list(all_verbs(verbs)), _keys()), end="")  # noqa: T201


def all_verbs(verbs: Verbs) -> Iterator[VerbWords]:
    """Every verb and nested verb, with all its possible arguments."""
    meanings = {action.dest: action.help or "" for action in verbs._choices_actions}
    yield from _below(verbs, "", meanings, _values())


def _below(
    verbs: Verbs, above: str, meanings: Mapping[str, str], values: Mapping[str, Sequence[str]]
) -> Iterator[VerbWords]:
    for name, parser in verbs.choices.items():
        words = f"{above} {name}".strip()
        options = [_option(action, values) for action in parser._actions if action.option_strings]
        arguments = [word for action in parser._actions for word in _argument(words, action, values)]
        overrides = parser.get_default("takes_overrides") and name != "audit"
        yield VerbWords(words, meanings.get(name, ""), options, arguments, bool(overrides))
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                below = {choice.dest: choice.help or "" for choice in action._choices_actions}
                yield from _below(action, words, below, values)


def _option(action: argparse.Action, values: Mapping[str, Sequence[str]]) -> Option:
    flag = action.option_strings[-1]
    known = tuple(map(str, action.choices or ())) or tuple(values.get(flag, ()))
    return Option(tuple(action.option_strings), action.help or "", action.nargs not in (0, "?"), known)


def _argument(words: str, action: argparse.Action, values: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Possible words for an argument; if there are none, files are completed."""
    if action.option_strings:
        return ()
    return tuple(map(str, action.choices or ())) or values.get(f"{words} {action.dest}", ())


def _values() -> dict[str, Sequence[str]]:
    """Packaged names and other words, by the option, or by the verb and argument, that takes them."""
    from attncem.config.loading.load import packaged_configs
    from attncem.config.options.campaigns import packaged_campaigns
    from attncem.config.options.search import packaged_searches
    from attncem.config.options.suites import packaged_suites
    from attncem.config.threats import THREATS
    from attncem.data.specs import DATASETS

    campaigns = tuple(packaged_campaigns())
    return {
        **_CHOICES,
        "--config": tuple(packaged_configs()),
        "--suite": tuple(packaged_suites()),
        "--threat": tuple(THREATS),
        "--data": tuple(DATASETS),
        "--fast": _keys().get("training.fast", ()),
        "campaign plan source": campaigns,
        "campaign run source": campaigns,
        "search source": tuple(packaged_searches()),
    }


def _keys() -> dict[str, tuple[str, ...]]:
    """The options of a run by key, each with its values if they are few."""
    from attncem.config.loading.describe import describe_options
    from attncem.data.specs import DATASETS

    found: dict[str, tuple[str, ...]] = {}
    for option in describe_options():
        values = ("true", "false") if option.type == "true or false" else option.choices
        found[option.key] = tuple(dict.fromkeys((*found.get(option.key, ()), *values)))
    return {**found, "data.name": tuple(DATASETS)}
