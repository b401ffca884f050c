"""Every surrogate × its valid options against one contract; a new one is tested by adding a line to CASES."""

from __future__ import annotations

import math
import shutil
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from attncem.base.types import ConfigError, SurrogateOutput
from attncem.testing import surrogates as laws
from attncem.testing.surrogate_case import SurrogateCase, batch
from attncem.testing.truth import TRUTH_CLASSES, draw_law, learn_on_frozen_features
from attncem.training.health import CAUSES, readings
from attncem.training.surrogates import SURROGATES, build_surrogate
from attncem.training.surrogates.base import Surrogate
from attncem.training.surrogates.gated import GatedAttentionCEM
from attncem.training.surrogates.hybrid import HybridCEM
from attncem.training.surrogates.reference import REFERENCES
from attncem.training.surrogates.slot import SlotCrossAttentionCEM

MEMORY = {"memory": {"per_class": 3, "max_age": 2}}
"""A memory, filled by ``make`` and left as it is by evaluation mode; tests/test_memory.py fills it further."""


def gated_combinations() -> list[dict[str, Any]]:
    """Every valid statistic × variance_space × scalar_variance × learn."""
    combinations = [
        {"statistic": statistic, "variance_space": space, "scalar_variance": scalar, "learn": learn}
        for statistic, space, scalar, learn in product(
            ("hinge", "softplus", "difference"),
            ("raw", "layernorm"),
            (False, True),
            ("penalty", "fit", "worst_case", "frozen"),
        )
    ]
    return combinations + [
        {"statistic": "capacity", "learn": learn} for learn in ("penalty", "fit", "worst_case", "frozen")
    ]


SCHEDULED = {"name": "scheduled", "start": 2.0, "end": 0.5}
SOFT = {"statistic": "difference", "softness": 1.0, "variance_floor": 0.01}
"""A floor that the narrowest of the batches reaches, so that softness matters."""


def gated_extras() -> list[dict[str, Any]]:
    """Presets, projections and single options, each alone."""
    presets: list[dict[str, Any]] = [{"variant": name} for name in ("ours", "000", "002", "004")]
    projections = [
        {"projection": name, "projection_dim": 6, "projection_channels": 3}
        for name in ("none", "conv1x1", "linear", "random")
    ]
    return [
        *presets,
        *projections,
        {"variant": "002", "slot_power": 2.0},
        {"variant": "002", "learn": "worst_case"},
        {"variant": "002", "learn": "fit", "weights_gradient": "detached"},
        {"variant": "004", "layer_norm": False},
        {"weights_gradient": "through"},
        {"small_sample_correction": False},
        {"uniform_mix": 1.0, "learn": "fit"},
        {"statistic": "hinge", "variance_floor": 0.05},
        {**MEMORY},
        {**MEMORY, "variant": "002", "slot_power": 2.0, "learn": "fit"},
        {**MEMORY, "variant": "004"},
        {"statistic": "softplus", "variance_floor": SCHEDULED},
        SOFT,
        {**SOFT, "softness": 0.1, "scalar_variance": True, "learn": "fit", "own_optimizer": "main"},
    ]


SLOT = {"slot_dim": 8, "num_heads": 2, "num_slots": 3}
OPEN = {"early_shut_steps": 0, "early_hard_thresh": 1.0, "early_gate_thresh": 1.0}
"""Early shut-off at work but never closed; tests/test_slot.py closes it."""


def slot_combinations() -> list[dict[str, Any]]:
    """Every valid statistic × variance_space × moments × learn."""
    statistics = ("hinge", "softplus", "difference")
    learn = ("penalty", "fit", "worst_case", "frozen")
    raw = product((*statistics, "capacity"), ("raw",), ("slots",), learn)
    enhanced = product(statistics, ("enhanced",), ("slots", "class"), ("penalty", "frozen"))
    keys = ("statistic", "variance_space", "moments", "learn")
    return [{**SLOT, **dict(zip(keys, values, strict=True))} for values in (*raw, *enhanced)]


def slot_extras() -> list[dict[str, Any]]:
    """Presets, projections and single options, each alone."""
    projections = [{**SLOT, "projection": name} for name in ("conv1x1", "linear", "random")]
    return [
        SLOT,
        {**SLOT, "variant": "001", **OPEN},
        {**SLOT, "variant": "003", "learn": "frozen"},
        *projections,
        {**SLOT, "projection": "none", "slot_dim": 16, "variant": "003", "learn": "penalty"},
        {**SLOT, "variant": "001", "early_shut_off": False, "learnable_scalars": False, "renormalise": True},
        {**SLOT, "variant": "001", **OPEN, "weights_gradient": "detached", "learn": "frozen"},
        {**SLOT, "weights_gradient": "through", "learn": "worst_case"},
        {**SLOT, "rounds_gradient": "all"},
        {**SLOT, "variant": "001", **OPEN, "rounds_gradient": "last"},
        {**SLOT, "small_slot_correction": False, "slot_iterations": 1, "slot_power": 2.0, "learn": "penalty"},
        {**SLOT, "snr_gate": True},
        {**SLOT, "statistic": "softplus", "dimension_gate": True, "snr_gate": True, "class_gate": True},
        {**SLOT, "num_slots": 1, "learn": "frozen"},
        {**SLOT, "tokens": "spatial"},
        {**SLOT, "tokens": "spatial", "weights_gradient": "through", "learn": "worst_case"},
        {**SLOT, "statistic": "hinge", "variance_floor": 0.05, "divide_by_processed": True},
        {**SLOT, **MEMORY, "variant": "001", "early_shut_off": False},
        {**SLOT, **MEMORY, "variant": "003", "learn": "penalty"},
        {**SLOT, **MEMORY, "tokens": "spatial"},
        {**SLOT, "statistic": "difference", "variance_floor": {**SCHEDULED, "unit": "absolute"}},
        {**SLOT, **SOFT, "small_slot_correction": False},
    ]


