"""attncem predict and explain: a run applied to images."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.cli.verbs.base import Verbs, add_json, print_json, verb

IMAGE = "image file of any size, or test:17 for test image 17 of the data set"


def add_predict(verbs: Verbs) -> None:
    """The verb `predict`."""
    parser = verb(verbs, "predict", "Classify images with a run, and show what leaves the device.")
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help=IMAGE)
    parser.add_argument("--top", type=int, default=3, metavar="N", help="labels shown for each image (default: 3)")
    parser.add_argument("--save", metavar="FOLDER", help="save what leaves the device there; overwrites no file")
    formats = "packed, safetensors or npy (default: packed where the channel ends with quantise, else safetensors)"
    parser.add_argument("--save-as", help=formats)
    _add_common(parser)
    parser.set_defaults(run=_predict)


def _predict(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.judging.inference import predict
    from attncem.reporting import print_predictions

    names = ("top", "save", "save_as", "weights", "device")
    result = predict(known.run_folder, known.images, **{name: getattr(known, name) for name in names})
    if known.json:
        print_json(result, local=True)  # its program asked for these files and opens those that were saved
    else:
        print_predictions(result, open_console())


def add_explain(verbs: Verbs) -> None:
    """The verb `explain`."""
    parser = verb(verbs, "explain", "Follow one image through a run, as one self-contained HTML page.")
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("image", metavar="IMAGE", help=IMAGE)
    parser.add_argument("--out", help="page to write (default: explanation.html; with --json none)")
    _add_common(parser)
    parser.set_defaults(run=_explain)


def _explain(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.reporting import print_explanation
    from attncem.reporting.explain.explaining import explain

    out = Path(known.out or "explanation.html")
    page = out if known.out or not known.json else None
    explanation = explain(known.run_folder, known.image, out=page, weights=known.weights, device=known.device)
    if known.json:
        print_json(explanation)
        return
    console = open_console()
    print_explanation(explanation, console)
    show_line(text("command.page", path=out.resolve()), console)


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Add the common options of verbs about images of one run."""
    parser.add_argument("--weights", default="best", help="checkpoint: best, last or its name (default: best)")
    parser.add_argument("--device", help="auto, cpu or cuda (default: as the run)")
    add_json(parser)
