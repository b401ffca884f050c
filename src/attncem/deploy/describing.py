"""What a bundle says of itself: its manifest, its card, and the page for the person who opens the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from typing import Any

from attncem import __version__
from attncem.base.shown_paths import without_paths_in
from attncem.base.texts import LANGUAGES, speaking, text
from attncem.base.types import SCHEMA_VERSION
from attncem.config.options.channels import ChannelOptions, LocalDPOptions
from attncem.deploy.comparing import Comparison
from attncem.judging.opening import OpenRun
from attncem.models.split import feature_shape
from attncem.records.audit import AuditResult
from attncem.records.leaks import LIMIT, leaks_of
from attncem.records.study.runs import load_run
from attncem.records.study.suites import joined_suites
from attncem.reporting import card_words, html, wording
from attncem.reporting.card import card_context, make_card
from attncem_edge import __version__ as edge_version
from attncem_edge.manifest import CARD, DecisionFacts, FeatureFacts, ImageFacts, Manifest

_PACKAGES = ("torch", "onnx", "onnxruntime", "numpy", "pillow")
_ACCOUNTANT = "leakage@"


def audits_of(opened: OpenRun) -> list[AuditResult]:
    """The audits of exactly these weights, channel and decision; none where nobody made one."""
    assert opened.directory is not None
    audits = load_run(opened.directory.path).results
    return joined_suites(audit for audit in audits if audit.subject.fingerprint == opened.fingerprint)


def manifest_of(
    opened: OpenRun,
    audits: Sequence[AuditResult],
    comparison: Comparison,
    files: Mapping[str, str],
    limits: tuple[float | None, float | None],
) -> Manifest:
    """All facts of a bundle with these files, whose z stays within these limits."""
    C, H, W = opened.spec.shape
    shape = list(feature_shape(opened.model.encoder, opened.spec.shape))
    return Manifest(
        name=opened.name,
        fingerprint=opened.fingerprint,
        image=ImageFacts(C, H, W, squash=opened.config.data.image_size is not None),
        feature=FeatureFacts(shape, *limits),
        labels=[opened.name_of(label) for label in range(opened.spec.num_classes)],
        channel=[stage_facts(stage) for stage in opened.config.channel],
        files=dict(files),
        noise_scheme=opened.facts["noise_scheme"],
        front_end=opened.config.front_end_options,
        decision=_decision(opened),
        nats=nats_of(audits, comparison.runtimes),
        audited=bool(audits),
        audits=[_audit_facts(audit) for audit in audits],
        checked={**asdict(comparison), "runtimes": comparison.runtimes},
        versions={
            **{"attncem": __version__, "attncem-edge": edge_version},
            **{name: version(name) for name in _PACKAGES},
        },
    )


def stage_facts(stage: ChannelOptions) -> dict[str, Any]:
    """The options of a stage, and the numbers that follow from them and that a device needs."""
    facts = stage.model_dump(mode="json")
    if isinstance(stage, LocalDPOptions):
        facts |= {"noise_std": stage.added_noise_std, "grid": stage.grid}
    return facts


def _decision(opened: OpenRun) -> DecisionFacts | None:
    if opened.model.head is None:
        return None
    return DecisionFacts(float(opened.model.threshold), float(opened.selection["share"]))


def nats_of(audits: Sequence[AuditResult], runtimes: int) -> dict[str, float]:
    """Proven upper limits of the leakage in nats, by the number of releases of one image.

    Where torch and the device compute different codes, both count: releases of both may be seen.
    """
    nats: dict[str, float] = {}
    for audit in audits:
        limit = leaks_of(audit).get(LIMIT)
        if limit is not None and audit.plan.threat.jitter == 0:
            nats.setdefault(str(audit.plan.threat.releases_per_input), limit.mean * runtimes)
    for audit in audits:
        for row in audit.rows:
            bounds = row.bounds.items() if row.ok and row.method == "accountant" and row.jitter == 0 else ()
            for name, bound in bounds:
                if name.startswith(_ACCOUNTANT):
                    nats.setdefault(name.removeprefix(_ACCOUNTANT), bound.claim * runtimes)
    return dict(sorted(nats.items(), key=lambda item: int(item[0])))


def _audit_facts(audit: AuditResult) -> dict[str, Any]:
    """What was audited, in numbers that a program can read."""
    plan, strongest = audit.plan, None
    if audit.strongest:
        mse, left = audit.strongest_attack.mse, audit.remaining.get("mse")
        strongest = {"row": audit.strongest, "mse": mse.mean, "share_of_floor": None if left is None else left.share}
    limit = leaks_of(audit).get(LIMIT)
    facts = {
        "id": plan.id,
        "suite": plan.suite,
        "suite_version": plan.suite_version,
        "threat": plan.threat.name,
        "releases": plan.threat.releases_per_input,
        "images": plan.num_evaluation,
        "accuracy": None if plan.accuracy is None else plan.accuracy.mean,
        "state": audit.state,
        "strongest": strongest,
        "limit_nats": None if limit is None else limit.mean,
    }
    return json.loads(json.dumps(facts, allow_nan=False))  # type: ignore[no-any-return]


# for people


def cards(audits: Sequence[AuditResult]) -> dict[str, bytes]:
    """The privacy card as JSON, the same in every language, and as a page; nothing where nothing was audited."""
    if not audits:
        return {}
    now = datetime.now().astimezone()
    with speaking(LANGUAGES[0]):
        facts = {"schema_version": SCHEMA_VERSION, **without_paths_in(make_card(audits, now=now).to_dict())}
    context = card_context(make_card(audits, now=now), card_words.deciding(audits), pictures=False)
    data = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False)
    return {CARD: data.encode(), "card.md": html.render(context, "card.md.j2").encode()}


def readme(opened: OpenRun, audits: Sequence[AuditResult], comparison: Comparison) -> str:
    """The page for the person who opens the folder."""
    stages = [f"- {wording.describe_options(stage_facts(stage))}" for stage in opened.config.channel]
    parts = [
        f"# {opened.name}",
        text("bundle.intro", fingerprint=opened.fingerprint),
        f"**{text('bundle.no_noise')}**",
        f"## {text('bundle.audited.title')}",
        *_audited(audits),
        f"## {text('bundle.channel.title')}",
        "\n".join(stages),
        *([text("bundle.keyed")] if opened.config.keyed else []),
        *([text("bundle.decision", threshold=opened.model.threshold)] if opened.model.head is not None else []),
        f"## {text('bundle.compared.title')}",
        *compared_words(comparison),
        f"## {text('bundle.use.title')}",
        "```\nattncem serve BUNDLE\nattncem-edge predict BUNDLE photo.jpg --url http://127.0.0.1:8000\n```",
        text("bundle.protects"),
    ]
    return "\n\n".join(parts) + "\n"


def _audited(audits: Sequence[AuditResult]) -> list[str]:
    if not audits:
        return [f"**{text('bundle.not_audited')}**"]
    names = [text("bundle.audit", suite=it.plan.suite, version=it.plan.suite_version, id=it.plan.id) for it in audits]
    return ["\n".join(f"- {name}" for name in names), text("bundle.card")]


def compared_words(comparison: Comparison) -> list[str]:
    """How exported and judged model were compared, and what differs."""
    facts = asdict(comparison)
    is_test = comparison.pictures == "test images"
    pictures = text("bundle.pictures.test") if is_test else text("bundle.pictures.random")
    lines = [text("bundle.compared", **{**facts, "pictures": pictures})]
    if comparison.codes:
        lines.append(text("bundle.codes", **facts))
    if comparison.decisions:
        lines.append(text("bundle.decisions", **facts))
    if comparison.runtimes > 1:
        lines.append(text("bundle.runtimes", runtimes=comparison.runtimes))
    return lines