def hybrid_cases() -> list[dict[str, Any]]:
    """The presets, the sizes of the marked set, and parts that learn in every way."""
    return [
        {"slot": SLOT},
        {"variant": "000", "slot": {**SLOT, **OPEN}, "max_risk_classes": 1, "slot_weight": 0.5},
        {"gated": {"learn": "frozen"}, "slot": {**SLOT, "learn": "worst_case"}, "risk_quantile": 0.0},
        {"gated": {"learn": "fit"}, "slot": {**SLOT, "variant": "003"}},
        {"gated": {"variant": "004", "learn": "worst_case"}, "slot": {**SLOT, "tokens": "spatial"}},
    ]


CASES: dict[str, list[dict[str, Any]]] = {
    "none": [{}],
    "kmeans": [
        {},
        {"num_clusters": 3, "log_entropy": False},
        {"index_defect": True},
        {"index_defect": True, "small_sample_correction": False},
        {"num_clusters": 1, "variance_floor": 0.02},
        {"variance_floor": SCHEDULED},
        {"per_dimension": True},
        {"per_dimension": True, "num_clusters": 2, "small_sample_correction": False},
    ],
    "gmm": [
        {},
        {"num_clusters": 1, "per_dimension_log": False, "variance_floor": 1e-40},
        {"num_clusters": 3, "variance_floor": 1e-4},
        {"num_clusters": 3, "small_sample_correction": False},
        {"covariance": "full", "num_clusters": 2},
        {"pca_dim": 6, "num_clusters": 3},
        {"pca_dim": 4, "covariance": "full", "reg_covar": 1e-3},
        {**MEMORY},
        {**MEMORY, "covariance": "full", "num_clusters": 2},
        {"variance_floor": SCHEDULED},
    ],
    "capacity": [{}, {"per_dimension": False}, {**MEMORY}],
    "logdet": [{}, {**MEMORY}],
    "gated": gated_extras() + gated_combinations(),
    "slot": slot_extras() + slot_combinations(),
    "hybrid": hybrid_cases(),
}
PAIRS = [(name, options) for name, cases in CASES.items() for options in cases]
EXTRAS = {"gated": gated_extras(), "slot": slot_extras(), "hybrid": hybrid_cases()}
FEW = [(name, options) for name, options in PAIRS if options in EXTRAS.get(name, [options])]
OWN_WEIGHTS = [(name, options) for name, options in PAIRS if name in EXTRAS]


