"""audit(): attack a run under a threat model and write down what came out."""

from __future__ import annotations

import base64
import hashlib
import io
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import attncem
from attncem.attacks import build_attack
from attncem.attacks.base import FittedAttack
from attncem.attacks.oracle import ModelOracle
from attncem.build import Modules, RunData, data_of, restore
from attncem.config.attacks import SUITES, Suite
from attncem.config.base import Options
from attncem.config.run import RunConfig
from attncem.config.suggest import known
from attncem.data.batches import DeviceData
from attncem.engine import (
    describe_device,
    fastest_convolutions,
    limited_threads,
    memory_given_back,
    resolve_device,
)
from attncem.health import NEAR_CHANCE, spans
from attncem.metrics import accuracy, mse, psnr, ssim
from attncem.models.cost import count_cost
from attncem.models.split import SplitModel
from attncem.progress import Report, show_progress
from attncem.runs import Checkpoint, RunDirectory
from attncem.seeding import derive_seed, make_generator
from attncem.statistics import bootstrap_mean
from attncem.types import (
    THREAT_MODELS,
    AttackResult,
    AuditResult,
    ConfigError,
    GalleryImage,
    RunError,
    ThreatModel,
)

_BATCH = 250
_EXTREMES = 5
"""How many best- and worst-recovered images go into the gallery."""
_FEW_AUXILIARY = 0.25
"""An attacker with less than this part of the victim's images is called starved."""


def audit(
    run: str | Path | RunDirectory,
    suite: str | Suite = "standard",
    *,
    threat: str = "train",
    on: str = "test",
    weights: str = "best",
    device: str | None = None,
    seed: int | None = None,
    modules: Modules | None = None,
    report: Report | None = None,
) -> AuditResult:
    """Attack a run with every attack of a suite; the result is also saved in RUN/audits.

    Everything about the model comes from the run folder. `threat` says which images the attacker owns;
    evaluation images are never among them. `on` is `test`, or `validation` for choosing between models without
    touching the test images. `weights` is `best`, `last` or the name of a checkpoint.
    """
    directory = RunDirectory.open(run)
    chosen = suite if isinstance(suite, Suite) else SUITES[known("suite", suite, SUITES)]
    model_of_threat = THREAT_MODELS[known("threat", threat, THREAT_MODELS)]
    known("on", on, ("test", "validation"))
    config, model, checkpoint = restore(directory, weights=weights, modules=modules)
    place = resolve_device(device or config.device)
    with memory_given_back(place), limited_threads(config.threads), fastest_convolutions(place):
        auditor = _Auditor(
            directory, config, model.to(place), place, model_of_threat, on, config.seed if seed is None else seed
        )
        if report is None:
            with show_progress() as shown:
                result = auditor.run_suite(chosen, checkpoint, shown)
        else:
            result = auditor.run_suite(chosen, checkpoint, report)
    suffix = "" if on == "test" else f"-{on}"
    directory.save_audit(f"{chosen.name}-{threat}{suffix}", result.to_dict())
    return result


@dataclass(frozen=True)
class _Scores:
    """Per-image numbers of one attack, and its images."""

    images: Tensor
    mse: NDArray[np.float64]
    psnr: NDArray[np.float64]
    ssim: NDArray[np.float64]
    ssim_zero_pad: NDArray[np.float64]


