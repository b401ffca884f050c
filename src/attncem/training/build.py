"""From a RunConfig to objects: data, networks, channel, surrogate, penalties."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from attncem.base.record import read
from attncem.base.stages import at_stage
from attncem.base.types import ConfigError, DatasetSpec, RunError
from attncem.config.options.attention import HybridOptions
from attncem.config.options.model import ModelOptions
from attncem.config.options.run import RunConfig
from attncem.config.options.surrogate_base import SurrogateOptions
from attncem.config.options.training import BalancedOptions, TrainingOptions
from attncem.data.batches import DeviceData
from attncem.data.folders import listing_notes
from attncem.data.readers import FOLDER_SETS, RawData, dataset_spec, read_dataset
from attncem.data.sources import locate
from attncem.data.splits import Split, split_data
from attncem.models.channels import build_channel
from attncem.models.client_head import ClientHead
from attncem.models.front_ends import build_front_end
from attncem.models.networks import (
    build_halves,
    build_head,
    build_on_device,
    check_network,
    only_ours,
    with_room_for_head,
)
from attncem.models.split import SplitModel, feature_shape, passes_gradients
from attncem.models.trial import check_pair, try_halves
from attncem.records.checkpoints import Checkpoint
from attncem.records.run import DataFacts
from attncem.records.runs import RunDirectory
from attncem.training.engine import Engine, seeded
from attncem.training.penalties import PENALTIES, Penalty
from attncem.training.risk import read_risk_audit
from attncem.training.surrogates import Surrogate, construct

Modules = tuple[nn.Module, nn.Module]
"""Encoder and server half that the user supplies."""


@dataclass(frozen=True)
class RunData:
    """The parts of a run's data, on the device."""

    spec: DatasetSpec
    split: Split
    train: DeviceData
    validation: DeviceData
    held_out: DeviceData
    test: DeviceData
    infer_auxiliary: DeviceData
    infer_evaluation: DeviceData


def check(config: RunConfig, *, custom_network: bool = False) -> None:
    """Reject impossible options before reading or training anything: unknown names, cuts, batch sizes."""
    spec = dataset_spec(config.data)
    if not spec.num_classes:
        raise ConfigError(
            f"data.root={config.data.root} has pictures without labels, or of one class only, and a classifier is "
            "trained with them: put the pictures of each class into a folder of its own"
        )
    if not custom_network:
        check_network(spec, config.model)
        _check_image_size(config, spec)
    elif config.model.pruning is not None:
        raise ConfigError("model.pruning works on the packaged networks: it cannot prune your own modules")
    _check_risk_audit(config.surrogate, spec)
    per_class = config.training.batch_size / spec.num_classes
    if config.surrogate.needs_pairs and per_class < 2 and config.training.batches.name != "balanced":
        memory = "surrogate.memory.per_class=4, " if "memory" in type(config.surrogate).model_fields else ""
        raise ConfigError(
            f"training.batch_size={config.training.batch_size} gives {per_class:.2g} samples to each of the "
            f"{spec.num_classes} classes of {spec.name}; statistics inside a class need at least 2: "
            f"use training.batches.name=balanced, {memory}or a batch of {2 * spec.num_classes} or more"
        )


def _check_image_size(config: RunConfig, spec: DatasetSpec) -> None:
    """Reject images that are too small for the network's pooling, and name the smallest possible size."""
    if _takes(config, spec):
        return
    network = f"model.name={config.model.name} with model.cut={config.model.cut}"
    sizes = (size for size in range(8, 257) if _takes(config, replace(spec, shape=(spec.shape[0], size, size))))
    smallest = next(sizes, None)
    advice = (
        "choose another" if smallest is None else f"it takes {smallest} px and more: set data.image_size, or another"
    )
    raise ConfigError(f"{network} cannot take images of {spec.shape[1]}x{spec.shape[2]} px; {advice} network or cut")


_TAKES: dict[tuple[object, ...], bool] = {}
"""Which of our own networks take images of which shape: the cells of a campaign have few networks."""


