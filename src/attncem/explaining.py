"""explain(): one image on its way through a run: what leaves, what the penalty makes of it, what comes back."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

import torch
from torch import Tensor

from attncem.attacks import build_attack
from attncem.attacks.oracle import ModelOracle
from attncem.auditing import encode_png, hash_module
from attncem.build import Modules, restore_surrogate
from attncem.config.attacks import ClassMeanOptions, DecoderOptions, NearestNeighbourOptions, RidgeOptions
from attncem.config.base import Options
from attncem.engine import limited_threads
from attncem.health import SATURATED
from attncem.inference import Image, LoadedRun
from attncem.metrics import mse, ssim
from attncem.progress import Report, show_progress
from attncem.reporting.explanation import refuse_foreign_page, write_explanation
from attncem.reporting.load import load_run
from attncem.runs import RunDirectory
from attncem.seeding import derive_seed, make_generator
from attncem.types import (
    THREAT_MODELS,
    AuditResult,
    ClassRow,
    ClassView,
    ConfigError,
    Explanation,
    FeatureTile,
    FeatureView,
    Gate,
    PartShare,
    Recovery,
    RunError,
)

_BATCH = 250
_PER_CLASS, _REFERENCE = 32, 1024
"""Validation images beside the image: of each class at most, and in all."""
_FEW = 8
"""With fewer validation images of the class a note says so."""
_ATTACKER = 10_000
"""Training images that the illustrated attacks learn from, at most."""
_TILES = 64
"""Channels drawn."""
_ROW = 32
"""Features in a row where z is a plain vector."""
_SMALLEST_SSIM = 11
"""Side of the smallest image that SSIM is defined for."""
_FILE_NOTE = "if this file is one of the training images, the attacks below have seen it: use test:NUMBER to be sure"


def explain(
    run: str | Path | RunDirectory,
    image: Image,
    *,
    out: str | Path | None = None,
    decoder_epochs: float | None = None,
    weights: str = "best",
    device: str | None = None,
    modules: Modules | None = None,
    report: Report | None = None,
) -> Explanation:
    """Show one image on its way through a run; ``out`` names an HTML page to write.

    The image is a file or `test:17`. What attacks recover is shown for ridge and two floors, and for a small decoder
    trained for ``decoder_epochs``: an illustration on one image. The measure is ``audit``.
    """
    if decoder_epochs is not None and not (math.isfinite(decoder_epochs) and decoder_epochs > 0):
        raise ConfigError(f"decoder_epochs={decoder_epochs:g}: must be above 0")
    if out is not None:
        refuse_foreign_page(Path(out))
    loaded = LoadedRun(run, weights=weights, device=device, modules=modules)
    with limited_threads(loaded.config.threads):
        explainer = _Explainer(loaded, image)
        if report is None:
            with show_progress() as shown:
                explanation = explainer.explain(decoder_epochs, shown)
        else:
            explanation = explainer.explain(decoder_epochs, report)
    if out is not None:
        write_explanation(explanation, Path(out), now=datetime.now().astimezone())
    return explanation


class _Explainer:
    """One image with its clean feature, its release, and validation images to compare it with."""

    def __init__(self, loaded: LoadedRun, image: Image) -> None:
        self.loaded, self.config = loaded, loaded.config
        self.given = loaded.read(image)
        self.x = self.given.x.unsqueeze(0)
        noise = make_generator(loaded.device, self.config.seed, "explain")
        self.released, logits = loaded.ask(self.x, noise)
        self.prediction = loaded.describe(self.given, self.released[0], logits[0], top=5)
        self.label = self.prediction.top[0].label if self.given.label is None else self.given.label
        self.z = self._encode(self.x)
        self.others, self.labels = self._reference()
        self.own_class = self.others[self.labels == self.label]

    def explain(self, decoder_epochs: float | None, report: Report) -> Explanation:
        """All parts of the explanation."""
        notes = [*self.loaded.notes, *([_FILE_NOTE] if self.given.label is None else [])]
        try:
            audit = self._newest_audit()
        except RunError as error:  # an explanation does without
            audit = None
            notes.append(f"the audits are left out: {error}")
        if len(self.own_class) < _FEW:
            name, count = self.loaded.name_of(self.label), len(self.own_class)
            notes.append(f"few validation images of the class {name} ({count}): what is said about the class is rough")
        x, y = self._attacker_images()
        return Explanation(
            run=self.config.name,
            surrogate=self.config.surrogate.name,
            weights=self.loaded.checkpoint.name,
            dataset=self.loaded.spec.name,
            penalty_weight=self.config.training.penalty_weight,
            prediction=self.prediction,
            image=encode_png(self.x[0]),
            feature=self._feature(),
            reference=self._class_view(),
            recoveries=self._recoveries(x, y, decoder_epochs, audit, report),
            attacker_images=len(x),
            audit=None if audit is None else f"suite {audit.suite}, threat model {audit.threat.name}",
            notes=notes,
        )

    @torch.no_grad()
    def _encode(self, x: Tensor) -> Tensor:
        return torch.cat([self.loaded.model.encode(part).float() for part in x.split(_BATCH)])

    def _reference(self) -> tuple[Tensor, Tensor]:
        """Clean features and labels of the first validation images of every class."""
        images, classes = self.loaded.data.validation, self.loaded.spec.num_classes
        count = max(2, min(_PER_CLASS, _REFERENCE // classes))
        chosen = [(images.labels == label).nonzero().flatten()[:count] for label in range(classes)]
        x, y = images.get(torch.cat(chosen))
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
            FeatureTile(name, encode_png((one - low) / scale), encode_png((other - low) / scale), ratio)
            for ((name, one), (_, other)), ratio in zip(pairs[:_TILES], ratios, strict=False)
        ]
        return FeatureView(list(clean.shape), low, high, tiles, max(0, len(pairs) - _TILES), self._snr(...))

    def _snr(self, part: object) -> float | None:
        """Power of what tells the image from its class over power of what the channel changed, in a part of z."""
        if len(self.own_class) == 0:
            return None
        signal = (self.z[0] - self.own_class.mean(0))[part]  # type: ignore[index]
        change = (self.released[0].float() - self.z[0])[part]  # type: ignore[index]
        power = float(change.square().mean())
        return float(signal.square().mean()) / power if power > 0 else None

    # the class

    @torch.no_grad()
    def _class_view(self) -> ClassView:
        loaded = self.loaded
        surrogate = restore_surrogate(self.config, loaded.model, loaded.spec, loaded.checkpoint).to(loaded.device)
        surrogate.memory = None  # the batch shown, and nothing of the training
        z = torch.cat([self.others, self.z])
        y = torch.cat([self.labels, torch.tensor([self.label], device=z.device)])
        output, rows = surrogate(z, y), surrogate.explain(z, y)
        beside = (self.labels == self.label).nonzero().flatten()
        attention, shares = rows.get("attention"), rows.get("shares")
        unit = self.config.noise_std or 1.0
        own, others = _distances(self.z, self.own_class)
        return ClassView(
            label=self.label,
            name=loaded.name_of(self.label),
            is_true=self.given.label is not None,
            distance=None if own is None else own / unit,
            distances=[value / unit for value in others],
            unit="σ" if self.config.noise_std else "1",
            attention=None if attention is None else float(attention[-1]),
            attentions=[] if attention is None else attention[beside].tolist(),
            part=surrogate.part,
            shares=[] if shares is None else _part_shares(shares[-1], shares[beside]),
            gates=[_gate(name, values[-1]) for name, values in rows.items() if name.startswith("gate_")],
            classes=self._class_rows(z, y, output.per_class),
            diagnostics={name: float(value) for name, value in output.diagnostics.items() if value.isfinite()},
        )

    def _class_rows(self, z: Tensor, y: Tensor, penalties: Tensor) -> list[ClassRow]:
        rows = []
        for label in y.unique().tolist():
            members, penalty = z[y == label], float(penalties[label])
            variance = float(members.var(0, correction=0).mean())
            known = penalty if math.isfinite(penalty) else None
            rows.append(ClassRow(label, self.loaded.name_of(label), len(members), variance, known))
        return rows

    # what comes back

    def _attacker_images(self) -> tuple[Tensor, Tensor]:
        """The training images, or evenly spread ones of them."""
        train = self.loaded.data.train
        if len(train) <= _ATTACKER:
            return train.get(slice(None))
        return train.get(torch.linspace(0, len(train) - 1, _ATTACKER, device=self.loaded.device).long())

    def _recoveries(
        self, x: Tensor, y: Tensor, decoder_epochs: float | None, audit: AuditResult | None, report: Report
    ) -> list[Recovery]:
        """What each attack, fitted on the attacker's images through the oracle, makes of this release."""
        seed = derive_seed(self.config.seed, "explain")
        threat, classes = THREAT_MODELS["train"], self.loaded.spec.num_classes
        oracle = ModelOracle(self.loaded.model, threat, x, y, num_classes=classes, seed=seed)
        means = {} if audit is None else {row.name: row.mse.mean for row in audit.attacks}
        found = []
        attacks = _attacks(decoder_epochs)
        for position, (name, options) in enumerate(attacks, 1):
            attack = build_attack(options, report=report)
            attack.fit(oracle, seed=derive_seed(seed, "attack", name))
            image = attack.reconstruct(self.released).float()
            likeness = float(ssim(image, self.x)) if min(self.x.shape[2:]) >= _SMALLEST_SSIM else None
            error = float(mse(image, self.x))
            found.append(Recovery(name, attack.kind, encode_png(image[0]), error, likeness, means.get(name)))
            report(f"explain {self.config.name}: attacks", position, len(attacks), {})
        return found

    def _newest_audit(self) -> AuditResult | None:
        """The last audit of these very weights under the threat model that is shown."""
        fingerprint = hash_module(self.loaded.model.encoder)
        audits = load_run(self.loaded.directory.path).audits
        fitting = [a for a in audits if a.encoder_sha256 == fingerprint and a.threat.name == "train"]
        return fitting[-1] if fitting else None