class _Auditor:
    """One model under one threat model: data, releases drawn once, and the attacks."""

    def __init__(
        self,
        run: RunDirectory,
        config: RunConfig,
        model: SplitModel,
        device: torch.device,
        threat: ThreatModel,
        on: str,
        seed: int,
    ) -> None:
        self.run, self.config, self.model, self.seed, self.threat, self.on = run, config, model, seed, threat, on
        self.device = device
        self.data: RunData = data_of(run, config, device)
        auxiliary, evaluation = _attacker_and_evaluation(self.data, threat, on)
        if len(auxiliary) < 20:
            raise ConfigError(
                f"threat={threat.name} leaves the attacker {len(auxiliary)} images: raise data.held_out_fraction"
            )
        self.auxiliary = auxiliary
        self.x, self.y = evaluation.get(slice(None))
        aux_x, aux_y = auxiliary.get(slice(None))
        self.oracle = ModelOracle(model, threat, aux_x, aux_y, num_classes=self.data.spec.num_classes, seed=seed)
        self.released = self._release_evaluation()

    @torch.no_grad()
    def _release_evaluation(self) -> Tensor:
        """Every evaluation image released once, in index order: all attacks see the same releases."""
        noise = make_generator(self.device, self.seed, "evaluation")
        return torch.cat([self.model.release(part, generator=noise) for part in self.x.split(_BATCH)])

    def run_suite(self, suite: Suite, checkpoint: Checkpoint, report: Report) -> AuditResult:
        """Every attack of the suite, the strongest computed from the results."""
        started = time.perf_counter()
        fingerprint = hash_module(self.model.encoder)
        rows: list[AttackResult] = []
        scores: dict[str, _Scores] = {}
        for position, (name, options) in enumerate(suite.attacks):
            report(f"audit {self.config.name}", position, len(suite.attacks), {})
            row, scores[name] = self._attack(name, options, report)
            rows.append(row)
        report(f"audit {self.config.name}", len(rows), len(rows), {})
        if hash_module(self.model.encoder) != fingerprint:
            raise RunError("an attack changed the victim's encoder: the audit is void")
        strongest = min(rows, key=lambda row: row.mse.mean).name
        right = self._right()
        manifest = self.run.manifest
        return AuditResult(
            run=self.config.name,
            surrogate=_surrogate_label(self.config),
            penalty_weight=self.config.training.penalty_weight,
            noise_std=self.config.noise_std,
            dataset=self.config.data.name,
            architecture=self.config.model.name,
            cut=str(self.config.model.cut),
            seed=self.config.seed,
            suite=suite.name,
            suite_version=suite.version,
            threat=self.threat,
            evaluation=self.on,
            accuracy=bootstrap_mean(right),
            num_classes=self.data.spec.num_classes,
            class_names=list(self.data.spec.class_names),
            per_class_accuracy=self._per_class(right),
            num_evaluation=len(self.x),
            num_auxiliary=len(self.auxiliary),
            attacks=rows,
            strongest=strongest,
            gallery=self._gallery(scores, strongest),
            warnings=[
                *self._warnings(rows, strongest, float(right.mean())),
                *(str(span) for span in spans(self.run.records()) if span.holds_at(checkpoint.facts["epoch"])),
            ],
            encoder_sha256=fingerprint,
            data_sha256=self.data.split.sha256,
            weights=checkpoint.name,
            **asdict(count_cost(self.model, self.data.spec.shape)),
            training_seconds=float(manifest.get("training_seconds", 0.0)),
            audit_seconds=time.perf_counter() - started,
            device=describe_device(self.device),
            versions={"attncem": attncem.__version__, "torch": torch.__version__, "python": platform.python_version()},
        )

    def _attack(self, name: str, options: Options, report: Report) -> tuple[AttackResult, _Scores]:
        """Fit one attack and measure it on the evaluation images."""
        started = time.perf_counter()

        def nested(stage: str, done: float, total: float, numbers: object) -> None:
            report(f"audit {self.config.name}: {stage}", done, total, numbers)  # type: ignore[arg-type]

        attack = build_attack(options, report=nested)
        attack.fit(self.oracle, seed=derive_seed(self.seed, "attack", name))
        scores = self._score(attack)
        fit = attack.fit_report
        row = AttackResult(
            name=name,
            method=options.name,  # type: ignore[attr-defined]
            kind=attack.kind,
            options=options.model_dump(mode="json"),
            mse=bootstrap_mean(scores.mse),
            psnr=bootstrap_mean(scores.psnr),
            ssim=bootstrap_mean(scores.ssim),
            ssim_zero_pad=bootstrap_mean(scores.ssim_zero_pad),
            per_class_mse=self._per_class(scores.mse),
            mse_5th_percentile=float(np.quantile(scores.mse, 0.05)),
            reliable=fit.reliable,
            warnings=fit.warnings,
            gain_of_doubling=fit.gain_of_doubling,
            curve=fit.curve,
            num_parameters=fit.num_parameters,
            seconds=time.perf_counter() - started,
        )
        return row, scores

    @torch.no_grad()
    def _score(self, attack: FittedAttack) -> _Scores:
        images = torch.cat([attack.reconstruct(part).float() for part in self.released.split(_BATCH)])
        if images.shape != self.x.shape:
            raise RunError(f"the attack returned images of shape {tuple(images.shape)}, expected {tuple(self.x.shape)}")
        pairs = list(zip(images.split(_BATCH), self.x.split(_BATCH), strict=True))

        def collect(metric: object) -> NDArray[np.float64]:
            values = torch.cat([metric(a, b) for a, b in pairs])  # type: ignore[operator]
            return np.asarray(values.double().cpu().numpy())

        return _Scores(
            images, collect(mse), collect(psnr), collect(ssim), collect(lambda a, b: ssim(a, b, zero_pad=True))
        )

    @torch.no_grad()
    def _right(self) -> NDArray[np.float64]:
        """Whether the server is right about each evaluation image, on the very releases that are attacked."""
        parts = zip(self.released.split(_BATCH), self.y.split(_BATCH), strict=True)
        right = torch.cat([accuracy(self.model.predict(z), y) for z, y in parts])
        return np.asarray(right.double().cpu().numpy())

    def _per_class(self, values: NDArray[np.float64]) -> list[float | None]:
        labels = self.y.cpu().numpy()
        means: list[float | None] = []
        for label in range(self.data.spec.num_classes):
            members = values[labels == label]
            means.append(float(members.mean()) if members.size else None)
        return means

    def _gallery(self, scores: dict[str, _Scores], strongest: str) -> list[GalleryImage]:
        """One image of each of the first ten classes, and those the strongest attack recovers best and worst."""
        labels = self.y.cpu().numpy()
        fixed = [int(np.flatnonzero(labels == c)[0]) for c in np.unique(labels)[:10]]
        ranked = [int(i) for i in np.argsort(scores[strongest].mse, kind="stable")]
        chosen = [
            *(("fixed", i) for i in fixed),
            *(("best", i) for i in ranked[:_EXTREMES]),
            *(("worst", i) for i in ranked[: -_EXTREMES - 1 : -1]),
        ]
        return [
            GalleryImage(
                index=i,
                label=int(labels[i]),
                role=role,  # type: ignore[arg-type]
                original=encode_png(self.x[i]),
                reconstructions={name: encode_png(score.images[i]) for name, score in scores.items()},
                mse={name: float(score.mse[i]) for name, score in scores.items()},
            )
            for role, i in chosen
        ]

    def _warnings(self, rows: Sequence[AttackResult], strongest: str, right: float) -> list[str]:
        found = [f"{row.name}: {warning}" for row in rows for warning in row.warnings]
        best = next(row for row in rows if row.name == strongest)
        learned = [row for row in rows if row.kind == "attack"]
        if best.kind == "floor" and learned:
            found.append(f"no attack beats the floor “{best.name}”: either nothing leaks or the attacks are too weak")
        ridge = next((row for row in learned if row.method == "ridge"), None)
        for row in learned:
            if ridge is not None and row.method == "decoder" and row.mse.mean > ridge.mse.mean:
                found.append(f"{row.name} loses to ridge: it is under-trained")
        if len(self.auxiliary) < _FEW_AUXILIARY * len(self.data.train):
            found.append(
                f"the attacker owns only {len(self.auxiliary)} images ({len(self.data.train)} were trained on): "
                "a starved attacker flatters the defence"
            )
        if right < NEAR_CHANCE / self.data.spec.num_classes:
            found.append(f"accuracy {100 * right:.1f} % is near chance: privacy of a useless model is worth nothing")
        return found


def hash_module(module: nn.Module) -> str:
    """SHA-256 over the names and bytes of a module's state."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def encode_png(image: Tensor) -> str:
    """An image [C, H, W] in [0, 1] as a PNG file in base64."""
    pixels = (image.detach().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def _attacker_and_evaluation(data: RunData, threat: ThreatModel, on: str) -> tuple[DeviceData, DeviceData]:
    """The attacker's images and the images it is judged on: never the same ones."""
    evaluation = data.test if on == "test" else data.validation
    if threat.auxiliary == "train":
        return data.train, evaluation
    if threat.auxiliary == "held_out":
        return data.held_out, evaluation
    if threat.auxiliary == "published_infer" and on == "test":
        return data.infer_auxiliary, data.infer_evaluation
    raise ConfigError(f"threat={threat.name} cannot be judged on the {on} images")


def _surrogate_label(config: RunConfig) -> str:
    variant = getattr(config.surrogate, "variant", None)
    return f"{config.surrogate.name}-{variant}" if variant not in (None, "ours") else config.surrogate.name