def _takes(config: RunConfig, spec: DatasetSpec) -> bool:
    """Whether the network takes images of this size; our own networks are tried once."""
    if not only_ours(config.model):
        return min(spec.shape[1:]) >= 32 or _tried(config, spec, ours=False)
    parts = (config.model.model_dump_json(), config.release.model_dump_json(), config.on_device)
    key = (*parts, spec.shape, spec.num_classes)
    if key not in _TAKES:
        _TAKES[key] = _tried(config, spec, ours=True)
    return _TAKES[key]


def _tried(config: RunConfig, spec: DatasetSpec, *, ours: bool) -> bool:
    """Whether two images pass through the network, on the meta device for our own networks."""
    with torch.device("meta" if ours else "cpu"), torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            encoder, server = _networks(config, spec)
            server.eval()(encoder.eval()(torch.zeros(2, *spec.shape)))
        except RuntimeError as error:
            return not any(word in str(error) for word in ("too small", "greater than actual input size"))
    return True


def _check_risk_audit(options: SurrogateOptions, spec: DatasetSpec) -> None:
    """The classes that `risk_audit` marks must be classes of this data set."""
    if not isinstance(options, HybridOptions) or options.risk_audit is None:
        return
    audit = read_risk_audit(options.risk_audit).subject
    if (audit.dataset, audit.class_names) != (spec.name, list(spec.class_names)):
        raise ConfigError(
            f"surrogate.risk_audit={options.risk_audit}: the audit is about the classes of {audit.dataset} "
            f"({', '.join(audit.class_names[:3])} …), data.name={spec.name} has others "
            f"({', '.join(spec.class_names[:3])} …)"
        )


def load_data(config: RunConfig, device: torch.device) -> RunData:
    """The data to train on; ConfigError if it cannot fill a batch or has no validation images."""
    data = read_data(config, device)
    if not len(data.validation):
        raise ConfigError(
            f"data.validation_fraction={config.data.validation_fraction} keeps no image for validation: no class of "
            f"{data.spec.name} has two training images or more; add some"
        )
    if len(data.train) < config.training.batch_size:
        raise ConfigError(
            f"training.batch_size={config.training.batch_size} is larger than the {len(data.train)} training images"
        )
    _check_balance(config.training, len(data.train.labels.unique()))
    return data


def read_data(config: RunConfig, device: torch.device) -> RunData:
    """Read the data set, split it, and put every part on the device."""
    with at_stage(f"reading the data set {config.data.name}"):
        raw = read_dataset(config.data.name, config.data.root, config.data.image_size)
        split = split_data(raw, config.data)
        return RunData(raw.spec, split, **_parts(raw, split, device, config.data.placement))


def data_notes(config: RunConfig) -> list[str]:
    """Notes for the user about the files before training; from their names alone."""
    if config.data.name not in FOLDER_SETS:
        return []
    return listing_notes(config.data.name, locate(config.data.name, config.data.root))


def _check_balance(options: TrainingOptions, num_classes: int) -> None:
    """A balanced batch draws each class once, so the data must have batch_size / samples_per_class classes."""
    if not isinstance(options.batches, BalancedOptions):
        return
    samples = options.batches.samples_per_class
    if options.batch_size > num_classes * samples:
        raise ConfigError(
            f"training.batches.samples_per_class={samples} needs {options.batch_size // samples} classes to fill "
            f"training.batch_size={options.batch_size}, but the training images have {num_classes}: use "
            f"samples_per_class={-(-options.batch_size // num_classes)} or more, or a batch of "
            f"{num_classes * samples} or less"
        )


def _parts(raw: RawData, split: Split, device: torch.device, placement: str) -> dict[str, DeviceData]:
    streamed = placement == "host" or (placement == "auto" and not _fits(raw, device))
    parts: dict[str, DeviceData] = {}
    for name, images, labels in (
        *((name, raw.train_images, raw.train_labels) for name in ("train", "validation", "held_out")),
        *((name, raw.test_images, raw.test_labels) for name in ("test", "infer_auxiliary", "infer_evaluation")),
    ):
        parts[name] = DeviceData.from_arrays(images, labels, getattr(split, name), device, streamed=streamed)
    return parts


