"""audit(): judge a run by every row of a suite, and save each row as soon as it is measured."""

from __future__ import annotations

import platform
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

import attncem
from attncem.base.progress import Progress, shown, tell
from attncem.base.texts import text, written
from attncem.base.texts.titles import images_title, threat_title
from attncem.base.types import ConfigError
from attncem.config.options.base import Options
from attncem.config.options.probes import AttributeLeakageOptions
from attncem.config.options.suites import LoadedSuite, Suite, load_suite, select_rows
from attncem.config.plugins import uses, uses_of
from attncem.config.threats import ThreatModel, extended
from attncem.data.attributes import attributes_hash
from attncem.data.outside import Outside
from attncem.judging.attacks.base import Attack
from attncem.judging.auditing.asked import Adversary, Compute, Rows, require_some, threat_model
from attncem.judging.auditing.describing import describe_subject
from attncem.judging.auditing.forecasting import Schedule, foretell
from attncem.judging.auditing.guards import near_copies, overlap, signal_to_noise
from attncem.judging.auditing.judges import build_judge
from attncem.judging.auditing.kept import strongest_kept
from attncem.judging.auditing.measuring import Measured, measure
from attncem.judging.auditing.twins import owned_by, with_twins
from attncem.judging.auditing.units import human_units
from attncem.judging.auditing.workers import Brief, measured_beside
from attncem.judging.case import Case
from attncem.judging.opening import OpenRun, open_run
from attncem.models.trial import TRIED, try_encoder
from attncem.records.audit import AuditPlan, AuditResult
from attncem.records.findings import Finding, finding
from attncem.records.image_scores import summarise
from attncem.records.ledger import Ledger, plan_id
from attncem.records.runs import RunDirectory
from attncem.records.score import Score
from attncem.records.sending import share_findings
from attncem.training.build import Modules
from attncem.training.engine import attacking, describe_device
from attncem.training.health import spans

__all__ = ["Case", "audit", "measure"]

_UNBALANCED = 0.02
"""A finding is added if accuracy and the mean of the class accuracies differ by at least this much."""


