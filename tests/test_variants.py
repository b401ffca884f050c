"""The documents' variants: their documented values, honest names, and a step that is the documents' two passes."""

from __future__ import annotations

import copy
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor

from attncem.base.progress import silent
from attncem.base.seeding import derive_seed, make_generator
from attncem.base.types import ConfigError
from attncem.config.loading.flat import dotted
from attncem.config.loading.load import dump_config, load_config, packaged_configs
from attncem.config.options.attention import GatedOptions, HybridOptions, SlotOptions
from attncem.config.options.run import RunConfig
from attncem.config.options.surrogate_base import VariantOptions, presets
from attncem.records.runs import RunDirectory
from attncem.training.capture import SideStream
from attncem.training.surrogates.hybrid import HybridCEM
from attncem.training.surrogates.slot import SlotCrossAttentionCEM
from attncem.training.train import train
from attncem.training.trainer import Trainer

CPU = torch.device("cpu")
TABLES = {name: presets(name) for name in ("gated", "slot", "hybrid")}
GATES = {"dimension_gate": True, "snr_gate": True, "class_gate": True}
NO_GATES = dict.fromkeys(GATES, False)
SCALARS = {"snr_thresh": 0.3, "snr_sharp": 10.0, "softplus_beta": 1.0, "margin_m": 0.1}
SCALARS |= {"class_gate_a": 10.0, "class_gate_b": 0.05}
LEARNS = {"learn": "penalty", "weights_gradient": "through"}
RELATIVE = {"var_threshold": 0.1, "variance_floor": None}
GATED = {"small_sample_correction": False, **LEARNS}
SLOT = {"variance_space": "enhanced", "num_slots": 8, "slot_iterations": 3, "small_slot_correction": False}
DOCUMENTED: dict[str, dict[str, Any]] = {
    "gated-000": {
        **{**GATED, **NO_GATES, **RELATIVE, "gamma": 1e-6},
        **{"statistic": "hinge", "variance_space": "raw", "scalar_variance": False},
        **{"attention_loss_scale": 0.25, "attention_warmup_epochs": 5},
    },
    "gated-002": {
        **{**GATED, **GATES, **SCALARS, **RELATIVE, "slot_power": None},
        **{"statistic": "softplus", "variance_space": "layernorm", "scalar_variance": False},
        **{"attention_loss_scale": 0.1, "attention_warmup_epochs": 5},
    },
    "gated-004": {
        **{**GATED, **NO_GATES, "variance_floor": 0.02, "gamma": 1e-6},
        **{"statistic": "hinge", "variance_space": "raw", "scalar_variance": True, "layer_norm": True},
    },
    "slot-001": {
        **{**SLOT, **GATES, **SCALARS, **LEARNS, "slot_power": 2.0, "learnable_scalars": True},
        **{"statistic": "softplus", "moments": "slots", "renormalise": False, "rounds_gradient": "all"},
        **{"early_shut_off": True, "early_shut_steps": 100, "divide_by_processed": False},
        **{"attention_loss_scale": 0.25, "attention_warmup_epochs": 3},
    },
    "slot-003": {
        **{**SLOT, **NO_GATES, **LEARNS, **RELATIVE, "gamma": 1e-6, "learn": "frozen"},
        **{"statistic": "hinge", "moments": "class", "renormalise": True, "rounds_gradient": "all"},
        **{"early_shut_off": False, "divide_by_processed": True},
    },
    "hybrid-000": {
        **{"gated.variant": "000", "gated.statistic": "hinge"},
        **{"slot.variant": "001", "slot.statistic": "softplus", "slot.renormalise": True},
    },
}
"""What the documents say of each variant, 000 to 004; docs/surrogates.md has the same as tables."""


def value_of(config: RunConfig, key: str) -> Any:
    value: Any = config.surrogate
    for part in key.split("."):
        value = getattr(value, part)
    return value


# documented values


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_variant_has_the_values_of_its_document(name: str) -> None:
    config = load_config(name).config
    assert {key: value_of(config, key) for key in DOCUMENTED[name]} == DOCUMENTED[name]


def test_every_variant_and_every_value_that_it_sets_is_among_them() -> None:
    named = {(name, variant) for name, table in TABLES.items() for variant in table if variant != "ours"}
    assert set(DOCUMENTED) == {f"{name}-{variant}" for name, variant in named}
    for name, variant in named:
        assert dict(dotted(TABLES[name][variant])).keys() <= DOCUMENTED[f"{name}-{variant}"].keys()