def _fits(raw: RawData, device: torch.device) -> bool:
    """Whether the images fill at most half of the free device memory; test images are stored there twice."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return raw.train_images.nbytes + 2 * raw.test_images.nbytes <= free / 2


def build_model(config: RunConfig, spec: DatasetSpec, modules: Modules | None = None) -> SplitModel:
    """Client, channel and server; `modules` replaces both networks by the user's, behind the front end."""
    if modules is not None and config.on_device:
        raise ConfigError("on_device=true trains a network of this package: it takes no modules of your own")
    encoder, server = _networks(config, spec) if modules is None else check_pair(modules)
    if modules is not None and config.model.front_end.name != "none":
        encoder = nn.Sequential(build_front_end(config.model.front_end, spec), encoder)
    if modules is not None and passes_gradients(encoder):  # ONNX halves of a trained run are not tried again
        try_halves(encoder, server, spec)
    head = _head(config, spec, encoder, ours=modules is None)
    return SplitModel(encoder, build_channel(config.channel), server, on_device=config.on_device, head=head)


def _networks(config: RunConfig, spec: DatasetSpec) -> Modules:
    """Both halves of the network; on the device, the trunk and its head."""
    return build_on_device(spec, config.model) if config.on_device else build_halves(spec, options_of(config, spec))


def options_of(config: RunConfig, spec: DatasetSpec) -> ModelOptions:
    """The options of the network: a lean client leaves room for a head that learns with it."""
    joint = config.release.selective and config.release.learn == "jointly"
    return with_room_for_head(spec, config.model) if joint else config.model


def _head(config: RunConfig, spec: DatasetSpec, encoder: nn.Module, *, ours: bool) -> ClientHead | None:
    """The client's head where the release needs one; behind your own modules it reads z."""
    if not config.release.selective:
        return None
    if ours:
        assert isinstance(encoder, nn.Sequential)
        return build_head(spec, options_of(config, spec), encoder)
    size = math.prod(feature_shape(encoder, spec.shape))
    return ClientHead(nn.Sequential(nn.Flatten(), nn.Linear(size, spec.num_classes)), None)


def build_surrogate_for(config: RunConfig, model: SplitModel, spec: DatasetSpec) -> Surrogate:
    """The surrogate for this model's features."""
    return construct(
        config.surrogate.name,
        config.surrogate,
        feature_shape=feature_shape(model.encoder, spec.shape),
        num_classes=spec.num_classes,
        noise_std=config.noise_std,
    )


def build_penalties(config: RunConfig, model: SplitModel, spec: DatasetSpec, engine: Engine) -> dict[str, Penalty]:
    """The penalties by name, on the engine's device; each draws its initial weights from a separate stream."""
    shape, built = feature_shape(model.encoder, spec.shape), dict[str, Penalty]()
    for options in config.penalties:
        with seeded(engine.device, config.seed, "penalty", options.name):
            built[options.name] = PENALTIES[options.name](
                options,
                feature_shape=shape,
                image_shape=spec.shape,
                engine=engine,
                num_classes=spec.num_classes,
                noise_std=config.first_gaussian_std,
            )
    return built


def restore_surrogate(
    config: RunConfig, model: SplitModel, spec: DatasetSpec, checkpoint: Checkpoint | None
) -> Surrogate:
    """The surrogate of a run with the state of a checkpoint, in evaluation mode."""
    surrogate = build_surrogate_for(config, model, spec)
    if checkpoint is None:
        raise RunError("an encoder without a run has no surrogate to restore")
    checkpoint.restore("surrogate", surrogate)
    return surrogate.eval()


def data_facts(spec: DatasetSpec) -> dict[str, Any]:
    """Facts of the data for the manifest."""
    return asdict(spec)


def spec_of(run: RunDirectory, config: RunConfig) -> DatasetSpec:
    """Facts of a run's training data, from its manifest; for runs of attncem 0.1 the data is read."""
    manifest = run.manifest
    if "data" not in manifest:
        return dataset_spec(config.data)
    return read(DataFacts, manifest["data"], run.path / "manifest.json").spec()


def data_of(run: RunDirectory, config: RunConfig, spec: DatasetSpec, device: torch.device) -> RunData:
    """The data of a trained run; an error if it differs from the data that the run was trained on."""
    data = read_data(config, device)
    if run.manifest.get("split", {}).get("sha256", data.split.sha256) != data.split.sha256:
        raise RunError(f"the data or its split has changed since {run.path} was trained: parts of it would be mixed up")
    return replace(data, spec=spec)
