"""The command `attncem`: its verbs are in `verbs/`. Torch is imported only by verbs that compute."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

from attncem import __version__
from attncem.base.progress import lenient_streams
from attncem.base.texts import text
from attncem.base.types import AttncemError, ConfigError
from attncem.cli.verbs import VERBS
from attncem.cli.verbs.base import Parser, VerbParser, complain, load_named
from attncem.config.loading.languages import kept_environment, speak_everywhere


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
            verb = next(iter(arguments or sys.argv[1:]), "")
            go_on = _go_on(verb, next(iter(getattr(error, "__notes__", ())), "RUN"))  # its note names the folder
            print(f"attncem: {text('command.interrupted', go_on=go_on)}", file=sys.stderr)  # noqa: T201
            return 130


def _run(arguments: Sequence[str] | None) -> int:
    parser, verbs = _parser()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] not in verbs and not words[0].startswith("-"):
        from attncem.config.loading.suggest import did_you_mean, nearest

        guess = did_you_mean(nearest(words[0], verbs, 0.5)) or "."
        raise ConfigError(text("command.no_verb", word=words[0], guess=guess, verbs=", ".join(verbs)))
    load_named(words)
    known, rest = parser.parse_known_args(words)
    if rest and not known.takes_overrides:
        parser.error(f"{known.verb}: unexpected {' '.join(rest)}")
    for name, value in vars(known).items():
        if "" in (value if isinstance(value, list) else [value]):
            raise ConfigError(text("command.empty", name=name))
        if isinstance(value, int) and value.bit_length() > 63:
            raise ConfigError(text("command.too_large", name=name, value=value))
    speak_everywhere(getattr(known, "lang", None))
    code = int(known.run(known, rest) or 0)
    sys.stdout.flush()
    return code


def _go_on(verb: str, place: str) -> str:
    """The command that resumes an interrupted verb; empty for a verb that does not resume."""
    if verb in ("train", "audit"):
        return text(f"command.go_on.{verb}", run=shlex.quote(place))
    return text(f"command.goes_on.{verb}") if verb in ("campaign", "search") else ""


def _is_about_memory(error: BaseException) -> bool:
    """Whether memory ran out, by the errors of Python, numpy and torch."""
    words = ("allocate memory", "out of memory", "bad_alloc")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _parser() -> tuple[argparse.ArgumentParser, list[str]]:
    """The command's parser, and the names of its verbs."""
    parser = Parser(
        prog="attncem",
        description="Train, attack, audit and compare private split models.",
        epilog="Start with: attncem demo.   Every option of a run: attncem train --help all",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"attncem {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=VerbParser)
    for add in VERBS:
        add(verbs)
    return parser, list(verbs.choices)


if __name__ == "__main__":
    sys.exit(main())
