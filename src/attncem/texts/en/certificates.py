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
}
