"""One image explained in sentences, made once for the page and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.records.explanation import ClassView, Explanation, Recovery
from attncem.records.prediction import Prediction, Release
from attncem.reporting import wording
from attncem.reporting.runs import units
from attncem.reporting.runs.protection import level

Standing = Literal["alike", "better", "worse"]

ALIKE = 0.05
"""Errors that differ by less than this share of the larger one are called about the same."""


def ordered(recoveries: Sequence[Recovery]) -> list[Recovery]:
    """The audit's strongest attack first."""
    return sorted(recoveries, key=lambda row: not row.from_audit)


def shown_attack(explanation: Explanation) -> Recovery | None:
    """The audit's strongest attack, or the quick one that comes nearest; None where no attack could be made."""
    attacks = [row for row in explanation.recoveries if row.kind == "attack"]
    return min(attacks, key=lambda row: (not row.from_audit, row.mse), default=None)


def blind_guess(explanation: Explanation) -> Recovery | None:
    """The guess at this very image that comes nearest without its release."""
    return min((row for row in explanation.recoveries if row.kind == "floor"), key=lambda row: row.mse, default=None)


def standing(mse: float, beside: float) -> Standing:
    """Whether an error is about the same as another, or an attacker does better or worse with it."""
    if abs(mse - beside) <= ALIKE * max(mse, beside):
        return "alike"
    return "better" if mse < beside else "worse"


def verdict(explanation: Explanation) -> list[str]:
    """All that is said about the image, the answer first."""
    return [*first_words(explanation), *describe_way(explanation), *describe_class(explanation)]


def first_words(explanation: Explanation) -> list[str]:
    """What a reader must know: how much comes back, the label, the attack beside the average and a blind guess."""
    return [answer(explanation), describe_label(explanation.prediction), *describe_recovery(explanation)]


def describe_way(explanation: Explanation) -> list[str]:
    """What becomes of the image before it leaves."""
    return [*describe_seen(explanation.prediction), describe_release(explanation.prediction.release)]


def describe_class(explanation: Explanation) -> list[str]:
    """Where the image lies in its class, and what the penalty makes of it."""
    return [describe_place(explanation.reference), *describe_penalty(explanation)]


def answer(explanation: Explanation) -> str:
    """How much of the image comes back, in one sentence."""
    attack, blind = shown_attack(explanation), blind_guess(explanation)
    if attack is None or blind is None:
        return text("explain.answer.unknown")
    if not attack.from_audit:
        return text("explain.answer.quick")
    if standing(attack.mse, blind.mse) != "better":
        return text("explain.answer.blind")
    return text(f"explain.answer.{level(attack.mse / blind.mse)}")


def describe_label(prediction: Prediction) -> str:
    """The label the server gives, and whether it is right."""
    best, source = prediction.top[0], prediction.source
    name, probability = best.name, wording.percent(best.probability)
    if prediction.true_label is None:
        return text("explain.label", source=source, name=name, probability=probability)
    if best.label == prediction.true_label:
        return text("explain.label.right", source=source, name=name, probability=probability)
    truth = prediction.true_name
    return text("explain.label.wrong", source=source, name=name, probability=probability, truth=truth)


def front_end_name(prediction: Prediction) -> str:
    """The front end with its options; empty where there is none."""
    if prediction.seen is None:
        return ""
    own = prediction.seen.front_end
    options = ", ".join(f"{key} = {value:g}" for key, value in own.items() if key != "name")
    return f"{own['name']} ({options})" if options else str(own["name"])


def describe_seen(prediction: Prediction) -> list[str]:
    """What the front end leaves of the image; nothing where there is none."""
    name = front_end_name(prediction)
    return [text("explain.seen", name=name)] if name else []


def describe_release(release: Release) -> str:
    """What leaves the device, in one sentence."""
    file, noise = "", text("explain.noise.none")
    if release.file_bytes is not None:
        file = text("explain.release.file", bytes=release.file_bytes)
    if release.noise != "none":
        noise = text("explain.noise", kind=release.noise, std=release.noise_std)
    return text(
        "explain.release",
        size="×".join(str(side) for side in release.shape),
        dtype=release.dtype,
        bytes=release.bytes,
        share=release.bytes / release.image_bytes,
        image_bytes=release.image_bytes,
        file=file,
        minimum=release.minimum,
        maximum=release.maximum,
        noise=noise,
    )


