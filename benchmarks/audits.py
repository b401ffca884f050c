"""Audit time by attack at small fixed budgets, and a decoder's step, captured and plain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import torch

import attncem
from attncem.base.progress import silent
from attncem.config.options.attacks import DecoderOptions, OptimisationOptions, PublishedOptions
from attncem.config.options.suites import RowOptions, Suite, packaged_suites
from attncem.judging.attacks.decoder import DecoderTraining, Material
from attncem.models.decoders import DECODERS
from attncem.training.engine import Engine, fastest_convolutions
from benchmarks.common import Row, Setting, Table, free_memory, milliseconds

IMAGES = 10_000
_STEPS = 20


def audits(setting: Setting) -> list[Table]:
    """Every attack of the suite `standard`; learned attacks train for a fixed number of epochs or steps."""
    epochs = 0.1 if setting.tiny else 2
    config = setting.config(setting.plain, IMAGES if setting.on_gpu else 1_000, epochs=2)
    run = attncem.train(config, out=setting.folder / "audited", progress=silent)
    rows_of_suite = {name: _bounded(options, epochs) for name, options in packaged_suites()["standard"].rows.items()}
    if setting.tiny:
        rows_of_suite = {name: rows_of_suite[name] for name in packaged_suites()["quick"].rows}
    suite = Suite(name="benchmark", version=1, meaning="short", rows=rows_of_suite)
    result = attncem.audit(run, suite, on="validation" if setting.tiny else "test", progress=silent)
    ridge = next(row.seconds for row in result.attacks if row.method == "ridge")
    rows = [
        {"attack": row.name, "attack_seconds": row.seconds, "over_ridge": row.seconds / ridge} for row in result.attacks
    ]
    note = (
        f"{result.plan.num_auxiliary:,} images of the attacker's, {result.plan.num_evaluation:,} attacked; "
        f"decoders {epochs:g} epochs without doubling, the white box {_STEPS} steps; scoring included."
    )
    return [Table("Audit", rows, note), Table("Step of a decoder", _decoder_steps(setting))]


def _bounded(options: RowOptions, epochs: float) -> RowOptions:
    """The options with a fixed budget, if they have one."""
    if isinstance(options, DecoderOptions):
        return options.model_copy(update={"epochs": epochs, "max_epochs": epochs})
    if isinstance(options, PublishedOptions):
        return options.model_copy(update={"epochs": epochs})
    if isinstance(options, OptimisationOptions):
        return options.model_copy(update={"steps": _STEPS, "max_steps": _STEPS, "decoder_epochs": epochs})
    return options


def _decoder_steps(setting: Setting) -> list[Row]:
    sizes = ("small",) if setting.tiny else tuple(DECODERS)
    rows = []
    for size in setting.in_time(sizes):
        free_memory()
        with fastest_convolutions(setting.device):
            plain, captured = _decoder_step(setting, size)
        ratio = None if captured is None else plain / captured
        rows.append({"decoder": size, "plain_ms": plain, "captured_ms": captured, "plain_over_captured": ratio})
    return rows


def _decoder_step(setting: Setting, size: str) -> tuple[float, float | None]:
    """Milliseconds of a plain step and of a captured one, if there is one."""
    batch = 4 if setting.tiny else 64
    engine = Engine(setting.device)
    decoder = engine.place(DECODERS[size]((8, 8, 8), (3, 32, 32)))
    options = DecoderOptions(size=size, lr=1e-4)
    material = cast(Material, SimpleNamespace(options=options, device=setting.device, train=range(batch)))
    run = DecoderTraining(material, decoder, engine=engine)
    run.decoder.train()
    released = torch.rand(batch, 8, 8, 8, device=setting.device)
    target = torch.rand(batch, 3, 32, 32, device=setting.device)
    plain = milliseconds(lambda: run._descend(run.function, released, target), setting)
    for _ in range(6):
        run.recorded(released, target)
    if run.recorded.mode == "plain":
        return plain, None
    return plain, milliseconds(lambda: run.recorded(released, target), setting)
