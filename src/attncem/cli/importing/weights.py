"""Converts the baseline's checkpoints to a run folder. Only tensors are read; nothing in a file is executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path

import torch
from torch import Tensor, nn

from attncem.base.seeding import make_generator
from attncem.base.types import ConfigError, RunError
from attncem.config.options.run import RunConfig
from attncem.models.cost import count_cost
from attncem.models.split import SplitModel, feature_shape
from attncem.records.checkpoints import checkpoint_called, read_tensors
from attncem.records.files import hash_file
from attncem.records.metrics import accuracy
from attncem.records.runs import RunDirectory
from attncem.records.sizes import in_words
from attncem.training.build import RunData, build_model, build_surrogate_for, check, data_facts, read_data
from attncem.training.client_time import time_client
from attncem.training.engine import describe_device, limited_threads, resolve_device, seeded
from attncem.training.initial import new_run

PARTS = {"f": "client", "cloud": "server's convolutions", "classifier": "classifier"}
"""The baseline's three files, by the word in their names."""
_BATCH = 500
_LARGEST_FILE = 2**30
"""Bytes of one checkpoint file; the largest network of the baseline takes 130 MB."""
Layer = tuple[str, Mapping[str, Tensor]]
"""A layer's name, and its tensors."""


def import_weights(source: Path, config: RunConfig, out: str | Path | None, *, which: str = "best") -> RunDirectory:
    """Make a finished run with the weights of the baseline's folder `source`, ready for an audit.

    Layers are matched in order, and must have the same tensors and shapes. `which` is `best` or an epoch.
    """
    if config.model.pruning is not None:
        raise ConfigError("weights of a pruned client have other shapes than the network's: they cannot be read")
    check(config)
    device, files = resolve_device(config.device), _files(source, which)
    with limited_threads(config.threads):
        given = {part: _layers(_tensors(file)) for part, file in files.items()}
        data = read_data(config, device)
        with seeded(device, config.seed, "init"):
            model = build_model(config, data.spec)
        assert model.server is not None
        _fill(model.encoder, given["f"], files["f"])
        _fill(model.server, [*given["cloud"], *given["classifier"]], files["cloud"])
        model.to(device).eval()
        sha256 = {file.name: hash_file(file) for file in files.values()}
        initial = {"source": str(source), "parts": ["client", "server"], "sha256": sha256}
        run = new_run(config, data_facts(data.spec), out, None, initial)
        with run.locked():
            _finish(run, config, model, data)
    return run


def _files(source: Path, which: str) -> dict[str, Path]:
    """The three files of a folder."""
    if not source.is_dir():
        raise RunError(f"{source} is not a folder: give the one that holds checkpoint_f_best.tar")
    files = {part: source / f"checkpoint_{part}_{which}.tar" for part in PARTS}
    for part, file in files.items():
        if not file.is_file():
            there = ", ".join(sorted(other.name for other in source.glob("checkpoint_*.tar"))) or "none"
            raise RunError(f"{file} is missing, the {PARTS[part]}; checkpoints there: {there}")
        if file.stat().st_size > _LARGEST_FILE:
            raise RunError(f"{file} is larger than {in_words(_LARGEST_FILE)}: no checkpoint of the baseline is")
    return files


def _tensors(file: Path) -> dict[str, Tensor]:
    """The names and finite tensors in a file; otherwise a RunError."""
    tensors, size = read_tensors(file), file.stat().st_size
    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, Tensor) or "." not in name:
            raise RunError(f"{file} holds more than the tensors of layers: {str(name)[:60]!r}")
        if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized or value.is_complex():
            raise RunError(f"{file}: {name} is no plain tensor ({value.layout}, {value.device.type}, {value.dtype})")
    if (claimed := sum(value.numel() * value.element_size() for value in tensors.values())) > size:
        raise RunError(f"{file} has {in_words(size)}, but its tensors would take {in_words(claimed)}")
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise RunError(f"{file}: {name} is not finite")
    return tensors


def _layers(state: Mapping[str, Tensor]) -> list[Layer]:
    """Tensors by layer, in the order of the network."""
    layers: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        layer, _, kind = name.rpartition(".")
        layers.setdefault(layer, {})[kind] = value
    return list(layers.items())


def _fill(module: nn.Module, given: list[Layer], file: Path) -> None:
    """Load the weights into one half, layer by layer."""
    own = _layers(module.state_dict())
    state: dict[str, Tensor] = {}
    for (name, wanted), (other, tensors) in _pairs(own, given, file):
        # A layer with one tensor, such as the dictionary of sparse coding, may have another name for it.
        kinds = list(tensors) if len(wanted) == len(tensors) == 1 else list(wanted)
        for kind, its in zip(wanted, kinds, strict=True):
            if its not in tensors or tensors[its].shape != wanted[kind].shape:
                shown = list(tensors[its].shape) if its in tensors else "nothing"
                raise RunError(
                    f"{file.parent}: layer {other} has {shown} where {name}.{kind} is {list(wanted[kind].shape)}: the "
                    "flags are not those that it was trained with, or its network is another"
                )
            state[f"{name}.{kind}"] = tensors[its]
    module.load_state_dict(state)


def _pairs(own: list[Layer], given: list[Layer], file: Path) -> Iterator[tuple[Layer, Layer]]:
    for mine, theirs in zip_longest(own, given):
        if mine is None or theirs is None:
            raise RunError(
                f"{file.parent}: it has {len(given)} layers with weights and the network of these flags has {len(own)}"
                ": the flags are not those that it was trained with"
            )
        yield mine, theirs


def _finish(run: RunDirectory, config: RunConfig, model: SplitModel, data: RunData) -> None:
    """Write the results of a training: the surrogate fitted to the features, the accuracy, the checkpoint."""
    device = data.train.labels.device
    surrogate = build_surrogate_for(config, model, data.spec).to(device)
    with torch.no_grad():
        if surrogate.needs_refresh:
            surrogate.refresh((model.encode(x), y) for x, y in data.train.in_order(_BATCH))
        noise = make_generator(device, config.seed, "validation")
        right = torch.cat(
            [accuracy(model.predict(model.release(x, generator=noise)), y) for x, y in data.validation.in_order(_BATCH)]
        )
    epochs = config.training.epochs
    name, validated = checkpoint_called(epochs), float(right.mean())
    best = {"checkpoint": name, "epoch": epochs, "validation_accuracy": validated}
    run.log({"kind": "validation", "epoch": epochs, "step": 0, "accuracy": validated})
    run.update_manifest(
        split=data.split.counts(),
        device=describe_device(device),
        feature_shape=list(feature_shape(model.encoder, data.spec.shape)),
        imported=True,
        **asdict(count_cost(model, data.spec.shape))
        | time_client(model.encoder, data.spec.shape, onnx=False)._asdict(),
    )
    assert model.server is not None
    halves = {"client": model.encoder.state_dict(), "server": model.server.state_dict()}
    facts = {"epoch": epochs, "step": 0, "best": best, "offsets": run.offsets()}
    run.save({**halves, "surrogate": surrogate.state_dict()}, {}, facts)
    run.update_manifest(status="finished", best=best, training_seconds=0.0)
