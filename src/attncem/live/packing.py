"""pack(): a run with its audits as a folder that a page shows: bundle, audited decoders, examples, blind guesses."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from attncem.base.pictures import png_text
from attncem.base.progress import Progress, shown
from attncem.base.shown_paths import shown_path
from attncem.base.texts import written
from attncem.base.types import NotApplicable, RunError
from attncem.data.sources import CREDITS
from attncem.deploy.exporting import export, new_folder
from attncem.judging.attacks.floors import ClassMeanFloor, MeanImageFloor
from attncem.judging.auditing.asked import Adversary
from attncem.judging.case import Case
from attncem.judging.opening import OpenRun, open_run
from attncem.live.auditing import (
    again_command,
    audit_command,
    audit_of,
    candidates,
    floor_of,
    strongest_network,
    strongest_row,
)
from attncem.live.decoders import exported
from attncem.live.facts import NAME, Example, LiveFacts, State, Stop, Stronger, to_text
from attncem.records.audit import AuditResult, Row
from attncem.records.files import write_atomic
from attncem.records.ledger import STOPS
from attncem.training.engine import attacking
from attncem_edge.manifest import read_manifest

EXAMPLES = 24
"""Test images that a page offers."""
LARGEST = 15_000_000
"""Bytes of a folder that is kept at most: it may become a part of the package."""
Decoders = dict[str, bytes]


def pack(
    run: str | Path,
    out: str | Path,
    *,
    audits: Sequence[str | Path] = (),
    weights: str = "best",
    largest: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the bundle of a run with its audited decoders into a new folder.

    With a ``largest`` size in bytes, decoders keep their weights in 16 bits; RunError where that is not small enough.
    """
    folder = Path(out)
    with new_folder(folder) as temporary, shown(progress) as reporter:
        stage = written("stage.live", run=Path(run).name)
        reporter(stage, 0, 2, {})
        export(run, temporary / "bundle", weights=weights)
        for file in (temporary / "bundle").iterdir():
            file.rename(temporary / file.name)
        (temporary / "bundle").rmdir()
        reporter(stage, 1, 2, {})
        facts, decoders = prepare(
            open_run(run, weights=weights, device="cpu"), str(run), audits, half=largest is not None
        )
        identity = read_manifest(temporary).identity
        for name, data in decoders.items():
            write_atomic(temporary / name, data)
        write_atomic(temporary / NAME, to_text(replace(facts, identity=identity)).encode())
        _require_small(temporary, largest)
        reporter(stage, 2, 2, {})
    return folder


def _require_small(folder: Path, largest: int | None) -> None:
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    if largest is not None and (total := sum(sizes.values())) > largest:
        parts = ", ".join(
            f"{name} {size / 1e6:.1f} MB" for name, size in sorted(sizes.items(), key=lambda it: -it[1])[:5]
        )
        raise RunError(
            f"the folder would take {total / 1e6:.1f} MB, and at most {largest / 1e6:g} MB are kept: {parts}"
        )


def prepare(
    opened: OpenRun, run: str, audits: Sequence[str | Path] = (), *, half: bool = False
) -> tuple[LiveFacts, Decoders]:
    """The facts of the page and its decoders; examples alone where nothing was audited."""
    run, audit = shown_path(run), audit_of(opened, audits)
    if audit is None:
        bare = [Stop(releases, "not_audited", command=audit_command(run, releases)) for releases in STOPS]
        examples = _examples(opened, *opened.data.test.get(slice(None)))
        return LiveFacts("", opened.spec.name, examples, bare, source=CREDITS.get(opened.spec.name, "")), {}
    threads = opened.config.threads
    with attacking(opened.device, threads):
        case = Adversary(audit.plan.threat, "test", audit.plan.seed).against(opened)
        made = [_stop(case, audit, run, releases, half=half) for releases in STOPS]
        floors = [audit.row(stop.floor) for stop, _ in made if stop.floor]
        mean, means = _blind(case.owning_sent() if any(row.owns == "sent" for row in floors) else case)
    decoders = {stop.file: graph for stop, graph in made if graph is not None}
    facts = LiveFacts(
        identity="",
        dataset=opened.spec.name,
        examples=_examples(opened, *(case.every if case.looked is not None else (case.x, case.y))),
        stops=[stop for stop, _ in made],
        source=CREDITS.get(opened.spec.name, ""),
        mean=mean,
        class_means=means,
        threat=audit.plan.threat.name,
        audits=[plan.id for plan in audit.plans],
        judgement=audit.judgement,
        files={name: hashlib.sha256(graph).hexdigest() for name, graph in decoders.items()},
    )
    return facts, decoders


def _stop(case: Case, audit: AuditResult, run: str, releases: int, *, half: bool) -> tuple[Stop, bytes | None]:
    """One stop: the strongest audited attack that a page can run, and the strongest of all, if that is another one."""
    best, command = strongest_row(audit, releases), audit_command(run, releases)
    if best is None:
        return Stop(releases, "not_audited", command=command), None
    kept = candidates(audit, releases)
    for candidate in kept:
        made, row = exported(case, candidate, half=half), candidate.row
        if made is None:
            continue
        floor = floor_of(audit, row)
        stop = Stop(
            releases,
            "shown",
            row=row.name,
            mse=row.mse.mean,
            low=row.mse.low,
            high=row.mse.high,
            images=row.num_images,
            floor="" if floor is None else floor.name,
            guess="" if floor is None else floor.method,
            blind=None if floor is None else floor.mse.mean,
            reliable=row.verdict.reliable,
            stronger=None if best is row else Stronger(best.name, best.mse.mean),
            checked=made.checked,
            reproduced=made.error,
        )
        return stop, made.graph
    lost = None if kept else strongest_network(audit, releases)
    if lost is None:
        return _missing(releases, "not_exported", best, command), None
    return _missing(releases, "not_kept", lost, again_command(run, audit, lost.name)), None


def _missing(releases: int, state: State, row: Row, command: str) -> Stop:
    return Stop(releases, state, row=row.name, stronger=Stronger(row.name, row.mse.mean), command=command)


def _blind(case: Case) -> tuple[str, list[str]]:
    """The blind guesses: the mean of the attacker's images, and that of each class; empty where it has none."""
    try:
        floor = MeanImageFloor()
        floor.fit(case.oracle(floor, 0), seed=0)
        mean = _pixels(floor.reconstruct(case.released[:1])[0])
        of_class = ClassMeanFloor()
        of_class.fit(case.oracle(of_class, 0), seed=0)
    except NotApplicable:
        return "", []
    return mean, [_pixels(image) for image in of_class.means]


def _pixels(image: Tensor) -> str:
    """An image in [0, 1] as one byte for each number, in base64."""
    return base64.b64encode((image * 255).round().to(torch.uint8).cpu().numpy().tobytes()).decode()


def _examples(opened: OpenRun, x: Tensor, y: Tensor) -> list[Example]:
    """The first test images of every class, as many of each, in the order of the set."""
    classes = max(1, opened.spec.num_classes)
    each = max(1, EXAMPLES // classes)
    places = [(y == label).nonzero().flatten()[:each] for label in range(min(classes, EXAMPLES))]
    chosen = sorted(int(place) for place in torch.cat(places))
    return [Example(place, int(y[place]), png_text(x[place])) for place in chosen[:EXAMPLES]]
