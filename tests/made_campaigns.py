"""Campaign folders of any size without training anything: made-up numbers in files of the real form and size."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from attncem.base.types import SCHEMA_VERSION
from attncem.campaigns.expansion import expand
from attncem.config.loading.load import load
from attncem.config.options.campaigns import Campaign
from attncem.config.options.suites import row_file
from attncem.config.threats import THREATS
from attncem.records.audit import AuditPlan, AuditResult, Picture, Row, Subject, Verdict
from attncem.records.campaign import Cell, Finished
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.explanation import Gate
from attncem.records.joining import join
from attncem.records.ledger import JOINED, PLAN
from attncem.records.metrics import METRICS
from attncem.records.on_device import Choice
from attncem.records.portrait import PORTRAIT, ClassPortrait, Cloud, Face, Portrait
from attncem.records.score import Score
from attncem.records.selective import Selective
from made_runs import leak_rows

CLASSES = ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
FLOORS = {"grey": 0.0712, "mean image": 0.0655, "class mean": 0.0521}
ATTACKS = ("nearest neighbour", "ridge", "decoder small", "decoder global", "flow", "gan", "image prior", "white box")
WATCHED = ("effective_samples", "slot_entropy", "gate_dimension", "gate_snr", "gate_class", "gate_saturation")


@dataclass(frozen=True)
class Made:
    """How large a campaign shall be."""

    arms: Mapping[str, Mapping[str, Any]]
    seeds: int = 3
    grid: Mapping[str, list[Any]] | None = None
    attacks: tuple[str, ...] = ATTACKS[:3]
    side: int = 28
    channels: int = 1
    pictures: int = 8
    epochs: int = 10
    meaning: str = "Which defence keeps pictures private at the same accuracy?"
    name: str = "made-up"
    audits: tuple[Mapping[str, Any], ...] = ({"suite": "quick"},)
    portraits: bool = True
    leaks: Mapping[str, Mapping[str, Any]] | None = None
    """Options of `made_runs.leak_rows` by arm, for the first audit; its limits vary a little with the seed."""
    alone: float = 0.0
    """Accuracy of the client alone, which every arm then has; 0: there is none."""
    sending: Mapping[str, Selective] | None = None
    """What the clients of arms send that send only some images."""


ARMS: dict[str, dict[str, Any]] = {
    "none": {"config": "demo-none"},
    "kmeans": {"config": "demo-kmeans"},
    "gated": {"config": "demo"},
}


def make_campaign(path: Path, made: Made) -> CampaignFolder:
    """A campaign whose every cell is done."""
    asked = {
        "name": made.name,
        "meaning": made.meaning,
        "arms": {name: {**own, "grid": _grid(name, made)} for name, own in made.arms.items()},
        "seeds": made.seeds,
        "audits": [dict(audit) for audit in made.audits],
        "portraits": made.portraits,
        **({"on_device": True} if made.alone else {}),
    }
    campaign = load(Campaign, asked).config
    folder = CampaignFolder.create(path, campaign, expand(campaign))
    originals = [_png(np.random.default_rng(index), made, 0.2) for index in range(made.pictures)]
    for cell in folder.plan.cells:
        if cell.budget is None:
            make_cell(folder, cell, made, originals)
        else:
            make_alone(folder, cell, made)
    return folder


_CLIENT_MACS = 1_234_567
SPLIT = {"train": 4000, "validation": 500, "test": 1000, "sha256": "a" * 64}
DATA = {
    **{"name": "fashion_mnist_mini", "shape": [1, 28, 28], "num_classes": 10, "mean": [0.5], "std": [0.5]},
    "class_names": CLASSES,
}


def make_alone(folder: CampaignFolder, cell: Cell, made: Made) -> None:
    """A finished candidate of the client alone; the one of the client's own trunk is chosen."""
    rng, run = np.random.default_rng(hash_of(cell.id)), folder.run_path(cell.id)
    run.mkdir()
    shutil.copy(folder.path / "cells" / f"{cell.id}.yaml", run / "config.yaml")
    chosen = cell.point["network"] == "trunk"
    best = {"checkpoint": "epoch-00009", "epoch": 9, "validation_accuracy": 0.9 if chosen else 0.8}
    facts = {"on_device": True, "encoder_sha256": "b" * 64, "split": SPLIT, "data": DATA, "best": best}
    _write(run / "manifest.json", {**_manifest(cell, 0, rng), **facts, "client_macs": 1000})
    if chosen:
        accuracy = score(made.alone, rng, 0.01)
        choice = Choice(_CLIENT_MACS, [], cell.id, "epoch-00009", "b" * 64, accuracy, accuracy, 1000)
        _write(run / "on_device.json", choice.to_dict())


def _grid(arm: str, made: Made) -> dict[str, list[Any]]:
    """That of every arm but the undefended one, which has no penalty to weigh."""
    return {} if arm == "none" else dict(made.grid or {})


