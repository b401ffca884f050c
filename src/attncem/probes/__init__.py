"""Probes: they read a release for something else than its image."""

from __future__ import annotations

from attncem.judges import Probe
from attncem.probes.attribute_leakage import AttributeLeakage
from attncem.probes.by_picture import ReidentificationByPicture
from attncem.probes.label_leakage import LabelLeakage
from attncem.probes.membership import Membership
from attncem.probes.reidentification import Reidentification

PROBES: dict[str, type[Probe]] = {
    "reidentification": Reidentification,
    "reidentification_by_picture": ReidentificationByPicture,
    "label_leakage": LabelLeakage,
    "attribute_leakage": AttributeLeakage,
    "membership": Membership,
}
"""Probes by name."""
