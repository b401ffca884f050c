"""Runs as `attncem train` and `attncem audit` leave them, made in no time, for the tests of reports."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from attncem.config.loading.load import dump_config, load_config
from attncem.config.threats import THREATS
from attncem.records.audit import AuditPlan, AuditResult, BudgetPoint, Picture, Row, Subject, Verdict
from attncem.records.audit_seals import sealed, sha256
from attncem.records.bounds import Bound
from attncem.records.fingerprints import fingerprint
from attncem.records.image_scores import ImageScores
from attncem.records.joining import join
from attncem.records.ledger import Ledger, RowFiles
from attncem.records.runs import RunDirectory
from attncem.records.score import Score
from attncem.training.health import PATIENCE

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
CLASSES = ["circle", "square", "cross", "star"]
NUMBERS = {  # accuracy, MSE of the decoder, training seconds
    "none": (0.91, 0.0104, 41.0),
    "kmeans": (0.88, 0.0243, 55.0),
    "gated": (0.86, 0.0291, 49.0),
}
FLOORS = {"grey": 0.0712, "mean image": 0.0655, "class mean": 0.0521}
ENCODER = "e" * 64
"""Hash of the encoder of every run's best checkpoint."""


def run_config(name: str = "none", seed: int = 0, **other: Any) -> Any:
    """The configuration of a run."""
    given: dict[str, Any] = {
        "name": name,
        "seed": seed,
        "channel": [{"name": "gaussian", "noise_std": 0.1}],
        "surrogate": {"name": name},
        "training": {"penalty_weight": 0.0 if name == "none" else 16.0, "epochs": 10},
    }
    return load_config(given | other).config


CHANNEL = [stage.model_dump(mode="json") for stage in run_config().channel]
FINGERPRINT = fingerprint(ENCODER, CHANNEL)


def score(mean: float, width: float = 0.04, **other: Any) -> Score:
    return Score(mean, mean * (1 - width), mean * (1 + width), 0.4 * mean, 2 * mean, **other)


def row(name: str, mse: float, *, kind: Any = "attack", method: str = "", **other: Any) -> Row:
    found = {
        "mse": score(mse, per_class=[mse * factor for factor in (1.1, 0.8, 1.0, 1.05)]),
        "psnr": score(-10 * float(np.log10(mse)) + 0.6, 0.01),
        "ssim": score(0.9 - 10 * mse),
        "ssim_zero_pad": score(0.95 - 9 * mse),
    }
    values: dict[str, Any] = {
        "name": name,
        "method": method or name.replace(" ", "_"),
        "kind": kind,
        "outcome": "ok",
        "reason": "",
        "options": {},
        "seed": 1,
        "releases": 1,
        "sees": "nothing" if kind == "floor" else "release",
        "num_images": 1000,
        "scores": found,
        "seconds": 3.2,
    }
    return Row(**values | other)


def leak_rows(
    limit: float | None = 6.13,
    beyond: float | None = 3.84,
    *,
    infonce: float = 4.5,
    share: float = 0.24,
    many: float | None = 0.0265,
    vacuous: bool = False,
) -> list[Row]:
    """Certificates, re-identification and an attack on 256 releases; None: the number is missing."""

    def bound(value: float, *, at_least: bool = False, **other: Any) -> Bound:
        direction: Any = "at_least" if at_least else "at_most"
        safe = value * (0.98 if at_least else 1.02)
        return Bound(value, "nats", 0.97 * value, 1.03 * value, "bound", [], **other, direction=direction, limit=safe)

    def certificate(name: str, bounds: dict[str, Bound], **other: Any) -> Row:
        values = {"kind": "certificate", "method": name.replace(" ", "_"), "scores": {}, "bounds": bounds}
        return row(name, 0.1, **values | other)

    made = []
    if limit is not None:
        of_all = bound(limit / 1.02, about="leakage", vacuous=vacuous)
        made.append(certificate("leakage", {"leakage": of_all}))
        made.append(certificate("accountant", {"leakage@256": replace(of_all, limit=40 * limit)}))
        seen = bound(infonce / 0.98, at_least=True, about="leakage", ceiling=math.log(1000))
        made.append(certificate("leakage evidence", {"infonce": seen}))
        shares = {"rank_1": score(share, 0.08, median=share), "rank": score(40.0)}
        chance = {"rank_1": 0.001, "rank": 500.5}
        probe = {"kind": "probe", "method": "reidentification", "scores": shares, "chance": chance}
        made.append(row("re-identification", 0.1, **probe))
    if beyond is not None:
        made.append(
            certificate(
                "leakage beyond the label",
                {"beyond_label": bound(beyond / 1.02, about="beyond_label")},
                method="beyond_label",
            )
        )
    if many is not None:
        scores = {"mse": score(many), "structure": score(0.8 * many)}
        made.append(row("ridge x256", many, method="ridge", releases=256, scores=scores, options={"releases": 256}))
    return made


