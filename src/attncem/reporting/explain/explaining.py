"""explain(): one image's path through a run: its release, the penalty's effect on it, and its reconstructions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from attncem.base.pictures import png_text
from attncem.base.progress import Progress, shown
from attncem.base.seeding import derive_seed, make_generator
from attncem.base.texts import speaking, written
from attncem.base.texts.titles import threat_word
from attncem.base.types import RunError
from attncem.config.loading.languages import checked
from attncem.config.options.attacks import ClassMeanOptions, MeanImageOptions, NearestNeighbourOptions, RidgeOptions
from attncem.config.options.base import Options
from attncem.config.threats import THREATS
from attncem.judging.attacks import build_attack
from attncem.judging.attacks.base import Attack
from attncem.judging.auditing.kept import kept_attack
from attncem.judging.auditing.units import human_units
from attncem.judging.inference import Image, ask, describe, read_image
from attncem.judging.opening import OpenRun, open_run
from attncem.judging.oracle import Oracle
from attncem.models.client_head import doubt
from attncem.records.audit import AuditResult, Row
from attncem.records.explanation import (
    ClassRow,
    ClassView,
    Explanation,
    FeatureTile,
    FeatureView,
    Gate,
    PartShare,
    Recovery,
)
from attncem.records.findings import Finding, finding
from attncem.records.ledger import Ledger, ledgers
from attncem.records.metrics import METRICS
from attncem.records.runs import RunDirectory
from attncem.reporting.explain.page import refuse_foreign_page, write_explanation
from attncem.training.build import Modules, restore_surrogate
from attncem.training.engine import limited_threads
from attncem.training.health import SATURATED
from attncem.training.surrogates.base import Surrogate

_BATCH = 250
_PER_CLASS, _REFERENCE = 32, 1024
"""Maximum number of validation images to compare with: per class, and in total."""
_FEW = 8
"""With fewer validation images of the class than this, a note says so."""
_TILES = 64
"""Maximum number of channels drawn."""
_ROW = 32
"""Features per row where z is a plain vector."""
_ATTACKER = 10_000
"""Maximum number of training images that the quick attacks learn from."""
_QUICK: tuple[tuple[str, Options], ...] = (
    ("mean image", MeanImageOptions()),
    ("class mean", ClassMeanOptions()),
    ("nearest neighbour", NearestNeighbourOptions()),
    ("ridge", RidgeOptions()),
)
"""Quick attacks, under the names they have in an audit."""
_THREAT = THREATS["train"]


def explain(
    run: str | Path | RunDirectory,
    image: Image,
    *,
    out: str | Path | None = None,
    weights: str = "best",
    device: str | None = None,
    modules: Modules | None = None,
    progress: Progress | None = None,
    lang: str | None = None,
) -> Explanation:
    """Show one image's path through a run; ``out`` names an HTML page to write, ``lang`` its language.

    The image is a file or `test:17`. Reconstructions are shown for the strongest attack in the audits of these weights,
    as fitted there, and for ridge and two simpler attacks. They illustrate one image; ``audit`` is the measurement.
    """
    language = checked(lang)  # report a mistake before computing anything
    if out is not None:
        refuse_foreign_page(Path(out))
    opened = open_run(run, weights=weights, device=device, modules=modules)
    with limited_threads(opened.config.threads), shown(progress) as reporter:
        explanation = _Explainer(opened, image).explain(reporter)
    if out is not None:
        with speaking(language):
            write_explanation(explanation, Path(out), now=datetime.now().astimezone())
    return explanation


class _Explainer:
    """One image with its clean feature, its release, and validation images to compare it with."""

    def __init__(self, opened: OpenRun, image: Image) -> None:
        self.opened, self.config = opened, opened.config
        self.image = read_image(opened, image)
        self.x = self.image.x.unsqueeze(0)
        noise = make_generator(opened.device, self.config.seed, "explain")
        asked = ask(opened, self.x, noise, anyway=True)[0]
        assert asked.released is not None
        self.released = asked.released.unsqueeze(0)
        self.prediction = describe(opened, self.image, asked, top=5)
        self.label = self.prediction.top[0].label if self.image.label is None else self.image.label
        self.z = self._encode(self.x)
        self.others, self.labels = self._reference()
        self.members = self.others[self.labels == self.label]

    def explain(self, progress: Progress) -> Explanation:
        """Make all parts of the explanation."""
        audit = strongest_audit(self.opened)
        recovered = recoveries(self.opened, self.x, self.released, audit, progress)
        return Explanation(
            run=self.opened.name,
            surrogate=self.config.defence,
            weights=self.opened.weights,
            dataset=self.opened.spec.name,
            penalty_weight=self.config.training.penalty_weight,
            prediction=self.prediction,
            image=png_text(self.x[0]),
            feature=self._feature(),
            reference=self._class_view(),
            recoveries=recovered.rows,
            attacker_images=recovered.attacker_images,
            audit=audit.title,
            findings=[*self.opened.findings, *audit.findings, *self._findings(), *recovered.findings],
            units=human_units(self.x, self.opened.data.train),
        )

    def _findings(self) -> list[Finding]:
        findings = [finding("file_may_be_trained_on")] if self.image.label is None else []
        if len(self.members) < _FEW:
            name, count = self.opened.name_of(self.label), len(self.members)
            findings.append(finding("few_of_class", name=name, count=count))
        return findings

    @torch.no_grad()
    def _encode(self, x: Tensor) -> Tensor:
        return torch.cat([self.opened.model.encode(part).float() for part in x.split(_BATCH)])

    def _reference(self) -> tuple[Tensor, Tensor]:
        """Clean features and labels of the first validation images of every class."""
        classes = self.opened.spec.num_classes
        x, y = first_of_each(self.opened, classes, max(2, min(_PER_CLASS, _REFERENCE // classes)))
        self.images = x
        return self._encode(x), y

    # the feature

    def _feature(self) -> FeatureView:
        clean, released = self.z[0], self.released[0].float()
        both = torch.stack([clean, released])
        low, high = float(both.min()), float(both.max())
        scale = high - low or 1.0
        pairs = list(zip(_maps(clean), _maps(released), strict=True))
        ratios = [None] * len(pairs) if clean.ndim != 3 else [self._snr(channel) for channel in range(len(clean))]
        tiles = [
            FeatureTile(name, png_text((one - low) / scale), png_text((other - low) / scale), ratio)
            for ((name, one), (_, other)), ratio in zip(pairs[:_TILES], ratios, strict=False)
        ]
        return FeatureView(list(clean.shape), low, high, tiles, max(0, len(pairs) - _TILES), self._snr(...))

    def _snr(self, part: object) -> float | None:
        """Power of a part of z's deviation from the class mean over power of the channel's change in that part."""
        if len(self.members) == 0:
            return None
        signal = (self.z[0] - self.members.mean(0))[part]  # type: ignore[index]
        change = (self.released[0].float() - self.z[0])[part]  # type: ignore[index]
        power = float(change.square().mean())
        return float(signal.square().mean()) / power if power > 0 else None

    # the class

    @torch.no_grad()
    def _class_view(self) -> ClassView:
        surrogate = surrogate_of(self.opened)
        z = torch.cat([self.others, self.z])
        y = torch.cat([self.labels, torch.tensor([self.label], device=z.device)])
        doubts = self._doubts() if surrogate.weighs else None
        output, rows = surrogate(z, y, doubts=doubts), surrogate.explain(z, y, doubts=doubts)
        attention, parts = rows.get("attention"), parts_of(rows, y == self.label)
        unit = self.config.noise_std or 1.0
        distance, distances = _distances(self.z, self.members)
        return ClassView(
            label=self.label,
            name=self.opened.name_of(self.label),
            is_true=self.image.label is not None,
            distance=None if distance is None else distance / unit,
            distances=[value / unit for value in distances],
            unit="σ" if self.config.noise_std else "1",
            attention=None if attention is None else float(attention[-1]),
            attentions=[] if attention is None else attention[:-1][self.labels == self.label].tolist(),
            part=surrogate.part,
            shares=[] if parts is None else _part_shares(parts),
            gates=gates_of(rows, -1, divided=parts is not None),
            classes=self._class_rows(z, y, output.per_class, rows),
            diagnostics={name: float(value) for name, value in output.diagnostics.items() if value.isfinite()},
        )

    @torch.no_grad()
    def _doubts(self) -> Tensor:
        """The doubts of the client's head about the validation images and this image."""
        parts = (*self.images.split(_BATCH), self.x)
        return torch.cat([doubt(self.opened.model.look(part).answers) for part in parts])

    def _class_rows(self, z: Tensor, y: Tensor, penalties: Tensor, rows: Mapping[str, Tensor]) -> list[ClassRow]:
        classes = []
        for label in y.unique().tolist():
            members, number = z[y == label], float(penalties[label])
            variance = float(members.var(0, correction=0).mean())
            penalty = number if math.isfinite(number) else None
            divided = parts_of(rows, y == label) is not None if "shares" in rows else None
            classes.append(ClassRow(label, self.opened.name_of(label), len(members), variance, penalty, divided))
        return classes


