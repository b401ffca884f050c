"""Certificates: assumptions of bounds by code, findings about them, and their section of the report."""

from __future__ import annotations

CERTIFICATES: dict[str, str] = {
    # what bounds assume
    "assumption.same_law": "images to come are drawn as the evaluation images were",
    "assumption.key_secret": (
        "the key of the noise stays secret, and releases of the very same pixels have the same noise"
    ),
    "assumption.candidates_by_lot": (
        "the candidates are drawn by lot as images are, each as likely as the others; chosen ones may "
        "be told more easily"
    ),
    "assumption.entropy_normal": (
        "the entropy of the images' components is that of a normal law, which is never below the true one: an estimate"
    ),
    "assumption.entropy_neighbours": (
        "the entropy of the images' first components is estimated by distances between images"
    ),
    "assumption.continuous": "pixels are taken as continuous numbers; components finer than rounding are left out",
    "assumption.unbiased": (
        "the attacker is unbiased: right on average for every single image. Attacks that know what images look like "
        "are not, and may do better"
    ),
    "assumption.smooth": (
        "no kink was found on the way from the pixels to the noise (modules were looked at, not their formulas)"
    ),
    "assumption.not_smooth": (
        "there are kinks on the way from the pixels to the noise, where the inequality does not hold as proven: an "
        "estimate"
    ),
    "assumption.prior_normal": (
        "images are taken as normal with their variances, whose information is the least of all: an estimate"
    ),
    "assumption.as_drawn": "it holds for what leaves a device, not for the faster draws of training and audits",
    "assumption.fitted_to": "it is of the images that cells and spreads were fitted to, and bounds nothing",
    # findings
    "finding.surrogate_flatters": (
        "the surrogate’s own cells say {training:.4g} nats on training images and {evaluation:.4g} on evaluation "
        "images: the penalty flattered"
    ),
    "finding.no_certificate": "no certificate: {reason}",
    "finding.bound_violated": (
        "“{bound}” claims {claim:.4g}, and “{other}” of the same audit shows {seen:.4g}: an assumption does not hold, "
        "or an estimate is wrong; do not rely on it"
    ),
    # bounds in words
    "bound.leakage": "leakage about the image",
    "bound.leakage.at": "leakage, releases of one image: {number:,}",
    "bound.leakage_training": "leakage on training images, which the cells were fitted to",
    "bound.infonce": "leakage, by telling images apart (InfoNCE)",
    "bound.decoder": "leakage, by what an attack recovers",
    "bound.mse_normal": "error of any attack, entropy as of a normal law",
    "bound.mse_neighbours": "error of any attack, entropy by neighbours",
    "bound.dfil": "diagonal Fisher information leakage (dFIL)",
    "bound.mse_unbiased": "error of unbiased attackers, 1/dFIL",
    "bound.mse_van_trees": "error of any attack, by van Trees’ inequality",
    "bound.rank_1.at": "share told right among {number:,} candidates",
    "bound.epsilon": "ε of local differential privacy",
    "bound.releases": "releases of one image within the budget",
    "bound.by": "{title} ({by})",
    "bound.claim.at_most": "at most {claim:.4g} {unit}",
    "bound.claim.at_least": "at least {claim:.4g} {unit}",
    "bound.confidence": "{said} (95 % confidence)",
    "bound.kind.bound": "proven",
    "bound.kind.estimate": "estimate",
    "bound.line.bound": "{name}: {claim}, a proven bound",
    "bound.line.estimate": "{name}: {claim}, an estimate",
    "bound.vacuous": "{said}; vacuous",
    # the section of the report
    "certificates.title": "Certificates",
    "certificates.lead": (
        "What no attack can do better than, from the noise of the channel and the spread of the features, and not from "
        "how well some attack did. A number is the end of its interval that may be claimed."
    ),
    "certificates.axis.note": (
        "▷ what is proven to leak, at most ln of the number of images it is told from; ◁ what can leak at most; ◇ what "
        "an attack’s pictures tell, an estimate. The true leakage lies on the line: its length is what nobody knows."
    ),
    "certificates.most": (
        "What the adversary sees of an image tells at most {high:.3g} nats ({bits:.3g} bits) about it, whoever looks."
    ),
    "certificates.none": "Nothing bounds what the releases of this model tell.",
    "certificates.least": "At least {low:.3g} nats are proven to leak.",
    "certificates.told": "What an attack recovers tells of {told:.3g} nats, by an estimate.",
    "certificates.region": "certificates of {run}",
    "certificates.caption": (
        "Proven: it holds whenever its assumptions do. Vacuous: it says no more than was known anyway."
    ),
    "certificates.column.row": "certificate",
    "certificates.column.of": "what is bounded",
    "certificates.column.claim": "claim",
    "certificates.column.kind": "kind",
    "certificates.column.assumed": "if",
    "certificates.vacuous": "vacuous",
    "certificates.not_said": (
        "What a bound does not say: it is about images on average, not about each one; it says nothing of labels, "
        "which a useful release must tell; and a small leakage may still be the one fact that matters."
    ),
    "figure.leakage": "leakage from below and from above",
    "figure.leakage.x": "nats about one image, in all releases of it that are seen (linear below 1)",
    "figure.leakage.span": "{run}: {low:.3g} to {high}",
    # the privacy card
    "card.title": "Privacy card of {run}",
    "card.made": "Made {time} by {generator}.",
    "card.what": "What it is of",
    "card.fact.network": "network",
    "card.fact.data": "data",
    "card.fact.weights": "weights and fingerprint",
    "card.fact.bytes": "bytes that leave for one image",
    "card.fact.client": "parameters on the client",
    "card.network": "{name}, cut at {cut}",
    "card.defence.front_end": "front end: {options}",
    "card.defence.surrogate": "trained with the penalty {name}, weight {weight:g}",
    "card.defence.stage": "channel: {options}",
    "card.undefended": "nothing defends it",
    "card.attacks": "Defended against recovering the image, and how that went",
    "card.accuracy": "accuracy {accuracy} [{low}, {high}] on the very releases that were attacked",
    "card.against": "{suite} v{version}, adversary “{threat}”:",
    "card.no_result": "no attack has a result.",
    "card.strongest": (
        "the strongest of {count} attacks, “{attack}”, recovers {images} images with MSE {mse:.4f} [{low:.4f}, "
        "{high:.4f}]; one in twenty below {exposed:.4f}."
    ),
    "card.share": "It leaves {share} of the error of a blind guess (“{floor}”).",
    "card.assumptions": "Assumptions, by the names above",
    "card.caveats": "Caveats",
    "card.uncertified": "no certificates were computed: attncem audit RUN --suite certificates",
    "card.not_said.attacks": "an attack that was not tried may do better; only a proven bound holds for all",
    "card.not_said.average": "numbers are about images on average: single ones may leak more",
    "card.not_said.labels": "a useful release tells the label, and what goes with it",
    "card.not_said.assumptions": (
        "a bound holds where its assumptions do: other images, another channel, a lost key are not covered"
    ),
    "card.not_said.others": "what leaves by other ways (logs, timing, the answer itself) is not looked at",
}