def failed(name: str, outcome: Any = "failed", reason: str = "RuntimeError: out of memory") -> Row:
    source = getattr(reason, "source", {})
    return row(name, 0.01, outcome=outcome, reason=str(reason), reason_source=source, scores={}, num_images=0)


def rows(mse: float, *, decoder: dict[str, Any] | None = None) -> list[Row]:
    floors = [row(name, value, kind="floor") for name, value in FLOORS.items()]
    curve = [BudgetPoint(epochs, mse * (1 + 0.8 / epochs)) for epochs in (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)]
    verdict = Verdict(True, 0.011, curve, 214_337)
    values: dict[str, Any] = {"method": "decoder", "verdict": verdict, "must_beat": ["ridge"]}
    nearest = row("nearest neighbour", 2 * mse)
    ridge = row("ridge", 1.5 * mse, verdict=Verdict(num_parameters=402_000))
    return [*floors, nearest, ridge, row("decoder small", mse, **values | (decoder or {}))]


def make_subject(name: str = "none", **other: Any) -> Subject:
    values: dict[str, Any] = {
        "run": name,
        "fingerprint": FINGERPRINT,
        "weights": "epoch-00009",
        "surrogate": name,
        "penalty_weight": 0.0 if name == "none" else 16.0,
        "noise_std": 0.1,
        "channel": CHANNEL,
        "noise_scheme": 1,
        "dataset": "shapes",
        "architecture": "small",
        "cut": "2",
        "seed": 0,
        "num_classes": len(CLASSES),
        "class_names": CLASSES,
        "data_sha256": "d" * 64,
        "client_macs": 1_234_567,
        "server_macs": 9_876_543,
        "client_parameters": 10_234,
        "server_parameters": 1_250_000,
        "bytes_per_query": 2048,
        "training_seconds": NUMBERS.get(name, NUMBERS["none"])[2],
    }
    return Subject(**values | other)


def make_plan(name: str = "none", subject: dict[str, Any] | None = None, **other: Any) -> AuditPlan:
    accuracy = NUMBERS.get(name, NUMBERS["none"])[0]
    per_class = [accuracy, accuracy - 0.03, accuracy + 0.02, None]
    values: dict[str, Any] = {
        "id": "quick-audit",
        "suite": "quick",
        "suite_version": 1,
        "changed": [],
        "rows": [],
        "threat": THREATS["held_out"],
        "evaluation": "test",
        "seed": 0,
        "subject": make_subject(name, **subject or {}),
        "num_evaluation": 1000,
        "num_auxiliary": 4000,
        "num_train": 4000,
        "accuracy": score(accuracy, 0.01, per_class=per_class),
        "findings": [],
        "device": "cpu",
        "versions": {"attncem": "0.2.0"},
    }
    return AuditPlan(**values | other)


def make_audit(name: str = "none", made: list[Row] | None = None, **plan: Any) -> AuditResult:
    """An audit that lies nowhere."""
    found = rows(NUMBERS.get(name, NUMBERS["none"])[1]) if made is None else made
    planned = make_plan(name, **{"rows": [item.name for item in found]} | plan)
    return join(planned, found, {item.name: item.mse.mean for item in found if "mse" in item.scores})


def png(rng: np.random.Generator, level: float = 0.5) -> bytes:
    ramp = np.add.outer(np.linspace(0, 90, 28), np.linspace(0, 90, 28)) * level
    file = io.BytesIO()
    Image.fromarray((ramp + rng.uniform(0, 60, size=(28, 28))).astype(np.uint8)).save(file, format="PNG")
    return file.getvalue()


def pictures(item: Row) -> tuple[Row, dict[str, bytes]]:
    """The row with pictures; every attack has extremes of its own."""
    rng, shift = np.random.default_rng(3), 100 * (item.name != "ridge")
    roles: list[tuple[Any, range]] = [("fixed", range(8)), ("best", range(10, 16)), ("worst", range(20, 26))]
    chosen = [(role, index if role == "fixed" else index + shift) for role, indices in roles for index in indices]
    stem = item.name.replace(" ", "-")
    found = [
        Picture(index, index % 4, role, f"original-{index}.png", f"{stem}-{index}.png", 0.01 * index)
        for role, index in chosen
    ]
    files = {name: png(rng) for picture in found for name in (picture.original, picture.image)}
    return replace(item, pictures=found), files


