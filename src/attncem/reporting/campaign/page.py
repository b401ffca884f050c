"""The report of a campaign: one self-contained page, its tables and its figures as files. Reads JSON only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from attncem import __version__
from attncem.base.texts import joined, text
from attncem.base.types import RunError
from attncem.config.loading.languages import spoken
from attncem.records.audit import AuditResult
from attncem.records.campaign import State
from attncem.records.comparison import Comparison
from attncem.records.files import write_atomic
from attncem.records.findings import unique
from attncem.records.study import ACCURACY, AuditKind
from attncem.records.study.equal import is_better
from attncem.reporting import html, on_device
from attncem.reporting.campaign import nats, plots, sending, tables
from attncem.reporting.campaign.answers import NAMED, answers, picture_row
from attncem.reporting.campaign.data import page_data, walls
from attncem.reporting.campaign.load import ERRORS, CampaignView, Judged, compared, load_campaign, lost
from attncem.reporting.figures import NUM_COLORS
from attncem.reporting.fonts import drawable
from attncem.reporting.runs.health import comparison_findings
from attncem.reporting.table_formats import FORMATS, Table

GENERATOR = "attncem-campaign"
READING = ("cell", "mean", "tests", "strongest", "front")
"""Topics that the end of the page explains."""
_NAMED = 6
"""Maximum number of arms that a sentence names."""


def write_campaign_report(
    folder: Path | str,
    out: Path | str,
    *,
    reference: str | None = None,
    now: datetime | None = None,
    lang: str | None = None,
) -> Path:
    """Write the page about a campaign, finished or not, and return its path.

    ``reference`` is the arm that the others are tested against; None: the first one. The reader can change it on the
    page. An existing file is replaced only if it is an older report of a campaign. ``lang``: the page's language.
    """
    out = Path(out)
    html.refuse_foreign(out, f'content="{GENERATOR} ')
    with spoken(lang):
        view = load_campaign(Path(folder))
        names = view.study.names
        if reference is not None and reference not in names:
            raise RunError(f"{view.path} has no arm {reference}; it has {', '.join(names)}")
        context = page_context(view, reference or next(iter(names), ""), now or datetime.now().astimezone())
        html.write_page(out, html.render(context, "campaign.html.j2"))
    return out


def write_tables(folder: Path | str, out: Path | str, *, lang: str | None = None) -> list[Path]:
    """Write every table of a campaign into a folder, as CSV, Markdown and LaTeX; older ones are replaced.

    ``lang``: the language of Markdown and LaTeX; CSV column names are the same in every language.
    """
    with spoken(lang):
        made = all_tables(load_campaign(Path(folder)).study)
        files = [(f"{it.name}.{end}", write(it).encode()) for it in made for end, write in FORMATS.items()]
    return _write(Path(out), files)


def write_figures(folder: Path | str, out: Path | str, *, lang: str | None = None) -> list[Path]:
    """Write every figure of a campaign into a folder, as SVG and PDF; older ones are replaced.

    ``lang``: their language, if a font for it is installed; otherwise English.
    """
    with spoken(lang), spoken(drawable()):
        files = [file for plot in campaign_figures(folder) for file in plots.files(plot)]
    return _write(Path(out), files)


def campaign_figures(folder: Path | str) -> list[plots.Plot]:
    """Every figure of a campaign, not yet drawn."""
    view = load_campaign(Path(folder))
    lead = view.study.kinds[0] if view.study.kinds else None
    return [*plots.plots(view, lead), *nats.figures(view.study, lead), *sending.figures(view.study, lead)]


def _write(out: Path, files: Sequence[tuple[str, bytes]]) -> list[Path]:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files:
            write_atomic(out / name, data)
    except OSError as error:
        raise RunError(f"{out}: cannot be written: {error.strerror or error}; choose another folder") from error
    return [out / name for name, _ in files]


def all_tables(study: Judged) -> list[Table]:
    """Every table that has rows: a headline per kind of audit; other tables of one kind show the first kind."""
    names = ("headline" if number == 1 else f"headline-{number}" for number, _ in enumerate(study.kinds, 1))
    made = [tables.headline(study, kind, name) for kind, name in zip(study.kinds, names, strict=True)]
    made += [tables.cells(study), tables.attacks(study)]
    for kind in study.kinds[:1]:
        of_kind = (tables.comparisons, tables.standings, tables.costs, tables.sensitivity, tables.classes, nats.ranking)
        made += [make(study, kind) for make in (*of_kind, sending.share_table)]
    return [table for table in [*made, tables.lacking(study)] if table.rows]


# the page


def page_context(view: CampaignView, reference: str, now: datetime) -> dict[str, Any]:
    """The template's variables."""
    study = view.study
    made = all_tables(study)
    lead = study.kinds[0] if study.kinds else None
    states = Counter(cell.state for cell in study.cells)
    return {
        "version": __version__,
        "generator": f"{GENERATOR} {__version__}",
        "generated": now.isoformat(sep=" ", timespec="seconds"),
        "view": view,
        "study": study,
        "plan": view.plan,
        "lead": lead,
        "reference": reference,
        "standing": standing(states, sum(cell.unfinished for cell in study.cells)),
        "counts": [(state, states[state]) for state in reversed(get_args(State)) if states[state]],
        "verdict": verdict(study, lead, reference),
        "tables": {table.name: table for table in made},
        "headlines": [(kind, table, _marks(study, kind)) for kind, table in zip(study.kinds, made, strict=False)],
        "measured": (ACCURACY, *ERRORS),
        "errors": [(name, text(f"measure.{name}")) for name in ERRORS],
        "training": list(map(plots.inline, plots.training_plots(study))),
        "data": page_data(view, made),
        "formats": list(FORMATS),
        "reading": READING,
        "num_colors": NUM_COLORS,
    } | _of_kind(study, lead, made)


