"""Draw the strongest attack's reconstructions of the demo, without and with a defence: docs/reconstructions.png.

attncem demo --out runs/demo
python scripts/draw_reconstructions.py runs/demo docs/reconstructions.png
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from attncem.records.ledger import Ledger
from attncem.records.study.runs import JudgedRun, load_run
from attncem.records.study.suites import joined_suites

ROWS = {"demo-none": "no defence", "demo-kmeans": "baseline (CEM)", "demo-gated": "front end +\ngated attention"}
"""The rows of the figure, from the least to the most protected."""


def pictures(run: JudgedRun) -> list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """The originals that every run shows, each with the strongest attack's reconstruction."""
    (audit,) = joined_suites(run.results)
    ledger = Ledger.open(Path(audit.folder_of(audit.strongest)))
    shown = [item for item in audit.strongest_attack.pictures if item.role == "fixed"]
    return [(_read(ledger, item.original), _read(ledger, item.image)) for item in shown]


def _read(ledger: Ledger, name: str) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(ledger.picture(name))))


def main(demo: str, out: str) -> None:
    """One row per model, the originals first."""
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    strips = [pictures(load_run(Path(demo) / name)) for name in ROWS]
    originals = [original for original, _ in strips[0]]
    lines = [originals, *([image for _, image in strip] for strip in strips)]
    titles = ["original", *ROWS.values()]
    figure, axes = plt.subplots(len(lines), len(originals), figsize=(1.5 + len(originals), len(lines)), squeeze=False)
    for line, title, images in zip(axes, titles, lines, strict=True):
        line[0].text(-0.15, 0.5, title, transform=line[0].transAxes, ha="right", va="center", fontsize=9)
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set_axis_off()
    figure.subplots_adjust(left=1.5 / (1.5 + len(originals)), right=1, top=1, bottom=0, wspace=0.04, hspace=0.06)
    figure.savefig(out, dpi=80, metadata={"Software": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
