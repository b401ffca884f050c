"""Reports: reads the JSON of finished runs and writes one self-contained HTML page. Never imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from attncem.config.loading.languages import spoken

if TYPE_CHECKING:
    from rich.console import Console

    from attncem.records.audit import AuditResult
    from attncem.records.card import PrivacyCard
    from attncem.records.explanation import Explanation
    from attncem.records.prediction import PredictionResult
    from attncem.records.run_comparison import RunsComparison
    from attncem.reporting.notebook import Figures

__all__ = [
    "compare",
    "draw",
    "print_comparison",
    "print_explanation",
    "print_predictions",
    "print_summary",
    "privacy_card",
    "report",
    "summary_table",
]


class HasPath(Protocol):
    """Any object with the path of a run folder, such as a RunDirectory."""

    @property
    def path(self) -> Path: ...


def report(
    runs: Sequence[HasPath | str | Path] | HasPath | str | Path,
    out: str | Path = "report.html",
    *,
    csv: bool = False,
    now: datetime | None = None,
    lang: str | None = None,
) -> Path:
    """Write one self-contained HTML page about the runs and return its path.

    ``csv`` also writes the headline table next to the page; ``now`` replaces the time of generation. ``lang`` is the
    page's language, en or zh; None: ATTNCEM_LANG, or English.
    An existing file is replaced only if it is an older report; anything else is a RunError.
    """
    from attncem.reporting.html import write_report

    with spoken(lang):
        return write_report(_paths(runs), Path(out), csv=csv, now=now or datetime.now().astimezone())


def _paths(runs: Sequence[HasPath | str | Path] | HasPath | str | Path) -> list[Path]:
    items = list(runs) if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    return [Path(item) if isinstance(item, str | Path) else Path(item.path) for item in items]


def draw(runs: Sequence[HasPath | str | Path] | HasPath | str | Path, *, lang: str | None = None) -> Figures:
    """The figures of runs, or of a campaign folder, by name. A notebook displays them; each can be saved.

    ``draw(run)["trade-off"].save("trade-off.pdf")``; ``draw(run).save("figures")`` saves them all. ``lang``: their
    language, if a font for it is installed; otherwise English.
    """
    from attncem.reporting.fonts import drawable
    from attncem.reporting.notebook import draw_figures

    with spoken(lang), spoken(drawable()):
        return draw_figures(_paths(runs))


def compare(
    runs: Sequence[HasPath | str | Path],
    *,
    by: Sequence[str] = (),
    out: str | Path | None = None,
    now: datetime | None = None,
    lang: str | None = None,
) -> RunsComparison:
    """Compare runs: how their options differ, their numbers, and tests of the differences; ``out`` writes a page.

    Runs that differ only in the seed are seeds of one arm; with ``by``, runs that agree in these options are. Arms are
    tested over seeds. Single runs are compared on the same images. Each arm or run is compared with the first.
    ``lang`` is the language of titles and page.
    """
    from attncem.reporting.comparison.comparing import compare_runs
    from attncem.reporting.comparison.page import write_comparison

    with spoken(lang):
        found, views = compare_runs(_paths(runs), by)
        if out is not None:
            write_comparison(found, views, Path(out), now=now or datetime.now().astimezone())
    return found


def print_comparison(found: RunsComparison, console: Console, *, lang: str | None = None) -> None:
    """Print a comparison to a terminal."""
    from attncem.reporting.comparison.page import print_comparison as show

    with spoken(lang):
        show(found, console)


def privacy_card(
    run: HasPath | str | Path,
    out: str | Path | None = None,
    *,
    pictures: bool = True,
    now: datetime | None = None,
    lang: str | None = None,
) -> tuple[PrivacyCard, list[Path]]:
    """Write card.json, card.md and card.html about a run, or about audits of a foreign encoder, from its audits.

    ``out`` is the folder, by default RUN/card; older cards are replaced, anything else is a RunError. ``pictures``:
    card.html shows one evaluation image with its reconstruction. ``lang`` is the language of the returned card and of
    the pages; card.json is the same in every language.
    """
    from attncem.reporting.card import write_card

    source = Path(run) if isinstance(run, str | Path) else Path(run.path)
    with spoken(lang):
        folder = None if out is None else Path(out)
        return write_card(source, folder, now=now or datetime.now().astimezone(), pictures=pictures)


def summary_table(audits: Sequence[AuditResult]) -> list[dict[str, Any]]:
    """Rows of the headline table: one per audit, then the blind guesses, one row per audit where they differ."""
    from attncem.reporting.runs.tables import summary_table as build

    return build(audits)


def print_summary(
    audits: Sequence[AuditResult], console: Console, *, brief: bool = False, lang: str | None = None
) -> None:
    """Print the headline table and sentences to a terminal; ``brief``: without the numbers of single probes."""
    from attncem.reporting.runs.terminal import print_summary as show

    with spoken(lang):
        show(audits, console, brief=brief)


def print_predictions(result: PredictionResult, console: Console, *, lang: str | None = None) -> None:
    """Print labels, confidence and the data that left the device to a terminal."""
    from attncem.reporting.explain.page import print_predictions as show

    with spoken(lang):
        show(result, console)


def print_explanation(explanation: Explanation, console: Console, *, lang: str | None = None) -> None:
    """Print an explanation's findings to a terminal."""
    from attncem.reporting.explain.page import print_explanation as show

    with spoken(lang):
        show(explanation, console)