def _of_kind(study: Judged, kind: AuditKind | None, made: Sequence[Table]) -> dict[str, Any]:
    """The template's variables for the leading kind of audit; empty where there is no audit."""
    if kind is None:
        lists = ("answers", "cautions", "trade_offs", "walls", "cost_plots", "sensitivity", "heats", "risks", "nats")
        return dict.fromkeys((*lists, "alone", "sending"), ()) | {
            "pictured": None,
            "unmeasured": "",
            "alone_unknown": "",
        }
    hung, alone = walls(study, kind), on_device.of_campaign(study, kind)
    return {
        "alone": [(label, it.sentence) for label, it in alone.items()],
        "alone_unknown": "" if alone else text("on_device.campaign.unknown"),
        "answers": [(name, of[:NAMED], of[NAMED:]) for name in study.names if (of := answers(study, kind, name))],
        "pictured": picture_row(hung),
        "cautions": [*cautions(study, kind), *_not_worth_it(alone), *nats.warnings(study, kind)],
        "nats": nats.drawings(study, kind),
        "sending": sending.drawings(study, kind),
        "unmeasured": nats.unmeasured(study, kind),
        "trade_offs": [plots.inline(plot) for plot in plots.trade_offs(study, kind)[:1]],
        "walls": hung,
        "cost_plots": [plots.inline(plot) for plot in plots.cost_plots(study, kind)],
        "sensitivity": [
            (option, [plots.inline(plot) for plot in plots.sensitivity_plots(study, kind, [option])])
            for option in study.options
        ],
        "heats": tables.heat_tables(study, kind),
        "risks": next((risks(table) for table in made if table.name == "classes"), None),
    }


def _not_worth_it(alone: Mapping[str, on_device.Alone]) -> list[str]:
    """A sentence for each arm that is not better than its client alone."""
    return [text("said.about", about=label, said=it.text) for label, one in alone.items() for it in one.findings]


