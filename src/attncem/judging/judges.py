"""What judges a model beside attacks: certificates, which bound what can leak, and probes, whose answer is no image."""

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

    from attncem.judging.case import Case


class Judge(ABC):
    """What certificates and probes share. They get the case itself: they are ours, and may look at all of it."""

    options_type: ClassVar[type[Options]]
    needs: ClassVar[frozenset[Need]] = frozenset()
    options: Any

    def __init__(self, options: Options | None = None, *, progress: Progress = silent, **by_name: Any) -> None:
        self.options = options or self.options_type(**by_name)
        self.progress = progress


class Certificate(Judge):
    """Bounds what any attacker could do; each bound says what it assumes.

    `bound` sets ``images``, numbers of each of the first evaluation images, by measure, and ``findings``, where there
    are any.
    """

    def __init__(self, options: Options | None = None, *, progress: Progress = silent, **by_name: Any) -> None:
        super().__init__(options, progress=progress, **by_name)
        self.images: dict[str, NDArray[np.float64]] = {}
        self.findings: list[Finding] = []

    @abstractmethod
    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """Bounds by name; NotApplicable where there is none, as without noise."""


class Probe(Judge):
    """An attack whose answer is no image: re-identification, labels, membership.

    `score` sets ``chance``, what seeing nothing gives, by measure; ``index``, the evaluation images that its numbers
    are of, where these are not all; ``by``, the attack whose pictures it looks at; and ``findings``, where there is
    something to say.
    """

    def __init__(self, options: Options | None = None, *, progress: Progress = silent, **by_name: Any) -> None:
        super().__init__(options, progress=progress, **by_name)
        self.chance: dict[str, float] = {}
        self.index: NDArray[np.int64] | None = None
        self.by = ""
        self.findings: list[Finding] = []

    @abstractmethod
    def score(self, case: Case, *, seed: int) -> Mapping[str, NDArray[np.float64]]:
        """A number for each evaluation image, by measure; the mean over images is what the row tells."""