def label(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={label(item)}" for key, item in value.items()) or "default"
    return str(value)


every_case = pytest.mark.parametrize(("name", "options"), PAIRS, ids=label)
few_cases = pytest.mark.parametrize(("name", "options"), FEW, ids=label)


def case_of(name: str, options: dict[str, Any]) -> SurrogateCase:
    """A surrogate of the table for the shared laws."""
    return SurrogateCase(SURROGATES[name], options, REFERENCES[name], slot_noise, called_first=name == "hybrid")


def make(name: str, options: dict[str, Any], **sizes: Any) -> Surrogate:
    """A surrogate ready for use."""
    return case_of(name, options).make(**sizes)


def slot_noise(surrogate: Surrogate) -> Tensor | None:
    """The slots' noise, the same at every call; None for surrogates that draw none."""
    if not isinstance(surrogate, SlotCrossAttentionCEM | HybridCEM):
        return None
    options = surrogate.options.slot if isinstance(surrogate, HybridCEM) else surrogate.options
    size = (surrogate.num_classes, options.num_slots, options.slot_dim)
    return torch.randn(size, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def call(surrogate: Surrogate, z: Tensor, y: Tensor) -> SurrogateOutput:
    """One batch with fixed noise."""
    return SurrogateCase(type(surrogate), noise=slot_noise).call(surrogate, z, y)


def test_every_surrogate_has_cases_and_a_reference() -> None:
    assert set(CASES) == set(SURROGATES)
    assert set(REFERENCES) == set(SURROGATES)
    remembering = {name for name, surrogate in SURROGATES.items() if "memory" in surrogate.options_type.model_fields}
    assert remembering == {name for name, options in FEW if "memory" in options}


@every_case
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_equals_the_reference(name: str, options: dict[str, Any], dtype: torch.dtype, tolerance: float) -> None:
    laws.check_reference(case_of(name, options), dtype, tolerance)


@few_cases
def test_more_classes_than_samples(name: str, options: dict[str, Any]) -> None:
    laws.check_reference(case_of(name, options), torch.float64, 1e-10, num_classes=40)


@few_cases
def test_sample_order_is_irrelevant(name: str, options: dict[str, Any]) -> None:
    laws.sample_order_is_irrelevant(case_of(name, options))


@every_case
@pytest.mark.parametrize("case", laws.HARD_BATCHES)
def test_hard_batches_are_finite(name: str, options: dict[str, Any], case: str) -> None:
    laws.is_finite_on(case_of(name, options), case)


@every_case
def test_loss_reaches_z_and_no_own_weight(name: str, options: dict[str, Any]) -> None:
    laws.loss_reaches_z_and_no_own_weight(case_of(name, options))


@pytest.mark.parametrize(("name", "options"), OWN_WEIGHTS, ids=label)
def test_fit_loss_moves_own_weights_and_not_z(name: str, options: dict[str, Any]) -> None:
    surrogate = make(name, options)
    learns = any(parameter.requires_grad for parameter in surrogate.parameters())
    assert learns == (options.get("learn") != "frozen")
    laws.fit_loss_moves_own_weights_and_not_z(case_of(name, options))


@pytest.mark.parametrize(("name", "options"), OWN_WEIGHTS, ids=label)
def test_the_penalty_and_the_own_loss_do_not_wait_for_each_other(name: str, options: dict[str, Any]) -> None:
    """On a GPU they run side by side: in either order both give the same, unless one says that it reads the other."""
    laws.penalty_and_own_loss_do_not_wait_for_each_other(case_of(name, options))


@pytest.mark.parametrize(("name", "options"), OWN_WEIGHTS, ids=label)
def test_what_is_shared_changes_nothing(name: str, options: dict[str, Any]) -> None:
    """Penalty and own loss, values and gradients, are those that each would have computed for itself."""
    laws.what_is_shared_changes_nothing(case_of(name, options))


@pytest.mark.parametrize("learn", ["fit", "worst_case"])
def test_gates_stay_frozen_unless_trained_on_the_penalty(learn: str) -> None:
    surrogate = make("gated", {"variant": "002", "learn": learn})
    learning = {key for key, parameter in surrogate.named_parameters() if parameter.requires_grad}
    assert learning == {"pooling.value_weight", "pooling.gate_weight", "pooling.score_weight"}
    gates = {"dimension_gate": True, "snr_gate": True, "class_gate": True, "learnable_scalars": True}
    slot = make("slot", {"statistic": "softplus", "learn": learn, **gates})
    learning = {key for key, parameter in slot.named_parameters() if parameter.requires_grad}
    assert {key for key in learning if key.startswith(("scalars", "dimension_gate"))} == {"scalars.assign_temp"}
    assert {"slot_attention.slot_mu", "cross_attention.alpha_xattn", "projection.weights.0"} <= learning


@every_case
def test_state_dict_round_trip(name: str, options: dict[str, Any]) -> None:
    laws.state_goes_round(case_of(name, options))


@every_case
def test_loss_falls_with_the_spread(name: str, options: dict[str, Any]) -> None:
    laws.loss_falls_with_the_spread(case_of(name, options))


@few_cases
def test_forward_never_reads_from_the_device(name: str, options: dict[str, Any]) -> None:
    laws.forward_never_reads_from_the_device(case_of(name, options))


@few_cases
def test_graph_does_not_grow_with_classes(name: str, options: dict[str, Any]) -> None:
    laws.graph_does_not_grow_with_classes(case_of(name, options))


SMALL_SLOT = {**SLOT, "num_slots": 2, "slot_iterations": 1}
COMPILED: dict[str, dict[str, Any]] = {"slot": SMALL_SLOT, "hybrid": {"slot": SMALL_SLOT}}


TRACER = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
"""Torch's own tracer instantiates the autograd functions that it meets, and is told off by torch."""


@TRACER
@pytest.mark.parametrize("name", SURROGATES)
def test_compiles_to_one_graph(name: str) -> None:
    laws.compiles_to_one_graph(case_of(name, COMPILED.get(name, {})))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", SURROGATES)
def test_compiles_to_machine_code(name: str) -> None:
    laws.compiled_equals_plain(case_of(name, COMPILED.get(name, {})), "inductor", 1e-4)


@TRACER
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("name", ["gated", "slot", "hybrid"])
def test_what_a_step_compiles_apart_gives_the_same(name: str) -> None:
    """What one compiled function makes for the next, and gradients that come back through both."""
    results = []
    for backend in (None, "aot_eager"):
        surrogate = make(name, COMPILED.get(name, {})).train()
        z, y = batch()
        z.requires_grad_()
        torch._dynamo.reset()
        parts: list[Any] = [surrogate.share, surrogate.penalise, surrogate.fit]
        if backend is not None:
            parts = [torch.compile(part, backend=backend, fullgraph=True) for part in parts]
        share, penalise, fit = parts
        given = share(surrogate.prepare(z, y, noise=slot_noise(surrogate)))
        output = penalise(given)
        output.loss.backward()
        fit(given).backward()
        own = [parameter.grad for parameter in surrogate.parameters() if parameter.grad is not None]
        results.append([output.loss.detach(), output.per_class, z.grad, *own, *surrogate.state_dict().values()])
    for plain, other in zip(*results, strict=True):
        torch.testing.assert_close(other, plain, rtol=1e-5, atol=1e-5, equal_nan=True)


@TRACER
@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("gated", {"variant": "002"}), ("slot", {**SLOT, "variant": "001"})])
def test_the_documents_variants_compile_with_their_backward(name: str, options: dict[str, Any]) -> None:
    laws.compiled_equals_plain(case_of(name, options), "aot_eager", 1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [case for case in FEW if not any(word in str(case[1]) for word in ("conv1x1", "spatial"))],
    ids=label,
)
@pytest.mark.parametrize("shape", [(4, 2, 2), (4, 4)])
def test_flat_features_give_the_same(name: str, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    z, y = batch(dtype=torch.float64)
    shaped = make(name, options, shape=shape, dtype=torch.float64)
    flat = make(name, options, shape=(16,), dtype=torch.float64)
    flat.load_state_dict(shaped.state_dict())
    one, other = call(shaped, z.reshape(-1, *shape), y), call(flat, z.flatten(1), y)
    torch.testing.assert_close(one.loss, other.loss, rtol=1e-12, atol=0)


@few_cases
def test_wrong_shapes_are_named(name: str, options: dict[str, Any]) -> None:
    laws.wrong_shapes_are_named(case_of(name, options))


@few_cases
def test_labels_out_of_range_are_left_out_and_counted(name: str, options: dict[str, Any]) -> None:
    laws.labels_out_of_range_are_left_out_and_counted(case_of(name, options))


@few_cases
def test_statistics_ignore_autocast(name: str, options: dict[str, Any]) -> None:
    laws.statistics_ignore_autocast(case_of(name, options))


@few_cases
def test_outputs_are_detached_scalars(name: str, options: dict[str, Any]) -> None:
    laws.outputs_are_detached_scalars(case_of(name, options))


@pytest.mark.parametrize("options", [{}, {"variant": "002"}, {"projection": "linear", "variant": "002"}], ids=label)
def test_at_most_a_million_weights_at_512x7x7(options: dict[str, Any]) -> None:
    surrogate = build_surrogate("gated", feature_shape=(512, 7, 7), num_classes=10, noise_std=0.1, **options)
    assert sum(parameter.numel() for parameter in surrogate.parameters()) <= 1_000_000
    z = torch.randn(4, 512, 7, 7)
    assert surrogate(z, torch.tensor([0, 0, 1, 1])).loss.isfinite()


SLOT_AT_FULL_SIZE = [
    {},
    {"learn": "worst_case"},
    {"variant": "001", **OPEN},
    {"variant": "003"},
    {"statistic": "softplus", "dimension_gate": True},
    {"projection": "linear"},
    {"tokens": "spatial"},
]


@pytest.mark.parametrize("options", SLOT_AT_FULL_SIZE, ids=label)
def test_slots_stay_small_at_512x7x7(options: dict[str, Any]) -> None:
    surrogate = build_surrogate("slot", feature_shape=(512, 7, 7), num_classes=10, noise_std=0.1, **options)
    assert sum(parameter.numel() for parameter in surrogate.parameters()) <= 1_000_000
    z = torch.randn(4, 512, 7, 7, requires_grad=True)
    output = surrogate(z, torch.tensor([0, 0, 1, 1]))
    total = output.loss if output.fit_loss is None else output.loss + output.fit_loss
    total.backward()
    assert total.isfinite()
    assert z.grad is not None and z.grad.isfinite().all()


def test_unknown_names_and_options_are_explained() -> None:
    build = {"feature_shape": (8,), "num_classes": 2, "noise_std": 0.1}
    with pytest.raises(ConfigError, match=r"surrogate\.name=gatd: .*none, kmeans.*did you mean gated\?"):
        build_surrogate("gatd", **build)
    with pytest.raises(ConfigError, match=r"snr_tresh: unknown key; did you mean surrogate\.snr_thresh\? Allowed: "):
        build_surrogate("gated", **build, snr_tresh=0.3)
    with pytest.raises(ConfigError, match=r"surrogate\.statistic=hing: .*hinge.*did you mean hinge"):
        build_surrogate("gated", **build, statistic="hing")
    with pytest.raises(ConfigError, match="statistic=capacity needs variance_space=raw"):
        build_surrogate("gated", **build, variance_space="layernorm")
    with pytest.raises(ConfigError, match=r"conv1x1 needs features \[C, H, W\] or tokens"):
        build_surrogate("gated", **build, projection="conv1x1")
    with pytest.raises(ConfigError, match="slot_dim=10 must be a multiple of num_heads=4"):
        build_surrogate("slot", **build, slot_dim=10)
    with pytest.raises(ConfigError, match="learn=fit needs variance_space=raw"):
        build_surrogate("slot", **build, variance_space="enhanced", statistic="hinge")
    with pytest.raises(ConfigError, match="statistic=capacity needs variance_space=raw"):
        build_surrogate("slot", **build, variance_space="enhanced")
    with pytest.raises(ConfigError, match="moments=class needs variance_space=enhanced"):
        build_surrogate("slot", **build, moments="class")
    with pytest.raises(ConfigError, match="tokens=spatial needs variance_space=raw"):
        build_surrogate("slot", **build, tokens="spatial", variant="003")
    with pytest.raises(ConfigError, match="tokens=spatial needs projection=auto or conv1x1"):
        build_surrogate("slot", **build, tokens="spatial", projection="linear")
    with pytest.raises(ConfigError, match=r"tokens=spatial needs features \[C, H, W\] or tokens \[N, D\]"):
        build_surrogate("slot", **build, tokens="spatial")
    for name in ("gated", "slot"):
        with pytest.raises(ConfigError, match=r"softness=0\.5 needs statistic=difference"):
            build_surrogate(name, **build, softness=0.5)
    for learn in ("fit", "worst_case"):
        with pytest.raises(ConfigError, match=f"learn={learn} needs slot_power=1"):
            build_surrogate("slot", **build, learn=learn, slot_power=2)
    with pytest.raises(ConfigError, match=r"projection=none needs surrogate\.slot_dim equal to the size of z, 8"):
        build_surrogate("slot", **build, projection="none")


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("capacity", {}, "capacity"),
        ("logdet", {}, "logdet"),
        ("kmeans", {}, "surrogate.var_threshold"),
        ("gmm", {}, "surrogate.var_threshold"),
        ("gated", {}, "surrogate.statistic=capacity"),
        ("gated", {"variant": "000"}, "surrogate.var_threshold"),
        ("slot", {}, "surrogate.statistic=capacity"),
        ("slot", {"variant": "003"}, "surrogate.var_threshold"),
        ("hybrid", {}, "surrogate.gated.statistic=capacity"),
        ("hybrid", {"gated": {"variant": "004"}}, "surrogate.slot.statistic=capacity"),
    ],
)
def test_no_noise_with_a_floor_in_units_of_it_is_refused(name: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} is measured in units of channel.noise_std, which is 0"):
        build_surrogate(name, feature_shape=(8,), num_classes=2, noise_std=0.0, **options)


