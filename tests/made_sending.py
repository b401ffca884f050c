"""Runs and audits of a client that sends only some images, made in no time, for the tests of pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from attncem.base.texts.titles import FROM_SENT
from attncem.records.audit import AuditResult, Row
from attncem.records.bounds import Bound
from attncem.records.fingerprints import fingerprint
from attncem.records.selective import CurvePoint, Selective
from made_runs import (
    CHANNEL,
    ENCODER,
    NUMBERS,
    leak_rows,
    make_audit,
    make_run,
    rows,
    score,
    write_checkpoint,
)

SENT, IMAGES = 300, 1000
HEAD = "a" * 64
THRESHOLD = 0.8253
RELEASE = {"when": "unsure", "share": 0.3}
FINGERPRINT = fingerprint(ENCODER, CHANNEL, release={"threshold": THRESHOLD, "head": HEAD})
CHOSEN = {
    "threshold": THRESHOLD, "share": 0.3, "accuracy": 0.86, "alone": 0.81, "all_sent": 0.87, "images": 500,
}  # fmt: skip
"""The selection of a checkpoint."""
HASHES = {"optimizer.pt": "0" * 64, "client.safetensors": ENCODER, "head.safetensors": HEAD}


def facts(sent: int = SENT, together: float = 0.86, alone: float = 0.81, all_sent: float = 0.87) -> Selective:
    """What a client sends; the accuracy rises with the share."""
    ends = {0.0: alone, 1.0: all_sent, sent / IMAGES: together}
    curve = [CurvePoint(share, ends[share]) for share in sorted(ends)]
    scores = (score(value, 0.02) for value in (together, alone, all_sent))
    return Selective(THRESHOLD, IMAGES, sent, *scores, 0.55, [0.1, 0.5, 0.4, None], curve)


def twin(item: Row, factor: float) -> Row:
    """The same row as learned from sent images."""
    scores = {name: replace(it, mean=factor * it.mean) for name, it in item.scores.items()}
    return replace(item, name=item.name + FROM_SENT, scores=scores, owns="sent")


def sent_rows(mse: float, sent: int = SENT, *, over_all: float | None = 2.5, **leaks: Any) -> list[Row]:
    """Attacks, floors and their twins, and certificates for an image that is sent."""
    made = []
    for item in rows(mse):
        made += [item] if item.name == "grey" else [item, twin(item, 0.98 if item.method == "ridge" else 1.03)]
    made += leak_rows(**leaks)
    bound = Bound(
        2.4, "nats", 2.3, 2.5, "bound", [], about="over_all", direction="at_most", limit=over_all
    )  # fmt: skip
    if over_all is not None:
        rest = replace(bound, value=4.9, limit=5.0, about="not_sent")
        beside = {"over_all": bound, "not_sent": rest}
        made = [replace(it, bounds={**it.bounds, **beside}) if it.name == "leakage" else it for it in made]
    return [replace(it, num_images=sent) for it in made]


def sent_audit(sent: int = SENT, made: list[Row] | None = None, **plan: Any) -> AuditResult:
    """An audit of a client that sends some images, under the name `gated`."""
    made = sent_rows(NUMBERS["gated"][1], sent) if made is None else made
    options = {"subject": {"fingerprint": FINGERPRINT}, "num_evaluation": sent, "selective": facts(sent)} | plan
    return make_audit("gated", made, accuracy=options["selective"].together, **options)


def sent_run(folder: Path, audits: list[AuditResult] | None = None, seed: int = 0) -> Path:
    """The folder of such a run, with its audits."""
    made = [sent_audit()] if audits is None else audits
    path = make_run(folder, "gated", audits=made, config={"release": RELEASE}, seed=seed)
    write_checkpoint(path, sha256=HASHES, release=CHOSEN)
    return path