def first_of_each(opened: OpenRun, classes: int, count: int) -> tuple[Tensor, Tensor]:
    """The first validation images of each of the first classes, with their labels."""
    images = opened.data.validation
    chosen = [(images.labels == label).nonzero().flatten()[:count] for label in range(classes)]
    return images.get(torch.cat(chosen))


def surrogate_of(opened: OpenRun) -> Surrogate:
    """The run's trained surrogate, without its memories."""
    surrogate = restore_surrogate(opened.config, opened.model, opened.spec, opened.checkpoint).to(opened.device)
    forget_training(surrogate)
    return surrogate


def forget_training(surrogate: Surrogate) -> None:
    """Remove the memories of a surrogate and of those nested in it, so that it sees only the current batch."""
    for module in list(surrogate.modules()):
        if isinstance(module, Surrogate):
            module.memory = None


def parts_of(rows: Mapping[str, Tensor], members: Tensor) -> Tensor | None:
    """The share of each member that each part of its class takes, [m, K]; None where the class is not divided."""
    shares = rows.get("shares")
    return None if shares is None or not bool(shares[members].any()) else shares[members]


def _maps(feature: Tensor) -> list[tuple[str, Tensor]]:
    """A feature as pictures [1, H, W]: one per channel, tokens as one matrix, a vector in rows."""
    if feature.ndim == 3:
        return [
            (written("about.channel", number=number), channel.unsqueeze(0)) for number, channel in enumerate(feature)
        ]
    if feature.ndim == 2:
        wide = len(feature) <= feature.shape[1]
        name = written("about.tokens_down") if wide else written("about.features_down")
        return [(name, (feature if wide else feature.T).unsqueeze(0))]
    flat = feature.flatten()
    missing = -len(flat) % min(_ROW, len(flat))
    padded = torch.cat([flat, flat.min().expand(missing)])
    return [(written("about.features"), padded.view(1, -1, min(_ROW, len(flat))))]


