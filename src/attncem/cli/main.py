"""The command `attncem`: its verbs are in `verbs/`. Torch is imported only by verbs that compute."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence

from attncem import __version__
from attncem.base.progress import lenient_streams
from attncem.base.texts import text
from attncem.base.types import AttncemError, ConfigError
from attncem.cli.verbs import VERBS
from attncem.cli.verbs.base import Parser, VerbParser, add_language, complain, load_named
from attncem.config.loading.languages import kept_environment, speak_everywhere

_NO_VERB = 2
"""Exit code without a verb: as with git, the help is printed, and the code is not 0 because nothing was done."""
_MEANT = {"deploy": "export", "ship": "export", "bundle": "export", "onnx": "export", "server": "serve"}
"""Verbs of other tools, and ours that do it."""
_SIMILAR = 0.8
"""Similarity from which a word is taken for a misspelt option."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; a user's mistake ends with a clear line on stderr and exit code 2."""
    with lenient_streams(), kept_environment():
        try:
            return _run(arguments)
        except AttncemError as error:
            return complain(str(error))
        except OSError as error:
            return complain(text("command.no_file", file=error.filename or "stdout", reason=error.strerror or error))
        except (MemoryError, RuntimeError) as error:
            if not _is_about_memory(error):
                raise
            notes = getattr(error, "__notes__", ())  # they name the file or the stage
            said = "; ".join(filter(None, (*notes, str(error).partition("\n")[0])))
            return complain(text("command.memory", said=said or type(error).__name__))
        except KeyboardInterrupt as error:
            words = list(sys.argv[1:] if arguments is None else arguments)
            verb = next(iter(words[_verb_place(words) :]), "")
            go_on = _go_on(verb, next(iter(getattr(error, "__notes__", ())), "RUN"))  # its note names the folder
            print(f"attncem: {text('command.interrupted', go_on=go_on)}", file=sys.stderr)  # noqa: T201
            return 130


def _run(arguments: Sequence[str] | None) -> int:
    parser, verbs = _parser()
    words = _as_options(list(sys.argv[1:] if arguments is None else arguments), verbs)
    if not words:
        parser.print_help()
        return _NO_VERB
    _require_verb(words, verbs)
    load_named(words)
    known, rest = parser.parse_known_args(words)
    _refuse_unexpected(verbs[known.verb], known, rest)
    for name, value in vars(known).items():
        if "" in (value if isinstance(value, list) else [value]):
            raise ConfigError(text("command.empty", name=name))
        if isinstance(value, int) and value.bit_length() > 63:
            raise ConfigError(text("command.too_large", name=name, value=value))
    speak_everywhere(getattr(known, "lang", None))
    code = int(known.run(known, rest) or 0)
    sys.stdout.flush()
    return code


def _as_options(words: list[str], verbs: Mapping[str, VerbParser]) -> list[str]:
    """`version` and `help VERB` as the options --version and --help."""
    if words == ["version"]:
        return ["--version"]
    if words[:1] != ["help"]:
        return words
    _, *about = words
    if about and about[0] in verbs and verbs[about[0]].get_default("takes_overrides"):
        return [about[0], "--help", *about[1:]]  # further words name a section of its options
    return [*about, "--help"]


def _verb_place(words: Sequence[str]) -> int:
    """The index of the verb: options of the whole command may stand before it."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[place] == "--lang" else 1
    return place


def _require_verb(words: Sequence[str], verbs: Mapping[str, VerbParser]) -> None:
    """ConfigError for a word in the place of the verb that is none."""
    for word in words[_verb_place(words) :][:1]:
        if word not in verbs:
            from attncem.config.loading.suggest import did_you_mean, nearest

            guess = did_you_mean(_MEANT.get(word) or nearest(word, verbs, 0.5)) or "."
            raise ConfigError(text("command.no_verb", word=word, guess=guess, verbs=", ".join(verbs)))


def _refuse_unexpected(parser: VerbParser, known: argparse.Namespace, rest: Sequence[str]) -> None:
    """ConfigError for words that the verb does not take; it names the option that a misspelt one is similar to."""
    for word in rest:
        name = word.partition("=")[0]
        if name.startswith("--") and "." not in name:
            from attncem.config.loading.suggest import did_you_mean, nearest
            from attncem.config.options.run import RunConfig

            guess = nearest(name, parser.options(), _SIMILAR)
            if guess is not None and name.removeprefix("--") not in RunConfig.model_fields:
                raise ConfigError(f"{known.verb}: unexpected {name}{did_you_mean(guess)}")
    if rest and not known.takes_overrides:
        parser.error(f"unexpected {' '.join(rest)}")


def _go_on(verb: str, place: str) -> str:
    """The command that resumes an interrupted verb; empty for a verb that does not resume."""
    if verb in ("train", "audit"):
        return text(f"command.go_on.{verb}", run=shlex.quote(place))
    return text(f"command.goes_on.{verb}") if verb in ("campaign", "search") else ""


def _is_about_memory(error: BaseException) -> bool:
    """Whether memory ran out, by the errors of Python, numpy and torch."""
    words = ("allocate memory", "out of memory", "bad_alloc")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _parser() -> tuple[Parser, Mapping[str, VerbParser]]:
    """The command's parser, and its verbs by name."""
    parser = Parser(
        prog="attncem",
        description="Train, attack, audit and compare private split models.",
        epilog="Start with: attncem demo.   A verb: attncem help VERB.   Every option of a run: attncem help train all",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"attncem {__version__}")
    add_language(parser)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=VerbParser)
    for add in VERBS:
        add(verbs)
    return parser, verbs.choices


if __name__ == "__main__":
    sys.exit(main())
