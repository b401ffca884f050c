"""The command attncem-edge: labels for pictures, by a bundle and its server."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from attncem_edge import __version__
from attncem_edge.budget import UNITS, Budget
from attncem_edge.client import TOKEN, Client, Prediction
from attncem_edge.errors import AttncemError, ConfigError

_LARGEST_TOKEN = 1 << 16


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a person's mistake ends with one line on stderr and exit code 2."""
    try:
        options = _parser().parse_args(arguments)
        return _predict(options)
    except AttncemError as error:
        return _complain(str(error))
    except OSError as error:
        return _complain(f"{error.filename or 'a file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("attncem-edge", description="The client of a private split model.")
    parser.add_argument("--version", action="version", version=f"attncem-edge {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True)
    meaning = "Label pictures: what the client cannot answer itself, a server does, from the released z alone."
    predict = verbs.add_parser("predict", help="label pictures", description=meaning, allow_abbrev=False)
    predict.add_argument("bundle", metavar="BUNDLE", help="folder made by attncem export")
    predict.add_argument("pictures", metavar="PICTURE", nargs="+", help="picture file of any size")
    predict.add_argument("--json", action="store_true", help="print one JSON object per picture")
    _add_server(predict)
    _add_limits(predict)
    return parser


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="the server: https://HOST:PORT, or http://127.0.0.1:PORT on this machine")
    parser.add_argument("--token-file", metavar="FILE", help=f"file with the server's token (default: ${TOKEN})")
    parser.add_argument("--ca", metavar="FILE", help="certificates of authorities to trust instead of the system's")
    parser.add_argument(
        "--plain-http", action="store_true", help="allow http:// to another machine: anyone can read it"
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="longest wait for the server (default: 10)")
    parser.add_argument("--retries", type=int, metavar="N", help="further attempts with the same bytes (default: 3)")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--per-image", type=float, metavar="LIMIT", help="budget of one image")
    parser.add_argument("--total", type=float, metavar="LIMIT", help="budget of the device, for all images together")
    parser.add_argument("--unit", choices=UNITS, help="what the budgets count (default: releases)")
    parser.add_argument(
        "--device", metavar="FOLDER", help="folder of the device's key and counts (default: the user's)"
    )
    parser.add_argument("--identity", metavar="SHA256", help="refuse a bundle with another identity")


def _predict(options: argparse.Namespace) -> int:
    names = ("ca", "timeout", "retries")
    connection = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.plain_http:
        connection["plain_http"] = True
    token = None if options.token_file is None else _token(Path(options.token_file))
    more = {"url": options.url, "device": options.device, "identity": options.identity}
    with Client(options.bundle, token=token, budget=_budget(options), **more, **connection) as client:
        for picture in options.pictures:
            answer = client.predict(picture)
            print(json.dumps({"picture": picture, **asdict(answer)}) if options.json else _said(picture, answer))  # noqa: T201
    return 0


def _budget(options: argparse.Namespace) -> Budget | None:
    if options.per_image is None and options.total is None:
        if options.unit is not None:
            raise ConfigError("--unit needs a budget: --per-image, --total or both")
        return None
    return Budget(options.per_image, options.total, options.unit or UNITS[0])


def _token(file: Path) -> str:
    """The token in a file; ConfigError where it holds none."""
    with file.open("rb") as handle:
        text = handle.read(_LARGEST_TOKEN).decode("ascii", "replace").strip()
    if not text:
        raise ConfigError(f"{file} is empty: it must hold the token")
    return text


def _said(picture: str, answer: Prediction) -> str:
    """One line about one picture."""
    by = "answered on the device, nothing sent" if answer.on_device else f"sent {answer.bytes_sent} bytes"
    return _clean(f"{picture}: {answer.label} {100 * answer.probabilities[answer.label]:.1f} % ({by})")


def _complain(line: str) -> int:
    print(f"attncem-edge: error: {_clean(line)}", file=sys.stderr)  # noqa: T201
    return 2


def _clean(line: str) -> str:
    """A line without characters that control a terminal, in letters that the stream has."""
    shown = "".join(it if it.isprintable() else "?" for it in line)
    return shown.encode(sys.stdout.encoding or "ascii", "replace").decode(sys.stdout.encoding or "ascii")


if __name__ == "__main__":
    sys.exit(main())