def _distances(z: Tensor, members: Tensor) -> tuple[float | None, list[float]]:
    """RMS distance over features of z [1, …] to the members' mean, and of each member to the mean of the others."""
    count = len(members)
    if count == 0:
        return None, []
    mean = members.mean(0)
    distance = float((z[0] - mean).square().mean().sqrt())
    # The distance to the mean of the others is m / (m − 1) times the distance to the mean of all.
    far = (members - mean).flatten(1).square().mean(1).sqrt() * count / max(count - 1, 1)
    return distance, far.tolist() if count > 1 else []


def _part_shares(parts: Tensor) -> list[PartShare]:
    """The shares of the image, which is the last row, and the mean shares of the others."""
    means = parts[:-1].mean(0) if len(parts) > 1 else torch.zeros_like(parts[-1])
    return [PartShare(one, mean) for one, mean in zip(parts[-1].tolist(), means.tolist(), strict=True)]


def gates_of(rows: Mapping[str, Tensor], member: int, *, divided: bool) -> list[Gate]:
    """The gates of a member's class; slot gates only where the class is divided: otherwise they have no effect."""
    names = ("gate_", "slot_gate_") if divided else ("gate_",)
    gates = []
    for name in (name for name in rows if name.startswith(names)):
        values = rows[name][member].flatten()
        saturated = ((values < SATURATED) | (values > 1 - SATURATED)).float().mean()
        gates.append(Gate(name, float(values.mean()), float(values.min()), float(values.max()), float(saturated)))
    return gates


# reconstructions: the audit's strongest attack, as fitted there, and a few quick ones


@dataclass(frozen=True)
class KnownAudit:
    """The audit with the strongest attack, among audits of these weights under the shown threat model."""

    ledger: Ledger | None = None
    result: AuditResult | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def title(self) -> str | None:
        """Suite and threat model of the audit."""
        if self.result is None:
            return None
        return written("about.audit", suite=self.result.plan.suite, threat=threat_word(_THREAT.name))


@dataclass(frozen=True)
class Recoveries:
    """The reconstructions, that of the audit's strongest attack first."""

    rows: list[Recovery]
    attacker_images: int
    findings: list[Finding]


def strongest_audit(opened: OpenRun) -> KnownAudit:
    """The audit whose attack is used, the newest of equals; empty where there is none."""
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
    """Run the audit's strongest attack, then the quick ones, which are fitted here through an oracle."""
    images, labels = _attacker_images(opened)
    seed = derive_seed(opened.config.seed, "explain")
    means = {} if audit.result is None else {row.name: row.mse.mean for row in audit.result.attacks}
    row, strongest, findings = _strongest(audit, released)
    rows = []
    if row is not None and strongest is not None:
        recovery = _recovery(row.name, strongest, x, released, means)
        assert audit.result is not None
        tested = not row.verdict.fixed_budget
        rows.append(replace(recovery, from_audit=True, judgement=audit.result.judgement if tested else None))
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
    """All training images, or an evenly spaced subset."""
    train = opened.data.train
    if len(train) <= _ATTACKER:
        return train.get(slice(None))
    return train.get(torch.linspace(0, len(train) - 1, _ATTACKER, device=opened.device).long())


def _strongest(audit: KnownAudit, released: Tensor) -> tuple[Row | None, Attack | None, list[Finding]]:
    """The audit's strongest attack as fitted there, with its row; None for the attack if its state was not kept."""
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
