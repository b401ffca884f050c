"""The report: its verdict, headings, columns and explanations."""

from __future__ import annotations

REPORT: dict[str, str] = {
    "report.title": "attncem report: {runs}",
    "report.heading": "What do these split models leak?",
    "report.made.one": "Made {time} by attncem {version} from 1 run.",
    "report.made.many": "Made {time} by attncem {version} from {count} runs.",
    "report.colours": "Colours of the runs",
    "report.warnings": "Read these warnings first",
    "report.warnings.short": "Warnings",
    "report.aspect.dataset": "data sets",
    "report.aspect.data": "evaluation data",
    "report.aspect.suite": "suites",
    "report.aspect.changed": "changed options",
    "report.aspect.threat": "threat models",
    # the first screen
    "report.first": "The models in one look",
    "report.first.accuracy": "accuracy",
    "report.first.removed": "An attacker removes {share} of a blind guess’s error",
    "report.first.attack": "by “{attack}”: MSE {mse}",
    "report.first.guess": "blind guess “{guess}”: {mse:.4f}",
    "report.first.no_guess": (
        "There is no blind guess in the audit to compare the strongest attack, “{attack}”, with."
    ),
    "report.first.unaudited": "{count} of {total} seeds are not audited yet.",
    "report.first.doubt": (
        "On {count} of {total} seeds the attack had not converged, so the true leakage is probably larger."
    ),
    "report.first.reliable": "reliable",
    "report.first.unreliable": "not reliable",
    "report.first.warnings": "warnings: {count}",
    "report.first.weight": "{defence}, λ\u00a0{weight:g}",
    "report.first.seeds": "{count} seeds: mean ± sd",
    "report.first.cut": "{network}, cut {cut}",
    "report.first.dataset": "data set {value}",
    "report.first.network": "network {value}",
    "report.first.channel": "channel {value}",
    "report.first.attacker": "attacker {value}",
    "report.first.each": "of each model: see above",
    "report.first.noise": "σ\u00a0{noise:g}",
    "report.first.suite": "{threat}, suite {suite} v{version}",
    "report.first.adversary": "{name}: owns {owned}, sees {sight}",
    "report.words": "The same in words",
    # the verdict in words
    "report.verdict.unaudited": "No run has been audited yet, so nothing is known about what these models leak.",
    "report.verdict.no_result": "On {run} no attack has a result, so nothing is known about what it leaks.",
    "report.verdict.near_chance": (
        "{run} has an accuracy of {accuracy}, near chance: nothing can be said about its privacy."
    ),
    "report.verdict.collapsed": "{run} has lost its accuracy ({accuracy}): its error of {mse:.4f} means little.",
    "report.verdict.floor": (
        "On {run}{accuracy} no attack of this suite does better than the blind floor (“{attack}”, MSE {mse:.4f}); "
        "a stronger attack may."
    ),
    "report.verdict.strongest": (
        "The strongest attack on {run}, “{attack}”, recovers images with MSE {mse:.4f}{floor}{accuracy}."
    ),
    "report.verdict.accuracy": " (accuracy {accuracy})",
    "report.verdict.at_accuracy": " at accuracy {accuracy}",
    "report.verdict.above_floor": " (blind floor {floor:.4f})",
    "report.verdict.below_floor": " (blind floor {floor:.4f}; {removed:.0f} % of a blind guess’s error removed)",
    "report.verdict.units": "That is {worth}.",
    "report.verdict.doubt": "This attack had not converged, so the true leakage is probably larger.",
    "report.verdict.ends": "These are the most and the least exposed of the useful models; {count} more are below.",
    "report.verdict.one_seed": (
        "Each row is one seed: the differences shown are not yet a claim that one method wins."
    ),
    # audits that are left out
    "report.left_out.weights": (
        "left out: the audit {audit} is of other weights of this run ({weights}, fingerprint {fingerprint})"
    ),
    "report.left_out.run": (
        "left out: the audit {audit} is of another run ({run}, weights {weights}, fingerprint {fingerprint})"
    ),
    "report.left_out.old": (
        "left out: {file} was written by attncem 0.1 and is no longer read: attncem audit {run}{options} makes it anew"
    ),
    "report.left_out.foreign": "a foreign encoder",
    # the headline table
    "report.headline": "Numbers",
    "report.headline.lead": (
        "Each model against its own strongest attack. Square brackets: 95 % interval, over images; of several seeds "
        "mean ± standard deviation, and the interval of the mean over seeds."
    ),
    "report.headline.seeds": "Single seeds",
    "report.headline.reliable_of": "{count} of {total}",
    "report.headline.caption": (
        "PSNR is the mean of the per-image PSNR. “5 % most exposed”: the 5th percentile of the per-image MSE. Training "
        "time is relative to the first run."
    ),
    "report.headline.unaudited": "not audited yet: {command}",
    "report.headline.no_result": "no result",
    "report.headline.floor_wins": "a floor: no attack is stronger",
    "report.guesses": "Blind guesses",
    "report.guesses.lead": (
        "They look at nothing, or at the predicted label alone: what every attack must beat. A guess by the predicted "
        "label is as good as the model’s predictions, so each model has its own."
    ),
    "report.guess.of": "{guess} ({run})",
    "report.guess.all": "all models",
    "report.column.guess": "Guess",
    "report.column.of": "Beside",
    "report.column.run": "Run",
    "report.column.surrogate": "Surrogate",
    "report.column.penalty_weight": "λ",
    "report.column.penalty_weight.note": "penalty weight",
    "report.column.noise": "σ",
    "report.column.noise.note": "noise",
    "report.column.suite": "Suite",
    "report.column.threat": "Threat model",
    "report.column.accuracy": "Accuracy",
    "report.column.accuracy.note": "%",
    "report.column.strongest": "Strongest attack",
    "report.column.exposed": "MSE, 5\u00a0%",
    "report.column.exposed.note": "most exposed",
    "report.column.training": "Training",
    "report.column.training.note": "time",
    "report.column.client": "Client",
    "report.column.server": "Server",
    "report.column.cost.note": "param., MACs",
    "report.column.query": "Query",
    "report.column.query.note": "bytes",
    "report.column.reliable": "Reliable",
    "report.column.attack": "Attack",
    "report.column.kind": "Kind",
    "report.column.gain": "Gain of doubling",
    "report.column.parameters": "Parameters",
    "report.column.time": "Time",
    "report.column.class": "Class",
    "report.yes": "yes",
    "report.no": "no",
    "report.family.region": "Decoders tried by {attack} on {run}",
    "report.family.caption": (
        "{attack} on {run}: MSE on the attacker’s own validation images by width and number of own images. What still "
        "falls to the right or downwards would fall further."
    ),
    "report.family.width": "width",
    "report.family.images": "own images",
    "report.family.card": "{count} own images",
    "report.samples": "samples: spread {spread:.4f} beside an MSE of {mse:.4f} (equal where they are calibrated)",
    "report.sample.mse": "MSE of a sample {mean:.4f}",
    "report.sample.ssim": "SSIM of a sample {mean:.3f}",
    "report.sample.edges": "edge similarity of a sample {mean:.3f}",
    "report.fixed_budget": "the budget it was published with: whether more would gain was not asked",
    "report.private.higher": "higher = more private",
    "report.private.lower": "lower = more private",
    # what is protected
    "report.protected": "What is protected",
    "report.protected.lead": (
        "How much of the best blind guess’s error is left under each run’s strongest attack. 100 %: the attack knows "
        "no more than the guess; 0 %: it has a perfect copy. A stronger attack may leave less."
    ),
    "report.protected.left": "{share} left",
    "report.protected.beside": "{value}; blind guess {blind} ({floor})",
    "report.protected.bar.band_mean": "Mean colour",
    "report.protected.bar.band_low": "Coarse shape",
    "report.protected.bar.band_high": "Detail",
    "report.protected.bar.structure": "Structure",
    "report.protected.bar.edges": "Edges",
    "report.protected.note.band_mean": "and brightness",
    "report.protected.note.band_low": "below 4 cycles an image",
    "report.protected.note.band_high": "4 cycles and more",
    "report.protected.note.structure": "all but the mean colour",
    "report.protected.note.edges": "agreement of outlines",
    "report.protects.open_open": "An attacker recovers most of the shape, and most of colour and brightness.",
    "report.protects.open_part": "An attacker recovers most of the shape, and colour and brightness in part.",
    "report.protects.open_kept": (
        "An attacker recovers most of the shape; colour and brightness are largely protected."
    ),
    "report.protects.part_open": "An attacker recovers shape in part, and most of colour and brightness.",
    "report.protects.part_part": "An attacker recovers shape in part, and colour and brightness in part.",
    "report.protects.part_kept": "An attacker recovers shape in part; colour and brightness are largely protected.",
    "report.protects.kept_open": "An attacker recovers most of colour and brightness; shape is largely protected.",
    "report.protects.kept_part": "An attacker recovers colour and brightness in part; shape is largely protected.",
    "report.protects.kept_kept": "Shape is largely protected, and so are colour and brightness.",
    "report.protects.floor": (
        "No attack of this suite does better than a blind guess: either nothing leaks or the attacks are too weak."
    ),
    "report.protects.useless": "The model has lost its accuracy: what it hides is worth nothing.",
    # accuracy and error
    "report.plot": "Accuracy and error",
    "report.plot.lead": (
        "Right is more useful, up is more private. Dashed: blind guesses, a band where one is not as good for every "
        "model; an attack near them has learned little about single images. Bars: 95 % intervals over images; of "
        "several seeds the standard deviation, each seed a light point."
    ),
    "report.plot.empty": "No audit has both an accuracy and an attack with a result.",
    # all attacks
    "report.attacks": "All attacks",
    "report.attacks.lead": (
        "The strongest row of each run is in bold. “Gain of doubling”: how much lower the error became when the "
        "attack’s budget was doubled; near zero means converged."
    ),
    "report.attacks.caption": "Pixels lie in [0, 1]. Square brackets: 95 % interval.",
    "report.attacks.line": "{measure} {value}",
    "report.kind.floor": "floor",
    "report.kind.attack": "attack",
    "report.kind.certificate": "certificate",
    "report.kind.probe": "probe",
    "report.outcome.reason": "{outcome}: {reason}",
    "report.outcome.failed": "failed",
    "report.outcome.not_applicable": "not applicable",
    "report.bound.bound": "{name}: {value:.4g} {unit} [{low:.4g}, {high:.4g}], a proven bound",
    "report.bound.estimate": "{name}: {value:.4g} {unit} [{low:.4g}, {high:.4g}], an estimate",
    "report.score": "{name}: {mean:.4g} [{low:.4g}, {high:.4g}]",
    "report.probe.rank_1": "the true one of {among} candidates comes first: {share} (chance {blind})",
    "report.probe.rank": "median rank {median:g} (chance {chance:g})",
    "report.probe.reciprocal_rank": "mean reciprocal rank {mean:.3f} (chance {chance:.3f})",
    "report.probe.pixel_rank_1": "in pixels the true one of {among} candidates comes first: {share} (chance {blind})",
    "report.probe.pixel_rank": "median rank {median:g} (chance {chance:g})",
    "report.probe.feature_rank_1": "in features of the reference it comes first: {share} (chance {blind})",
    "report.probe.feature_rank": "median rank {median:g} (chance {chance:g})",
    "report.probe.by": "by the pictures of “{attack}”",
    "report.probe.accuracy": "labels a class {labels}: accuracy {share} (chance {blind})",
    "report.probe.balanced": "balanced {share} (chance {blind})",
    "report.probe.attribute_accuracy": "attribute told right: {share} (chance {blind})",
    "report.probe.attribute_balanced": "balanced {share} (chance {blind})",
    "report.probe.auc": "members told from others: AUC {mean:.3f} [{low:.3f}, {high:.3f}] (chance {chance:g})",
    "report.probe.balanced_accuracy": "balanced accuracy {share} (chance {blind})",
    "report.probe.share": "{mean} [{low}, {high}] %",
    # asking again
    "report.asking": "Asking again",
    "report.asking.lead": (
        "The same attacks for an adversary who sees more releases of each image than the threat model grants. They do "
        "not compete with the strongest attack. With jitter each release is of an image whose pixels are off by some "
        "grey levels (of 255), as in a video or a photograph that was encoded again."
    ),
    "report.asking.helps": (
        "Asking again helps: {releases} releases of an image take {gain} % off the error of “{base}”."
    ),
    "report.asking.flat": (
        "Asking again does not help: {releases} releases of the very same image take {gain} % off the error of "
        "“{base}”."
    ),
    "report.asking.moved": (
        "{releases} releases of an image whose pixels move by up to {jitter}/255 take {gain} % off the error of "
        "“{base}”."
    ),
    "report.asking.moved_flat": (
        "{releases} releases of an image whose pixels move by up to {jitter}/255 do not help: they take {gain} % off "
        "the error of “{base}”."
    ),
    "report.asking.gain": "{mean} [{low}, {high}]",
    "report.asking.caption": "“Error taken off”: in % of the first row of the attack, paired over images.",
    "report.asking.region": "Errors by number of releases, {run}",
    "report.column.releases": "Releases",
    "report.column.releases.note": "of each image",
    "report.column.taken_off": "Error taken off",
    "report.column.taken_off.note": "%",
    "report.column.units": "Worth",
    "report.column.units.note": "thumbnail, principal components",
    "report.sight": "{releases}, ±{jitter}",
    "report.reading.units": "Worth",
    "report.reading.units.text": (
        "The thumbnail of the image, or the number of its principal components (PC; axes of the training images), that "
        "leaves the same mean MSE on these evaluation images. “mean image”: no better than a guess that sees nothing."
    ),
    # the gallery
    "report.gallery": "Gallery",
    "report.gallery.lead": (
        "What the attacker gets. The number under a reconstruction is its own MSE. Of several seeds the first is shown."
    ),
    "report.gallery.choose": "Attack shown:",
    "report.gallery.strongest": "the strongest on each run",
    "report.gallery.fixed": "The same images for every run",
    "report.gallery.fixed_of": "The same images for every run: {dataset}",
    "report.gallery.region": "Originals and reconstructions",
    "report.gallery.reconstruction": "reconstruction of {name} by {attack} on {run}",
    "report.gallery.empty": "The audits hold no images.",
    "report.gallery.best": "{run}: recovered best (most exposed)",
    "report.gallery.worst": "{run}: recovered worst",
    # learning curves
    "report.curves": "Learning curves",
    "report.curves.lead": (
        "Point at a curve for its values, or go to it with the tab key and move by the arrow keys. A line for each "
        "run, a colour for each method."
    ),
    "report.curves.empty": "No training has been logged.",
    "report.curves.health": "Health of the surrogates",
    "report.curves.health.lead": (
        "Whether the penalty still measures the spread. The limit beside a name raises a warning; figures that are 0 "
        "throughout are left out."
    ),
    "report.curves.attacks": "Attacks: error on the attacker’s own validation images against its budget",
    "report.curves.attacks.lead": "A curve that still falls at its end is an attack that was stopped too early.",
    # classes
    "report.classes": "Classes",
    "report.classes.lead": (
        "A mean hides the class that leaks most: it is marked {mark} (lowest MSE under the run’s strongest attack)."
    ),
    "report.classes.region": "Accuracy and MSE per class on {dataset}",
    "report.classes.caption": (
        "Accuracy in % and MSE of the strongest attack; where it was kept, also the MSE below which the class’s most "
        "exposed 5 % of images lie. Of several seeds the means."
    ),
    "report.classes.accuracy": "accuracy, %",
    "report.classes.mse": "MSE",
    "report.classes.exposed": "MSE, most exposed 5 %",
    # how to read
    "report.reading": "How to read",
    "report.reading.title": "How to read this page",
    "report.reading.removed": "Removed of a blind guess’s error",
    "report.reading.removed.text": (
        "One minus the strongest attack’s MSE over that of the best blind guess for the same model: 0 % is a guess "
        "that sees nothing but the predicted label, 100 % a perfect copy. In brackets what the 95 % interval of the "
        "attack’s error makes of it, with the guess’s error as it is; of several seeds ± is the standard deviation."
    ),
    "report.reading.intervals": "Intervals",
    "report.reading.intervals.text": (
        "95 % bootstrap over the evaluation images. They say nothing about other seeds: with one seed per row no row "
        "is the winner."
    ),
    "report.reading.floors": "Floors",
    "report.reading.floors.text": (
        "Guesses that never look at what was released, or only at the predicted label. An error near them means that "
        "the attack learned little; an error far below them is leakage."
    ),
    "report.reading.strongest": "Strongest attack",
    "report.reading.strongest.text": (
        "The row with the lowest mean MSE in that audit. It bounds the leakage from below: a stronger attack may exist."
    ),
    "report.reading.reliable": "Reliable",
    "report.reading.reliable.text": (
        "The attack had converged and passed its own checks. Otherwise the model looks more private than it is."
    ),
    "report.reading.accuracy": "Accuracy",
    "report.reading.accuracy.text": (
        "Measured through the same channel that the attacker sees. A model that has lost its accuracy is not private "
        "but useless."
    ),
    "report.reading.protected.text": (
        "Below {open} left most was recovered, from {kept} on it is largely protected, between the two it was "
        "recovered in part. Colour and brightness are judged by the mean colour; shape by structure or edges, "
        "whichever the attack does better in."
    ),
    "report.reading.probes": "Probes",
    "report.reading.probes.text": (
        "They read a release for something else than its image, and compete with no attack. Each number stands beside "
        "what seeing nothing gives: an interval that reaches up to chance means that nothing was found, by this "
        "adversary. It bounds what leaks from below."
    ),
    "report.reading.probe.reidentification": "Re-identification",
    "report.reading.probe.reidentification.text": (
        "Somebody has candidate images, has each of them released, and asks which of them a release is of. Keyed noise "
        "does not help here: the same image gives the same release."
    ),
    "report.reading.probe.reidentification_by_picture": "Re-identification by picture",
    "report.reading.probe.reidentification_by_picture.text": (
        "The same question, answered by what the named attack recovered: which candidate is nearest to the picture, in "
        "pixels, and in features of an undefended network of the same data where one was given. A blurred picture with "
        "a high error may still name its image."
    ),
    "report.reading.probe.label_leakage": "Label leakage",
    "report.reading.probe.label_leakage.text": (
        "What a few labelled releases of each class are worth to somebody without the server half. Near the model’s "
        "own accuracy, a release tells its label to anybody."
    ),
    "report.reading.probe.attribute_leakage": "Attribute leakage",
    "report.reading.probe.attribute_leakage.text": (
        "Whether an attribute, or the group of classes that an image is of, can be told from its release. What follows "
        "from the class leaks wherever the class does; balanced accuracy counts every value the same."
    ),
    "report.reading.probe.membership": "Membership",
    "report.reading.probe.membership.text": (
        "Whether a release tells that its image was trained on. 0.5 is a coin’s; an encoder that knows its training "
        "images by heart gives more."
    ),
    "report.reading.threat": "Threat model {name}",
    # the commands
    "report.commands": "Commands",
    "report.commands.lead": (
        "What makes the runs and this page again: the runs’ own configurations, trained into new folders beside the "
        "old ones, and audited as they were."
    ),
    "report.commands.own": (
        "Of {names} the audits know the name alone: give the file of your own suite, or the threat model in Python."
    ),
    "report.commands.page": "This page",
    # settings
    "report.settings": "Settings",
    "report.settings.alone": "Audited without a run: nothing of its training is known here.",
    "report.settings.run": "Status {status}; device {device}{versions}.",
    "report.settings.unknown": "unknown",
    "report.settings.images": "Images: {counts}.",
    "report.settings.audit": (
        "Audit {suite} v{version}, threat model {threat}, seed {seed}, of the weights {weights} (fingerprint "
        "{fingerprint}): {images} evaluation images, {owned} images of the attacker, {seconds} on {device}."
    ),
    "report.settings.reference": "Ranks in features are those of {reference}.",
    "report.settings.signal": (
        "Variance of a channel of z over what the channel puts on it (signal to noise): {least} to {most}, median "
        "{median}{untouched}."
    ),
    "report.settings.signal.untouched": "; {count} of {total} channels are released as they are",
    "report.settings.signal.none": "Every channel of z is released as it is: there is no noise on it.",
    "report.seed": "seed {seed}",
}
"""The report's texts by key."""