def test_an_absolute_floor_needs_no_noise() -> None:
    surrogate = build_surrogate("gated", feature_shape=(8,), num_classes=2, noise_std=0.0, variant="004")
    assert surrogate(torch.randn(6, 8), torch.arange(6) % 2).loss > 0


# --- Truth test: features of a known law, frozen; the own weights learn for 300 steps ---


def truth_surrogate(name: str, options: dict[str, Any], classes: int = TRUTH_CLASSES) -> Surrogate:
    torch.manual_seed(0)
    return build_surrogate(name, feature_shape=(128,), num_classes=classes, noise_std=1.0, **options)


TRAINED: dict[tuple[str, float, int], tuple[Surrogate, float, float]] = {}


def learned_on_law(name: str, options: dict[str, Any], ratio: float, components: int) -> tuple[Surrogate, float, float]:
    """A surrogate trained on a law, with its value before and after; equal options are trained once."""
    surrogate = truth_surrogate(name, options)
    key = (surrogate.options.model_dump_json(), ratio, components)
    if key not in TRAINED:
        z, y, _ = draw_law(ratio, components)
        TRAINED[key] = surrogate, *learn_on_frozen_features(surrogate, z, y)
    return TRAINED[key]


def told(output: SurrogateOutput) -> set[str]:
    """The warnings that a run would raise on such numbers."""
    found = readings({key: float(value) for key, value in output.diagnostics.items()})
    checks = [(name, check) for name, cause in CAUSES.items() for check in cause.checks if check.key in found]
    return {name for name, check in checks if check.is_bad(found[check.key])}


