"""attncem live: the page on which a picture stays, and what an audited attack rebuilds of what leaves it."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.base.types import ConfigError
from attncem.cli.verbs.base import Verbs, verb


def add(verbs: Verbs) -> None:
    """The verb `live`."""
    parser = verb(verbs, "live", "Show on a page what leaves a client, and what an audited attack rebuilds of it.")
    parser.epilog = "The page runs on this machine only; the picture never leaves it. Details: docs/live.md"
    parser.add_argument("source", metavar="RUN", help="run folder, bundle of attncem export, or folder of --pack")
    audit = "audit folder of the run whose attacks are shown (default: its audits on the test images); repeatable"
    parser.add_argument("--audit", action="append", default=[], metavar="FOLDER", help=audit)
    parser.add_argument("--weights", default="best", help="checkpoint: best, last or its name (default: best)")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open no browser")
    parser.add_argument("--out", metavar="FILE", help="write one self-contained page instead, which needs no server")
    keep = "write the folder that the page needs instead: bundle, decoders, examples; at most 15 MB"
    parser.add_argument("--pack", metavar="FOLDER", help=keep)
    parser.set_defaults(run=_live)


def _live(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.deploy.browser import web_client

    _require_one(known)
    if known.pack is not None:
        _pack(known)
        return
    web_client()  # before minutes of work
    from attncem.live.sources import prepared

    with prepared(known.source, audits=known.audit, weights=known.weights) as shown:
        if known.out is not None:
            from attncem.live.page import write_live

            show_line(text("command.page", path=write_live(shown, Path(known.out)).resolve()), open_console())
            if shown.facts.examples:
                show_line(text("live.holds_pictures"), open_console())
            return
        from attncem.deploy.serving.libraries import needed

        for library in ("starlette", "uvicorn", "onnxruntime"):
            needed(library)
        from attncem.live.app import show

        show(shown, known.port, lambda url: _announce(url, opens=not known.no_browser))


def _require_one(known: argparse.Namespace) -> None:
    """ConfigError for options that exclude each other, or name no file."""
    if known.out is not None and known.pack is not None:
        raise ConfigError("--out and --pack: one of both at a time")
    if known.out is not None and not Path(known.out).name:
        raise ConfigError(f"--out {known.out}: is a folder; give the name of a file, e.g. live.html")


def _pack(known: argparse.Namespace) -> None:
    from attncem.live.packing import LARGEST, pack

    if not (Path(known.source) / "config.yaml").is_file():
        raise ConfigError(f"--pack: {known.source} is no run folder")
    folder = pack(known.source, known.pack, audits=known.audit, weights=known.weights, largest=LARGEST)
    show_line(text("live.packed", folder=folder), open_console())
    show_line(text("live.holds_pictures"), open_console())


def _announce(url: str, *, opens: bool) -> None:
    show_line(text("live.address", url=url), open_console())
    if opens and _has_screen():
        webbrowser.open(url)


def _has_screen() -> bool:
    """Whether a browser would open a window: without one, Linux opens a browser in the terminal."""
    return not sys.platform.startswith("linux") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
