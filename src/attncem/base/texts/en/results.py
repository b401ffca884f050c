"""What stands in results beside findings: what they are about, and why a row does not apply."""

from __future__ import annotations

RESULTS: dict[str, str] = {
    "said.about": "{about}: {said}",
    "said.sentence": "{said}.",
    "said.between": " ",
    "about.training": "training, {cause}",
    "about.log": "log {number}",
    "about.audit": "suite {suite}, threat model {threat}",
    "about.channel": "channel {number}",
    "about.tokens_down": "rows: tokens, columns: features",
    "about.features_down": "rows: features, columns: tokens",
    "about.features": "all features, row by row",
    "reason.axes_normal": ("principal axes need normal noise: that of another law is not the same in every direction"),
    "reason.axes_many": "principal axes of more than {count} features are not looked for",
    "reason.cells_by_class": "the images have no labels, so there are no cells by class",
    "reason.no_surrogate": "there is no surrogate whose partition could be judged",
    "reason.not_quantised": "none: the channel does not quantise what it releases",
    "reason.rounded": "none: what is rounded before the noise has no derivative",
    "reason.no_gradient": "none: no gradient passes from the features to the pixels",
    "reason.one_image": "one image cannot be told from others",
    "reason.other_shape": "the channel changes the shape of z, so releases cannot be compared with it",
    "reason.not_clipped": "none: nothing clips z before the noise, so two inputs may differ by any amount",
    "reason.images_alike": "the evaluation images do not differ: there is nothing to recover",
    "reason.law_unknown": "none: the law of the channel {name} is not known",
    "reason.no_noise": "none: the channel adds no noise, so nothing bounds what a release tells",
    "reason.scheme_0": "none: keyed noise of scheme 0 follows from a public seed, and can be taken off",
    "reason.pixels_move": "none: bounds are of releases of the same pixels, and here they move",
    "reason.fresh_before_keyed": "none: a fresh draw before keyed noise shows differences of z without any noise",
    "reason.one_value": "the attribute has one value only among the own or the evaluation images",
    "reason.no_groups": "no groups of the classes of {name} are known: give groups or attribute",
    "reason.few_pairs": "membership needs {wanted} pairs of images of one class, and there are {count}",
    "reason.no_server": "there is no server half, so there is no accuracy",
}
"""Texts that stand in results by key."""
