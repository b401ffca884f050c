"""Probes: they read a release for something other than its image."""

from __future__ import annotations

from attncem.judging.judges import Probe
from attncem.judging.probes.attribute_leakage import AttributeLeakage
from attncem.judging.probes.by_picture import ReidentificationByPicture
from attncem.judging.probes.clustering import Clustering
from attncem.judging.probes.label_leakage import LabelLeakage
from attncem.judging.probes.membership import Membership
from attncem.judging.probes.reidentification import Reidentification

PROBES: dict[str, type[Probe]] = {
    "reidentification": Reidentification,
    "reidentification_by_picture": ReidentificationByPicture,
    "label_leakage": LabelLeakage,
    "clustering": Clustering,
    "attribute_leakage": AttributeLeakage,
    "membership": Membership,
}
"""Probes by name."""