def describe_place(reference: ClassView) -> str:
    """How far the clean feature lies from its class."""
    name, distance, others = reference.name, reference.distance, reference.distances
    if distance is None:
        return text("explain.place.none", name=name)
    unit = " σ" if reference.unit == "σ" else ""
    if not others:
        return text("explain.place", distance=distance, unit=unit, name=name)
    nearer = wording.percent(sum(other < distance for other in others) / len(others), 0)
    return text("explain.place.among", distance=distance, unit=unit, name=name, nearer=nearer, count=len(others))


def describe_penalty(explanation: Explanation) -> list[str]:
    """What the surrogate makes of the image: attention, and the parts of its class."""
    reference, surrogate = explanation.reference, explanation.surrogate
    said = [*_attention(reference, surrogate), *_parts(reference, surrogate)]
    if said:
        return said
    return [text("explain.penalty.none") if surrogate == "none" else text("explain.penalty.plain", surrogate=surrogate)]


def _attention(reference: ClassView, surrogate: str) -> list[str]:
    if reference.attention is None:
        return []
    weight, uniform = reference.attention, 1 / (1 + len(reference.attentions))
    values = {"weight": weight, "times": weight / uniform, "uniform": uniform}
    return [text("explain.penalty.attention", surrogate=surrogate, **values)]


def _parts(reference: ClassView, surrogate: str) -> list[str]:
    """Which part of the class takes the image; of a class that is left whole that it is, and which ones are not."""
    if reference.shares:
        shares = [share.image for share in reference.shares]
        best = max(range(len(shares)), key=shares.__getitem__)
        share = wording.percent(shares[best])
        return [
            text(f"explain.penalty.{reference.part}", surrogate=surrogate, count=len(shares), best=best, share=share)
        ]
    if not reference.part:
        return []
    divided = ", ".join(row.name for row in reference.classes if row.divided)
    if not divided:
        return [text("explain.penalty.gates_alone.all", surrogate=surrogate)]
    return [text("explain.penalty.gates_alone", surrogate=surrogate, name=reference.name, divided=divided)]


def describe_gates(explanation: Explanation) -> str:
    """Why there are no gates, or none of slots beside those of attention; nothing where none is missing."""
    reference = explanation.reference
    if reference.attention is not None and reference.part and not reference.shares:
        found = "attention" if reference.gates else "nothing"
        return text(f"explain.gates.alone.{found}", name=reference.name)
    return "" if reference.gates else text("explain.gates.none", surrogate=explanation.surrogate)


def describe_recovery(explanation: Explanation) -> list[str]:
    """The attack that is shown beside its average and the best blind guess, what it is worth, and how sure that is."""
    attack, blind = shown_attack(explanation), blind_guess(explanation)
    if attack is None:
        return [text("explain.recovered.no_attack")]
    said = [_beside_average(attack)]
    if blind is not None:
        share = wording.percent(attack.mse / blind.mse, 0) if blind.mse > 0 else wording.MISSING
        beside = standing(attack.mse, blind.mse)
        said.append(text(f"explain.blind.{beside}", floor=row_title(blind.name), error=blind.mse, share=share))
    if worth := units.describe(explanation.units, attack.mse):
        said.append(text("explain.recovered.units", worth=worth))
    return [*said, *_certainty(attack)]


def _beside_average(attack: Recovery) -> str:
    if not attack.from_audit or attack.audit_mse is None:
        return text("explain.quick", attack=row_title(attack.name), mse=attack.mse)
    beside = standing(attack.mse, attack.audit_mse)
    return text(f"explain.average.{beside}", attack=row_title(attack.name), mse=attack.mse, mean=attack.audit_mse)


def _certainty(attack: Recovery) -> list[str]:
    """What the audit says of its attack; nothing of the quick ones, which are no measure."""
    if not attack.from_audit:
        return []
    known = "unknown" if attack.reliable is None else "yes" if attack.reliable else "no"
    return [text(f"explain.reliable.{known}")]
