"""What pages and terminal share: measures, threat models, figures, tables of the terminal."""

from __future__ import annotations

SHARED: dict[str, str] = {
    "page.language": "en",
    "page.sections": "Sections",
    "page.no_image": "no image",
    "page.original": "original",
    "page.original_of": "original image of {name}",
    "page.class": "class {number}",
    # measures: title, and what it says
    "measure.mse": "MSE",
    "measure.mse.meaning": (
        "Mean squared error between image and reconstruction, pixels in [0, 1]. Higher means that less was recovered."
    ),
    "measure.psnr": "PSNR",
    "measure.psnr.meaning": (
        "−10·log₁₀(MSE) of each image, then the mean over images. It differs from the PSNR of the pooled MSE."
    ),
    "measure.ssim": "SSIM",
    "measure.ssim.meaning": "Structural similarity over windows that lie fully inside the image.",
    "measure.ssim_zero_pad": "SSIM, zero-padded",
    "measure.ssim_zero_pad.meaning": (
        "SSIM over a border of zeros, which adds similarity that is not there. It is usually larger, and shown only "
        "for comparison with published tables."
    ),
    "measure.structure": "Structure error",
    "measure.structure.meaning": (
        "MSE after the mean colour of each of the two images is taken from it: a wrong brightness or tint of the whole "
        "image counts nothing, shape alone does."
    ),
    "measure.edges": "Edge similarity",
    "measure.edges.meaning": (
        "How far the outlines agree: similarity of the gradient magnitudes of the grey images, 1 where they are equal."
    ),
    "measure.band_mean": "Error of mean colour",
    "measure.band_mean.meaning": (
        "The part of the MSE that is due to the mean colour and brightness of the whole image (frequency 0)."
    ),
    "measure.band_low": "Error of coarse shape",
    "measure.band_low.meaning": (
        "The part of the MSE below 4 cycles an image, the mean left out: what an 8×8 thumbnail can show."
    ),
    "measure.band_high": "Error of detail",
    "measure.band_high.meaning": (
        "The part of the MSE from 4 cycles an image on. The errors of mean colour, coarse shape and detail add up to "
        "the MSE; the last two to the structure error."
    ),
    # threat models
    "threat.sentence": "The adversary {encoder}, {channel}, {query}, owns {owned}, and sees {sight} of each image.",
    "threat.encoder.yes": "knows the encoder",
    "threat.encoder.no": "does not know the encoder",
    "threat.channel.yes": "knows the channel",
    "threat.channel.no": "does not know the channel",
    "threat.query.yes": "may have any image released by the client",
    "threat.query.no": "cannot query the client",
    "threat.auxiliary.train": "the training images",
    "threat.auxiliary.held_out": "held-out images of the same kind that the model never saw",
    "threat.auxiliary.published_infer": "the share of the test images that earlier publications give the attacker",
    "threat.auxiliary.none": "no images",
    "threat.releases.one": "one release",
    "threat.lacks": "the adversary of the threat model {name} {what}",
    "threat.lacks.images": "owns no images",
    "threat.lacks.queries": "can neither query the client nor compute its features",
    "threat.lacks.encoder": "does not know the encoder",
    "threat.lacks.gradient": "does not know the encoder",
    "threat.lacks.channel": "does not know the channel",
    "threat.lacks.server": "has no server half to ask",
    "threat.lacks.generator": "has no noise to guess: none is drawn with fewer than 256 random bits",
    "noise_guess.gaussian_alone": "draws are compared for channels of Gaussian noise alone",
    "noise_guess.few_features": "draws of fewer than 16 features, or of an odd number below 32, are not compared",
    "threat.lacks.observed": "has observed no releases",
    "threat.lacks.members": "owns no images that were trained on",
    "threat.releases.many": "{count} releases",
    # figures
    "figure.description": "{title}. {values}",
    "figure.epoch": "epoch",
    "figure.last_values": "last values: {values}",
    "figure.value": "{run} {value:.4g}",
    "figure.panel.accuracy": "Validation accuracy (Prec@1)",
    "figure.panel.accuracy.note": "higher = more useful",
    "figure.panel.ce": "Validation cross entropy",
    "figure.panel.rob_loss": "rob_loss (penalty, unscaled)",
    "figure.panel.intra_mse": "intra_mse (spread of z inside a class)",
    "figure.health.active": "active (share above the floor)",
    "figure.health.plain_loss": "plain_loss (penalty of the plain variance)",
    "figure.health.effective_samples": "effective_samples (share)",
    "figure.health.effective_number": "effective_number (samples)",
    "figure.health.slot_entropy": "slot_entropy (0 to 1)",
    "figure.health.gate_dimension": "gate_dimension (mean)",
    "figure.health.gate_snr": "gate_snr (mean)",
    "figure.health.gate_class": "gate_class (mean)",
    "figure.health.gate_saturation": "gate_saturation (share)",
    "figure.health.gradient_ratio": "gradient_ratio (penalty / CE)",
    "figure.health.latched": "latched (share of classes)",
    "figure.health.shut_off": "shut_off (share of steps)",
    "figure.health.skipped": "skipped (share of samples)",
    "figure.attack": "Learning curve of attack {name}",
    "figure.attack.x": "epochs of the attack",
    "figure.trade_off": "Accuracy against the error of the strongest attack",
    "figure.trade_off.x": "accuracy, %",
    "figure.trade_off.y": "MSE of the strongest attack",
    "figure.trade_off.point": "{run}: accuracy {accuracy:.1f} %, MSE {mse:.4f}",
    "figure.floor": "{name} {mse:.4f}",
    "figure.ranked.x": "the class’s {count} images, in order of size",
    "figure.ranked.values": "this image {own:.4g}; the others from {low:.4g} to {high:.4g}",
    "figure.distance": "Distance of z to the class’s mean",
    "figure.distance.y": "distance",
    "figure.distance.y_sigma": "distance / σ",
    "figure.attention": "Attention weight inside the class (dashed: uniform)",
    "figure.attention.y": "weight",
    # tables of the terminal
    "terminal.summary": "Strongest attack on each run (more private: {directions})",
    "terminal.higher": "{measure} ↑",
    "terminal.lower": "{measure} ↓",
    "terminal.run": "run",
    "terminal.accuracy": "acc.\n%",
    "terminal.attack": "strongest\nattack",
    "terminal.training": "train\ns",
    "terminal.floor": "floor: {name}",
    "terminal.not_reliable": "{attack} (not reliable)",
    "terminal.protects": "{run}: structure error {structure}, {share} of a blind guess’s is left. {said}",
    "terminal.judged": "{run}: {row}: {said}",
    "terminal.no_result": "no result",
    "terminal.no_result_failed": "no result ({count} failed)",
    "terminal.image": "image",
    "terminal.label": "label",
    "terminal.confidence": "confidence",
    "terminal.then": "then",
    "terminal.true_label": "true label",
    "terminal.wrong": "{name} (wrong)",
    "terminal.prepared": "Prepared: {steps}.",
    "terminal.saved": "Saved: {file}",
    "terminal.seen_saved": "What the encoder sees, which stays here: {file}",
    "terminal.note": "note: {text}",
    "terminal.recovered_by": "recovered by",
    "terminal.from_audit": "{name} (the audit’s strongest)",
    "terminal.audit_mean": "mean MSE in the audit",
}
"""Texts of several places by key."""
