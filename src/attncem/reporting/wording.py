"""Numbers and findings as words: formats for people, and the verdict at the top of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attncem.reporting.health import is_collapsed, is_near_chance
from attncem.reporting.load import Entry
from attncem.reporting.tables import blind_floors
from attncem.types import ThreatModel

MISSING = "–"

_AUXILIARY = {
    "train": "the training images",
    "held_out": "held-out images of the same kind that the model never saw",
    "published_infer": "the share of the test images that earlier publications give the attacker",
    "shifted": "images of another kind",
    "none": "no images",
}


def decimal(value: float | None, digits: int = 4) -> str:
    """A number with a fixed number of decimals; a dash where there is none."""
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:.{digits}f}" if math.isfinite(value) else "∞"


def percent(value: float | None, digits: int = 1, unit: str = " %") -> str:
    """A share as a percentage."""
    return MISSING if value is None or math.isnan(value) else f"{100 * value:.{digits}f}{unit}"


def general(value: float | None) -> str:
    """A setting, as short as it can be written."""
    return MISSING if value is None else f"{value:g}"


def count(value: int | None) -> str:
    """A count with three digits at most and a unit."""
    if value is None:
        return MISSING
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return str(value)


def seconds(value: float | None) -> str:
    """A duration in the unit that fits."""
    if value is None or math.isnan(value):
        return MISSING
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.3g} h"


def describe_threat(threat: ThreatModel) -> str:
    """What the adversary knows and owns, in one sentence."""
    encoder = "knows the encoder" if threat.knows_encoder else "does not know the encoder"
    channel = "knows the channel" if threat.knows_channel else "does not know the channel"
    sight = "one release" if threat.releases_per_input == 1 else f"{threat.releases_per_input} releases"
    owned = _AUXILIARY.get(threat.auxiliary, threat.auxiliary)
    return f"The adversary {encoder}, {channel}, owns {owned}, and sees {sight} of each image."


def verdict(entries: Sequence[Entry], best: dict[str, float]) -> list[str]:
    """Sentences that say what the audits found; of many audits only the two ends."""
    if not entries:
        return ["No run has been audited yet, so nothing is known about what these models leak."]
    usable = [entry for entry in entries if not _useless(entry, best)]
    shown = list(entries)
    if len(entries) > 5 and usable:
        ordered = sorted(usable, key=lambda entry: entry.audit.strongest_attack.mse.mean)
        shown = [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered
    sentences = [_sentence(entry, best) for entry in shown]
    left_out = len(entries) - len(shown)
    if left_out:
        sentences.append(f"These are the most and the least exposed of the useful models; {left_out} more are below.")
    if len(entries) > 1:
        sentences.append("Each row is one seed: the differences shown are not yet a claim that one method wins.")
    return sentences


def _useless(entry: Entry, best: dict[str, float]) -> bool:
    return is_near_chance(entry.audit) or is_collapsed(entry.audit, best.get(entry.audit.dataset))


def _sentence(entry: Entry, best: dict[str, float]) -> str:
    audit, attack = entry.audit, entry.audit.strongest_attack
    accuracy = percent(audit.accuracy.mean)
    if is_near_chance(audit):
        return f"{entry.label} has an accuracy of {accuracy}, near chance: nothing can be said about its privacy."
    if is_collapsed(audit, best.get(audit.dataset)):
        return f"{entry.label} has lost its accuracy ({accuracy}): its error of {attack.mse.mean:.4f} means little."
    blind = blind_floors(audit)
    floor = min((row.mse.mean for row in blind), default=None)
    if attack in blind:
        return (
            f"On {entry.label} (accuracy {accuracy}) no attack of this suite does better than the blind floor "
            f"(“{attack.name}”, MSE {attack.mse.mean:.4f}); a stronger attack may."
        )
    known = "" if floor is None else f" (blind floor {floor:.4f}{_removed(attack.mse.mean, floor)})"
    doubt = "" if attack.reliable else " This attack had not converged, so the true leakage is probably larger."
    return (
        f"The strongest attack on {entry.label}, “{attack.name}”, recovers images with MSE "
        f"{attack.mse.mean:.4f}{known} at accuracy {accuracy}.{doubt}"
    )


def _removed(mse: float, floor: float) -> str:
    return f"; {100 * (1 - mse / floor):.0f} % of a blind guess’s error removed" if 0 < mse < floor else ""
