"""Chooses the coding of a leakage bound on training images, before any evaluation image is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.config.options.certificates import BeyondLabelOptions, LeakageOptions
from attncem.judging.certificates.coding import OF_CELLS, Learner, Sample, Wanted
from attncem.judging.certificates.kernels import PULLS, KernelJudged
from attncem.judging.certificates.mixture import Judged

MOST_AXES = 2048
"""Principal axes are computed up to this many features."""
MOST_FULL = 2**32
"""Axes of each cell are computed up to this many cells times features cubed."""
MOST_CENTRES = 2**24
"""Clusters are tried up to this many centres times features."""
CHOOSING = 3000
"""Largest number of training images on which codings are compared."""
_COMPARED = 500
"""Number of these on which kernels are compared with the rest."""
_WORTH = 0.05
"""Nats that a kernel mixture must save: it costs draws of the noise."""

AnyOptions = LeakageOptions | BeyondLabelOptions


@dataclass(frozen=True)
class Facts:
    """What decides which codings there can be."""

    law: str
    num_features: int
    num_classes: int
    has_answers: bool


def candidates(options: AnyOptions, facts: Facts) -> list[Wanted]:
    """The codings that the options allow; NotApplicable, with the reason, if there is none."""
    inside = isinstance(options, BeyondLabelOptions)
    _check(options, facts)
    classes = max(1, facts.num_classes)  # images without labels form one class
    kinds = _kinds(facts, inside, options.clusters) if options.cells == "best" else [options.cells]
    shapes = _shapes(facts) if options.axes == "best" else [options.axes]
    made = [
        Wanted(kind, shape, classes, options.clusters, inside, pull)
        for kind in kinds
        for shape in shapes
        if _is_possible(kind, shape, facts)
        and (_is_tried(kind, shape, facts) or "best" not in (options.cells, options.axes))
        for pull in (PULLS if shape == "kernel" else (None,))
    ]
    if not made:
        raise NotApplicable(written("reason.axes_of_cells"))
    return made


def _check(options: AnyOptions, facts: Facts) -> None:
    """NotApplicable where the data, the model or the noise lack what the options name."""
    if isinstance(options, BeyondLabelOptions) and not facts.num_classes:
        raise NotApplicable(written("reason.nothing_beyond"))
    if options.cells == "class" and not facts.num_classes:
        raise NotApplicable(written("reason.cells_by_class"))
    if options.cells == "answer" and not facts.has_answers:
        raise NotApplicable(written("reason.cells_by_answer"))
    if options.axes not in ("best", "features") and facts.law != "gaussian":
        raise NotApplicable(written("reason.axes_normal"))
    if options.axes not in ("best", "features") and facts.num_features > MOST_AXES:
        raise NotApplicable(written("reason.axes_many", count=MOST_AXES))


def _kinds(facts: Facts, inside: bool, count: int) -> list[str]:
    few = max(1, facts.num_classes) * count * facts.num_features <= MOST_CENTRES
    named = {"one": not inside, "class": True, "cluster": few, "answer": facts.has_answers}
    return [kind for kind, is_offered in named.items() if is_offered]


def _shapes(facts: Facts) -> list[str]:
    turned = facts.law == "gaussian" and facts.num_features <= MOST_AXES
    return ["features", *(["principal", "shared", "full", "kernel"] if turned else [])]


def _is_possible(cells: str, shape: str, facts: Facts) -> bool:
    """Whether there is such a coding at all."""
    count = {"one": 1, "class": max(1, facts.num_classes)}.get(cells)
    return shape not in OF_CELLS or (count is not None and count * facts.num_features**3 <= MOST_FULL)


def _is_tried(cells: str, shape: str, facts: Facts) -> bool:
    """Whether it differs from the other candidates and is worth its time."""
    return not (cells == "one" and (shape == "shared" or (shape == "kernel" and facts.num_classes > 1)))


@dataclass
class Choice:
    """Codings learned from every second training image, compared on others; `best` for each number of releases."""

    named: Sequence[Wanted]
    learner: Learner
    choosing: Sample
    law: str
    seed: int
    _judged: dict[Wanted, Judged | KernelJudged] = field(default_factory=dict)
    _best: dict[int, Wanted] = field(default_factory=dict)

    def best(self, std: float, releases: int) -> Wanted:
        """The coding that gives the least nats on the choosing images."""
        if len(self.named) == 1:
            return self.named[0]
        if releases not in self._best:
            self._best[releases] = self._least(std, releases)
        return self._best[releases]

    def _least(self, std: float, releases: int) -> Wanted:
        if not self._judged:
            self._judged = {
                one: self.learner.coding(one).judged(self.law, self.choosing, self.seed) for one in self.named
            }
        least: tuple[float, Wanted, float] | None = None
        for one, judged in self._judged.items():
            if not isinstance(judged, KernelJudged):
                nats = judged.values(std, releases)
                tried = float(nats.mean()), one, float(nats[:_COMPARED].mean())
                least = tried if least is None or tried[0] < least[0] else least
        kernels = {
            one: float(np.mean(judged.values(std, releases, most=_COMPARED)))
            for one, judged in self._judged.items()
            if isinstance(judged, KernelJudged)
        }
        nearest = min(kernels, key=lambda one: kernels[one], default=None)
        if nearest is not None and (least is None or kernels[nearest] < least[2] - _WORTH):
            return nearest
        assert least is not None
        return least[1]
