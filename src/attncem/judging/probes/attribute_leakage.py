"""Attribute leakage: what a release reveals about an attribute other than the class, or about a group of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.seeding import derive_seed, make_generator
from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.config.options.probes import AttributeLeakageOptions
from attncem.data.attributes import read_attributes
from attncem.data.groups import GROUPS, group_of_each
from attncem.judging.judges import Probe
from attncem.judging.probes.base import Numbers, Standardised, balanced_values
from attncem.judging.probes.label_leakage import answers

if TYPE_CHECKING:
    from attncem.judging.case import Case

_BATCH = 1000


class AttributeLeakage(Probe):
    """A linear head in closed form on labelled releases of the attacker's images, judged on the evaluation images.

    The attribute is a group of classes, or a column of a table of the images. Images without it are left out.
    """

    options_type = AttributeLeakageOptions
    options: AttributeLeakageOptions
    needs = frozenset({"images", "queries"})

    def score(self, case: Case, *, seed: int) -> Mapping[str, Numbers]:
        """Whether each image's attribute is predicted correctly: by the best rule, and by the best balanced rule."""
        if case.threat.auxiliary == "outside":
            case.require(["labels"])
        oracle = case.oracle(self, seed)
        own, true = self._attributes(case)
        own = own[: oracle.num_auxiliary]
        self.index = np.flatnonzero(true >= 0)
        judged = true[self.index]
        if len(np.unique(judged)) < 2 or len(np.unique(own[own >= 0])) < 2:
            raise NotApplicable(written("reason.one_value"))
        labelled = self._labelled(own, seed).to(case.x.device)
        noise = make_generator(case.x.device, seed, "attributes")
        released = torch.cat([oracle.release_auxiliary(part, generator=noise) for part in labelled.split(_BATCH)])
        standardised = Standardised(released)
        seen = torch.cat([standardised(part).float() for part in case.seen_by(self, len(case.x))])
        known = torch.from_numpy(own).to(case.x.device)[labelled]
        chosen = torch.from_numpy(self.index).to(case.x.device)
        plain, even = (
            (said.cpu().numpy() == judged).astype(np.float64)
            for said in answers(standardised(released), known, seen[chosen])
        )
        counts = np.unique(judged, return_counts=True)[1]
        blind = {"attribute_accuracy": counts.max() / counts.sum(), "attribute_balanced": 1 / len(counts)}
        self.chance = {name: float(chance) for name, chance in blind.items()}
        return {"attribute_accuracy": plain, "attribute_balanced": balanced_values(even, judged)}

    def _labelled(self, own: NDArray[np.int64], seed: int) -> Tensor:
        """A random choice of the attacker's images that have the attribute, as many as may be labelled."""
        there = torch.from_numpy(np.flatnonzero(own >= 0))
        drawn = torch.randperm(len(there), generator=torch.Generator().manual_seed(derive_seed(seed, "attributes")))
        return there[drawn[: self.options.labelled]]

    def _attributes(self, case: Case) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The attribute of each attacker image and of each evaluation image as a number, -1 without the attribute."""
        if self.options.attribute is not None:
            return self._column(case, self.options.attribute)
        spec = case.subject.spec
        groups = self.options.groups or GROUPS.get(spec.name)
        if not groups:
            raise NotApplicable(written("reason.no_groups", name=spec.name))
        of_class = group_of_each(groups, [case.subject.name_of(label) for label in range(spec.num_classes)])
        own, judged = case.auxiliary.labels.cpu().numpy(), case.y.cpu().numpy()
        return of_class[own], of_class[judged]

    def _column(self, case: Case, attribute: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The attributes from a column of the table."""
        split, options = case.subject.data.split, case.subject.config.data
        counts = (split.available, len(split.test))
        train, test = read_attributes(options, attribute, counts, self.options.file)
        chosen = slice(None) if case.chosen is None else case.chosen.cpu().numpy()
        if case.threat.auxiliary == "published_infer":
            return test[split.infer_auxiliary][chosen], test[split.infer_evaluation][case.places]
        own = train[split.train if case.threat.auxiliary == "train" else split.held_out][chosen]
        return own, (test if case.on == "test" else train[split.validation])[case.places]
