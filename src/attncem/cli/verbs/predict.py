"""attncem predict."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from attncem.base.progress import open_console
from attncem.cli.verbs.base import IMAGE, Verbs, add_common, print_json, verb


def add(verbs: Verbs) -> None:
    """The verb `predict`."""
    parser = verb(verbs, "predict", "Classify images with a run, and show what leaves the device.")
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help=IMAGE)
    parser.add_argument("--top", type=int, default=3, metavar="N", help="labels shown for each image (default: 3)")
    parser.add_argument("--save", metavar="FOLDER", help="save what leaves the device there; overwrites no file")
    parser.add_argument("--save_as", default="safetensors", help="safetensors or npy (default: safetensors)")
    add_common(parser)
    parser.set_defaults(run=_predict)


def _predict(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.judging.inference import predict
    from attncem.reporting import print_predictions

    names = ("top", "save", "save_as", "weights", "device")
    result = predict(known.run_folder, known.images, **{name: getattr(known, name) for name in names})
    if known.json:
        print_json(result)
    else:
        print_predictions(result, open_console())
