"""The explanation of one image, and what is said about a prediction."""

from __future__ import annotations

EXPLAIN: dict[str, str] = {
    "explain.title": "attncem explain: {source} on {run}",
    "explain.heading": "What does this image give away?",
    "explain.made": (
        "Made {time} by attncem {version} from the run {run} (surrogate {surrogate}, λ = {penalty_weight}, weights "
        "{weights}, data {dataset})."
    ),
    "explain.notes": "Notes",
    "explain.illustration": (
        "One image is an illustration. How much the model leaks is measured by attncem audit, on all test images and "
        "with attacks that are trained until they converge."
    ),
    # the first screen
    "explain.answer.open": "The strongest attack recovers most of this image.",
    "explain.answer.part": "The strongest attack recovers a part of this image that a blind guess does not.",
    "explain.answer.kept": "The strongest attack recovers little more of this image than a blind guess does.",
    "explain.answer.blind": "The strongest attack recovers no more of this image than a blind guess does.",
    "explain.answer.quick": "Without an audit nobody knows how much of this image an attacker recovers.",
    "explain.answer.unknown": "How much of this image can be recovered is not known.",
    "explain.picture.image": "The image",
    "explain.picture.seen": "As the network sees it",
    "explain.picture.attack": "What the strongest attack recovers",
    "explain.picture.quick": "What a quick attack recovers",
    "explain.picture.blind": "A blind guess, for comparison",
    "explain.picture.error": "{name}, MSE {mse:.4f}",
    "explain.told": "{name}: {value}",
    "explain.told.audit": "MSE over all test images: {mse:.4f}",
    "explain.average.alike": (
        "The audit’s strongest attack, {attack}, recovers this image about as well as the average one: MSE {mse:.4f}, "
        "on average {mean:.4f}."
    ),
    "explain.average.better": (
        "The audit’s strongest attack, {attack}, recovers this image better than the average one: MSE {mse:.4f}, on "
        "average {mean:.4f}."
    ),
    "explain.average.worse": (
        "The audit’s strongest attack, {attack}, recovers this image worse than the average one: MSE {mse:.4f}, on "
        "average {mean:.4f}."
    ),
    "explain.quick": "Of the quick attacks {attack} comes nearest to this image: MSE {mse:.4f}.",
    "explain.blind.better": (
        "Without the release the best guess of this very image, {floor}, has MSE {error:.4f}: the attack leaves "
        "{share} of that error."
    ),
    "explain.blind.alike": (
        "Without the release the best guess of this very image, {floor}, has MSE {error:.4f}: the attack’s error is "
        "{share} of that, about the same."
    ),
    "explain.blind.worse": (
        "Without the release the best guess of this very image, {floor}, has MSE {error:.4f}: the attack’s error is "
        "{share} of that, it does worse."
    ),
    "explain.reliable.yes": "The attack is reliable: a larger budget would gain little.",
    "explain.reliable.no": (
        "The attack is not reliable: with a larger budget it would still gain, so somebody with more patience may "
        "recover more."
    ),
    "explain.reliable.unknown": "Whether a larger budget would make the attack stronger was not asked.",
    # the label
    "explain.label": "{source}: the server says {name} ({probability}).",
    "explain.label.right": "{source}: the server says {name} ({probability}), which is right.",
    "explain.label.wrong": "{source}: the server says {name} ({probability}); it is {truth}.",
    "explain.input": "What the server says",
    "explain.input.lead": "The server gets the release alone; these are the labels it finds likeliest.",
    "explain.input.prepared": "What was done to the file: {steps}.",
    "explain.seen": "The encoder sees it behind the front end {name}: what that takes out never reaches the network.",
    "explain.seen.lead": "The picture behind the front end, all that the network is given: grey where nothing is left.",
    "explain.true_label": "{name} (true label)",
    # what leaves
    "explain.release": (
        "What leaves the device: {size} {dtype} = {bytes:,} bytes, {share:.2f} times the image’s {image_bytes:,} "
        "bytes of pixels{file}; values from {minimum:.3g} to {maximum:.3g}, {noise}."
    ),
    "explain.release.file": ", {bytes:,} in the file",
    "explain.noise": "{kind} noise of σ = {std:g}",
    "explain.noise.none": "no noise",
    "explain.feature": "What leaves the device",
    "explain.feature.short": "What leaves",
    "explain.feature.lead": (
        "Above the clean feature z, which stays on the device; below what is released. Black is {low}, white {high} "
        "in all pictures."
    ),
    "explain.feature.snr": (
        "The signal-to-noise ratio over all of z is {snr}: what tells this image from its class, against what the "
        "channel changed."
    ),
    "explain.feature.hidden": "{count} more channels are not drawn.",
    "explain.feature.clean": "clean {name}",
    "explain.feature.released": "released {name}",
    "explain.feature.tile_snr": "SNR {snr}",
    "explain.feature.clean_matrix": "clean ({name})",
    "explain.feature.released_matrix": "released",
    # inside its class
    "explain.class": "Inside its class",
    "explain.class.lead.true": (
        "The image in a batch of validation images, {count} beside it; it counts as {name}, its true class. The "
        "surrogate is the run’s own, in the state of the checkpoint; in all figures and tables {colour} is the image "
        "or its class."
    ),
    "explain.class.lead.predicted": (
        "The image in a batch of validation images, {count} beside it; it counts as {name}, its predicted class. The "
        "surrogate is the run’s own, in the state of the checkpoint; in all figures and tables {colour} is the image "
        "or its class."
    ),
    "explain.class.colour": "this colour",
    "explain.place.none": "There is no validation image of the class {name} to compare it with.",
    "explain.place": (
        "Its clean feature lies {distance:.2f}{unit} from the mean of {name} (root mean square over the features)."
    ),
    "explain.place.among": (
        "Its clean feature lies {distance:.2f}{unit} from the mean of {name} (root mean square over the features), "
        "farther than {nearer} of the class’s {count} others."
    ),
    "explain.penalty.attention": (
        "The attention of {surrogate} gives it the weight {weight:.4f} inside its class, {times:.2f} times the uniform "
        "{uniform:.4f}."
    ),
    "explain.penalty.none": "The model was trained without a penalty, so there is no attention to show.",
    "explain.penalty.plain": "The surrogate {surrogate} has no attention over the images of a class.",
    "explain.penalty.slot": (
        "The surrogate {surrogate} divides a class into {count} slots; slot {best} takes {share} of this image."
    ),
    "explain.penalty.cluster": (
        "The surrogate {surrogate} divides a class into {count} clusters; cluster {best} takes {share} of this image."
    ),
    "explain.penalty.component": (
        "The surrogate {surrogate} divides a class into {count} components; component {best} takes {share} of this "
        "image."
    ),
    "explain.penalty.gates_alone": (
        "The surrogate {surrogate} gives slots to these classes alone: {divided}. {name} is handled by gated attention "
        "alone, so there are no slots to show."
    ),
    "explain.penalty.gates_alone.all": (
        "The surrogate {surrogate} has given slots to no class: all are handled by gated attention alone."
    ),
    "explain.rank.own": "this image",
    "explain.rank.other": "another image of its class",
    "explain.rank.place": "place {place} of {count}",
    "explain.rank.line": "uniform: {value:.4g}",
    "explain.shares.slot": "Which slots take it",
    "explain.shares.cluster": "Which clusters take it",
    "explain.shares.component": "Which components take it",
    "explain.column.slot": "Slot",
    "explain.column.cluster": "Cluster",
    "explain.column.component": "Component",
    "explain.shares.lead": "The bar is this image; the mark is the mean of its class’s {count} other images.",
    "explain.shares.value": "{part} {number}",
    "explain.shares.own": "this image: {share}",
    "explain.shares.others": "others of its class: {share}",
    "explain.gates": "Gates",
    "explain.gates.caption": (
        "Gates of the image’s class, from 0 (shut) to 1 (open): the bar is their range over the features, the mark "
        "their mean. “Saturated”: share of the values within 0.01 of 0 or 1; a gate that is shut everywhere switches "
        "the penalty off."
    ),
    "explain.gates.none": "The surrogate {surrogate} uses no gates in this run.",
    "explain.gates.alone.attention": "These are the gates of attention; {name} has no slots, and so no gates of slots.",
    "explain.gates.alone.nothing": "Attention uses no gates here; {name} has no slots, and so no gates of slots.",
    "explain.gates.range": "from {low} to {high}",
    "explain.gates.mean": "mean {mean}",
    "explain.gates.saturated": "saturated: {share}",
    "explain.gate.gate_dimension": "dimension gate: how much each feature’s spread counts",
    "explain.gate.gate_snr": "SNR gate: open where the spread is large beside the mean",
    "explain.gate.gate_class": "class gate: open for classes with a large share of the batch",
    "explain.gate.slot_gate_dimension": (
        "dimension gate of the slots: how much each feature’s spread inside a slot counts"
    ),
    "explain.gate.slot_gate_snr": "SNR gate of the slots: open where the spread inside a slot is large beside its mean",
    "explain.gate.slot_gate_class": "class gate of the slots: open for classes with a large share of the batch",
    "explain.classes": "Classes of the batch",
    "explain.classes.region": "Variance and penalty of each class",
    "explain.classes.caption": (
        "Variance of clean z inside the class, mean over the features, and the class’s penalty before its weight λ."
    ),
    "explain.column.class": "Class",
    "explain.column.images": "Images",
    "explain.column.variance": "Variance",
    "explain.column.penalty": "Penalty",
    "explain.column.divided": "Slots",
    "explain.divided.yes": "yes",
    "explain.divided.no": "attention alone",
    "explain.diagnostics": "All the surrogate says about this batch",
    # what comes back
    "explain.recovered": "All attacks on it",
    "explain.recovered.lead": (
        "What an attacker who owns {count:,} training images, knows the encoder and the channel and sees this one "
        "release makes of it."
    ),
    "explain.recovered.image": "the image",
    "explain.recovered.alt": "reconstruction by {name}",
    "explain.recovered.shot": "{name}, MSE {mse}",
    "explain.recovered.region": "All measures of the reconstructions",
    "explain.recovered.audited": "Mean over all test images: from an audit of these weights ({audit}).",
    "explain.recovered.unaudited": (
        "These weights have not been audited under this threat model: {command} gives the mean over all test images."
    ),
    "explain.recovered.from_audit": "the audit’s strongest attack, with what it had learned there",
    "explain.recovered.no_attack": "No attack could be made on this image: there is nothing to show but floors.",
    "explain.recovered.units": "Of this image that is {worth}.",
    "explain.column.recovered_by": "Recovered by",
    "explain.column.kind": "Kind",
    "explain.column.own.note": "of this image",
    "explain.column.audit.note": "mean of the audit",
    # the same images among others
    "figure.pictures": "What the strongest attack makes of some images",
    # how to read
    "explain.reading.release": "Clean feature z, release",
    "explain.reading.release.text": (
        "The client computes z from the image and sends only the release: z after the channel. Server and attacker see "
        "nothing else."
    ),
    "explain.reading.snr": "Signal-to-noise ratio",
    "explain.reading.snr.text": (
        "Mean square of z minus the mean of the class’s validation images, over the mean square of what the channel "
        "changed in this release. Below 1 the channel hides more than what tells the image from its class; at 0 all "
        "images of the class look alike."
    ),
    "explain.reading.distance": "Distance",
    "explain.reading.distance.text": (
        "Root mean square over the features of z minus the mean of the class’s other images, in units of the channel’s "
        "noise σ. Images far out give more away."
    ),
    "explain.reading.attention": "Attention weight",
    "explain.reading.attention.text": (
        "How much the image counts in its class’s weighted variance; the weights of a class sum to 1. Under {learn} "
        "images that raise the penalty get more."
    ),
    "explain.reading.floors": "Floors",
    "explain.reading.floors.text": (
        "The mean image looks at nothing, the class mean at the label alone. A reconstruction counts for something "
        "only where it beats the floors. Errors within 5 % of each other are called about the same."
    ),
}
"""The explanation's texts by key."""
