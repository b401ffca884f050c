"""measure(): one row of an audit. Errors become values: a row that failed or is not applicable, with the reason."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.progress import Progress, silent
from attncem.base.texts import Sentence, written
from attncem.base.types import AttncemError, NotApplicable
from attncem.config.options.base import Options
from attncem.judging.attacks.base import Attack
from attncem.judging.auditing.gallery import choose_pictures
from attncem.judging.auditing.guards import company, require_images
from attncem.judging.auditing.judges import build_judge
from attncem.judging.auditing.sampling import sample_values
from attncem.judging.case import BATCH, Case
from attncem.judging.judges import Certificate, Probe
from attncem.records.audit import Kind, Row
from attncem.records.checkpoints import pack_tensors
from attncem.records.findings import Finding, finding
from attncem.records.image_scores import ImageScores, summarise
from attncem.records.ledger import RowFiles
from attncem.records.metrics import METRICS
from attncem.records.score import Score

Values = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Measured:
    """A row and its files."""

    row: Row
    files: RowFiles = field(default_factory=RowFiles)


def measure(
    case: Case,
    name: str,
    options: Options,
    *,
    seed: int,
    progress: Progress = silent,
    owns: Literal["all", "sent"] = "all",
) -> Measured:
    """Judge the case by what the options describe. Only an interruption leaves this function as an error.

    An attack that ``owns`` the `sent` images learns from those of its images that a client with a head would send.
    """
    started = time.perf_counter()
    judge = build_judge(options, progress=_as_row(progress, name, options.name))  # type: ignore[attr-defined]
    case = case.for_row(options)
    row = Row(
        name=name,
        method=options.name,  # type: ignore[attr-defined]
        kind=_kind(judge),
        outcome="ok",
        reason="",
        options=options.model_dump(mode="json"),
        seed=seed,
        releases=case.threat.releases_per_input,
        jitter=case.threat.jitter,
        sees=judge.sees if isinstance(judge, Attack) else "release",
        must_beat=list(judge.must_beat) if isinstance(judge, Attack) else [],
        owns=owns,
    )
    try:
        case = case.owning_sent() if owns == "sent" else case
        found = _judged(case, judge, row, seed)
        case.require_unchanged()
    except NotApplicable as error:
        found = Measured(replace(row, outcome="not_applicable", reason=str(error), reason_source=_source(error)))
    except Exception as error:  # an error in an attack costs only its own row
        found = Measured(replace(row, outcome="failed", reason=_reason(error)))
    return replace(found, row=replace(found.row, seconds=time.perf_counter() - started))


def _as_row(progress: Progress, row: str, method: str) -> Progress:
    """Reports stages under the name of their row: attacks use their method's name, and a suite may contain it twice."""

    def told(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        own, colon, part = stage.partition(": ")
        said = f"{row}{colon}{part}" if own == method or row.startswith(own) else f"{row}: {stage}"
        progress(said, done, total, numbers)

    return told


def _kind(judge: Attack | Certificate | Probe) -> Kind:
    if isinstance(judge, Attack):
        return "attack" if judge.sees == "release" else "floor"
    return "certificate" if isinstance(judge, Certificate) else "probe"


def _reason(error: Exception) -> str:
    """The error in one line, with its place in the code unless the message is written for users."""
    said = " ".join(str(error).split())
    if isinstance(error, AttncemError):
        return said
    place = traceback.extract_tb(error.__traceback__)[-1]
    path, package = Path(place.filename), Path(__file__).parents[2]
    file = path.relative_to(package) if path.is_relative_to(package) else path.name
    return f"{type(error).__name__}: {said} ({file}, line {place.lineno})"


def _source(error: NotApplicable) -> Mapping[str, Any]:
    """Key and values of the message; empty if the sentence is not in the catalogue."""
    return next((sentence.source for sentence in error.args if isinstance(sentence, Sentence)), {})


def _judged(case: Case, judge: Attack | Certificate | Probe, row: Row, seed: int) -> Measured:
    if isinstance(judge, Attack):
        return _attacked(case, judge, row, seed)
    case.require(judge.needs)
    return _certified(case, judge, row, seed) if isinstance(judge, Certificate) else _probed(case, judge, row, seed)


def _certified(case: Case, certificate: Certificate, row: Row, seed: int) -> Measured:
    """The certificate's bounds, and its numbers of each image if it has any."""
    bounds = dict(certificate.bound(case, seed=seed))
    images = certificate.images
    index = np.arange(len(next(iter(images.values()), ())), dtype=np.int64)
    found = [replace(item, about=row.name) for item in certificate.findings]
    judged = replace(row, bounds=bounds, num_images=len(index), findings=found)
    return Measured(judged, RowFiles(ImageScores(case.places[index], images)) if images else RowFiles())


def _probed(case: Case, probe: Probe, row: Row, seed: int) -> Measured:
    """The probe's numbers of the evaluation images, and the chance level."""
    values = probe.score(case, seed=seed)
    index = np.arange(len(case.x), dtype=np.int64) if probe.index is None else probe.index
    scored = replace(
        row,
        scores=_scores(values, case, index),
        chance=dict(probe.chance),
        by=probe.by,
        num_images=len(index),
        findings=[replace(item, about=row.name) for item in probe.findings],
    )
    return Measured(scored, RowFiles(ImageScores(case.places[index], values)))


def _attacked(case: Case, attack: Attack, row: Row, seed: int) -> Measured:
    """Fit the attack through its oracle and measure it on the evaluation images."""
    attack.fit(case.oracle(attack, seed), seed=seed)
    index = case.image_index(attack)
    images, alone = _reconstructed(case, attack, len(index))
    values, left_out = image_values(images, case.x[: len(index)])
    values |= sample_values(case, attack, len(index))
    pictures, files = choose_pictures(row.name, case, images, values["mse"])
    state = attack.state()
    scored = replace(
        row,
        scores=_scores(values, case, index),
        num_images=len(index),
        verdict=attack.verdict,
        findings=[*(replace(item, about=row.name) for item in (*attack.findings, *alone)), *left_out],
        pictures=pictures,
    )
    packed = None if state is None else pack_tensors(state)
    return Measured(scored, RowFiles(ImageScores(case.places[index], values), files, packed))


def _reconstructed(case: Case, attack: Attack, count: int) -> tuple[Tensor, list[Finding]]:
    """The reconstructions, and a finding if they depend on each other."""
    parts, findings = list[Tensor](), list[Finding]()
    for seen in case.seen_by(attack, count):
        kept = None if parts else seen.clone()
        parts.append(attack.reconstruct(seen).detach().float())
        if kept is not None and tuple(parts[0].shape[1:]) == tuple(case.x.shape[1:]):
            findings = company(attack, kept, parts[0], case.x)
    images = torch.cat(parts)
    require_images(images, (count, *case.x.shape[1:]))
    return images, findings


@torch.no_grad()
def image_values(images: Tensor, x: Tensor) -> tuple[dict[str, NDArray[np.float64]], list[Finding]]:
    """Every measure of every image, without those that the images are too small for."""
    pairs = list(zip(images.split(BATCH), x.split(BATCH), strict=True))
    values: dict[str, Any] = {}
    left_out: list[Finding] = []
    for name, metric in METRICS.items():
        if min(x.shape[-2:]) < metric.pixels:
            left_out.append(finding("measure_left_out", about=written(f"measure.{name}"), pixels=metric.pixels))
            continue
        taken = torch.cat([metric.function(a, b) for a, b in pairs])
        values[name] = np.asarray(taken.double().cpu().numpy())
    return values, left_out


def _scores(values: Values, case: Case, index: NDArray[np.int64]) -> dict[str, Score]:
    labels = case.y.cpu().numpy()[index]
    return {name: summarise(found, labels, case.subject.spec.num_classes) for name, found in values.items()}
