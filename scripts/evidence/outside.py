"""What a leak costs on the demo's models: adversaries with few images, few answers, or pictures from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attncem.config.threats import THREATS
from attncem.records.campaign_table import AskedAudit, CampaignTable, CellAudit, CellResult
from attncem.records.study import ACCURACY
from evidence.source import Source
from evidence.words import table

CAMPAIGN = "outside-demo"
_STATES = {"reliable": "", "not_reliable": " (not reliable)", "not_enough": " (not enough to tell)"}


def outside_table(source: Source) -> str:
    """The strongest attack of every adversary on every model: its MSE, and how often an image is found again."""
    made = source.table(CAMPAIGN)
    if made is None:
        return "Not measured yet."
    arms = [cell.arm for cell in made.cells]
    head = [
        "adversary",
        "own pictures",
        "answers",
        *(f"{arm}: MSE" for arm in arms),
        *(f"{arm}: found again %" for arm in arms),
    ]
    lines = [
        [_adversary(asked), _owned(asked), _answers(asked), *_each(made, place, _error), *_each(made, place, _again)]
        for place, asked in enumerate(made.audits)
    ]
    return table(head, lines, left=3)


def _each(made: CampaignTable, place: int, write: Callable[[CellAudit], str]) -> Sequence[str]:
    return [write(cell.audits[place]) for cell in made.cells]


def _error(audit: CellAudit) -> str:
    score = audit.score("mse")
    return "" if score is None else f"{score.mean:.4f}{_STATES[audit.state]}"


def _again(audit: CellAudit) -> str:
    row = (audit.probes or {}).get("re-identification", {}).get("rank_1")
    return "" if row is None else f"{100 * row[0]:.1f}"


def _adversary(asked: AskedAudit) -> str:
    threat = asked.adversary or THREATS[asked.threat or "train"]
    if threat.pictures is not None:
        return f"`{threat.base}`, pictures of {threat.pictures.name}"
    return f"`{threat.base}`"


def _owned(asked: AskedAudit) -> str:
    threat = asked.adversary
    if threat is None or (threat.images is None and threat.pictures is None):
        return "all"
    return f"{threat.pictures.count if threat.pictures else threat.images:,}"


def _answers(asked: AskedAudit) -> str:
    threat = asked.adversary or THREATS[asked.threat or "train"]
    if threat.knows_encoder:
        return "not needed"
    return "any number" if threat.queries is None and threat.may_query else f"{threat.queries or 0:,}"


def labels(source: Source) -> str:
    """What a few labels of each class tell, beside the server."""
    made = source.table(CAMPAIGN)
    if made is None:
        return "Not measured yet."
    lines = []
    for cell in made.cells:
        audit = cell.audits[0]
        row, accuracy = (audit.probes or {})["label leakage"], audit.score(ACCURACY)
        assert accuracy is not None
        few = ", ".join(f"{100 * row[f'accuracy@{count}'][0]:.1f} % with {count}" for count in (1, 4, 16, 40))
        lines.append(
            f"- Labels, {cell.arm}: {few} labelled releases of each class; the server: {100 * accuracy.mean:.1f} %."
        )
    return "\n".join(lines)


DOUBTS = "doubts-demo"


def doubts_table(source: Source, campaign: str = DOUBTS) -> str:
    """The error of every attack beyond a suite on each model, the strongest of each audit in bold; then the probes."""
    made = source.table(campaign)
    if made is None:
        return "Not measured yet."
    head = ["row", *(f"{cell.arm}: MSE" for cell in made.cells)]
    lines = [
        [f"{row}{_LISTENS.get(asked.threat or '', '')}", *(_strength(cell.audits[place], row) for cell in made.cells)]
        for place, asked in enumerate(made.audits)
        for row in made.cells[0].audits[place].attacks or {}
    ]
    return table(head, lines) + "\n\n" + "\n".join(line for cell in made.cells for line in _probed(cell))


_LISTENS = {"no_access": ", who only listens"}


def _strength(audit: CellAudit, row: str) -> str:
    shown = f"{(audit.attacks or {})[row]['mse'][0]:.4f}"
    return f"**{shown}**" if row == audit.strongest else shown


def _probed(cell: CellResult) -> Iterator[str]:
    """What the probes of a model say: clusters, and membership where it was measured."""
    probes = {name: row for audit in cell.audits for name, row in (audit.probes or {}).items()}
    shares = " and ".join(f"{100 * probes['clustering'][f'{way}_accuracy'][0]:.1f} %" for way in ("kmeans", "mixture"))
    yield f"- Clusters without labels, {cell.arm}: {shares} right after matching (k-means, mixture)."
    if area := probes.get("membership", {}).get("auc"):
        yield f"- Membership, {cell.arm}: AUC {area[0]:.2f} ({area[1]:.2f} to {area[2]:.2f}; chance 0.5)."


def every_row(source: Source, campaign: str) -> str:
    """The error of every attack of every adversary on each model."""
    made = source.table(campaign)
    if made is None:
        return "Not measured yet."
    lines = [
        [_adversary(asked), _owned(asked), _answers(asked), row, *_each(made, place, partial(_error_of, row))]
        for place, asked in enumerate(made.audits)
        for row in made.cells[0].audits[place].attacks or {}
    ]
    head = ["adversary", "own pictures", "answers", "row", *(f"{cell.arm}: MSE" for cell in made.cells)]
    return table(head, lines, left=4)


def _error_of(row: str, audit: CellAudit) -> str:
    """The error of a row, with a note where it had not converged."""
    scores = (audit.attacks or {})[row]
    return f"{scores['mse'][0]:.4f}{'' if scores['reliable'] else ' (not converged)'}"
