"""Health of a training: what each warning means, and what to do."""

from __future__ import annotations

HEALTH: dict[str, str] = {
    "health.attention.meaning": "attention collapsed: the penalty rests on hardly any sample of a class",
    "health.attention.advice": (
        "train its weights with surrogate.learn=worst_case or fit, or give a batch more samples a class"
    ),
    "health.slots.meaning": "slots collapsed: one slot takes all samples of a class, so nothing is divided",
    "health.slots.advice": "use surrogate.learn=fit, or fewer surrogate.num_slots",
    "health.gates_saturated.meaning": "gates saturated: most are fully open or shut and no longer learn",
    "health.gates_saturated.advice": (
        "keep the gates frozen with surrogate.learn=worst_case or fit, or set surrogate.dimension_gate=false"
    ),
    "health.gates_closed.meaning": "a gate has closed: the penalty hardly reaches the encoder",
    "health.gates_closed.advice": (
        "keep the gates frozen with surrogate.learn=worst_case or fit, or switch this gate off"
    ),
    "health.gates_hide.meaning": (
        "SNR gate hides spread: dimensions whose mean is large beside their spread are left out of the penalty"
    ),
    "health.gates_hide.advice": "read rob_loss as a part of the spread only; or set surrogate.snr_gate=false",
    "health.latched.meaning": (
        "penalty latched: off in nearly every batch of an epoch in nearly all classes, though they are not compact"
    ),
    "health.latched.advice": (
        "set surrogate.early_shut_off=false, raise its thresholds or lower surrogate.early_shut_steps; without early "
        "shut-off do not trust rob_loss"
    ),
    "health.blind.meaning": "surrogate blind: it reports next to nothing of the spread that the classes have",
    "health.blind.advice": (
        "do not read rob_loss as privacy; use surrogate.learn=worst_case or fit, or a surrogate without own weights"
    ),
    "health.skipped.meaning": "samples skipped: their class has too few samples in a batch",
    "health.skipped.advice": "give a batch more samples a class (training.batch_size)",
    "health.few_samples.meaning": "few samples: the log of a variance of so few reads below that of the law's variance",
    "health.few_samples.advice": (
        "give a batch more samples a class (training.batch_size, training.batches.samples_per_class) or use "
        "surrogate.memory; with kmeans and gmm fewer surrogate.num_clusters"
    ),
    "health.singular.meaning": (
        "covariances singular: most components have no more samples than dimensions, so the penalty reads next to 0"
    ),
    "health.singular.advice": (
        "use surrogate.covariance=diagonal, a smaller surrogate.pca_dim or fewer surrogate.num_clusters"
    ),
    "health.normalised_away.meaning": (
        "LayerNorm hides spread: most of it shifts or scales all dimensions together, which the penalty cannot see"
    ),
    "health.normalised_away.advice": "do not read rob_loss as privacy; use surrogate.variance_space=raw",
    "health.projected_away.meaning": (
        "projection hides spread: most of it lies outside the principal directions and is not penalised"
    ),
    "health.projected_away.advice": "raise surrogate.pca_dim, or leave it out",
    "health.dominates.meaning": "penalty dominates: it drives the encoder far more than the task does",
    "health.dominates.advice": (
        "lower training.penalty_weight, or let it rise with training.penalty_schedule.name=linear_ramp"
    ),
    "health.idle.meaning": "penalty without effect: hardly any gradient of it reaches the encoder",
    "health.idle.advice": "raise training.penalty_weight, or look at the gates and the floor of the surrogate",
    "health.useless.meaning": "model near chance: it tells the classes hardly better than a guess",
    "health.useless.advice": (
        "let some hundred steps pass before the penalty (training.warmup_epochs), lower training.penalty_weight, or "
        "let it rise with training.penalty_schedule.name=linear_ramp"
    ),
    "health.not_finite.meaning": "a number is not finite: training stopped",
    "health.not_finite.advice": (
        "see failure.json; lower training.optimizer.lr or training.penalty_weight, or use training.precision=32-true"
    ),
    "health.span": "epoch {begins:.3g} {until}: {said}. What to do: {advice}",
    "health.until.on": "on",
    "health.until.end": "to {epoch:.3g}",
    "health.over": "{cause}: over",
    "health.target_reached": "target reached",
    "health.told": "{what} ({known})",
    "health.limited": "{number}, limit {limit:g}",
    "health.training": "warning: {run}, epoch {epoch:.3g}: {said}",
    "health.warning.above": "warning above {limit:g}",
    "health.warning.below": "warning below {limit:g}",
}
