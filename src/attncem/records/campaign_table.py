"""The results of a finished campaign in one small file, committed with the documents that quote it."""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

from attncem.base.record import Record
from attncem.config.threats import ThreatModel
from attncem.records.client_costs import ClientCosts
from attncem.records.judgement import State
from attncem.records.leak import Leak
from attncem.records.leaks import from_kept
from attncem.records.sending import KeptSending

Interval = list[float]
"""Mean, low and high of a 95 % interval over images; the mean alone where no interval was kept."""


class Ends(NamedTuple):
    """An interval's numbers by name; without an interval both ends are the mean."""

    mean: float
    low: float
    high: float


class AskedAudit(Record):
    """One audit of every cell: suite and version, row options that differ from the defaults, the adversary, the images
    and weights, and its devices. ``adversary`` is the whole threat model where its name does not define it. Values that
    an older file did not keep are absent.
    """

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    suite: str | None = None
    threat: str | None = None
    evaluation: str | None = None
    weights: str | None = None
    devices: list[str] | None = None
    adversary: ThreatModel | None = None


class CellAudit(Record):
    """The results of one audit of a cell.

    ``attacks`` are by row, each with the interval of every measure and whether it was ``reliable``; so are ``probes``.
    ``balanced_accuracy`` gives every class the same weight; ``row_seconds`` is the time of each row. ``judged`` is the
    audit's state; files of older versions lack it, and only say whether the attack had converged. ``leaks`` are the
    numbers of the leak by name (`records/leaks.py`), as `kept` writes them. ``sending``: the client sends only some
    images; the accuracy is then that of client and server together on all of them, everything else of those sent.
    """

    accuracy: Interval | None
    strongest: str | None = None
    attacks: dict[str, dict[str, Any]] | None = None
    probes: dict[str, dict[str, Any]] | None = None
    seconds: float | None = None
    balanced_accuracy: float | None = None
    row_seconds: dict[str, float] | None = None
    judged: State | None = None
    leaks: dict[str, dict[str, Any]] | None = None
    sending: KeptSending | None = None

    @property
    def state(self) -> State:
        """Whether its numbers are reliable, not reliable, or not enough to tell."""
        if self.judged is not None:
            return self.judged
        return "reliable" if self._scores().get("reliable") else "not_reliable" if self.strongest else "not_enough"

    def score(self, measure: str, row: str = "") -> Ends | None:
        """The accuracy, or a measure of the strongest attack or of the named row; None where it is absent."""
        values = self.accuracy if measure == "accuracy" else self._scores(row).get(measure)
        if not values:
            return None
        return Ends(*values) if len(values) > 1 else Ends(*3 * values)

    def leak(self, measure: str) -> Leak | None:
        """A number of the leak; None where it is absent."""
        data = (self.leaks or {}).get(measure)
        return from_kept(measure, data) if data else None

    def _scores(self, row: str = "") -> dict[str, Any]:
        return (self.attacks or {}).get(row or self.strongest or "", {})


class CellResult(ClientCosts):
    """One run of a campaign with its audits, in the campaign's order; ``config`` is a hash of its options.

    ``alone`` marks a candidate of the client alone: its accuracies by the images (`test`, `validation`) where it was
    chosen, else empty.
    """

    arm: str
    point: dict[str, Any]
    seed: int
    audits: list[CellAudit]
    warnings: list[str] | None = None
    client_macs: int | None = None
    training_seconds: float | None = None
    training_images: int | None = None
    validation_accuracy: float | None = None
    steps: str | None = None
    config: str | None = None
    alone: dict[str, Interval] | None = None
    client_parameters: int | None = None


class CampaignTable(Record):
    """A campaign's results: ``sha256`` is that of its campaign.yaml, ``command`` recreates the file.

    ``unfinished`` are cells without a result, with the reason or their state.
    """

    campaign: str
    meaning: str
    command: str
    audits: list[AskedAudit]
    cells: list[CellResult]
    sha256: str | None = None
    versions: dict[str, str] | None = None
    unfinished: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready data, without absent values."""
        data = super().to_dict()
        data["audits"] = [_present(one) for one in data["audits"]]
        cells = [{**cell, "audits": [_present(one) for one in cell["audits"]]} for cell in data["cells"]]
        return _present({**data, "cells": [_present(cell) for cell in cells]})


def _present(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}
