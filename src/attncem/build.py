"""From a RunConfig to objects: the only place that turns names into classes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import nn

from attncem.channels import build_channel
from attncem.config.load import load_config
from attncem.config.run import RunConfig
from attncem.config.suggest import known
from attncem.config.surrogates import HybridOptions, SurrogateOptions
from attncem.data.batches import DeviceData
from attncem.data.readers import RawData, dataset_spec, read_dataset
from attncem.data.splits import Split, split_data
from attncem.models.networks import ARCHITECTURES, build_halves, resolve_cut
from attncem.models.split import SplitModel, feature_shape
from attncem.runs import Checkpoint, RunDirectory
from attncem.seeding import derive_seed
from attncem.surrogates import SURROGATES, Surrogate
from attncem.surrogates.hybrid import read_audit
from attncem.types import ConfigError, DatasetSpec, RunError

Modules = tuple[nn.Module, nn.Module]
"""A user's own encoder and server half."""


@dataclass(frozen=True)
class RunData:
    """A run's data on the device, part by part."""

    spec: DatasetSpec
    split: Split
    train: DeviceData
    validation: DeviceData
    held_out: DeviceData
    test: DeviceData
    infer_auxiliary: DeviceData
    infer_evaluation: DeviceData


def check(config: RunConfig, *, custom_network: bool = False) -> None:
    """Refuse what cannot work, before anything is read or trained: unknown names, cuts, batch sizes."""
    spec = dataset_spec(config.data)
    if not custom_network:
        known("model.name", config.model.name, ARCHITECTURES)
        with torch.device("meta"):
            resolve_cut(ARCHITECTURES[config.model.name](spec, config.model), config.model)
    _check_risk_audit(config.surrogate, spec)
    per_class = config.training.batch_size / spec.num_classes
    if config.surrogate.name != "none" and per_class < 2:
        raise ConfigError(
            f"training.batch_size={config.training.batch_size} gives {per_class:.2g} samples to each of the "
            f"{spec.num_classes} classes of {spec.name}; statistics inside a class need at least 2: "
            f"use a batch of {2 * spec.num_classes} or more"
        )


def _check_risk_audit(options: SurrogateOptions, spec: DatasetSpec) -> None:
    """An audit that marks classes must be about the classes of this data set."""
    if not isinstance(options, HybridOptions) or options.risk_audit is None:
        return
    audit = read_audit(options.risk_audit)
    if (audit.dataset, audit.class_names) != (spec.name, list(spec.class_names)):
        raise ConfigError(
            f"surrogate.risk_audit={options.risk_audit}: the audit is about the classes of {audit.dataset} "
            f"({', '.join(audit.class_names[:3])} …), data.name={spec.name} has others "
            f"({', '.join(spec.class_names[:3])} …)"
        )


def load_data(config: RunConfig, device: torch.device) -> RunData:
    """Read the data set, split it, and put every part on the device."""
    raw = read_dataset(config.data.name, config.data.root, config.data.image_size)
    split = split_data(raw, config.data)
    if len(split.train) < config.training.batch_size:
        raise ConfigError(
            f"training.batch_size={config.training.batch_size} is larger than the {len(split.train)} training images"
        )
    return RunData(raw.spec, split, **_parts(raw, split, device))


def _parts(raw: RawData, split: Split, device: torch.device) -> dict[str, DeviceData]:
    parts: dict[str, DeviceData] = {}
    for name in ("train", "validation", "held_out"):
        parts[name] = DeviceData.from_arrays(raw.train_images, raw.train_labels, getattr(split, name), device)
    for name in ("test", "infer_auxiliary", "infer_evaluation"):
        parts[name] = DeviceData.from_arrays(raw.test_images, raw.test_labels, getattr(split, name), device)
    return parts


def build_model(config: RunConfig, spec: DatasetSpec, modules: Modules | None = None) -> SplitModel:
    """Client, channel and server; `modules` replaces the two networks by a user's own."""
    encoder, server = modules if modules is not None else build_halves(spec, config.model)
    key = hashlib.sha256(f"channel key {derive_seed(config.seed, 'channel')}".encode()).digest()
    return SplitModel(encoder, build_channel(config.channel, key=key), server)


def build_surrogate_for(config: RunConfig, model: SplitModel, spec: DatasetSpec) -> Surrogate:
    """The surrogate for this model's features."""
    return SURROGATES[config.surrogate.name](
        config.surrogate,
        feature_shape=feature_shape(model.encoder, spec.shape),
        num_classes=spec.num_classes,
        noise_std=config.noise_std,
    )


def config_of(run: RunDirectory) -> RunConfig:
    """The configuration a run was made with."""
    return load_config(run.path / "config.yaml").config


def restore(
    run: RunDirectory, *, weights: str = "best", modules: Modules | None = None
) -> tuple[RunConfig, SplitModel, Checkpoint]:
    """The model of a run, with the weights of its `best` or `last` checkpoint, in evaluation mode."""
    config = config_of(run)
    if run.manifest.get("custom_network") and modules is None:
        raise RunError(f"{run.path} was trained with your own networks: pass them again as modules=(encoder, server)")
    model = build_model(config, dataset_spec(config.data), modules)
    checkpoint = run.load(weights)
    model.encoder.load_state_dict(checkpoint.weights["client"])
    if model.server is not None:
        model.server.load_state_dict(checkpoint.weights["server"])
    return config, model.eval(), checkpoint
