"""Findings: what a person should know about a result, by code."""

from __future__ import annotations

FINDINGS: dict[str, str] = {
    "finding.not_converged": (
        "not converged after {epochs:g} epochs: the last doubling of the budget gained {gain:.1f} %"
    ),
    "finding.never_doubled": "not converged after {epochs:g} epochs: no doubling was tried",
    "finding.budget_diverged": "not converged after {epochs:g} epochs: {tried:g} epochs diverged",
    "finding.more_images_help": (
        "with {images} own images the error still falls by {gain:.1f} % for twice as many: the true leakage is "
        "probably larger"
    ),
    "finding.more_width_helps": (
        "at width {width} the error still falls by {gain:.1f} % for twice the width: the true leakage is probably "
        "larger"
    ),
    "finding.steps_not_enough": (
        "not converged after {steps} steps (total variation {smoothness:g}, pull {pull:g}): the last doubling gained "
        "{gain:.1f} %"
    ),
    "finding.steps_never_doubled": (
        "not converged after {steps} steps (total variation {smoothness:g}, pull {pull:g}): no doubling was tried"
    ),
    "finding.seeds_left": (
        "{tried:,} of {total:,} seeds were tried: noise of the others is still on; who tries all takes it off"
    ),
    "finding.unguided": (
        "no server half ties the substitute to the client: it may be mirrored or turned, and worse than a blind guess"
    ),
    "finding.prior_not_converged": "not converged after {steps} steps: doubling them still gained, or was not tried",
    "finding.loses_to": "loses to {other}: it is under-trained",
    "finding.depends_on_batch": (
        "an image comes out otherwise without the others of its batch (they move it by {moved:.2g}, its MSE is "
        "{error:.2g}): the row means nothing"
    ),
    "finding.other_aim": (
        "it was trained for {loss}, and no row of its kind for the MSE that attacks are ranked by: its MSE flatters"
    ),
    "finding.averaging_helps": (
        "who sees {releases} releases of an image takes {gain:.0f} % off the error of {base}: noise is averaged away"
    ),
    "finding.jitter_helps": (
        "releases of the very same image tell nothing new, but {releases} of an image whose pixels move by up to "
        "{jitter}/255, as in a video, take {gain:.0f} % off the error of {base}"
    ),
    "finding.no_attack_beats_floor": (
        "no attack beats the floor “{floor}”: either nothing leaks or the attacks are too weak"
    ),
    "finding.starved_attacker": (
        "the attacker owns only {owned} images ({trained} were trained on): a starved attacker flatters the defence"
    ),
    "finding.overlap": (
        "{count} of the {total} evaluation images are among the attacker's own, pixel for pixel: on these it need only "
        "look them up"
    ),
    "finding.few_images": "judged on {count} images: below {wanted} a mean says little about others",
    "finding.client_heavier": (
        "the client computes more than the server ({client:,} and {server:,} multiply-accumulates): little is split"
    ),
    "finding.near_chance": "accuracy {accuracy:.1f} % is near chance: privacy of a useless model is worth nothing",
    "finding.far_below_undefended": (
        "accuracy {accuracy:.1f} % is far below the {known:.1f} % that a model without a defence reaches on these data "
        "({source}): its privacy was paid for with its use"
    ),
    "finding.unbalanced": (
        "the classes are of unequal size: accuracy is {accuracy:.1f} %, and {balanced:.1f} % where every class counts "
        "the same"
    ),
    "finding.few_labels": (
        "the attacker has only {least} images of one class: where {wanted} labels of each are asked for, it has those"
    ),
    "finding.pixels_alone": (
        "ranked in pixels alone: ranks in features are not applicable without an undefended run of the same data "
        "(--reference RUN)"
    ),
    "finding.reference_defended": "the reference {run} is defended itself: its features may tell images apart badly",
    "finding.row_failed": "failed: {reason}",
    "finding.row_not_applicable": "not applicable: {reason}",
    "finding.rows_missing": (
        "rows of the suite are missing: {rows}; the same command without --only and --skip makes them"
    ),
    "finding.suite_changed": "options differ from the packaged suite: {changed}",
    # what conditions say (--fail-if)
    "finding.fails_mean": "{condition} holds: {value:.4g} (mean {mean:.4g}, 95 % interval {low:.4g} to {high:.4g})",
    "finding.passes_mean": (
        "{condition} does not hold: {value:.4g} (mean {mean:.4g}, 95 % interval {low:.4g} to {high:.4g})"
    ),
    "finding.fails_part": "{condition} holds: {value:.4g}",
    "finding.passes_part": "{condition} does not hold: {value:.4g}",
    "finding.fails_not_known": "{condition} cannot be tested: the audit has no such number",
    "finding.fails_no_attack": "nothing can be tested: no attack has a result",
    "finding.fails_missing": "rows of the suite have no result: {rows}",
    "finding.fails_unreliable": "not reliable: with a larger budget it may recover more than the audit says",
    "finding.fails_should_lead": "did not beat {other}, as it must: the attacks are too weak to pass anything",
    "finding.training": "{said}",
    "finding.log_lost": "{said}; warnings of the training may be missing",
    "finding.scheme_0": (
        "the noise of this run comes from its public seed (scheme 0): who knows the seed takes it off; train it anew"
    ),
    "finding.no_noise": (
        "the channel adds no noise: what an attack misses here another may find, and no bound on what a release tells "
        "can be given"
    ),
    "finding.key_missing": (
        "the key of the keyed noise (noise.key) is missing: the audit draws noise of the same law from another key"
    ),
    "finding.measure_left_out": "left out: it needs images of at least {pixels} px",
    "finding.not_finished": (
        "the run is not finished (status {status}): these are the weights of epoch {done} of {planned}"
    ),
    "finding.file_may_be_trained_on": (
        "if this file is one of the training images, the attacks below have seen it: use test:NUMBER to be sure"
    ),
    "finding.audits_left_out": "the audits are left out: {reason}",
    "finding.no_audit": (
        "there is no audit of these weights: below are quick attacks alone. attncem audit {run} measures, and this "
        "page then shows what its strongest attack makes of the image"
    ),
    "finding.state_not_kept": "what it had learned was too large to keep, so it is not shown on this image",
    "finding.few_of_class": (
        "few validation images of the class {name} ({count}): what is said about the class is rough"
    ),
    # what the report itself finds
    "finding.run_status": "training is not finished (status: {status})",
    "finding.accuracy_collapsed": (
        "accuracy collapsed to {accuracy:.1f} % (best run: {best:.1f} %): its privacy numbers mean little"
    ),
    "finding.no_reference": (
        "What a model without a defence reaches on {dataset} with {network} is not known, so what the defence costs in "
        "accuracy is not judged here: train the same configuration with surrogate.name=none and add it to the report."
    ),
    "finding.other_reference": (
        "What a model without a defence reaches on {dataset} is known for {known} alone, not for {network}, so what "
        "the defence costs in accuracy is judged roughly here: train the same configuration with surrogate.name=none "
        "and add it to the report."
    ),
    "finding.rows_differ": "the rows differ in their {aspects}: compare only like with like",
    "finding.devices_differ": "the runs were measured on different devices: their times are not comparable",
}
"""Sentences by `finding.CODE`."""