@pytest.mark.parametrize("options", [GatedOptions, SlotOptions, HybridOptions])
def test_the_names_of_the_presets_are_those_that_can_be_chosen(options: type[VariantOptions]) -> None:
    assert get_args(options.model_fields["variant"].annotation) == tuple(options.variants())


# honest names


def pairs() -> list[tuple[str, str, str]]:
    return [(name, one, other) for name, table in TABLES.items() for one, other in permutations(table, 2)]


@pytest.mark.parametrize(("name", "variant", "other"), pairs())
def test_another_name_over_values_that_are_written_out_is_refused(name: str, variant: str, other: str) -> None:
    resolved = load_config("demo", [f"surrogate.name={name}", f"surrogate.variant={variant}"]).config
    assert load_config(resolved).config == resolved
    with pytest.raises(ConfigError, match=rf"variant={other} does not match its values, which are those of variant"):
        load_config(resolved, [f"surrogate.variant={other}"])


def test_the_refusal_names_the_values_and_what_they_should_be(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(dump_config(load_config("demo").config).replace("variant: ours", 'variant: "002"'))
    with pytest.raises(ConfigError) as error:
        load_config(file)
    said = str(error.value)
    assert "which are those of variant ours (" in said and "set variant=ours" in said
    assert "statistic=capacity, not softplus" in said and "dimension_gate=false, not true" in said


def test_a_name_is_refused_when_one_more_value_was_changed_before() -> None:
    changed = load_config("demo", ["surrogate.learn=fit"]).config
    with pytest.raises(ConfigError, match="variant=000 does not match its values"):
        load_config(changed, ["surrogate.variant=000"])


@pytest.mark.parametrize(
    "overrides",
    [
        ["surrogate.variant=002", "surrogate.learn=worst_case", "surrogate.weights_gradient=detached"],
        ["surrogate.variant=000", "surrogate.attention_loss_scale=1", "surrogate.attention_warmup_epochs=0"],
        ["surrogate.variant=004", "surrogate.scalar_variance=false"],
        ["surrogate.statistic=hinge", "surrogate.learn=penalty", "surrogate.weights_gradient=through"],
        ["surrogate.name=hybrid", "surrogate.gated.learn=fit", "surrogate.slot.variant=003"],
    ],
    ids=["002", "000", "004", "ours", "hybrid"],
)
def test_a_variant_with_changes_keeps_its_name_and_loads_again(overrides: list[str]) -> None:
    config = load_config("demo", overrides).config
    assert load_config(config).config == config


@pytest.mark.parametrize("name", packaged_configs())
def test_every_packaged_configuration_loads_again_from_its_values(name: str) -> None:
    config = load_config(name).config
    assert load_config(config).config == config


# the step


OPEN = {"early_shut_steps": 0, "early_hard_thresh": 1.0, "early_gate_thresh": 1.0}
"""Early shut-off at work but never closed, so that there is a penalty in the first step."""
SMALL = {"slot_dim": 8, "num_heads": 2, "num_slots": 3}


def variant_options(name: str) -> dict[str, Any]:
    surrogate, variant = name.split("-")
    slot = {"slot": {**SMALL, **OPEN}, "hybrid": {f"slot.{key}": value for key, value in {**SMALL, **OPEN}.items()}}
    options = {"name": surrogate, "variant": variant, **slot.get(surrogate, {})}
    return {f"surrogate.{key}": value for key, value in options.items()}


def two_pass_trainer(tiny: dict[str, Any], name: str, lr: float, **more: Any) -> Trainer:
    settings = {"training.schedule.name": "constant", "training.penalty_schedule.name": "cem_lr"}
    strength = {"training.optimizer.lr": lr, "training.penalty_weight": 0.7, "training.warmup_epochs": 0}
    config = load_config("demo", {**tiny, **variant_options(name), **settings, **strength, **more}).config
    trainer = Trainer(config, None)
    trainer.model.double().train()  # so that the order of sums does not hide a wrong factor
    trainer.surrogate.double()
    return trainer


def mark_classes(trainer: Trainer, x: Tensor, y: Tensor) -> None:
    if isinstance(trainer.surrogate, HybridCEM):
        with torch.no_grad():
            trainer.surrogate(trainer.model.encode(x), y)
        trainer.surrogate.refresh([])


def two_pass_gradients(trainer: Trainer, x: Tensor, y: Tensor, lr_weight: float) -> tuple[list[Tensor], list[Tensor]]:
    """The documents' order: penalty backward, keep a copy, zero, classification backward, then merge."""
    model, surrogate = copy.deepcopy(trainer.model), copy.deepcopy(trainer.surrogate)
    encoder = list(model.encoder.parameters())
    torch.manual_seed(5)
    penalty = surrogate(model.encode(x), y)
    penalty.loss.backward()
    kept = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in encoder]
    model.zero_grad()
    surrogate.zero_grad()
    if penalty.fit_loss is not None:
        penalty.fit_loss.backward()
    own = [p.grad.clone() for p in surrogate.parameters() if p.grad is not None]
    logits = model.predict(model.transmit(model.encode(x), x, make_generator(CPU, 0, "noise")))
    F.cross_entropy(logits.float(), y).backward()
    scale = trainer.config.training.penalty_weight * lr_weight * trainer.config.surrogate.loss_scale
    assert sum(float(gradient.abs().sum()) for gradient in kept) > 0
    return [p.grad + scale * g for p, g in zip(encoder, kept, strict=True) if p.grad is not None], own


