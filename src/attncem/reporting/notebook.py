"""Figures as objects for a notebook: each displays itself and can be saved as SVG, PDF or PNG."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_hex, to_rgba_array
from matplotlib.figure import Figure as Canvas
from PIL import Image

from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.base.types import RunError
from attncem.records.campaign_folder import PLANNED
from attncem.records.files import read_if_there, write_atomic
from attncem.records.study.runs import JudgedRun, load_runs
from attncem.reporting import figures
from attncem.reporting.campaign import plots as campaign_plots
from attncem.reporting.campaign.page import campaign_figures
from attncem.reporting.campaign.plots import PAPER, Ink, Plot
from attncem.reporting.html import run_name
from attncem.reporting.runs import gallery, sending
from attncem.reporting.runs.methods import Entry, Method
from attncem.reporting.runs.methods import methods as group
from attncem.reporting.runs.trade_off import trade_offs

_MARK = "attncem-figure"
_HEADS: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": _MARK},
    "pdf": {"CreationDate": None, "Creator": _MARK},
    "png": {"Software": _MARK},
}
"""Metadata of a figure file, by extension; it identifies figures that this program wrote."""
_PICTURES = 8
"""Maximum number of images in the figure of reconstructions."""


@dataclass(frozen=True)
class Figure:
    """One figure. A notebook displays it; ``canvas`` is the matplotlib figure, free to change."""

    name: str
    title: str
    canvas: Canvas = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        self.canvas.set_facecolor("white")  # a notebook may be dark

    @property
    def svg(self) -> str:
        """The figure as SVG."""
        return self._as("svg").decode()

    def _repr_svg_(self) -> str:
        return self.svg

    def _as(self, ending: str) -> bytes:
        return campaign_plots.saved(self.canvas, ending, _HEADS[ending])

    def save(self, file: str | Path) -> Path:
        """Write it to a .svg, .pdf or .png file, by extension. Only an older figure is replaced."""
        file = Path(file)
        ending = file.suffix.removeprefix(".").lower()
        if ending not in _HEADS:
            raise RunError(f"{file}: a figure is saved as .svg, .pdf or .png")
        if (before := read_if_there(file)) is not None and _MARK.encode() not in before:
            raise RunError(f"{file}: exists and was not written by attncem; choose another name")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, self._as(ending))
        except OSError as error:
            raise RunError(f"{file}: cannot be written: {error.strerror or error}; choose another folder") from error
        return file


class Figures(Mapping[str, Figure]):
    """Figures by name. A notebook displays them small, side by side."""

    def __init__(self, made: Sequence[Figure]) -> None:
        self._made = {figure.name: figure for figure in made}

    def __getitem__(self, name: str) -> Figure:
        if name not in self._made:
            raise KeyError(f"no figure {name}; there are {', '.join(self._made)}")
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __repr__(self) -> str:
        return f"Figures({', '.join(self._made)})"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._made)

    def _repr_html_(self) -> str:
        shown = (
            f'<img style="width: 30em; max-width: 100%; vertical-align: top" alt="{escape(figure.title)}" '
            f'title="{escape(figure.name)}" '
            f'src="data:image/svg+xml;base64,{base64.b64encode(figure.svg.encode()).decode()}">'
            for figure in self._made.values()
        )
        return f"<div>{''.join(shown)}</div>"

    def save(self, folder: str | Path, ending: str = "svg") -> list[Path]:
        """Write each figure into a folder, under its name."""
        return [figure.save(Path(folder) / f"{figure.name}.{ending}") for figure in self._made.values()]


def draw_figures(paths: Sequence[Path]) -> Figures:
    """The figures of a campaign folder, or of run folders and folders of runs."""
    campaigns = [path for path in paths if (path / PLANNED).is_file()]
    if campaigns and len(paths) > 1:
        raise RunError(f"{campaigns[0]} is a campaign: draw it alone")
    if campaigns:
        return Figures(list(map(_of_plot, campaign_figures(campaigns[0]))))
    return Figures(_of_runs(paths))


def _of_runs(paths: Sequence[Path]) -> list[Figure]:
    """The report's figures, and the reconstructions by the strongest attacks."""
    runs = load_runs(paths)
    methods = group(runs)
    audited = [entry for method in methods for entry in method.entries]
    with figures.kept() as made:
        drawings = [
            *zip(("trade-off", "trade-off-narrow"), trade_offs(methods), strict=False),
            *zip(("sending", "sending-narrow"), sending.drawings(sending.blocks(methods)), strict=False),
            *((item.key, item) for item in _curves(runs, methods)),
            *((f"attack-{_file_name(item.row)}", item) for item in figures.attack_curves(audited)),
            *((f"asking-{_file_name(item.row)}", item) for item in figures.asking_curves(audited)),
        ]
    shown = [
        Figure(name, item.title, repaint(canvas, item.title))
        for (name, item), canvas in zip(drawings, made, strict=True)
    ]
    labels = {method.color: run_name(method) for method in reversed(methods)}
    for figure in shown:
        if not figure.name.startswith(("trade-off", "sending")) and len(labels) > 1:  # their points have name labels
            _legend(figure.canvas, labels)
    return [*shown, *map(_of_plot, picture_plots([entry for method in methods for entry in method.entries[:1]]))]