def _attacks(decoder_epochs: float | None) -> list[tuple[str, Options]]:
    """Floors and attacks under the names they have in an audit."""
    quick: list[tuple[str, Options]] = [
        ("class mean", ClassMeanOptions()),
        ("nearest neighbour", NearestNeighbourOptions()),
        ("ridge", RidgeOptions()),
    ]
    if decoder_epochs is None:
        return quick
    return [*quick, ("decoder small", DecoderOptions(epochs=decoder_epochs, max_epochs=decoder_epochs))]


def _maps(feature: Tensor) -> list[tuple[str, Tensor]]:
    """A feature as pictures [1, H, W]: a channel each, tokens as one matrix, a vector in rows."""
    if feature.ndim == 3:
        return [(f"channel {number}", channel.unsqueeze(0)) for number, channel in enumerate(feature)]
    if feature.ndim == 2:
        wide = len(feature) <= feature.shape[1]
        name = "rows: tokens, columns: features" if wide else "rows: features, columns: tokens"
        return [(name, (feature if wide else feature.T).unsqueeze(0))]
    flat = feature.flatten()
    missing = -len(flat) % min(_ROW, len(flat))
    padded = torch.cat([flat, flat.min().expand(missing)])
    return [("all features, row by row", padded.view(1, -1, min(_ROW, len(flat))))]


def _distances(z: Tensor, members: Tensor) -> tuple[float | None, list[float]]:
    """Distance of z [1, …] to the members' mean, and of each member to that of the others; RMS over features."""
    count = len(members)
    if count == 0:
        return None, []
    mean = members.mean(0)
    own = float((z[0] - mean).square().mean().sqrt())
    # Without itself a member lies m / (m − 1) times as far from the mean as with itself.
    far = (members - mean).flatten(1).square().mean(1).sqrt() * count / max(count - 1, 1)
    return own, far.tolist() if count > 1 else []


def _part_shares(image: Tensor, others: Tensor) -> list[PartShare]:
    means = others.mean(0) if len(others) else torch.zeros_like(image)
    return [PartShare(one, mean) for one, mean in zip(image.tolist(), means.tolist(), strict=True)]


def _gate(name: str, values: Tensor) -> Gate:
    values = values.flatten()
    saturated = ((values < SATURATED) | (values > 1 - SATURATED)).float().mean()
    return Gate(name, float(values.mean()), float(values.min()), float(values.max()), float(saturated))