@pytest.mark.parametrize("learn", ["fit", "worst_case"])
@pytest.mark.parametrize("ratio", [1.0, 25.0])
@pytest.mark.parametrize("components", [1, 3])
def test_truth_of_learned_capacity(learn: str, ratio: float, components: int) -> None:
    z, y, variance = draw_law(ratio, components)
    _, reported = learn_on_frozen_features(truth_surrogate("gated", {"learn": learn}), z, y)
    assert reported >= 0.8 * float(0.5 * variance.log1p().mean())


@pytest.mark.parametrize("ratio", [0.1, 0.25])
def test_truth_of_fit_below_the_noise(ratio: float) -> None:
    """Failed while the likelihood was that of clean samples: its optimum is variance − noise, so 0 here."""
    z, y, variance = draw_law(ratio, 1)
    _, reported = learn_on_frozen_features(truth_surrogate("gated", {"learn": "fit"}), z, y)
    assert reported >= 0.8 * float(0.5 * variance.log1p().mean())


@pytest.mark.slow
@pytest.mark.parametrize("learn", ["fit", "worst_case"])
@pytest.mark.parametrize("ratio", [1.0, 25.0])
@pytest.mark.parametrize("components", [1, 3])
def test_truth_of_slots(learn: str, ratio: float, components: int) -> None:
    """Slots form a mixture, so the law's value is the mixture's: ½ log(1 + ratio) + log(components)/D at most.

    ``worst_case`` goes on to the capacity of the whole class, which is never less.
    """
    _, _, variance = draw_law(ratio, components)
    _, _, reported = learned_on_law("slot", {"learn": learn}, ratio, components)
    mixture = 0.5 * math.log1p(ratio) + math.log(components) / 128
    whole = float(0.5 * variance.log1p().mean())
    assert reported >= 0.8 * (mixture if learn == "fit" else whole)
    assert reported <= 1.1 * whole


