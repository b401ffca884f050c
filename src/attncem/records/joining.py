"""From the rows of an audit to its result: which attack is the strongest, and what a reader must know first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attncem.records.audit import AuditPlan, AuditResult, Row, Score
from attncem.records.averaging import Averaging
from attncem.records.certificates import certificate_findings
from attncem.records.findings import Finding, finding, unique

NEAR_CHANCE = 1.5
"""Accuracy below this many times chance says that nothing was learned."""
FAR_BELOW = 0.6
"""Accuracy below this part of the undefended model's says that it was given up. Loose on purpose, as the reference is
one network's: defences that we measured on CIFAR-10 keep 0.93 of it, documents 002 and 003 kept 0.2 to 0.3."""
FEW_IMAGES = 1000
"""Fewer evaluation images than this are too few to compare models by."""
FEW_AUXILIARY = 0.25
"""An attacker with less than this part of the victim's images is called starved."""


@dataclass(frozen=True)
class Undefended:
    """Test accuracy on a data set of a model that nothing penalises."""

    accuracy: float
    architecture: str
    source: str
    """The committed file that it was measured into."""


UNDEFENDED: dict[str, Undefended] = {
    "cifar10": Undefended(0.9001, "vgg11_bn", "results/undefended_cifar10.json"),
    "fashion_mnist_mini": Undefended(0.875, "small_cnn", "results/demo.csv"),
}
"""Undefended references by data set, of one network each; of the others none was measured, no audit of them is compared
with any, and reports say so."""


def join(
    plan: AuditPlan,
    rows: Sequence[Row],
    errors: Mapping[str, float],
    folder: str = "",
    averaging: Sequence[Averaging] = (),
) -> AuditResult:
    """The rows as one result; ``errors`` are mean errors on the images that all rows share, by row."""
    ordered = [row for name in plan.rows for row in rows if row.name == name]
    leads = {sight: strongest(ordered, errors, sight) for sight in sorted({row.sight for row in ordered}, key=_calm)}
    own = leads.get((plan.threat.releases_per_input, plan.threat.jitter), "")
    found = AuditResult(plan, ordered, own, [], folder, [name for name in leads.values() if name], list(averaging))
    return replace(found, findings=unique(_findings(found)))


def _calm(sight: tuple[int, int]) -> tuple[int, int]:
    """Without jitter first, then by the number of releases."""
    return sight[1], sight[0]


def strongest(rows: Sequence[Row], errors: Mapping[str, float], sight: tuple[int, int]) -> str:
    """The attack or floor with the lowest error among those that saw as much (releases, jitter); empty: none."""
    judged = [row for row in rows if row.ok and row.kind in ("floor", "attack") and row.sight == sight]
    return min(judged, key=lambda row: errors[row.name]).name if judged else ""


def bases(plan: AuditPlan, rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Attacks that saw other releases than the threat model grants, each with the row that asks the same within it."""
    sight = plan.threat.releases_per_input, plan.threat.jitter
    judged = [row for row in rows if row.ok and row.kind == "attack"]
    own = {row.question: row for row in reversed(judged) if row.sight == sight}
    others = sorted((row for row in judged if row.sight != sight), key=lambda row: _calm(row.sight))
    return [(row, own[row.question]) for row in others if row.question in own]


def _findings(result: AuditResult) -> list[Finding]:
    plan = result.plan
    found = [item for row in result.rows for item in (*row.findings, *_of_row(row, result.attacks))]
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
    return [*found, *_of_averaging(result), *_of_plan(plan), *_of_accuracy(plan), *plan.findings]


def _of_plan(plan: AuditPlan) -> list[Finding]:
    """That few images judge, and that the client does most of the work."""
    found, subject = list[Finding](), plan.subject
    if plan.num_evaluation < FEW_IMAGES:
        found.append(finding("few_images", count=plan.num_evaluation, wanted=FEW_IMAGES))
    if subject.client_macs is not None and 0 < subject.server_macs < subject.client_macs:
        found.append(finding("client_heavier", client=subject.client_macs, server=subject.server_macs))
    return found


def _of_averaging(result: AuditResult) -> list[Finding]:
    """That asking again tells more: by how much at most, and where only images that are not quite the same do."""
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
    """That the model has lost its use: it hardly beats guessing, or is far below what it would be undefended."""
    if plan.accuracy is None:
        return []
    accuracy = 100 * plan.accuracy.mean
    if is_near_chance(plan.accuracy, plan.subject.num_classes):
        return [finding("near_chance", accuracy=accuracy)]
    if is_far_below(plan.accuracy, plan.subject.dataset):
        known = UNDEFENDED[plan.subject.dataset]
        return [finding("far_below_undefended", accuracy=accuracy, known=100 * known.accuracy, source=known.source)]
    return []


def _has_attacks(result: AuditResult) -> bool:
    return any(row.kind == "attack" for row in result.attacks)


def is_near_chance(accuracy: Score, num_classes: int) -> bool:
    """Whether the model hardly beats guessing."""
    return accuracy.mean < NEAR_CHANCE / num_classes


def is_far_below(accuracy: Score, dataset: str) -> bool:
    """Whether the accuracy was given up against the undefended model's; not where that is not known."""
    known = UNDEFENDED.get(dataset)
    return known is not None and accuracy.mean < FAR_BELOW * known.accuracy


def _of_row(row: Row, judged: Sequence[Row]) -> list[Finding]:
    """What a row's outcome, or its place among the others, says about it."""
    if row.kind == "certificate" and row.outcome == "not_applicable":  # told where certificates are shown
        return []
    if row.outcome != "ok":
        return [finding(f"row_{row.outcome}", row.name, reason=row.why)]
    rivals = [other for other in judged if other.method in row.must_beat and other.sight == row.sight]
    beaten_by = [other for other in rivals if other.mse.mean < row.mse.mean]
    return [*(finding("loses_to", row.name, other=other.name) for other in beaten_by[:1]), *_of_aim(row, judged)]


def _of_images(row: Row, plan: AuditPlan) -> list[Finding]:
    """That it was asked about few images where the audit has more; that the audit has few is told once."""
    few = row.ok and row.kind != "certificate" and row.num_images < min(FEW_IMAGES, plan.num_evaluation)
    return [finding("few_images", row.name, count=row.num_images, wanted=FEW_IMAGES)] if few else []


def _of_aim(row: Row, judged: Sequence[Row]) -> list[Finding]:
    """That it was trained for something else than the MSE it is ranked by, and nothing like it for the MSE."""
    alike = [other for other in judged if other.method == row.method and other.options.get("loss") == "mse"]
    loss = row.options.get("loss", "mse")
    return [] if loss == "mse" or alike else [finding("other_aim", row.name, loss=loss)]
