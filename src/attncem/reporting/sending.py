"""What a client with a head sends, in words: which images, and the accuracy with and without the server.

Report, terminal, card and comparison use these sentences, so that all of them say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attncem.base.texts import text
from attncem.records.audit import AuditResult
from attncem.records.leak import Leak
from attncem.records.leaks import NOT_SENT, OVER_ALL, SHARE
from attncem.records.ledger import count_audits
from attncem.records.listing import DAMAGED, UNKNOWN, list_runs, name_in, newest_audit
from attncem.records.runs import RunDirectory
from attncem.records.selective import Selective
from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY
from attncem.reporting import wording
from attncem.reporting.runs.leaks import number
from attncem.reporting.table_formats import mean_sd

CSV_COLUMNS = (SHARE, OVER_ALL, NOT_SENT, "threshold", "accuracy_alone", "accuracy_all_sent")
"""Last columns of a table's CSV file, each only where a client sends only some images."""
_LISTED = 6
"""Largest number of runs that a list has a sentence about."""


def facts_in(audits: Sequence[AuditResult]) -> list[Selective]:
    """The facts of the audits of clients that send only some images."""
    return [audit.plan.selective for audit in audits if audit.plan.selective is not None]


def describe(audits: Sequence[AuditResult]) -> str:
    """What one model sends, over its seeds, and its accuracies; empty where it sends every image."""
    facts = facts_in(audits)
    return described(facts) if facts else ""


def with_mean(sentence: str, means: Sequence[Leak]) -> str:
    """The sentence with the mean leak over all images, where that is known."""
    if not means:
        return sentence
    return text("sending.both", first=sentence, second=text("leak.over_all", value=number(OVER_ALL, means)))


def described(facts: Sequence[Selective]) -> str:
    """What is sent, and the accuracies."""
    return text("sending.both", first=sends(facts), second=accuracies(facts))


def sentence(audits: Sequence[AuditResult]) -> str:
    """The same as a sentence of its own; empty where it sends every image."""
    words = describe(audits)
    return text("said.sentence", said=words[:1].upper() + words[1:]) if words else ""


def mark(audits: Sequence[AuditResult]) -> str:
    """The note beside the name of a model in a table, for which images its numbers hold; empty for every image."""
    facts = facts_in(audits)
    return text("sending.mark", share=share(facts)) if facts else ""


def sends(facts: Sequence[Selective]) -> str:
    """Which images are sent, and which are judged."""
    if len(facts) > 1:
        return text("sending.said.seeds", share=share(facts), count=len(facts))
    one = facts[0]
    counts = {"sent": one.num_sent, "images": one.num_images}
    return text("sending.said", share=share(facts), threshold=threshold(one), **counts)


def threshold(facts: Selective) -> str:
    """The threshold as shown: three decimals."""
    return wording.decimal(facts.threshold, 3)


def share(facts: Sequence[Selective]) -> str:
    """The share of the images that is sent, over the seeds."""
    return f"{mean_sd(SHARE, seed_summary([it.share for it in facts]))} %"


def cells(audit: AuditResult) -> dict[str, float]:
    """The threshold and the other accuracies of an audit for its row of a table; empty where every image is sent."""
    facts = audit.plan.selective
    if facts is None:
        return {}
    accuracies = {"accuracy_alone": facts.alone.mean, "accuracy_all_sent": facts.all_sent.mean}
    return {"threshold": facts.threshold, **accuracies}


def accuracies(facts: Sequence[Selective]) -> str:
    """The accuracy of client and server together, of the client's head alone, and with every image sent."""
    return text(
        "sending.accuracy",
        together=_accuracy(facts, lambda it: it.together.mean),
        alone=_accuracy(facts, lambda it: it.alone.mean),
        all_sent=_accuracy(facts, lambda it: it.all_sent.mean),
    )


def _accuracy(facts: Sequence[Selective], read: Callable[[Selective], float]) -> str:
    return f"{mean_sd(ACCURACY, seed_summary([read(it) for it in facts]))} %"


def of_folder(folder: str | Path) -> list[str]:
    """What the first few audited runs of a folder send that send only some images, for a terminal."""
    lines = (line for run in list_runs(folder) if (line := _line(run, name_in(folder, run))))
    return [line for line, _ in zip(lines, range(_LISTED), strict=False)]


def _line(run: RunDirectory, name: str) -> str:
    """The sentence about a run of a list; empty where it sends every image, or has no readable audit."""
    try:
        if not run.config.release.selective or count_audits(run.path / "audits") in ("0", UNKNOWN):
            return ""
        audit = newest_audit(run)
    except DAMAGED:
        return ""
    words = "" if audit is None else describe([audit])
    return text("said.about", about=name, said=words) if words else ""