def write_audit(run: Path, audit: AuditResult) -> Path:
    """Write an audit as `attncem audit` does, into a folder of its own."""
    ledger = Ledger.begin(run / "audits", audit.plan, fresh=True)
    for item in audit.rows:
        shown, files = pictures(item) if item.method in ("ridge", "decoder") and item.ok else (item, {})
        values = {name: np.full(item.num_images, found.mean) for name, found in item.scores.items()}
        scores = ImageScores(np.arange(item.num_images), values) if values else None
        ledger.write(shown, RowFiles(scores, files))
    return ledger.path


def rewrite(file: Path, changed: dict[str, Any]) -> None:
    """Change a file of a run or an audit as if the program had written it like this: with a fitting seal."""
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    reseal(file.parent)


def reseal(folder: Path) -> None:
    """Make the seals of an audit's plan and rows fit its files; the join is left, for it is derived."""
    files_of_json = (file for file in folder.glob("*.json") if file.name != "joined.json" and file.is_file())
    for file in files_of_json if (folder / "audit.json").is_file() else ():  # a pipe would wait for its writer
        data = json.loads(file.read_text())
        if seal := data.pop("seal", None):
            version, audit = data.pop("schema_version"), json.loads((folder / "audit.json").read_text())["id"]
            others = {name: folder / name for name in seal["files"]}
            files = {name: sha256(it.read_bytes()) for name, it in others.items() if it.is_file()}
            file.write_text(json.dumps({"schema_version": version, **sealed(data, audit, files)}))


def train_records(name: str, **last: Any) -> list[dict[str, Any]]:
    records = []
    for step in range(60):
        record = {"kind": "train", "step": step, "epoch": step / 6, "lr": 0.05, "ce": 2 / (1 + step)}
        record |= {
            "penalty_weight": 0.0 if name == "none" else 16.0,
            "rob_loss": 0.0 if name == "none" else 1 / (1 + step),
        }
        record |= {"intra_mse": 0.2 / (1 + 0.1 * step), "skipped": 0.0}
        if name == "gated":
            record |= {"effective_samples": 0.7, "gate_dimension": 0.6, "gate_snr": 0.4, "gate_saturation": 0.1}
        records.append(record)
    for record in records[-PATIENCE:]:
        record.update(last)
    return records


def write_checkpoint(run: Path, encoder: str = ENCODER, **other: Any) -> None:
    folder = run / "checkpoints" / "epoch-00009"
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {"optimizer.pt": "0" * 64, "client.safetensors": encoder}
    facts = {"schema_version": 2, "epoch": 9, "sha256": hashes, **other}
    (folder / "checkpoint.json").write_text(json.dumps(facts))
    (run / "best.json").write_text(json.dumps({"schema_version": 2, "checkpoint": folder.name}))


def make_run(
    folder: Path,
    name: str = "none",
    *,
    audits: list[AuditResult] | None = None,
    seed: int = 0,
    config: dict[str, Any] | None = None,
    **last: Any,
) -> Path:
    """A run's folder with its log and audits; one of another seed is named after it. ``config``: more options."""
    path = folder / (f"{name}-s{seed}" if seed else name)
    manifest = {
        "name": name,
        "status": "finished",
        "training_seconds": NUMBERS.get(name, NUMBERS["none"])[2],
        "device": "cpu",
        "split": {"train": 4000, "validation": 500, "held_out": 4000, "test": 1000, "sha256": "0" * 64},
        "versions": {"attncem": "0.2.0", "torch": "2.11"},
        "client_macs": 1_234_567,
        "server_macs": 9_876_543,
        "client_parameters": 10_234,
        "server_parameters": 1_250_000,
        "bytes_per_query": 2048,
    }
    run = RunDirectory.create(path, config_yaml=dump_config(run_config(name, seed, **config or {})), manifest=manifest)
    write_checkpoint(path)
    for record in train_records(name, **last):
        run.log(record)
    for epoch in range(1, 11):
        numbers = {"accuracy": 0.9 - 0.5 / epoch, "ce": 1 / epoch}
        run.log({"kind": "validation", "epoch": epoch, "step": 6 * epoch, **numbers})
    for audit in [make_audit(name)] if audits is None else audits:
        write_audit(path, audit)
    return path
