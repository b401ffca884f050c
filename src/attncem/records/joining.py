"""Joins the rows of an audit into its result: the strongest attack, and the findings that a reader must know first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attncem.records.audit import AuditPlan, AuditResult, Row, Subject
from attncem.records.averaging import Averaging
from attncem.records.certificates import certificate_findings
from attncem.records.findings import Finding, finding, unique
from attncem.records.judge import judge
from attncem.records.rivals import Rival, are_level
from attncem.records.score import Score
from attncem.records.sending import sending_findings

NEAR_CHANCE = 1.5
"""An accuracy below this multiple of chance means that nothing was learned."""
FAR_BELOW = 0.6
"""An accuracy below this fraction of the undefended model's means that utility was lost. Loose on purpose, as the
reference is one network: defences that we measured on CIFAR-10 keep 0.93 of it, documents 002 and 003 0.2 to 0.3."""
FEW_IMAGES = 1000
"""A comparison of models needs at least this many evaluation images."""
FEW_AUXILIARY = 0.25
"""An attacker with less than this fraction of the victim's images is called starved."""


@dataclass(frozen=True)
class Undefended:
    """Test accuracy of a model without any penalty on a data set."""

    accuracy: float
    architecture: str
    source: str
    """The committed file with the measurement."""


UNDEFENDED: dict[str, Undefended] = {
    "cifar10": Undefended(0.9001, "vgg11_bn", "results/undefended_cifar10.json"),
    "fashion_mnist_mini": Undefended(0.879, "small_cnn", "results/demo.csv"),
}
"""Undefended references by data set, of one network each. Other data sets have no measured reference: their audits are
compared with none, and reports say so."""


def join(
    plan: AuditPlan,
    rows: Sequence[Row],
    errors: Mapping[str, float],
    folder: str = "",
    averaging: Sequence[Averaging] = (),
    rivals: Sequence[Rival] = (),
) -> AuditResult:
    """The rows as one result; ``errors`` are mean errors on the images that all rows share, by row."""
    ordered = [row for name in plan.rows for row in rows if row.name == name]
    leads = {sight: strongest(ordered, errors, sight) for sight in sorted({row.sight for row in ordered}, key=_calm)}
    own = leads.get((plan.threat.releases_per_input, plan.threat.jitter), "")
    leaders = [name for name in leads.values() if name]
    found = AuditResult(plan, ordered, own, [], folder, leaders, list(averaging), rivals=list(rivals))
    return replace(found, findings=unique(_findings(found)), judgement=judge(found))


def _calm(sight: tuple[int, int]) -> tuple[int, int]:
    """Sort key: without jitter first, then by the number of releases."""
    return sight[1], sight[0]


def strongest(rows: Sequence[Row], errors: Mapping[str, float], sight: tuple[int, int]) -> str:
    """The attack or floor with the lowest error among rows with these releases and jitter; empty: none."""
    judged = [row for row in rows if row.ok and row.kind in ("floor", "attack") and row.sight == sight]
    return min(judged, key=lambda row: errors[row.name]).name if judged else ""


