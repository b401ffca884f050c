"""Certificates, which bound what can leak, and probes, whose answer is not an image: the judges other than attacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from attncem.base.progress import Progress, silent
from attncem.config.options.base import Options
from attncem.config.threats import Need
from attncem.records.bounds import Bound
from attncem.records.findings import Finding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attncem.judging.attacks.forecast import Seconds
    from attncem.judging.case import Case


class Judge(ABC):
    """Base class of certificates and probes. They get the case itself: they are trusted and may read all of it."""

    options_type: ClassVar[type[Options]]
    needs: ClassVar[frozenset[Need]] = frozenset()
    options: Any

    def __init__(self, options: Options | None = None, *, progress: Progress = silent, **by_name: Any) -> None:
        self.options = options or self.options_type(**by_name)
        self.progress = progress

    def forecast(self, case: Case) -> Seconds | None:
        """Time on this case; None: unknown. It is called on a CPU only, on an object that serves no other purpose."""
        return None


class Certificate(Judge):
    """Bounds what any attacker could do; each bound states its assumptions.

    `bound` sets ``images``, numbers of each of the first evaluation images, by measure, and ``findings``, if there
    are any.
    """

    def __init__(self, options: Options | None = None, *, progress: Progress = silent, **by_name: Any) -> None:
        super().__init__(options, progress=progress, **by_name)
        self.images: dict[str, NDArray[np.float64]] = {}
        self.findings: list[Finding] = []

    @abstractmethod
    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """Bounds by name; NotApplicable if there is none, for example without noise."""


class Probe(Judge):
    """An attack whose answer is not an image: re-identification, labels, membership.

    `score` sets ``chance``, the score of an adversary that sees nothing, by measure; ``index``, the evaluation images
    of its numbers, unless these are all; ``by``, the attack whose pictures it uses; and ``findings``, if there are any.
    """

    def __init__(self, options: Options | None = None, *, progress: Progress = silent, **by_name: Any) -> None:
        super().__init__(options, progress=progress, **by_name)
        self.chance: dict[str, float] = {}
        self.index: NDArray[np.int64] | None = None
        self.by = ""
        self.findings: list[Finding] = []

    @abstractmethod
    def score(self, case: Case, *, seed: int) -> Mapping[str, NDArray[np.float64]]:
        """A number for each evaluation image, by measure; the row shows the mean over images."""
