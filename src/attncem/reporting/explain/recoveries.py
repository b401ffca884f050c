"""What attacks make of one release: the audit's strongest, with what it learned there, and a few quick ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from attncem.base.pictures import png_text
from attncem.base.progress import Progress
from attncem.base.seeding import derive_seed
from attncem.base.texts import written
from attncem.base.types import RunError
from attncem.config.options.attacks import ClassMeanOptions, MeanImageOptions, NearestNeighbourOptions, RidgeOptions
from attncem.config.options.base import Options
from attncem.config.threats import THREATS
from attncem.judging.attacks import build_attack
from attncem.judging.attacks.base import Attack
from attncem.judging.auditing.kept import kept_attack
from attncem.judging.opening import OpenRun
from attncem.judging.oracle import Oracle
from attncem.records.audit import AuditResult, Row
from attncem.records.explanation import Recovery
from attncem.records.findings import Finding, finding
from attncem.records.ledger import Ledger, ledgers
from attncem.records.metrics import METRICS

_ATTACKER = 10_000
"""Training images that the quick attacks learn from, at most."""
_QUICK: tuple[tuple[str, Options], ...] = (
    ("mean image", MeanImageOptions()),
    ("class mean", ClassMeanOptions()),
    ("nearest neighbour", NearestNeighbourOptions()),
    ("ridge", RidgeOptions()),
)
"""Quick attacks under the names they have in an audit."""
_THREAT = THREATS["train"]


@dataclass(frozen=True)
class KnownAudit:
    """The audit of these very weights under the threat model that is shown whose strongest attack is the strongest."""

    ledger: Ledger | None = None
    result: AuditResult | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def title(self) -> str | None:
        """Which audit it is, in a few words."""
        if self.result is None:
            return None
        return written("about.audit", suite=self.result.plan.suite, threat=_THREAT.name)


@dataclass(frozen=True)
class Recoveries:
    """What came back, the strongest attack of the audit first."""

    rows: list[Recovery]
    attacker_images: int
    findings: list[Finding]


def strongest_audit(opened: OpenRun) -> KnownAudit:
    """The audit to take the attack from, the newest of equals; empty where there is none."""
    if opened.directory is None:
        return KnownAudit()
    try:
        results = [
            (ledger, ledger.result())
            for ledger in ledgers(opened.directory.path / "audits")
            if ledger.plan.subject.fingerprint == opened.fingerprint
            and ledger.plan.threat == _THREAT
            and ledger.plan.evaluation == "test"
        ]
        judged = [pair for pair in results if pair[1].strongest]
        if judged:
            return KnownAudit(*min(reversed(judged), key=lambda pair: pair[1].strongest_attack.mse.mean))
    except RunError as error:
        return KnownAudit(findings=[finding("audits_left_out", reason=str(error))])
    return KnownAudit(findings=[finding("no_audit", run=str(opened.directory.path))])


def recoveries(opened: OpenRun, x: Tensor, released: Tensor, audit: KnownAudit, progress: Progress) -> Recoveries:
    """The strongest attack of the audit, then the quick ones, fitted here through an oracle."""
    images, labels = _attacker_images(opened)
    seed = derive_seed(opened.config.seed, "explain")
    means = {} if audit.result is None else {row.name: row.mse.mean for row in audit.result.attacks}
    row, strongest, findings = _strongest(audit, released)
    rows = []
    if row is not None and strongest is not None:
        reliable = None if row.verdict.fixed_budget else row.verdict.reliable
        recovery = _recovery(row.name, strongest, x, released, means)
        rows.append(replace(recovery, from_audit=True, reliable=reliable))
    stage = f"{written('stage.explain', run=opened.name)}: {written('stage.part.attacks')}"
    for position, (name, options) in enumerate(_QUICK, 1):
        if name not in {row.name for row in rows}:
            attack = build_attack(options, progress=progress)
            classes, combine = opened.spec.num_classes, attack.combine
            oracle = Oracle(opened.model, _THREAT, images, labels, num_classes=classes, seed=seed, combine=combine)
            attack.fit(oracle, seed=derive_seed(seed, "attack", name))
            rows.append(_recovery(name, attack, x, released, means))
        progress(stage, position, len(_QUICK), {})
    return Recoveries(rows, len(images), findings)


def _attacker_images(opened: OpenRun) -> tuple[Tensor, Tensor]:
    """The training images, or evenly spread ones of them."""
    train = opened.data.train
    if len(train) <= _ATTACKER:
        return train.get(slice(None))
    return train.get(torch.linspace(0, len(train) - 1, _ATTACKER, device=opened.device).long())


def _strongest(audit: KnownAudit, released: Tensor) -> tuple[Row | None, Attack | None, list[Finding]]:
    """The audit's strongest attack as it was there, with its row; no attack where it kept no state."""
    if audit.ledger is None or audit.result is None or not audit.result.strongest:
        return None, None, []
    row = audit.result.strongest_attack
    attack = kept_attack(audit.ledger, row, released)
    return row, attack, [finding("state_not_kept", row.name)] if attack is None else []


def _recovery(name: str, attack: Attack, x: Tensor, released: Tensor, means: dict[str, float]) -> Recovery:
    image = attack.reconstruct(released).detach().float()
    scores = {
        measure: float(metric.function(image, x))
        for measure, metric in METRICS.items()
        if min(x.shape[2:]) >= metric.pixels
    }
    kind: Literal["attack", "floor"] = "attack" if attack.sees == "release" else "floor"
    return Recovery(name, kind, png_text(image[0]), scores, means.get(name))