def cautions(study: Judged, kind: AuditKind) -> list[str]:
    """Reasons not to compare arms: different images, suites or devices within the same seed."""
    by_seed: dict[int, list[AuditResult]] = {}
    for _, cell, audit in study.pairs(kind):
        by_seed.setdefault(cell.seed, []).append(audit)
    findings = [item for audits in by_seed.values() for item in comparison_findings(audits)]
    return [item.text for item in unique(findings)]


def standing(states: Counter[State], unfinished: int = 0) -> str:
    """The campaign's progress, in a sentence, and the number of audits that lack rows, which do not count."""
    if unfinished:
        return joined([standing(states), text("arms.how_far.unfinished", count=unfinished)])
    total, done, failed = states.total(), states["done"], states["failed"]
    if done == total:
        return text("arms.how_far.whole", total=total)
    return text("arms.how_far.part", done=done, total=total, failed=failed, missing=total - done - failed)


def _marks(study: Judged, kind: AuditKind) -> dict[tuple[str, str], list[dict[str, str]]]:
    """Test results by arm and measure, one per reference; an arm that lost its utility is never marked as better."""
    useless = lost(study, kind)
    tones = {True: "yes", False: "no", None: ""}
    marks: dict[tuple[str, str], list[dict[str, str]]] = {}
    for reference in study.names:
        for (label, measure), test in study.against(reference, kind, compared(study, kind)).items():
            tone = "" if label in useless and measure != ACCURACY else tones[is_better(test)]
            mark = {"reference": reference, "said": short_verdict(test), "tone": tone}
            marks.setdefault((label, measure), []).append(mark)
    return marks


def short_verdict(item: Comparison) -> str:
    """A test's verdict in a few words."""
    if item.adjusted_p is None:
        return text("arms.mark.too_few_seeds")
    return text(f"arms.mark.{item.verdict}", p=f"{item.adjusted_p:.3f}")


def verdict(study: Judged, kind: AuditKind | None, reference: str) -> list[str]:
    """The campaign's result in a few sentences: the front, and the number of tests that show a difference."""
    if not kind:
        return [text("arms.verdict.nothing")]
    points, useless = study.front("mse", kind), lost(study, kind)
    sentences = []
    for place in ("surely", "possibly"):
        labels = [label for label, point in points.items() if point.standing == place and label not in useless]
        if labels:
            sentences.append(text(f"arms.verdict.front.{place}", arms=_listed(labels)))
    if useless:
        sentences.append(text("arms.verdict.lost", arms=_listed([label for label in points if label in useless])))
    if leak := nats.smallest(study, kind):
        sentences.append(leak)
    tests = study.against(reference, kind, compared(study, kind)).values()
    if tests:
        shown = sum(test.verdict in ("a_higher", "b_higher") for test in tests)
        sentences.append(text("arms.verdict.tests", count=len(tests), reference=reference, shown=shown))
    if few := sum(test.verdict == "too_few_seeds" for test in tests):
        sentences.append(text("arms.verdict.few", count=few))
    return sentences


def _listed(labels: Sequence[str]) -> str:
    rest = len(labels) - _NAMED
    named = ", ".join(labels[:_NAMED])
    return named if rest <= 0 else text("arms.and_more", named=named, count=rest)


def risks(table: Table) -> dict[str, Any]:
    """The classes table as a matrix (arms × classes); with ``many`` classes, the page shows only the table."""
    arms: dict[str, dict[str, Any]] = {}
    for arm, name, error, *_ in table.rows:
        arms.setdefault(arm.shown, {"color": arm.color, "items": {}})["items"][name.shown] = error
    names = list(dict.fromkeys(name.shown for _, name, *_ in table.rows))
    values = [error.value for _, _, error, *_ in table.rows]
    low, span = min(values), max(max(values) - min(values), 1e-12)
    many = len(names) > tables.MANY_CLASSES
    return {"arms": arms, "names": names, "many": many, "shade": lambda item: 1 - (item.value - low) / span}
