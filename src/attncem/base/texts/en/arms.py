"""The report of a campaign: its arms side by side."""

from __future__ import annotations

ARMS: dict[str, str] = {
    "arms.title": "attncem campaign: {name}",
    "arms.made": (
        "Made {time} by attncem {version} from the campaign {sha}, which was planned {planned}. One file: it asks no "
        "other address for anything."
    ),
    "arms.wrote": "{count} files in {folder}",
    "arms.no_font": "the figures are in English: no font with the letters of this language is installed",
    "arms.problem": "{cell} could not be read whole: {reason}",
    "arms.kind.releases": "{count} releases",
    "arms.of": "{count} of {planned}",
    "arms.and_more": "{named} and {count} more",
    "arms.unreliable": "in {count} not converged",
    "arms.lost": "has lost its use",
    "arms.floor": "a guess that looks at nothing",
    # how far
    "arms.how_far.whole": "All {total} cells are done.",
    "arms.how_far.part": "{done} of {total} cells are done, {failed} failed, {missing} are missing.",
    "arms.state.count": "{count} {state}",
    "arms.state.planned": "planned",
    "arms.state.running": "running",
    "arms.state.interrupted": "interrupted",
    "arms.state.trained": "trained, not all audited",
    "arms.state.done": "done",
    "arms.state.failed": "failed",
    "arms.lacking": "What is missing",
    "arms.lacking.link": "What is missing, and why",
    "arms.nothing": ("No audit has a result yet, so nothing can be compared. The cells below say how far each run is."),
    # the answer
    "arms.verdict.nothing": (
        "No audit has a result yet: this page says how far the runs are, and nothing about privacy."
    ),
    "arms.verdict.front.surely": "Surely on the front of accuracy and the strongest attack’s error: {arms}.",
    "arms.verdict.front.possibly": "Possibly on the front of accuracy and error, as far as the seeds tell: {arms}.",
    "arms.verdict.lost": (
        "Accuracy is near chance or far below the best arm’s in: {arms}. What a model hides that has lost its use is "
        "not privacy."
    ),
    "arms.verdict.tests": (
        "Of {count} tests against {reference}, {shown} show a difference (5\u00a0% false discoveries allowed)."
    ),
    "arms.verdict.few": "{count} of them have too few seeds to tell anything, whatever the numbers look like.",
    "arms.verdict.a_higher": "higher than the reference",
    "arms.verdict.b_higher": "lower than the reference",
    "arms.verdict.no_difference_shown": "no difference shown",
    "arms.verdict.too_few_seeds": "too few seeds to tell",
    "arms.mark.a_higher": "higher, p = {p}",
    "arms.mark.b_higher": "lower, p = {p}",
    "arms.mark.no_difference_shown": "no difference shown, p = {p}",
    "arms.mark.too_few_seeds": "too few seeds to tell",
    "arms.headline": "Arms side by side",
    "arms.headline.lead": (
        "Accuracy, and what the strongest attack gets, as mean ± standard deviation over seeds, with the 95\u00a0% "
        "interval of the mean over seeds (of a single seed: over images). Under a value: the test against the "
        "reference arm."
    ),
    "arms.headline.judged": "Audit: {kind}. The parts below that show one audit show this one.",
    "arms.reference": "Reference arm",
    "arms.filter": "Filter",
    "arms.filter.hint": "words in a row",
    "arms.filter.of": "filter the rows of: {table}",
    "arms.save": "Save as",
    "arms.save.csv": "CSV",
    "arms.save.md": "Markdown",
    "arms.save.tex": "LaTeX",
    # columns
    "arms.column.arm": "Arm",
    "arms.column.seeds": "Seeds",
    "arms.column.accuracy": "Accuracy %",
    "arms.column.attack": "Attack",
    "arms.column.cell": "Cell",
    "arms.column.seed": "Seed",
    "arms.column.state": "State",
    "arms.column.training": "Training time",
    "arms.column.reason": "Reason",
    "arms.column.audit": "Audit",
    "arms.column.reliable": "Converged",
    "arms.column.attack_seconds": "Attack’s time",
    "arms.column.reference": "Reference",
    "arms.column.measure": "Measure",
    "arms.column.difference": "Difference",
    "arms.column.p": "p",
    "arms.column.adjusted_p": "p, adjusted",
    "arms.column.verdict": "Answer",
    "arms.column.epochs": "Epochs",
    "arms.column.memory": "Memory, bytes",
    "arms.column.client_parameters": "Client’s weights",
    "arms.column.client_macs": "Client’s MACs",
    "arms.column.server_parameters": "Server’s weights",
    "arms.column.server_macs": "Server’s MACs",
    "arms.column.bytes_per_query": "Bytes sent",
    "arms.column.ratio": "Against the first",
    "arms.column.key": "Key",
    "arms.column.value": "Value",
    "arms.column.class": "Class",
    "arms.column.class_mse": "MSE",
    "arms.column.class_p05": "MSE of the most exposed 5\u00a0%",
    "arms.column.standing": "On the front",
    "arms.column.share": "Share of resamples",
    # the plot
    "arms.trade_off": "Accuracy and privacy",
    "arms.trade_off.lead": (
        "Right is more accurate, up is more private. A point is an arm, a dot one of its seeds. Thin lines: "
        "95\u00a0% over seeds; broad, pale lines: 95\u00a0% over images, averaged over the seeds. Point at one for "
        "its numbers, click for the cell."
    ),
    "arms.error": "Error by",
    "arms.front": "Who is on the front",
    "arms.standing.surely": "surely on the front",
    "arms.standing.possibly": "possibly on the front",
    "arms.standing.not": "not on the front",
    "arms.key.seed": "one seed",
    "arms.plot.accuracy": "accuracy %",
    "arms.plot.trade_off": "Accuracy and {measure}",
    "arms.plot.point": "{arm}: accuracy {accuracy}\u00a0%, {value}",
    "arms.plot.costs": "Training time and the strongest attack’s error",
    "arms.plot.seconds": "training, seconds",
    "arms.plot.cost": "{arm}: {seconds:.3g} s, {mse:.4f}",
    "arms.plot.line": "{arm}: {values}",
    "arms.plot.value": "{key} → {value}",
    "arms.plot.heat": "{arm}: {measure}",
    "arms.plot.cloud": "{arm}: {of}, {method}",
    "arms.method": "Plane by",
    "arms.method.pca": "principal components",
    "arms.method.tsne": "t-SNE",
    "arms.cloud.pixels": "the images’ pixels",
    "arms.cloud.clean": "clean features",
    "arms.cloud.released": "what is released",
    # parts
    "arms.wall": "What is recovered",
    "arms.wall.lead": (
        "The same images as each arm’s strongest attack recovers them, from the first seed; below each its MSE. An "
        "arm’s name leads to the cell."
    ),
    "arms.wall.dataset": "{dataset}, set of images {number}",
    "arms.wall.hidden": "To keep the page small {images} more images and {rows} more arms are not shown.",
    "arms.cells": "Cells",
    "arms.cells.lead": (
        "One run each: an arm at one point of the grid with one seed. A name leads to all attacks on it."
    ),
    "arms.attacks": "Attacks and arms",
    "arms.attacks.lead": "Every attack on every arm, over seeds, and the guesses that every attack must beat.",
    "arms.tests": "Tests",
    "arms.tests.lead": (
        "Each arm against the reference arm chosen above, at the same point of the grid where it has one. Exact "
        "unpaired permutation tests over seeds; adjusted: so that 5\u00a0% of the differences shown are false at "
        "most (Benjamini and Hochberg). “No difference shown” does not mean that there is none. A saved table holds "
        "all references."
    ),
    "arms.costs": "Cost beside privacy",
    "arms.costs.lead": (
        "Time of training on the machine it ran on, its highest use of memory where it was written down, and the "
        "work of one query, which does not depend on the machine."
    ),
    "arms.sensitivity": "Sensitivity",
    "arms.sensitivity.lead": (
        "Each key of the grid by itself: the others are averaged within each seed, over the points that the seed has "
        "at every value; lines end in 95\u00a0% intervals over seeds. Dashed: an arm that has no such key."
    ),
    "arms.sensitivity.table": "The same as a table",
    "arms.heat": "Pairs of keys",
    "arms.heat.lead": "Means over seeds and the other keys; darker is higher, on one scale for all arms.",
    "arms.explain": "Inside the defence",
    "arms.explain.lead": (
        "Validation images of one run an arm. Above, where they lie before and behind the defence, one colour a "
        "class: clean features and releases share their axes under principal components; under t-SNE only who lies "
        "beside whom means anything. Below, what the surrogate makes of the images of some classes."
    ),
    "arms.explain.script": "This part is drawn by a script, which is switched off here.",
    "arms.explain.none": (
        "No run has a portrait yet, so features and attention weights are not shown: campaigns make them with "
        "portraits: true."
    ),
    "arms.explain.left_out": "To keep the page small {count} more portraits are not shown.",
    "arms.explain.training": "Gates and slots over training",
    "arms.explain.training.lead": "The first point of every arm: the mean of its seeds, and the range over them.",
    "arms.classes": "Risk by class",
    "arms.classes.lead": (
        "The strongest attack’s MSE by class, means over seeds; darker is more exposed, the most exposed class of "
        "each arm is marked."
    ),
    "arms.classes.table": "All classes as a table",
    # reading
    "arms.reading": "How to read this page",
    "arms.reading.cell": "Arm, cell, seed",
    "arms.reading.cell.text": (
        "An arm is a configuration with a name. It is run at every point of its grid with every seed; each of these "
        "runs is a cell. Cells that failed or are missing are left out of means, and the number of seeds says so."
    ),
    "arms.reading.mean": "Mean ± standard deviation",
    "arms.reading.mean.text": (
        "Over seeds: how much the number changes when the same is trained again. The interval in brackets is "
        "Student’s, of the mean. An interval over images says how far other images of the same kind could change the "
        "number of the same run."
    ),
    "arms.reading.tests": "Too few seeds to tell",
    "arms.reading.tests.text": (
        "An exact test over 3 and 3 seeds cannot give a p below 0.1, whatever the numbers are; 4 and 4 reach 0.029, "
        "6 and 6 reach 0.002. Where no p below 0.05 is possible, nothing is tested."
    ),
    "arms.reading.strongest": "Strongest attack",
    "arms.reading.strongest.text": (
        "The one with the lowest MSE among those that saw what the threat model grants, chosen for each run by "
        "itself; the other measures are of the same attack. A stronger attack than those tried may exist."
    ),
    "arms.reading.front": "Front",
    "arms.reading.front.text": (
        "An arm is surely on it where no other can be better in both, as far as the 95\u00a0% intervals over seeds "
        "tell, and not on it where another surely is. With one seed there is no interval, and nothing is sure."
    ),
    # what the script says
    "arms.script.accuracy": "accuracy",
    "arms.script.attack": "Attack",
    "arms.script.close": "Close",
    "arms.script.seeds": "seeds",
    "arms.script.seed": "seed",
    "arms.script.state": "state",
    "arms.script.reason": "reason",
    "arms.script.training": "training time",
    "arms.script.interval_seeds": "95\u00a0% over seeds",
    "arms.script.interval_images": "95\u00a0% over images",
    "arms.script.standing": "front",
    "arms.script.share": "in resamples of the seeds:",
    "arms.script.report_command": "All about this run:",
    "arms.script.no_audit": "It has no audit yet.",
    "arms.script.point": "arm",
    "arms.script.rows_shown": "{{count}} of {{all}} rows",
    "arms.script.click": "click: the cell’s details",
    "arms.script.before_undefended": "Before the defence: releases of {{arm}}, which has none",
    "arms.script.before_pixels": "Before the defence: the pixels (the campaign has no undefended arm on this data)",
    "arms.script.clean": "Clean features z, which stay on the device",
    "arms.script.released": "What is released",
    "arms.script.kept": "{{share}}\u00a0% of the variance lie in this plane",
    "arms.script.no_tsne": "No t-SNE was made: it needs scikit-learn (the extra tsne).",
    "arms.script.attention": "attention weights of all images of the class, heaviest first",
    "arms.script.equal_weight": (
        "dashed: {{weight}}, if all counted the same; below, some of the images with their weights"
    ),
    "arms.script.shares": "Mean share of its parts",
    "arms.script.gates": "Gates: mean [lowest, highest]",
    "arms.script.no_slots": "Attention alone handles this class: it has no slots, and so no gates of slots.",
    "arms.script.no_attention": (
        "Its surrogate treats all images of a class alike, or there is none: nothing to show of attention, slots or "
        "gates."
    ),
    "arms.script.lost": "has lost its use: not privacy",
    "arms.script.strongest": "strongest",
    "arms.script.not_reliable": "not converged",
    "arms.script.image_of": "image of {{name}}",
}
"""Texts of the campaign's report by key."""
