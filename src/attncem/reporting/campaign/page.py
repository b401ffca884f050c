"""The report of a campaign: one self-contained page, its tables and its figures as files. Reads JSON only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from attncem import __version__
from attncem.base.texts import text
from attncem.base.types import RunError
from attncem.config.loading.languages import spoken
from attncem.records.campaign import State
from attncem.records.comparison import Comparison
from attncem.records.files import write_atomic
from attncem.records.study import ACCURACY, AuditKind
from attncem.reporting import html
from attncem.reporting.campaign import plots as drawn
from attncem.reporting.campaign import tables
from attncem.reporting.campaign.data import page_data
from attncem.reporting.campaign.load import ERRORS, MEASURES, CampaignView, Judged, load_campaign
from attncem.reporting.campaign.numbers import cautions, is_better, lost
from attncem.reporting.campaign.wall import walls
from attncem.reporting.figures import NUM_COLORS, Drawing
from attncem.reporting.fonts import drawable
from attncem.reporting.table_formats import FORMATS, Table

GENERATOR = "attncem-campaign"
READING = ("cell", "mean", "tests", "strongest", "front")
"""What is explained at the end of the page."""


def write_campaign_report(
    folder: Path | str,
    out: Path | str,
    *,
    reference: str | None = None,
    now: datetime | None = None,
    lang: str | None = None,
) -> Path:
    """Write the page about a campaign, finished or not, and return its path.

    ``reference`` is the arm that the others are tested against; None: the first one. The page can change it.
    An existing file is replaced only if it is an older report of a campaign. ``lang``: the page's language.
    """
    out = Path(out)
    html.refuse_foreign(out, f'content="{GENERATOR} ')
    with spoken(lang):
        view = load_campaign(Path(folder))
        context = page_context(view, _reference(view, reference), now or datetime.now().astimezone())
        html.write_page(out, html.render(context, "campaign.html.j2"))
    return out


def write_tables(folder: Path | str, out: Path | str, *, lang: str | None = None) -> list[Path]:
    """Write every table of a campaign into a folder, as CSV, Markdown and LaTeX; older ones are replaced.

    ``lang``: the language of Markdown and LaTeX; the columns of CSV have the same names in all.
    """
    with spoken(lang):
        found = all_tables(load_campaign(Path(folder)).study)
        made = [(f"{it.name}.{end}", write(it).encode()) for it in found for end, write in FORMATS.items()]
    return _write(Path(out), made)


def write_figures(folder: Path | str, out: Path | str, *, lang: str | None = None) -> list[Path]:
    """Write every figure of a campaign into a folder, as SVG and PDF; older ones are replaced.

    ``lang``: their language, where a font for it is installed; else they are in English.
    """
    with spoken(lang), spoken(drawable()):
        made = [item for plot in campaign_figures(folder) for item in drawn.files(plot)]
    return _write(Path(out), made)


def campaign_figures(folder: Path | str) -> list[drawn.Plot]:
    """Every figure of a campaign, to be drawn."""
    view = load_campaign(Path(folder))
    if view.study.kinds:
        return drawn.plots(view, view.study.kinds[0])
    return [*drawn.training_plots(view.study), *drawn.cloud_plots(view)]


def _write(out: Path, files: Sequence[tuple[str, bytes]]) -> list[Path]:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files:
            write_atomic(out / name, data)
    except OSError as error:
        raise RunError(f"{out}: cannot be written: {error.strerror or error}; choose another folder") from error
    return [out / name for name, _ in files]


def _reference(view: CampaignView, asked: str | None) -> str:
    names = view.study.names
    if asked is not None and asked not in names:
        raise RunError(f"{view.path} has no arm {asked}; it has {', '.join(names)}")
    return asked or next(iter(names), "")


def all_tables(study: Judged) -> list[Table]:
    """Every table that has rows; those that belong to one kind of audit are of the first kind, but for the headline."""
    found = [tables.headline(study, kind, headline_name(number)) for number, kind in enumerate(study.kinds)]
    found += [tables.cells(study), tables.attacks(study)]
    if study.kinds:
        lead = study.kinds[0]
        made = (tables.comparisons, tables.standings, tables.costs, tables.sensitivity, tables.classes)
        found += [make(study, lead) for make in made]
    return [table for table in [*found, tables.lacking(study)] if table.rows]


def headline_name(number: int) -> str:
    """The file of the headline of one kind of audit."""
    return "headline" if number == 0 else f"headline-{number + 1}"


# the page


def page_context(view: CampaignView, reference: str, now: datetime) -> dict[str, Any]:
    """Everything the template shows."""
    study = view.study
    made = {table.name: table for table in all_tables(study)}
    lead = study.kinds[0] if study.kinds else None
    return {
        "version": __version__,
        "generator": f"{GENERATOR} {__version__}",
        "generated": now.isoformat(sep=" ", timespec="seconds"),
        "view": view,
        "study": study,
        "plan": view.plan,
        "lead": lead,
        "reference": reference,
        "standing": standing(study),
        "counts": counts(study),
        "verdict": verdict(study, lead, reference),
        "cautions": cautions(study, lead) if lead else [],
        "tables": made,
        "headlines": [(kind, made[headline_name(n)], _marks(study, kind)) for n, kind in enumerate(study.kinds)],
        "measured": MEASURES,
        "trade_offs": _drawn(drawn.trade_offs(study, lead)[:1]) if lead else [],
        "errors": [(name, text(f"measure.{name}")) for name in ERRORS],
        "walls": walls(study, lead) if lead else [],
        "cost_plots": _drawn(drawn.cost_plots(study, lead)) if lead else [],
        "sensitivity": _sensitivity(study, lead) if lead else [],
        "heats": tables.heats(study, lead) if lead else [],
        "risks": risks(made.get("classes")),
        "training": _drawn(drawn.training_plots(study)),
        "data": page_data(view, list(made.values())),
        "formats": list(FORMATS),
        "reading": READING,
        "num_colors": NUM_COLORS,
    }


def _sensitivity(study: Judged, kind: AuditKind) -> list[tuple[str, list[Drawing]]]:
    return [(option, _drawn(drawn.sensitivity_plots(study, kind, [option]))) for option in study.options]


def _drawn(plots: Sequence[drawn.Plot]) -> list[Drawing]:
    return [drawn.inline(plot) for plot in plots]


def counts(study: Judged) -> list[tuple[State, int]]:
    """How many cells are in each state, those that occur."""
    found = Counter(cell.state for cell in study.cells)
    return [(state, found[state]) for state in reversed(get_args(State)) if found[state]]


def standing(study: Judged) -> str:
    """How far the campaign is, in one sentence."""
    found = Counter(cell.state for cell in study.cells)
    total, done, failed = len(study.cells), found["done"], found["failed"]
    if done == total:
        return text("arms.how_far.whole", total=total)
    return text("arms.how_far.part", done=done, total=total, failed=failed, missing=total - done - failed)


def _marks(study: Judged, kind: AuditKind) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What every test says about an arm and a measure, one for each reference arm; lost arms are never praised."""
    useless = lost(study, kind)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for arm in study.names:
        for place, item in study.against(arm, kind, MEASURES).items():
            tone = "" if place[0] in useless and item.measure != ACCURACY else _tone(item)
            found.setdefault(place, []).append({"reference": arm, "said": short_verdict(item), "tone": tone})
    return found