@pytest.mark.slow
@pytest.mark.parametrize("learn", ["fit", "worst_case"])
def test_the_last_round_teaches_as_all_rounds_do(learn: str) -> None:
    z, y, _ = draw_law(25.0, 3)
    values = []
    for rounds in ("all", "last"):
        surrogate, _, reported = learned_on_law("slot", {"learn": learn, "rounds_gradient": rounds}, 25.0, 3)
        fit_loss = surrogate.eval()(z, y).fit_loss
        assert fit_loss is not None
        values.append((reported, float(fit_loss.detach())))
    assert values[1] == pytest.approx(values[0], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("learn", ["fit", "worst_case"])
@pytest.mark.parametrize(("ratio", "components"), [(1.0, 1), (25.0, 3)])
def test_truth_of_spatial_slots(learn: str, ratio: float, components: int) -> None:
    z, y, _ = draw_law(ratio, components)
    shape = (32, 2, 2)
    surrogate = make("slot", {"tokens": "spatial", "learn": learn}, shape=shape, num_classes=2, noise_std=1.0)
    _, reported = learn_on_frozen_features(surrogate, z.reshape(-1, *shape), y)
    assert reported >= 0.8 * (0.5 * math.log1p(ratio) + math.log(components) / 128)


def test_truth_of_slots_quickly() -> None:
    """The law on which slots trained for too low a value would show it: three Gaussians a class."""
    z, y, _ = draw_law(25.0, 3)
    surrogate = truth_surrogate("slot", {"learn": "fit", "slot_dim": 16, "num_slots": 4})
    _, reported = learn_on_frozen_features(surrogate, z, y)
    assert reported >= 0.8 * (0.5 * math.log1p(25) + math.log(3) / 128)


@pytest.mark.parametrize(
    ("ratio", "components"), [pytest.param(1.0, 1, marks=pytest.mark.slow), (25.0, 3)], ids=["one", "three"]
)
def test_truth_of_hybrid(ratio: float, components: int) -> None:
    """A class that is not marked reports the class's capacity, a marked one the slots' mixture beside it."""
    z, y, variance = draw_law(ratio, components)
    slot = {"learn": "fit", "slot_dim": 16, "num_slots": 4}
    surrogate = truth_surrogate("hybrid", {"slot": slot, "max_risk_classes": 1})
    surrogate(z, y)
    surrogate.refresh([(z, y)])
    learn_on_frozen_features(surrogate, z, y)
    assert isinstance(surrogate, HybridCEM)
    whole, gated = surrogate(z, y).per_class, surrogate.gated(z, y).per_class
    capacity = 0.5 * variance.log1p().mean(1)
    assert (gated >= 0.8 * capacity).all() and (gated <= 1.1 * capacity).all()
    label = int(surrogate.risk_classes[0])
    mixture = 0.5 * math.log1p(ratio) + math.log(components) / 128
    assert whole[1 - label] == gated[1 - label]
    assert 0.8 * mixture <= whole[label] - gated[label] <= 1.1 * capacity[label]


def truthful_slots() -> list[dict[str, Any]]:
    """Every valid combination whose own weights learn by something else than their own penalty."""
    return [
        {key: value for key, value in options.items() if key not in SLOT}
        for options in slot_combinations()
        if options["learn"] not in ("penalty", "frozen")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("options", truthful_slots(), ids=label)
def test_truth_of_every_slot_combination(options: dict[str, Any]) -> None:
    _, start, reported = learned_on_law("slot", options, 1.0, 1)
    assert start > 0
    assert reported >= 0.8 * start


@pytest.mark.parametrize("slot_dim", [16, pytest.param(64, marks=pytest.mark.slow)])
def test_slot_001_collapses_on_its_own_penalty(slot_dim: int) -> None:
    """Why learn=penalty is not the default: frozen features, and the penalty is gone after 300 steps."""
    z, y, _ = draw_law(1.0, 1)
    surrogate = truth_surrogate("slot", {"variant": "001", "slot_dim": slot_dim, **OPEN})
    start, reported = learn_on_frozen_features(surrogate, z, y)
    assert reported < 0.1 * start
    assert "learn=penalty" in surrogate.caution


TRUTHFUL = [options for options in CASES["gated"] if options.get("learn", "worst_case") not in ("penalty", "frozen")]
TRUTHFUL = [options for options in TRUTHFUL if options.get("variant", "ours") == "ours" or "learn" in options]
FAST_TRUTHFUL = [
    {"statistic": "hinge", "variance_space": "layernorm", "scalar_variance": False, "learn": "fit"},
    {"statistic": "difference", "variance_space": "raw", "scalar_variance": True, "learn": "worst_case"},
    {"variant": "002", "learn": "worst_case"},
]


@pytest.mark.parametrize("options", FAST_TRUTHFUL, ids=label)
def test_truth_of_other_combinations(options: dict[str, Any]) -> None:
    laws.keeps_its_start(case_of("gated", options))


@pytest.mark.slow
@pytest.mark.parametrize("options", [case for case in TRUTHFUL if "conv1x1" not in case.values()], ids=label)
def test_truth_of_every_combination(options: dict[str, Any]) -> None:
    laws.keeps_its_start(case_of("gated", options))


@pytest.mark.parametrize("ratio", [1.0, 25.0])
def test_truth_of_kmeans(ratio: float) -> None:
    z, y, _ = draw_law(ratio, 1)
    surrogate = truth_surrogate("kmeans", {})
    surrogate.refresh([(z, y)])
    law = math.log(ratio + 0.01) - math.log(0.125 + 0.01)
    assert float(surrogate(z, y).loss) >= 0.8 * law


def test_kmeans_per_dimension_sees_compact_dimensions_beside_a_wide_one() -> None:
    """One variance of all dimensions is that of the wide one: it does not change where the others become compact."""
    scale = torch.ones(128)
    scale[0] = 100.0
    z, y = torch.randn(600, 128, generator=torch.Generator().manual_seed(3)) * scale, torch.arange(600) % TRUTH_CLASSES
    compact = z * torch.where(scale > 1, 1.0, 1e-3)
    shares = {}
    for per_dimension in (False, True):
        surrogate = truth_surrogate("kmeans", {"per_dimension": per_dimension})
        surrogate.refresh([(z, y)])
        before = float(surrogate(z, y).loss)
        surrogate.refresh([(compact, y)])
        shares[per_dimension] = float(surrogate(compact, y).loss) / before
    assert shares[False] > 0.95
    assert shares[True] < 0.1


@pytest.mark.parametrize("ratio", [1.0, 25.0])
def test_truth_of_kmeans_per_dimension(ratio: float) -> None:
    z, y, variance = draw_law(ratio, 1)
    surrogate = truth_surrogate("kmeans", {"per_dimension": True})
    surrogate.refresh([(z, y)])
    law = float(((variance + 0.01).log() - math.log(0.125 + 0.01)).relu().mean())
    assert float(surrogate(z, y).loss) >= 0.8 * law


@pytest.mark.parametrize("ratio", [1.0, 25.0])
def test_truth_of_capacity(ratio: float) -> None:
    z, y, variance = draw_law(ratio, 1)
    law = float(0.5 * variance.log1p().mean())
    assert float(truth_surrogate("capacity", {})(z, y).loss) == pytest.approx(law, rel=0.05)


@pytest.mark.parametrize("options", [{}, {"pca_dim": 16}, {"pca_dim": 16, "covariance": "full"}], ids=label)
@pytest.mark.parametrize("ratio", [1.0, 25.0])
def test_truth_of_gmm(ratio: float, options: dict[str, Any]) -> None:
    z, y, _ = draw_law(ratio, 1)
    surrogate = truth_surrogate("gmm", options)
    surrogate.refresh([(z, y)])
    law = math.log(ratio) - math.log(0.125 + 1e-6)
    assert float(surrogate(z, y).loss) >= 0.8 * law


@pytest.mark.parametrize("samples", [10, 20, 75])
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("ratio", [1.0, 25.0])
@pytest.mark.parametrize(("name", "gamma"), [("kmeans", 0.01), ("gmm", 1e-6)])
def test_truth_of_refits_on_few_samples(name: str, gamma: float, ratio: float, components: int, samples: int) -> None:
    """Failed while variances around fitted centres were taken as they are: 10 samples read 0.57 and 0.27 of the law."""
    z, y, _ = draw_law(ratio, components, samples=samples)
    surrogate = truth_surrogate(name, {})
    surrogate.refresh([(z, y)])
    output = surrogate(z, y)
    law = math.log(ratio + gamma) - math.log(0.125 + gamma)
    assert 0.8 * law <= float(output.loss) <= 1.1 * law
    assert not told(output)


@pytest.mark.parametrize("samples", [2, 3, 5])
@pytest.mark.parametrize("ratio", [1.0, 25.0])
def test_truth_of_kmeans_with_fewer_samples_than_centres(ratio: float, samples: int) -> None:
    """Every sample is a centre, and no cluster shows any spread: what the class shows is left."""
    z, y, _ = draw_law(ratio, 1, samples=samples)
    surrogate = truth_surrogate("kmeans", {})
    surrogate.refresh([(z, y)])
    output = surrogate(z, y)
    law = math.log(ratio + 0.01) - math.log(0.125 + 0.01)
    assert 0.8 * law <= float(output.loss) <= 1.2 * law
    assert told(output) == {"few_samples"}


BATCH_MOMENTS: list[tuple[str, dict[str, Any]]] = [
    ("capacity", {}),
    ("gated", {"learn": "fit"}),
    ("gated", {"learn": "worst_case"}),
    ("slot", {"learn": "fit"}),
]
"""Surrogates whose variances are those around the mean of a batch's own samples."""


@pytest.mark.parametrize(("name", "options"), BATCH_MOMENTS, ids=label)
@pytest.mark.parametrize("ratio", [1.0, 25.0])
@pytest.mark.parametrize(("samples", "least"), [(2, 0.7), (3, 0.8), (13, 0.95)])
def test_truth_of_few_samples_a_class(
    name: str, options: dict[str, Any], ratio: float, samples: int, least: float
) -> None:
    """Failed while variances were a batch's own: two samples read 0.47 (0.62 with slots), 13 read 0.91.

    What is left of two samples is the log's: it is lower on average than at the average. That is told.
    """
    z, y, _ = draw_law(ratio, 1, samples=samples, classes=10)
    output = truth_surrogate(name, options, classes=10)(z, y)
    law = 0.5 * math.log1p(ratio)
    assert least * law <= float(output.loss) <= 1.1 * law
    assert told(output) == ({"few_samples"} if samples == 2 else set())


def classes_apart() -> tuple[Tensor, Tensor, float]:
    """Classes far apart in 16 directions in which they are narrow: z, y, the value of their law."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.cat([torch.full((16,), 0.4), torch.ones(112)])
    means = torch.zeros(10, 1, 128)
    means[..., :16] = 30 * torch.randn(10, 1, 16, generator=generator)
    z = means + spread * torch.randn(10, 256, 128, generator=generator)
    law = float((spread.square().log() - math.log(0.125)).mean())
    return z.flatten(0, 1), torch.arange(10).repeat_interleave(256), law


@pytest.mark.parametrize("options", [{"pca_dim": 8}, {"pca_dim": 16}, {"pca_dim": 16, "covariance": "full"}], ids=label)
def test_truth_of_gmm_where_classes_lie_apart(options: dict[str, Any]) -> None:
    """Failed while the principal directions were those of all features, in which classes differ: 0.02, 0.54, 0.40.

    Whatever the directions, eight of 128 hold little of the spread: that is told.
    """
    z, y, law = classes_apart()
    surrogate = truth_surrogate("gmm", options, classes=10)
    surrogate.refresh([(z, y)])
    output = surrogate(z, y)
    assert 0.8 * law <= float(output.loss) <= 1.5 * law
    assert told(output) == {"projected_away"}


def own_directions() -> tuple[Tensor, Tensor]:
    """One class is wide where the nine others are narrow: the widest directions are its own."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.ones(10, 1, 128)
    spread[:9, :, :16] = 0.1
    spread[9, :, :16], spread[9, :, 16:] = 10, 0.1
    z = spread * torch.randn(10, 256, 128, generator=generator)
    return z.flatten(0, 1), torch.arange(10).repeat_interleave(256)


def shifted_alike() -> tuple[Tensor, Tensor]:
    """All dimensions of a sample move by the same: LayerNorm takes that away."""
    generator = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(2, 1, 128, generator=generator) + 5 * torch.randn(2, 256, 1, generator=generator)
    return z.flatten(0, 1), torch.arange(2).repeat_interleave(256)


def scaled_alike() -> tuple[Tensor, Tensor]:
    """A sample is its class's mean times a number: the same."""
    generator = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(2, 1, 128, generator=generator) * (3 + 0.5 * torch.randn(2, 256, 1, generator=generator))
    return z.flatten(0, 1), torch.arange(2).repeat_interleave(256)


ONE_GAUSSIAN = draw_law(1.0, 1)[:2]
HIDDEN: dict[str, tuple[str, dict[str, Any], tuple[Tensor, Tensor]]] = {
    "gates_hide": ("slot", {"learn": "fit", "snr_gate": True}, ONE_GAUSSIAN),
    "gates_hide ": ("gated", {"learn": "worst_case", "snr_gate": True}, ONE_GAUSSIAN),
    "normalised_away": ("gated", {"statistic": "hinge", "variance_space": "layernorm"}, shifted_alike()),
    "normalised_away ": ("gated", {"statistic": "hinge", "variance_space": "layernorm"}, scaled_alike()),
    "projected_away": ("gmm", {"pca_dim": 8}, own_directions()),
    "singular": ("gmm", {"covariance": "full"}, ONE_GAUSSIAN),
}


@pytest.mark.parametrize("cause", HIDDEN)
def test_what_a_surrogate_cannot_see_is_told(cause: str) -> None:
    """Where the report is less than 0.8 of the plain variance's for a reason in the options, a warning says so."""
    name, options, (z, y) = HIDDEN[cause]
    surrogate = truth_surrogate(name, options, classes=int(y.max()) + 1)
    surrogate.refresh([(z, y)])
    output = surrogate(z, y)
    plain = {key: value for key, value in options.items() if key not in ("snr_gate", "variance_space", "pca_dim")}
    whole = truth_surrogate(
        name, {**plain, "covariance": "diagonal"} if name == "gmm" else plain, surrogate.num_classes
    )
    whole.refresh([(z, y)])
    assert float(output.loss) < 0.8 * float(whole(z, y).loss)
    assert cause.strip() in told(output) and cause.strip() not in told(whole(z, y))


def test_layer_norm_that_hides_nothing_is_not_told() -> None:
    z, y = ONE_GAUSSIAN
    output = truth_surrogate("gated", {"statistic": "hinge", "variance_space": "layernorm"})(z, y)
    assert output.diagnostics["removed"] == pytest.approx(2 / 128, rel=0.2)
    assert not told(output)


def test_full_covariances_of_too_few_samples_report_next_to_nothing() -> None:
    """Why covariance=full carries a caution: 51 samples a component in 128 dimensions."""
    z, y, _ = draw_law(1.0, 1)
    surrogate = truth_surrogate("gmm", {"covariance": "full"})
    surrogate.refresh([(z, y)])
    output = surrogate(z, y)
    assert output.loss < 0.15 * math.log(8) and output.diagnostics["singular"] == 1
    assert "covariance=full" in surrogate.caution


@pytest.mark.parametrize("ratio", [1.0, 25.0])
@pytest.mark.parametrize("components", [1, 3])
def test_truth_of_logdet(ratio: float, components: int) -> None:
    """It has nothing to learn and keeps its start; with 2 samples a dimension it reads below the law, never above."""
    z, y, _ = draw_law(ratio, components)
    start, reported = learn_on_frozen_features(truth_surrogate("logdet", {}), z, y)
    assert reported == start
    if components == 1:
        assert 0.8 * 0.5 * math.log1p(ratio) <= reported <= 0.5 * math.log1p(ratio)


@pytest.mark.parametrize("options", [{"variant": "002"}, {"variant": "004"}], ids=["gates close", "one sample"])
def test_the_documents_recipe_collapses(options: dict[str, Any]) -> None:
    """Why learn=penalty is not the default: frozen features, and the penalty is gone after 300 steps."""
    z, y, _ = draw_law(1.0, 1)
    surrogate = truth_surrogate("gated", options)
    start, reported = learn_on_frozen_features(surrogate, z, y)
    assert reported < 0.5 * start
    assert "learn=penalty" in surrogate.caution
    diagnostics = surrogate(z, y).diagnostics
    if isinstance(surrogate, GatedAttentionCEM) and surrogate.options.variant == "002":
        assert diagnostics["gate_dimension"] < 0.01 and diagnostics["gate_saturation"] > 0.9
    else:
        assert diagnostics["effective_samples"] < 0.05