def taken_gradients(trainer: Trainer, x: Tensor, y: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients that one step hands to the optimisers: the encoder's and the own weights'."""
    encoder: list[Tensor] = []
    own: list[Tensor] = []
    update = trainer.objective.engine.update

    def watch(optimizers: Any) -> None:
        for found, part in ((encoder, trainer.model.encoder), (own, trainer.surrogate)):
            found += [p.grad.clone() for p in part.parameters() if p.grad is not None]
        update(optimizers)

    trainer.objective.engine.update = watch  # type: ignore[method-assign]
    trainer.objective.set_rates(0.0)
    trainer.objective.noise.manual_seed(derive_seed(0, "noise"))
    torch.manual_seed(5)
    trainer.objective.descend(trainer.objective.functions, x, y)
    return encoder, own


@pytest.mark.parametrize(("lr", "lr_weight"), [(0.05, 0.001 / 0.05), (3e-4, 1.0)])
@pytest.mark.parametrize("name", DOCUMENTED)
def test_one_backward_equals_the_documents_two(tiny: dict[str, Any], name: str, lr: float, lr_weight: float) -> None:
    trainer = two_pass_trainer(tiny, name, lr)
    options: Any = trainer.config.surrogate
    assert f"{options.name}-{options.variant}" == name
    images, y = trainer.data.train.get(slice(0, 64))
    x = images.double()
    mark_classes(trainer, x, y)
    expected, expected_own = two_pass_gradients(trainer, x, y, lr_weight)
    encoder, own = taken_gradients(trainer, x, y)
    torch.testing.assert_close(encoder, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(own, expected_own, rtol=1e-6, atol=1e-9)
    assert bool(own) == (name != "slot-003"), "003's own weights were in no optimiser"


# what counts from when


SHUT = {
    "surrogate.name": "slot",
    "surrogate.variant": "001",
    "surrogate.slot_dim": 16,
    "surrogate.early_shut_steps": 5,
    "surrogate.early_hard_thresh": 1.0,
    "surrogate.early_gate_thresh": 1.0,
    "training.warmup_epochs": 1,
    "training.penalty_weight": 0.5,
    "training.log_every": 1,
}


def test_the_early_shut_off_begins_when_the_warm_up_ends(tmp_path: Path, tiny: dict[str, Any]) -> None:
    """Failed while every call counted: the warm-up's 15 steps used its 5 up, and it never acted."""
    run = train("demo", {**tiny, **SHUT}, out=tmp_path / "run", progress=silent)
    lines = [record for record in run.records() if record["kind"] == "train"]
    penalised = [record["shut_off"] for record in lines if record["penalty_weight"] > 0]
    assert len(penalised) == 15 and penalised == [1.0] * 5 + [0.0] * 10
    assert int(run.load("last").weights["surrogate"]["calls"]) == 15, "of 30 steps those with a penalty"


def test_the_warm_up_is_told_to_the_slots_of_a_hybrid(tiny: dict[str, Any]) -> None:
    config = load_config("demo", {**tiny, "surrogate.name": "hybrid", "training.warmup_epochs": 1}).config
    trainer = Trainer(config, None)
    assert isinstance(trainer.surrogate, HybridCEM)
    for now, on in ((0.5, False), (1.0, True)):
        trainer.objective.set_rates(now)
        assert bool(trainer.surrogate.slot.penalised) is on


def steps_of(run: RunDirectory) -> set[float]:
    state = run.load("last").optimizer["surrogate"]["state"]
    return {float(held["step"]) for held in state.values()}


def test_adam_counts_the_steps_in_which_it_fits(tmp_path: Path, tiny: dict[str, Any]) -> None:
    """Failed while zero gradients counted: after the warm-up the first update was three times too long."""
    run = train("demo", {**tiny, "training.warmup_epochs": 1}, out=tmp_path / "run", progress=silent)
    assert steps_of(run) == {15.0}


def own_step(trainer: Trainer, z: Tensor, y: Tensor, now: float) -> None:
    trainer.objective.set_rates(now)
    with SideStream() as side:
        trainer.objective._surrogate_step(trainer.objective.functions, z.clone().requires_grad_(), y, None, side)


def test_the_first_update_after_a_warm_up_is_that_without_one(tiny: dict[str, Any]) -> None:
    moved = []
    for steps in (0, 40):
        trainer = Trainer(load_config("demo", {**tiny, "training.warmup_epochs": 1}).config, None)
        x, y = trainer.data.train.get(slice(0, 64))
        z = trainer.model.encode(x).detach()
        before = [p.detach().clone() for p in trainer.surrogate.parameters()]
        for _ in range(steps):
            own_step(trainer, z, y, 0.0)
        own_step(trainer, z, y, 1.0)
        moved.append([new.detach() - old for old, new in zip(before, trainer.surrogate.parameters(), strict=True)])
    torch.testing.assert_close(moved[1], moved[0], rtol=0, atol=0)


def test_own_weights_in_the_main_optimiser_follow_it(tiny: dict[str, Any]) -> None:
    trainer = two_pass_trainer(tiny, "gated-000", 0.05, **{"surrogate.own_optimizer": "main"})
    images, y = trainer.data.train.get(slice(0, 64))
    before = [p.detach().clone() for p in trainer.surrogate.parameters()]
    _, gradients = taken_gradients(trainer, images.double(), y)
    main, own = (trainer.objective.optimizers[name].param_groups[0] for name in ("model", "surrogate"))
    assert {key: own[key] for key in ("momentum", "weight_decay", "nesterov")} == {
        key: main[key] for key in ("momentum", "weight_decay", "nesterov")
    }
    expected = [old - 0.05 * (g + main["weight_decay"] * old) for old, g in zip(before, gradients, strict=True)]
    torch.testing.assert_close([p.detach() for p in trainer.surrogate.parameters()], expected, rtol=0, atol=1e-8)
    for now in (0.0, 1.0):
        trainer.objective.set_rates(now)
        assert float(own["lr"]) == float(main["lr"])


@pytest.mark.parametrize("variant", ["000", "002"])
def test_the_warm_up_leaves_weights_in_the_main_optimiser_alone(
    tmp_path: Path, tiny: dict[str, Any], variant: str
) -> None:
    chosen = {"surrogate.variant": variant, "surrogate.own_optimizer": "main"}
    settings = {**tiny, **chosen, "training.warmup_epochs": 1}
    config = load_config("demo", settings).config
    start = {name: value.clone() for name, value in Trainer(config, None).surrogate.state_dict().items()}
    run = train(config, out=tmp_path / "run", progress=silent)
    for epoch, moved in ((1, False), (2, True)):
        now = run.load(f"epoch-0000{epoch}").weights["surrogate"]
        assert any(not torch.equal(value, now[name]) for name, value in start.items()) is moved
    held = run.load("epoch-00001").optimizer["surrogate"]["state"].values()
    assert not any(state["momentum_buffer"].any() for state in held), "no weight decay waits in the momentum"


def test_two_optimisers_of_a_hybrid_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"gated\.own_optimizer=main and slot\.own_optimizer=adam must be equal"):
        load_config("demo", ["surrogate.name=hybrid", "surrogate.gated.own_optimizer=main"])


def test_slots_of_hybrid_000_renormalise() -> None:
    """000: after the softmax ε is added and the attention normalised again; 001's equation 6 leaves that out."""
    attentions = []
    for name in ("hybrid", "slot"):
        config = load_config(f"{name}-{'000' if name == 'hybrid' else '001'}").config
        surrogate = Trainer(config, None).surrogate
        part = surrogate.slot if isinstance(surrogate, HybridCEM) else surrogate
        assert isinstance(part, SlotCrossAttentionCEM)
        attentions.append(part.slot_attention.renormalise)
    assert attentions == [True, False]


@pytest.mark.parametrize("variant", [[], {}, 3, None])
def test_a_variant_that_is_no_name_is_refused(variant: object) -> None:
    with pytest.raises(ValidationError, match="variant"):
        GatedOptions.model_validate({"variant": variant})