def audit(  # noqa: PLR0913 - one door, every choice by name
    run: str | Path | RunDirectory | OpenRun,
    suite: str | Path | Mapping[str, Any] | Suite = "standard",
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    threat: str | ThreatModel = "train",
    releases: int | None = None,
    attacker_data: str | Path | None = None,
    attacker_images: int | None = None,
    queries: int | None = None,
    sees_answers: bool = False,
    on: str = "test",
    weights: str = "best",
    seed: int | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    fresh: bool = False,
    out: str | Path | None = None,
    device: str | None = None,
    reference: str | Path | RunDirectory | OpenRun | None = None,
    modules: Modules | None = None,
    threads: int | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> AuditResult:
    """Judge a run by the rows of a suite; each row is saved in RUN/audits as soon as it is measured.

    An audit that was stopped resumes with the missing rows; `fresh` starts another one and keeps the old. `overrides`
    change options of rows (``["decoder.epochs=5"]``), `only` and `skip` choose rows. `threat` says what the attacker
    knows and owns, `releases` how often it sees each image; evaluation images are never among its own.
    `attacker_data`, a folder or a data set, gives it pictures from elsewhere instead of images of the run's data, and
    copies of evaluation images among them are reported. `attacker_images` is how many it owns, `queries` how many the
    client answers; with `sees_answers` it sees what a client with a head answers itself. `on` is `test`,
    or `validation` for choosing between models without touching the test images. `weights` is `best`, `last` or the
    name of a checkpoint, `out` another folder for the result, `threads` the threads of torch on a CPU, by default those
    of the run. `workers` is the number of processes that attack in parallel, each with `threads` threads; the results
    are the same. `reference` is an undefended run of the same data, in whose features probes may measure.
    """
    loaded = load_suite(suite, overrides)
    rows = Rows(loaded, select_rows(loaded.suite, only, skip))
    outside = None if attacker_data is None else Outside(str(attacker_data), attacker_images)
    numbers = {"releases": releases, "images": attacker_images, "queries": queries}
    asked = extended(threat_model(threat), **numbers, sees_answers=sees_answers)
    adversary = Adversary(asked, on, seed, reference, outside)
    require_some(threads=threads, workers=workers)
    opened = run if isinstance(run, OpenRun) else open_run(run, weights=weights, device=device, modules=modules)
    if opened.again is None and (isinstance(run, OpenRun) or modules is not None):
        _require_alone(workers)
    compute = Compute(str(opened.device), threads or opened.config.threads, workers)
    return _audited(opened, rows, adversary, compute, out, fresh=fresh, progress=progress)


def _require_alone(workers: int) -> None:
    """ConfigError for several processes that could not open the model."""
    if workers > 1:
        needed = "a run folder that every process can open, or an ONNX file, and no modules of your own"
        raise ConfigError(f"workers={workers} needs {needed}")


def _audited(
    opened: OpenRun,
    rows: Rows,
    adversary: Adversary,
    compute: Compute,
    out: str | Path | None,
    *,
    fresh: bool,
    progress: Progress | None,
) -> AuditResult:
    """Measure the missing rows, and join all of them."""
    with attacking(opened.device, compute.threads), shown(progress) as reporter:
        if opened.directory is None:
            try_encoder(opened.model.encoder, opened.data.train.get(slice(0, TRIED))[0])
        case = adversary.against(opened)
        rows = with_twins(rows, case)
        ledger = Ledger.begin(_place(opened, out), _plan(case, rows.suite), fresh=fresh)
        case.kept = partial(strongest_kept, ledger, case.released[:1])
        with ledger.held():
            _run_rows(case, rows, ledger, compute, reporter, leads=progress is None)
            return ledger.conclude()


def _place(opened: OpenRun, out: str | Path | None) -> Path:
    if out is not None:
        return Path(out)
    if opened.directory is None:
        raise ConfigError("an encoder without a run folder needs a place for its audit: give out=FOLDER")
    return opened.directory.path / "audits"


def _run_rows(case: Case, rows: Rows, ledger: Ledger, compute: Compute, progress: Progress, *, leads: bool) -> None:
    """Measure every wanted row that has no result yet, and save each at once; a failed row is tried again.

    With `leads` the first line says what is judged.
    """
    stage, total = written("stage.audit", run=case.subject.name), len(rows.wanted)
    done = {row.name for row in ledger.rows() if not row.unfinished}
    missing = {name: rows.suite.suite.rows[name] for name in rows.wanted if name not in done}
    if leads:
        tell(progress, _start_line(ledger.plan, len(missing), total, compute))
        tell(progress, describe_subject(case.subject))
    expected = foretell(case, missing, progress, compute.workers)
    schedule = Schedule(expected, compute.workers, sum(row.seconds for row in ledger.rows() if row.name in done))
    progress(stage, total - len(missing), total, schedule.numbers())
    with closing(_measured(case, missing, compute, _nested(progress, stage, schedule))) as measured:
        for number, result in enumerate(measured, 1):
            ledger.write(result.row, result.files)
            schedule.end(result.row.name)
            progress(stage, total - len(missing) + number, total, schedule.numbers())


def _start_line(plan: AuditPlan, rows: int, wanted: int, compute: Compute) -> str:
    """The line that names the run, its images and the number of rows."""
    return text(
        "command.start.audit",
        run=plan.subject.run,
        weights=plan.subject.weights or plan.subject.architecture,
        suite=plan.suite,
        threat=threat_title(plan.threat.name),
        rows=rows,
        all=wanted,
        images=plan.num_evaluation,
        on=images_title(plan.evaluation),
        own=plan.num_auxiliary,
        device=plan.device,
        threads=compute.threads,
        workers=compute.workers,
    )


def _measured(
    case: Case, rows: Mapping[str, Options], compute: Compute, progress: Progress
) -> Generator[Measured, None, None]:
    """Rows in their order; consecutive attacks run in parallel if there are workers.

    Probes may read the results of the attacks before them.
    """
    for attacks, group in groupby(rows.items(), key=lambda row: isinstance(build_judge(row[1]), Attack)):
        some = dict(group)
        if attacks and compute.workers > 1 and len(some) > 1:
            yield from measured_beside(Brief.of(case, compute), some, progress)
            continue
        for name, options in some.items():
            yield measure(case, name, options, seed=case.seed_of(name), progress=progress, owns=owned_by(name))


def _nested(progress: Progress, stage: str, schedule: Schedule) -> Progress:
    """Reports rows as stages of the audit, with the audit's time left."""

    def report(inner: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        progress(f"{stage}: {inner}", done, total, {**numbers, **schedule.numbers()})

    return report


def _plan(case: Case, chosen: LoadedSuite) -> AuditPlan:
    """The plan of the audit, with a name that no other plan shares."""
    opened, suite = case.subject, chosen.suite
    subject, accuracy = opened.subject(), _accuracy(case)
    options = {name: row.model_dump(mode="json") for name, row in suite.rows.items()}
    plugins = [*uses_of(opened.config), *uses(("attack", row) for row in suite.rows.values())]
    facts = {
        "suite": [suite.name, suite.version],
        "rows": options,
        "threat": case.threat.to_dict(),
        "images": [case.on, subject.data_sha256],
        "weights": subject.weights,
        "seed": case.seed,
        "fingerprint": subject.fingerprint,
        "version": attncem.__version__,
        "device": opened.device.type,
        **({} if case.reference is None else {"reference": case.reference.fingerprint}),
        **({} if opened.differentiable else {"through": "onnx"}),
        **_tables(opened, suite),
        **({"plugins": [[use.kind, use.name, use.sha256] for use in plugins]} if plugins else {}),
    }
    return AuditPlan(
        id=plan_id(suite.name, case.threat.name, case.on, facts),
        suite=suite.name,
        suite_version=suite.version,
        changed=chosen.changed,
        rows=list(suite.rows),
        threat=case.threat,
        evaluation=case.on,
        seed=case.seed,
        subject=subject,
        num_evaluation=len(case.x),
        num_auxiliary=len(case.auxiliary),
        num_train=len(opened.data.train),
        accuracy=accuracy,
        findings=[*opened.findings, *_health(opened), *_balance(accuracy), *_copies(case), *_share(case)],
        signal_to_noise=signal_to_noise(case.model, case.x, case.released),
        reference="" if case.reference is None else f"{case.reference.name} {case.reference.fingerprint}",
        device=describe_device(opened.device),
        units=human_units(case.x, opened.data.train),
        plugins=plugins,
        selective=case.selective,
        versions={"attncem": attncem.__version__, "torch": torch.__version__, "python": platform.python_version()},
    )


def _share(case: Case) -> list[Finding]:
    """A finding where another share of the images is sent than the run asked for."""
    subject = case.subject
    chosen_on = int(subject.selection.get("images", 0))
    return share_findings(case.selective, subject.config.release.wanted_share, chosen_on)


def _copies(case: Case) -> list[Finding]:
    """Evaluation images among the attacker's, and among pictures from elsewhere also near copies of them."""
    near = near_copies(case.auxiliary.in_parts, case.x) if case.threat.pictures else []
    return [*overlap(case.auxiliary, case.x), *near]


def _tables(opened: OpenRun, suite: Suite) -> dict[str, Any]:
    """Hashes of the tables that rows read; empty if no row reads one, so that other audits keep their names."""
    found = {
        name: attributes_hash(opened.config.data, row.file)
        for name, row in suite.rows.items()
        if isinstance(row, AttributeLeakageOptions) and row.attribute is not None
    }
    return {"tables": found} if found else {}


def _accuracy(case: Case) -> Score | None:
    """Accuracy on the releases that are attacked; None without a server half.

    With a head, it is that of client and server together on all images.
    """
    if case.selective is not None:
        return case.selective.together
    if case.model.server is None:
        return None
    return summarise(case.right(), np.asarray(case.y.cpu().numpy()), case.subject.spec.num_classes)


def _balance(accuracy: Score | None) -> list[Finding]:
    """A finding if accuracy differs from the accuracy in which all classes have equal weight."""
    balanced = None if accuracy is None else accuracy.balanced
    if accuracy is None or balanced is None or abs(accuracy.mean - balanced) < _UNBALANCED:
        return []
    return [finding("unbalanced", accuracy=100 * accuracy.mean, balanced=100 * balanced)]


def _health(opened: OpenRun) -> list[Finding]:
    """Training warnings that were active when these weights were saved, and lost parts of the training log."""
    if opened.directory is None or opened.checkpoint is None:
        return []
    epoch = opened.checkpoint.facts["epoch"]
    held = [span for span in spans(opened.directory.records()) if span.holds_at(epoch)]
    lost = enumerate(opened.directory.log_problems(), 1)
    return [
        *(span.finding for span in held),
        *(finding("log_lost", about=written("about.log", number=number), said=said) for number, said in lost),
    ]
