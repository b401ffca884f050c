"""Identity of audits: `AuditKey` within a run, `AuditKind` over the seeds of an arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from attncem.base.texts import text
from attncem.base.texts.titles import images_title, threat_title
from attncem.config.threats import ThreatModel
from attncem.records.audit import AuditPlan

T = TypeVar("T")


class AuditKey(NamedTuple):
    """The only definition of "the same audit": the judged model, the images, the adversary and the seed.

    ``threat`` holds every field of the threat model, including releases and the attacker's images. Suite, version and
    changed options belong to rows: audits of several suites with one key can be joined.
    """

    fingerprint: str
    weights: str
    images: str
    threat: str
    seed: int

    @classmethod
    def of(cls, plan: AuditPlan) -> AuditKey:
        """The key of an audit."""
        subject = plan.subject
        images = f"{plan.evaluation} {subject.data_sha256}"
        return cls(subject.fingerprint, subject.weights, images, repr(plan.threat), plan.seed)


@dataclass(frozen=True)
class AuditKind:
    """The same audit of several runs: shared by the seeds of an arm, and one column of a page.

    ``number`` counts audits of one run that differ only in the attacks' seed. ``suite`` is empty where an old file of
    results does not name it; ``weights`` are named only in a file of results, where they are not the best.
    """

    suite: str
    version: int | None
    changed: tuple[str, ...]
    evaluation: str
    threat: ThreatModel = field(hash=False)
    number: int = 1
    weights: str = ""

    @classmethod
    def of(cls, plan: AuditPlan) -> AuditKind:
        """The kind of an audit."""
        return cls(plan.suite, plan.suite_version, tuple(plan.changed), plan.evaluation, plan.threat)

    def __str__(self) -> str:
        releases = self.threat.releases_per_input
        asked = [text("arms.kind.releases", count=releases)] if releases > 1 else []
        return " · ".join(
            filter(
                None, [self.suite, threat_title(self.threat.name), images_title(self.evaluation), *asked, *self.changed]
            )
        )


def numbered(kinds: Iterable[AuditKind]) -> list[AuditKind]:
    """The kinds of one run's audits; equal ones are numbered."""
    counts: Counter[AuditKind] = Counter()
    unique = []
    for kind in kinds:
        counts[kind] += 1
        unique.append(replace(kind, number=counts[kind]))
    return unique


def newest(audits: Iterable[T], plan_of: Callable[[T], AuditPlan]) -> dict[AuditKind, T]:
    """The newest audit of every key and suite, by kind, from audits in order of creation.

    A newer version of a suite replaces an older one.
    """
    kept: dict[tuple[object, ...], T] = {}
    for audit in audits:
        plan = plan_of(audit)
        place = (AuditKey.of(plan), plan.suite, tuple(plan.changed))
        if place not in kept or plan.suite_version >= plan_of(kept[place]).suite_version:
            kept[place] = audit
    kinds = numbered(AuditKind.of(plan_of(audit)) for audit in kept.values())
    return dict(zip(kinds, kept.values(), strict=True))