def _curves(runs: Sequence[JudgedRun], methods: Sequence[Method]) -> list[figures.Drawing]:
    colors = {run.label: method.color for method in methods for run in method.runs}
    order = [colors[run.label] for run in runs]
    return [*figures.training_curves(runs, order), *figures.health_curves(runs, order)]


def _of_plot(plot: Plot) -> Figure:
    return Figure(plot.name, plot.title, campaign_plots.printed(plot))


def _legend(canvas: Canvas, labels: Mapping[int, str]) -> None:
    axes = canvas.axes[0]
    for color, label in sorted(labels.items()):
        axes.plot([], [], color=PAPER.of(color), marker=figures.marker_of(color), markersize=3.5, label=label)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), labelcolor=PAPER.ink)
    canvas.set_figwidth(canvas.get_figwidth() + 1.6)


def _file_name(words: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", words).strip("-")


# from the page's colours to print colours

_ON_PAPER = {figures.INK: PAPER.ink, figures.MUTED: PAPER.muted, figures.GRID: PAPER.line} | {
    figures.color_of(index): PAPER.of(index) for index in range(figures.NUM_COLORS)
}
_COLOURS = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")


def repaint(canvas: Canvas, title: str) -> Canvas:
    """Replace the marker colours of a report figure by print colours, and add its title."""
    for artist in canvas.findobj():
        for name in _COLOURS:
            read, write = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
            if read is not None and write is not None and (other := _on_paper(read())) is not None:
                write(other)
    canvas.axes[0].set_title(title, fontsize=9, color=PAPER.ink)
    return canvas


def _on_paper(value: Any) -> Any:
    """The print colours of one or several marker colours; None where nothing changes."""
    try:
        colours = to_rgba_array(value)
    except (ValueError, TypeError):
        return None
    found = [_ON_PAPER.get(to_hex(colour)) for colour in colours]
    if not any(found):
        return None
    swapped = [
        colour if other is None else to_rgba_array(other, colour[3])[0]
        for colour, other in zip(colours, found, strict=True)
    ]
    return swapped[0] if len(swapped) == 1 else swapped


# pictures


def picture_plots(audited: Sequence[Entry]) -> list[Plot]:
    """Evaluation images, with the reconstructions by each run's strongest attack below them; one plot per data set."""
    found = gallery.galleries(gallery.albums(audited))
    return [_pictures(f"pictures-{number}" if number > 1 else "pictures", item) for number, item in enumerate(found, 1)]


def _pictures(name: str, shown: gallery.Gallery) -> Plot:
    strips = [strip for strip in shown.strips if strip.strongest]
    columns = min(len(shown.originals), _PICTURES)

    def draw(axes: Any, ink: Ink) -> str:
        rows = [(text("page.original"), [cell.original for cell in shown.originals])]
        labels = [f"{strip.entry.label}\n{row_title(strip.attack)}" for strip in strips]
        rows += [(label, [cell.image for cell in strip.cells]) for label, strip in zip(labels, strips, strict=True)]
        for row, (label, images) in enumerate(rows):
            axes.text(-0.1, -row - 0.46, label, ha="right", va="center", color=ink.ink)
            for column, image in enumerate(images[:columns]):
                _place(axes, image, column, row)
        axes.set_xlim(0, columns)
        axes.set_ylim(-len(rows), 0)
        axes.set_axis_off()
        return ""

    size = (1.6 + 0.8 * columns, 0.4 + 0.8 * (1 + len(strips)))
    return Plot(name, text("figure.pictures"), draw, size)


def _place(axes: Any, picture: str | None, column: int, row: int) -> None:
    if picture is None:
        return
    values = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))))
    extent = (column, column + 0.92, -row - 0.92, -row)
    axes.imshow(values, extent=extent, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