def make_cell(folder: CampaignFolder, cell: Cell, made: Made, originals: list[bytes]) -> None:
    """A finished run with its audits and, for the first seed, its portrait."""
    arm = list(made.arms).index(cell.arm)
    rng = np.random.default_rng([cell.seed, arm, len(repr(cell.point)), hash_of(cell.id)])
    run = folder.run_path(cell.id)
    run.mkdir()
    shutil.copy(folder.path / "cells" / f"{cell.id}.yaml", run / "config.yaml")
    same = {"split": SPLIT, "data": DATA} if made.alone else {}
    _write(run / "manifest.json", {**_manifest(cell, arm, rng), **same})
    _write(run / "best.json", {"checkpoint": "epoch-00009"})
    lines = [line for epoch in range(made.epochs) for line in _lines(cell.arm, epoch, rng)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    there = {}
    for number, audit in enumerate(folder.campaign.audits):
        there[audit.key] = _audit(run, cell, arm, made, rng, originals, number)
    _write(folder.path / "cells" / f"{cell.id}.json", Finished(there).to_dict())
    if made.portraits and cell.seed == 0:
        (run / PORTRAIT).write_text(json.dumps({"schema_version": SCHEMA_VERSION, **_portrait(cell, made).to_dict()}))


def hash_of(words: str) -> int:
    """The same number everywhere."""
    return sum((place + 1) * ord(letter) for place, letter in enumerate(words))


def _write(file: Path, data: Mapping[str, Any]) -> None:
    file.write_text(json.dumps({"schema_version": SCHEMA_VERSION, **data}, indent=1), encoding="utf-8")


def _manifest(cell: Cell, arm: int, rng: np.random.Generator) -> dict[str, Any]:
    return {
        "name": cell.id,
        "status": "finished",
        "split": {"train": 4000, "validation": 500, "held_out": 4000, "test": 1000, "sha256": "0" * 64},
        "peak_memory_bytes": 512_000_000,
        "peak_memory_of": "training",
        "training_seconds": round(40 + 12 * arm + rng.normal(0, 1), 2),
        "best": {"checkpoint": "epoch-00009", "epoch": 9, "validation_accuracy": 0.9},
        "client_macs": _CLIENT_MACS,
        "server_macs": 9_876_543,
        "client_parameters": 10_234,
        "server_parameters": 1_250_000,
        "bytes_per_query": 2048,
    }


def _lines(arm: str, epoch: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    own = {name: round(float(np.clip(0.3 + 0.05 * epoch + rng.normal(0, 0.02), 0, 1)), 4) for name in WATCHED}
    own = {} if arm == "none" else own
    steps = [{"kind": "train", "step": 4 * epoch + n, "epoch": epoch + n / 4, "ce": 1.0, **own} for n in range(4)]
    done = {"kind": "validation", "step": 4 * epoch + 4, "epoch": epoch + 1, "accuracy": 0.9, "ce": 0.3}
    return [*steps, done]


# audits


def score(mean: float, rng: np.random.Generator, width: float = 0.04) -> Score:
    """A measure with every class's mean."""
    of_class = [round(float(mean * (1 + 0.2 * rng.normal())), 6) for _ in CLASSES]
    ends = [round(0.4 * value, 6) for value in of_class]
    ends_of_mean = mean - width * abs(mean), mean + width * abs(mean)
    return Score(mean, *ends_of_mean, 0.4 * mean, 2 * mean, of_class, mean, ends)  # type: ignore[arg-type]


def row(name: str, mse: float, rng: np.random.Generator, kind: Any = "attack") -> Row:
    """A row that has a result."""
    means = {"psnr": -10 * float(np.log10(mse)), "ssim": 0.9 - 10 * mse, "edges": 0.9 - 8 * mse, "structure": 0.8 * mse}
    values = {measure: means.get(measure, mse) for measure in METRICS}
    verdict = Verdict(reliable=name != "gan")
    scores = {measure: score(value, rng) for measure, value in values.items()}
    sees = "nothing" if kind == "floor" else "release"
    method = name.replace(" ", "_")
    beaten = ["ridge"] if method.startswith("decoder") else []
    return Row(
        name, method, kind, "ok", "", {}, 1, 1, sees, 1000, scores, verdict=verdict, must_beat=beaten, seconds=3.2
    )


def accuracy_of(arm: int, cell: Cell) -> float:
    """Falls with the arm's number, and with what the grid adds."""
    return 0.91 - 0.015 * arm - 0.002 * level(cell)


def error_of(arm: int, cell: Cell) -> float:
    """Rises with it."""
    return 0.0104 + 0.006 * arm + 0.0008 * level(cell)


def level(cell: Cell) -> float:
    """One number for a point of the grid."""
    return sum(float(value) if isinstance(value, int | float) else len(str(value)) for value in cell.point.values()) % 9


def _audit(
    run: Path, cell: Cell, arm: int, made: Made, rng: np.random.Generator, originals: list[bytes], number: int
) -> str:
    base = error_of(arm, cell) * (1 + 0.03 * rng.normal()) * (1 + 0.1 * number)
    rows = [row(name, value, rng, "floor") for name, value in FLOORS.items()]
    rows += [row(name, base * (2 - place / len(made.attacks)), rng) for place, name in enumerate(made.attacks)]
    rows += _leaks(cell, made) if number == 0 else []
    plan = _plan(cell, arm, [item.name for item in rows], rng, number)
    if (facts := (made.sending or {}).get(cell.arm)) is not None:
        plan = replace(plan, selective=facts, accuracy=facts.together)
    folder = run / "audits" / plan.id
    (folder / "pictures").mkdir(parents=True)
    for index, data in enumerate(originals):
        (folder / "pictures" / f"original-{index}.png").write_bytes(data)
    rows = [item if item.kind != "attack" or item.releases > 1 else _pictured(item, folder, made, rng) for item in rows]
    result: AuditResult = join(plan, rows, {item.name: item.mse.mean for item in rows if "mse" in item.scores})
    _write(folder / PLAN, plan.to_dict())
    for item in rows:
        _write(folder / f"{row_file(item.name)}.json", item.to_dict())
    _write(folder / JOINED, replace(result, folder="").to_dict())
    return plan.id


def _leaks(cell: Cell, made: Made) -> list[Row]:
    options = dict((made.leaks or {}).get(cell.arm) or {})
    if options.get("limit"):
        options["limit"] *= 1 + 0.02 * cell.seed
    return leak_rows(**options) if options else []


def _pictured(item: Row, folder: Path, made: Made, rng: np.random.Generator) -> Row:
    stem, found = row_file(item.name), []
    for index in range(made.pictures):
        (folder / "pictures" / f"{stem}-{index}.png").write_bytes(_png(rng, made, 0.6))
        found.append(Picture(index, index % 10, "fixed", f"original-{index}.png", f"{stem}-{index}.png", item.mse.mean))
    return replace(item, pictures=found)


def _plan(cell: Cell, arm: int, rows: list[str], rng: np.random.Generator, number: int) -> AuditPlan:
    accuracy = accuracy_of(arm, cell) + 0.003 * float(rng.normal())
    subject = Subject(
        cell.id, "f" * 64, "epoch-00009", cell.arm, 0.0, 0.1, [], 1, "shapes", "small", "2", cell.seed, 10, CLASSES,
        "d" * 64, 1_234_567, 9_876_543, 10_234, 1_250_000, 2048, 40.0,
    )  # fmt: skip
    threat = THREATS["train" if number == 0 else "held_out"]
    return AuditPlan(
        f"quick-{threat.name}-test-0123456789ab", "quick", 1, [], rows, threat, "test", cell.seed, subject, 1000, 4000,
        4000, score(accuracy, rng, 0.01), [], "cpu", {"attncem": "0.2.0"}, made=f"2030-01-0{number + 1}",
    )  # fmt: skip


def _png(rng: np.random.Generator, made: Made, noise: float) -> bytes:
    side = np.linspace(0, 1, made.side)
    ramp = np.sin(6 * side)[:, None] * np.cos(5 * side)[None, :] * 0.5 + 0.5
    image = ramp[..., None] * (1 - noise) + noise * rng.random((made.side, made.side, made.channels))
    pixels = (255 * np.clip(image, 0, 1)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if made.channels == 1 else pixels).save(file, format="PNG")
    return file.getvalue()


# portraits


def _portrait(cell: Cell, made: Made) -> Portrait:
    import base64

    rng = np.random.default_rng(hash_of(cell.id))
    labels = [number % 10 for number in range(300)]
    clouds = [
        _cloud(rng, labels, of, method)
        for method, kinds in (("pca", ("pixels", "clean", "released")), ("tsne", ("clean", "released")))
        for of in kinds
    ]
    faces = [base64.b64encode(_png(rng, replace(made, side=16), 0.3)).decode() for _ in range(6)]
    weights = sorted((float(f"{value:.4g}") for value in rng.dirichlet(np.ones(30))), reverse=True)
    gates = [Gate("gate_dimension", 0.4, 0.02, 0.9, 0.1), Gate("gate_snr", 0.7, 0.1, 1.0, 0.2)]
    of_slots = Gate("slot_gate_snr", 0.6, 0.1, 0.9, 0.1)
    divided = [True, True, False]  # as hybrid leaves it: the last class has attention alone
    classes = [
        ClassPortrait(
            label, CLASSES[label], 30, weights, [0.5, 0.3, 0.2] * slots, [*gates, *[of_slots] * slots],
            [Face(face, weights[5 * place], [0.6, 0.3, 0.1] * slots) for place, face in enumerate(faces)],
        )
        for label, slots in enumerate(divided)
    ]  # fmt: skip
    bare = cell.arm == "none"
    surrogate, shown = ("none", []) if bare else (cell.arm, classes)
    return Portrait(
        cell.id, surrogate, "shapes", "d" * 64, "epoch-00009", CLASSES, labels, clouds, "" if bare else "slot", shown
    )


def _cloud(rng: np.random.Generator, labels: list[int], of: Any, method: Any) -> Cloud:
    centres = rng.normal(0, 200, (10, 2))
    points = np.clip(centres[labels] + rng.normal(0, 60, (300, 2)), -500, 500).astype(int)
    return Cloud(of, method, points[:, 0].tolist(), points[:, 1].tolist(), 0.01, 0.6 if method == "pca" else None)
