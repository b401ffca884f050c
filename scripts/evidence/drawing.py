"""Shared by the figures of the page: accuracy against the strongest attack's error, as reproducible SVG."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attncem.records.study import ACCURACY
from attncem.reporting.campaign.plots import Ink, Plot, files
from evidence.source import Setting


def accuracy_and_error(name: str, draw: Callable[[Any, Ink], None], size: tuple[float, float]) -> bytes:
    """The figure that `draw` puts on its axes, with axis labels and legend."""

    def whole(axes: Any, ink: Ink) -> str:
        axes.figure.set_facecolor("white")  # a page may be dark
        draw(axes, ink)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.set_xlabel("accuracy %")
        axes.set_ylabel("MSE of the strongest attack")
        return ""

    plot = Plot(name, "Accuracy and the strongest attack's error", whole, size)
    return next(content for file, content in files(plot) if file.endswith(".svg"))


def seeds(axes: Any, arm: Setting, color: str, marker: str) -> None:
    """Every run of an arm as a small, pale point."""
    accuracies = [100 * value for value in arm.values(ACCURACY)]
    axes.plot(accuracies, arm.values("mse"), color=color, marker=marker, linestyle="", markersize=3, alpha=0.4)
