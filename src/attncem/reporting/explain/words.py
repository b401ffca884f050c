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
    best = prediction.top[0]
    values = {"source": prediction.source, "name": best.name, "probability": wording.percent(best.probability)}
    if prediction.true_label is None:
        return text("explain.label", **values)
    if best.label == prediction.true_label:
        return text("explain.label.right", **values)
    return text("explain.label.wrong", **values, truth=prediction.true_name)


def front_end_name(prediction: Prediction) -> str:
    """The front end with its options; empty where there is none."""
    if prediction.seen is None:
        return ""
    front_end = prediction.seen.front_end
    options = ", ".join(f"{key} = {value:g}" for key, value in front_end.items() if key != "name")
    return f"{front_end['name']} ({options})" if options else str(front_end["name"])


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
    """What the surrogate makes of the image: attention, and the part of its class that takes it.

    Of a class that is left whole it says so, and which ones are divided.
    """
    reference, surrogate = explanation.reference, explanation.surrogate
    sentences = []
    if reference.attention is not None:
        weight, uniform = reference.attention, 1 / (1 + len(reference.attentions))
        values = {"weight": weight, "times": weight / uniform, "uniform": uniform}
        sentences.append(text("explain.penalty.attention", surrogate=surrogate, **values))
    shares = [share.image for share in reference.shares]
    divided = ", ".join(row.name for row in reference.classes if row.divided)
    if shares:
        part = {"count": len(shares), "best": shares.index(max(shares)), "share": wording.percent(max(shares))}
        sentences.append(text(f"explain.penalty.{reference.part}", surrogate=surrogate, **part))
    elif reference.part and divided:
        names = {"name": reference.name, "divided": divided}
        sentences.append(text("explain.penalty.gates_alone", surrogate=surrogate, **names))
    elif reference.part:
        sentences.append(text("explain.penalty.gates_alone.all", surrogate=surrogate))
    if not sentences and surrogate == "none":
        return [text("explain.penalty.none")]
    return sentences or [text("explain.penalty.plain", surrogate=surrogate)]


def describe_gates(explanation: Explanation) -> str:
    """Why there are no gates, or none of slots beside those of attention; nothing where none is missing."""
    reference = explanation.reference
    if reference.attention is not None and reference.part and not reference.shares:
        shown = "attention" if reference.gates else "nothing"
        return text(f"explain.gates.alone.{shown}", name=reference.name)
    return "" if reference.gates else text("explain.gates.none", surrogate=explanation.surrogate)


def describe_recovery(explanation: Explanation) -> list[str]:
    """The attack that is shown beside its average and the best blind guess, what it is worth, and how sure that is."""
    attack, blind = shown_attack(explanation), blind_guess(explanation)
    if attack is None:
        return [text("explain.recovered.no_attack")]
    values = {"attack": row_title(attack.name), "mse": attack.mse}
    if attack.from_audit and attack.audit_mse is not None:
        beside = standing(attack.mse, attack.audit_mse)
        sentences = [text(f"explain.average.{beside}", **values, mean=attack.audit_mse)]
    else:
        sentences = [text("explain.quick", **values)]
    if blind is not None:
        share = wording.percent(attack.mse / blind.mse, 0) if blind.mse > 0 else wording.MISSING
        beside = standing(attack.mse, blind.mse)
        sentences.append(text(f"explain.blind.{beside}", floor=row_title(blind.name), error=blind.mse, share=share))
    if worth := units.describe(explanation.units, attack.mse):
        sentences.append(text("explain.recovered.units", worth=worth))
    if attack.from_audit:  # the quick ones are no measure
        reliable = {None: "unknown", True: "yes", False: "no"}[attack.reliable]
        sentences.append(text(f"explain.reliable.{reliable}"))
    return sentences