def bases(plan: AuditPlan, rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Attacks with other releases than the threat model grants, each with the same attack within the threat model."""
    sight = plan.threat.releases_per_input, plan.threat.jitter
    judged = [row for row in rows if row.ok and row.kind == "attack"]
    own = {row.question: row for row in reversed(judged) if row.sight == sight}
    others = sorted((row for row in judged if row.sight != sight), key=lambda row: _calm(row.sight))
    return [(row, own[row.question]) for row in others if row.question in own]


def losing(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Attacks with a larger mean error than one that they must beat and that saw as much, with that one."""
    judged = [row for row in rows if row.ok and row.kind in ("floor", "attack")]
    return [
        (row, other)
        for row in judged
        for other in judged
        if other.method in row.must_beat and other.sight == row.sight and other.mse.mean < row.mse.mean
    ]


def _findings(result: AuditResult) -> list[Finding]:
    plan = result.plan
    found = [item for row in result.rows for item in (*row.findings, *_of_row(row, result))]
    found += [item for row in result.rows for item in _of_images(row, plan)]
    found += certificate_findings(result)
    if result.strongest and result.strongest_attack.kind == "floor" and _has_attacks(result):
        found.append(finding("no_attack_beats_floor", floor=result.strongest))
    if plan.changed:
        found.append(finding("suite_changed", changed=", ".join(plan.changed)))
    waiting = [name for name in result.missing if name not in {row.name for row in result.rows}]
    if waiting:
        found.append(finding("rows_missing", rows=", ".join(waiting)))
    if 0 < plan.num_auxiliary < FEW_AUXILIARY * plan.num_train:
        found.append(finding("starved_attacker", owned=plan.num_auxiliary, trained=plan.num_train))
    found += [*_of_averaging(result), *_of_plan(plan), *_of_accuracy(plan)]
    return [*found, *sending_findings(plan), *plan.findings]


def _of_plan(plan: AuditPlan) -> list[Finding]:
    """Findings on too few evaluation images, and on a client with most of the work."""
    found, subject = list[Finding](), plan.subject
    if plan.num_evaluation < FEW_IMAGES:
        found.append(finding("few_images", count=plan.num_evaluation, wanted=FEW_IMAGES))
    if subject.client_macs is not None and 0 < subject.server_macs < subject.client_macs:
        found.append(finding("client_heavier", client=subject.client_macs, server=subject.server_macs))
    return found


def _of_averaging(result: AuditResult) -> list[Finding]:
    """A finding where repeated releases lower the error: the largest gain, or that only jittered images give one."""
    still = [item for item in result.averaging if item.helps and item.jitter == result.plan.threat.jitter]
    moved = [item for item in result.averaging if item.helps and item.jitter != result.plan.threat.jitter]
    best = max(still or moved, key=lambda item: item.gain, default=None)
    if best is None:
        return []
    gain = {"releases": best.releases, "gain": 100 * best.gain, "base": best.base}
    if still:
        return [finding("averaging_helps", best.row, **gain)]
    return [finding("jitter_helps", best.row, jitter=best.jitter, **gain)]


def _of_accuracy(plan: AuditPlan) -> list[Finding]:
    """A finding where the model lost its utility: it is near chance, or far below the undefended accuracy."""
    if plan.accuracy is None:
        return []
    accuracy = 100 * plan.accuracy.mean
    if is_near_chance(plan.accuracy, plan.subject.num_classes):
        return [finding("near_chance", accuracy=accuracy)]
    if is_far_below(plan.accuracy, plan.subject):
        known = UNDEFENDED[plan.subject.dataset]
        return [finding("far_below_undefended", accuracy=accuracy, known=100 * known.accuracy, source=known.source)]
    return []


def _has_attacks(result: AuditResult) -> bool:
    return any(row.kind == "attack" for row in result.attacks)


def is_near_chance(accuracy: Score, num_classes: int) -> bool:
    """Whether the model is hardly better than guessing."""
    return accuracy.mean < NEAR_CHANCE / num_classes


def is_far_below(accuracy: Score, subject: Subject) -> bool:
    """Whether the accuracy is far below the undefended model's; False where that is unknown, as for part of a set."""
    known = None if subject.images_per_class else UNDEFENDED.get(subject.dataset)
    return known is not None and accuracy.mean < FAR_BELOW * known.accuracy


def _of_row(row: Row, result: AuditResult) -> list[Finding]:
    """Findings from the outcome of a row and from its rank among the others."""
    if row.kind == "certificate" and row.outcome == "not_applicable":  # shown with the certificates
        return []
    if row.outcome != "ok":
        return [finding(f"row_{row.outcome}", row.name, reason=row.why)]
    ahead = [other for one, other in losing(result.attacks) if one is row and other.owns == row.owns]
    beaten_by = [other for other in ahead if not are_level(result.rivals, row.name, other.name)]
    lost = [finding("loses_to", row.name, other=other.name) for other in beaten_by[:1]]
    return [*lost, *_of_aim(row, result.attacks)]


def _of_images(row: Row, plan: AuditPlan) -> list[Finding]:
    """A finding where the row used few images and the audit has more; few images in the audit are reported once."""
    few = row.ok and row.kind != "certificate" and row.num_images < min(FEW_IMAGES, plan.num_evaluation)
    return [finding("few_images", row.name, count=row.num_images, wanted=FEW_IMAGES)] if few else []


def _of_aim(row: Row, judged: Sequence[Row]) -> list[Finding]:
    """A finding where the loss is not the MSE that ranks attacks, and no row of the same method trains on the MSE."""
    alike = [other for other in judged if other.method == row.method and other.options.get("loss") == "mse"]
    loss = row.options.get("loss", "mse")
    return [] if loss == "mse" or alike else [finding("other_aim", row.name, loss=loss)]