def short_verdict(item: Comparison) -> str:
    """A test's answer in a few words."""
    if item.adjusted_p is None:
        return text("arms.mark.too_few_seeds")
    return text(f"arms.mark.{item.verdict}", p=f"{item.adjusted_p:.3f}")


def _tone(item: Comparison) -> str:
    better = is_better(item)
    return "" if better is None else "yes" if better else "no"


def verdict(study: Judged, kind: AuditKind | None, reference: str) -> list[str]:
    """What the campaign shows, in a few sentences: the front, and what the tests could tell."""
    if not kind:
        return [text("arms.verdict.nothing")]
    points, useless = study.front("mse", kind), lost(study, kind)
    said = []
    for place in ("surely", "possibly"):
        labels = [label for label, point in points.items() if point.standing == place and label not in useless]
        if labels:
            said.append(text(f"arms.verdict.front.{place}", arms=_listed(labels)))
    if useless:
        said.append(text("arms.verdict.lost", arms=_listed([label for label in points if label in useless])))
    made = study.against(reference, kind, MEASURES)
    if made:
        shown = sum(is_better(item) is not None for item in made.values())
        few = sum(item.verdict == "too_few_seeds" for item in made.values())
        said.append(text("arms.verdict.tests", count=len(made), reference=reference, shown=shown))
        if few:
            said.append(text("arms.verdict.few", count=few))
    return said


_NAMED = 6
"""Arms that a sentence names at most."""


def _listed(labels: Sequence[str]) -> str:
    rest = len(labels) - _NAMED
    named = ", ".join(labels[:_NAMED])
    return named if rest <= 0 else text("arms.and_more", named=named, count=rest)


def risks(table: Table | None) -> dict[str, Any] | None:
    """The classes table as a matrix: arms down, classes across; with many classes the most exposed of each alone."""
    if table is None:
        return None
    arms: dict[str, dict[str, Any]] = {}
    for arm, name, error, *_ in table.rows:
        own = arms.setdefault(arm.shown, {"color": arm.color, "items": {}})
        own["items"][name.shown] = error
    names = list(dict.fromkeys(name for own in arms.values() for name in own["items"]))
    values = [item.value for own in arms.values() for item in own["items"].values()]
    low, span = min(values), max(max(values) - min(values), 1e-12)
    many = len(names) > tables.MANY_CLASSES
    return {"arms": arms, "names": names, "many": many, "shade": lambda item: 1 - (item.value - low) / span}
