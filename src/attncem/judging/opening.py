"""OpenRun: a model ready for audits and predictions, opened from its run folder or built around a foreign encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attncem.base.plugins import PluginUse
from attncem.base.seeding import derive_seed
from attncem.base.types import ConfigError, DatasetSpec, RunError
from attncem.config.loading.load import load, load_config
from attncem.config.options.encoder import EncoderLimits, EncoderOptions
from attncem.config.options.run import RunConfig
from attncem.data.readers import FOLDER_SETS, dataset_spec
from attncem.models.channels import Channel, build_channel
from attncem.models.cost import Cost, count_cost
from attncem.models.halves import kept_halves, restore_front_end
from attncem.models.onnx_file import OnnxFile
from attncem.models.onnx_network import input_of, onnx_encoder
from attncem.models.onnx_process import OnnxProcess
from attncem.models.releasing import NoiseFacts, check_noise, release_problem
from attncem.models.split import SplitModel, passes_gradients
from attncem.records.audit import Subject
from attncem.records.checkpoints import Checkpoint, broken_tensor, endless_buffers, pack_tensors
from attncem.records.findings import Finding, finding
from attncem.records.fingerprints import fingerprint, release_of
from attncem.records.runs import KEY_FILE, RunDirectory
from attncem.records.seals import key_problem, open_mode
from attncem.training.build import Modules, RunData, build_model, data_of, read_data, spec_of
from attncem.training.client_time import ClientTime
from attncem.training.engine import resolve_device
from attncem_edge.noise import SCHEME

UNKNOWN = "unknown"
"""The defence of a foreign encoder, whose training is unknown."""


@dataclass(frozen=True, eq=False)
class OpenRun:
    """A split model in evaluation mode on a device, with its facts; its data is read on first use.

    ``directory`` and ``checkpoint`` are None around a foreign encoder; its ``config`` holds data and channel only.
    ``findings`` are what the user should know before anything is measured. ``key_missing``: the noise is keyed but the
    key is missing, so the noise has the right law but differs from the noise of the device. ``no_release``: why nothing
    may leave a device; empty where it may.
    """

    config: RunConfig
    spec: DatasetSpec
    model: SplitModel
    device: torch.device
    fingerprint: str
    reader: Callable[[], RunData]
    directory: RunDirectory | None = None
    checkpoint: Checkpoint | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    key_missing: bool = False
    no_release: str = ""
    again: Callable[..., OpenRun] | None = None
    """Opens the same file again in another process, with a `device`; only around a foreign ONNX file."""

    @cached_property
    def data(self) -> RunData:
        """The data the run was trained with."""
        return self.reader()

    @property
    def data_sha256(self) -> str:
        """The hash of the data and their split, from the manifest if it is there."""
        known = {} if self.directory is None else self.directory.manifest.get("split", {})
        return str(known.get("sha256") or self.data.split.sha256)

    @property
    def name(self) -> str:
        """The run's name."""
        return self.config.name

    @property
    def weights(self) -> str:
        """The checkpoint's name; empty around a foreign encoder."""
        return "" if self.checkpoint is None else self.checkpoint.name

    @property
    def selection(self) -> Mapping[str, Any]:
        """What the checkpoint keeps of its threshold (`records/selection.py`); empty where every image is sent."""
        return {} if self.checkpoint is None else self.checkpoint.facts.get("release") or {}

    @property
    def differentiable(self) -> bool:
        """Whether gradients pass through the encoder; false for an ONNX file."""
        return passes_gradients(self.model.encoder)

    @property
    def channel(self) -> list[dict[str, Any]]:
        """Options of the channel's stages."""
        return self.config.channel_options

    def name_of(self, label: int) -> str:
        """The class's name, or its number if the data set has no names."""
        names = self.spec.class_names
        return names[label] if label < len(names) else f"class {label}"

    def subject(self) -> Subject:
        """The facts as results record them."""
        return Subject(
            run=self.name,
            fingerprint=self.fingerprint,
            weights=self.weights,
            surrogate=UNKNOWN if self.directory is None else self.config.defence,
            penalty_weight=self.config.training.penalty_weight,
            noise_std=self.config.noise_std,
            front_end=self.config.front_end_options,
            channel=self.channel,
            noise_scheme=self.facts.get("noise_scheme", 0),
            dataset=self.spec.name,
            architecture=self.facts.get("architecture", self.config.model.name),
            cut=self.facts.get("cut", str(self.config.model.cut)),
            seed=self.config.seed,
            num_classes=self.spec.num_classes,
            class_names=list(self.spec.class_names),
            data_sha256=self.data.split.sha256,
            **asdict(self._cost()),
            training_seconds=float(self.facts.get("training_seconds", 0.0)),
            encoder=dict(self.facts.get("encoder", {})),
            images_per_class=self.config.data.images_per_class or 0,
        )

    def _cost(self) -> Cost:
        """The cost of one query with the measured times; for halves from ONNX files, as counted at their training."""
        counted = count_cost(self.model, self.spec.shape)
        names = ClientTime._fields if self.differentiable else asdict(counted)
        known = {name: self.facts[name] for name in names if self.facts.get(name) is not None}
        return replace(counted, **known)


class _OneState(RunDirectory):
    """A run folder of which these parts are read once, so that everything opened belongs to one state of it."""

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest as of the first access."""
        return super().manifest

    @cached_property
    def config(self) -> RunConfig:
        """The configuration as of the first access."""
        return super().config

    @cached_property
    def noise_key(self) -> bytes | None:
        """The key as of the first access."""
        return super().noise_key


def open_run(
    run: str | Path | RunDirectory,
    *,
    weights: str = "best",
    device: str | None = None,
    modules: Modules | None = None,
    threads: int | None = None,
) -> OpenRun:
    """Open a run folder: the model with the weights of its `best` or `last` checkpoint, or of one by name.

    `modules` are your own (encoder, server), if the run was trained with them; without these, the halves that were
    saved as ONNX are used, on `threads` CPU threads (default: as many as the run).
    """
    directory = _OneState(RunDirectory.open(run).path)
    changed = directory.require_plugins()
    config, manifest = directory.config, directory.manifest
    if config.on_device:
        raise RunError(
            f"{directory.path} runs on the client alone: nothing is released, so there is nothing to attack, bound or "
            "predict from; attncem report and compare show its accuracy"
        )
    spec, place = spec_of(directory, config), resolve_device(device or config.device)
    checkpoint, stored = directory.load(weights), modules is None and bool(manifest.get("custom_network"))
    noise = check_noise(directory, checkpoint.name, checkpoint.facts, onnx=stored)
    kept = kept_halves(directory, checkpoint, threads or config.threads) if stored else None
    model = build_model(config, spec, modules or kept)
    _require_finite(directory, checkpoint, model)
    _restore(checkpoint, model, halves=kept is None)
    sha256, release = checkpoint.facts["sha256"]["client.safetensors"], release_of(checkpoint.facts)
    mark = fingerprint(sha256, config.channel_options, config.front_end_options, release)
    _bind(model, config, directory, mark, noise)
    return OpenRun(
        config,
        spec,
        model.eval().to(place),
        place,
        mark,
        lambda: data_of(directory, config, spec, place),
        directory,
        checkpoint,
        manifest,
        [*_notes(directory, config, checkpoint, noise), *_changed(changed)],
        noise.key_missing,
        release_problem(directory, checkpoint.name, noise),
    )


def _restore(checkpoint: Checkpoint, model: SplitModel, *, halves: bool) -> None:
    """Load the weights: both ``halves``, or the front end before those that were stored as ONNX; and the head."""
    if halves:
        checkpoint.restore("client", model.encoder)
        if model.server is not None:
            checkpoint.restore("server", model.server)
    else:
        restore_front_end(checkpoint, model.encoder)
    _restore_head(checkpoint, model)


def _restore_head(checkpoint: Checkpoint, model: SplitModel) -> None:
    """Load the client's head and its threshold; RunError where one of both is missing, or nobody asked for them."""
    if model.head is None:
        if checkpoint.facts.get("release"):
            raise RunError(
                f"{checkpoint.folder} has a head that decides what is sent, but config.yaml says release.when=always: "
                "it was changed, and every image would be sent; put release.when=unsure back"
            )
        return
    if not checkpoint.facts.get("release") or "head" not in checkpoint.weights:
        raise RunError(f"{checkpoint.folder} is damaged: the head of the client, or its threshold, is missing")
    checkpoint.restore("head", model.head)
    model.threshold = float(checkpoint.facts["release"]["threshold"])


def open_encoder(
    encoder: nn.Module | str | Path,
    *,
    data: Mapping[str, Any],
    channel: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    name: str = "encoder",
    server: nn.Module | None = None,
    key: bytes | None = None,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    threads: int = 1,
) -> OpenRun:
    """Open any encoder of images in [0, 1], with the options of a data set and of a channel; nothing is trained.

    The encoder is a module, or the path of an ONNX file, whose `options` say how it takes images and where it is cut:
    ``size``, ``mean``, ``std``, ``layout``, ``output``. The file is read and run in a process of its own, whose
    `limits` are ``seconds`` for each batch and ``memory`` in GiB. `server` gives it an accuracy, `key` (32 bytes) is
    that of a keyed channel, `threads` are those of a CPU.
    """
    stages = [channel] if isinstance(channel, Mapping) else list(channel)
    given = {"name": name, "data": dict(data), "channel": [dict(stage) for stage in stages], "threads": threads}
    config, facts, again = load_config(given).config, dict[str, Any](), None
    if isinstance(encoder, nn.Module):
        if options or limits:
            both = {**(options or {}), **(limits or {})}
            raise ConfigError(f"options={both}: these are for an ONNX file; a module does all of it by itself")
        place = resolve_device(device or config.device)
        read, module = read_data(config, place), encoder
        facts = {"architecture": type(encoder).__qualname__, "cut": "own modules"}
    else:
        how = load(EncoderOptions, options or {}).config
        process = OnnxProcess(load(EncoderLimits, limits or {}).config, config.threads)
        file = process.read(Path(encoder), how.output)
        config = _sized(config, file, how)
        place = resolve_device(device or config.device)
        read = read_data(config, place)
        module = onnx_encoder(file, how, read.spec.shape, process)
        facts = _facts_of(file, how, read.spec)
        if server is None:
            same: dict[str, Any] = {"data": data, "channel": stages, "name": name, "key": key, "threads": threads}
            again = partial(open_encoder, Path(encoder).resolve(), **same, options=options, limits=limits)
    return replace(_around(module, config, read, place, server, key, facts), again=again)


def _sized(config: RunConfig, file: OnnxFile, how: EncoderOptions) -> RunConfig:
    """The data at the requested size, or at the size that the file fixes; only folder data sets take the latter."""
    _, (height, width) = input_of(file, how)
    size, folders = how.size, config.data.name in FOLDER_SETS
    if size is None and folders and height == width:
        size = height
    if size is None or config.data.image_size is not None:
        return config
    if not folders and dataset_spec(config.data).shape[1:] == (size, size):
        return config
    return load_config(config, {"data.image_size": size}).config


def _facts_of(file: OnnxFile, how: EncoderOptions, spec: DatasetSpec) -> dict[str, Any]:
    """Facts of an ONNX file and of its use, for results."""
    used = {**how.model_dump(mode="json"), "size": list(spec.shape[1:]), "output": file.output}
    encoder = {"file": file.path.name, "sha256": file.file_sha256, "input": file.kind, **used}
    return {"architecture": file.path.name, "cut": file.output, "encoder": encoder}


def _around(
    encoder: nn.Module,
    config: RunConfig,
    read: RunData,
    place: torch.device,
    server: nn.Module | None,
    key: bytes | None,
    facts: Mapping[str, Any],
) -> OpenRun:
    """A run around an encoder: no folder, no training."""
    sha256 = hashlib.sha256(pack_tensors(encoder.state_dict())).hexdigest()
    mark = fingerprint(sha256, config.channel_options)
    model = SplitModel(encoder, build_channel(config.channel), server).eval().to(place)
    missing = config.keyed and key is None
    if key is not None and (problem := key_problem(key)):
        raise ConfigError(f"key: {problem}")
    if config.keyed:
        _channel_of(model).bind(key or _stand_in(mark), mark)
    notes = [finding("key_missing")] if missing else []
    if not config.noise_std and _channel_bits(model) is None:
        notes.append(finding("no_noise"))
    known = {"noise_scheme": SCHEME, **facts}
    return OpenRun(
        config, read.spec, model, place, mark, lambda: read, facts=known, findings=notes, key_missing=missing
    )


def _channel_bits(model: SplitModel) -> int | None:
    """Bits per feature of a release, which bound it without noise; None: unbounded."""
    return _channel_of(model).bits_per_feature


def _require_finite(directory: RunDirectory, checkpoint: Checkpoint, model: SplitModel) -> None:
    """RunError if weights are NaN or infinite: every answer and every measure would be too."""
    parts = (("client", model.encoder), ("server", model.server), ("head", model.head))
    halves = {part: module for part, module in parts if module}
    weights = {part: checkpoint.weights.get(part, {}) for part in halves}
    if broken := broken_tensor(weights, {}, endless_buffers(halves)):
        raise RunError(
            f"{directory.path}: the weights of {checkpoint.name} are not finite: {broken.name} holds {broken.value}; "
            f"choose another checkpoint ({', '.join(directory.checkpoints())}) with --weights, or train again"
        )


def _channel_of(model: SplitModel) -> Channel:
    assert isinstance(model.channel, Channel)
    return model.channel


def _bind(model: SplitModel, config: RunConfig, directory: RunDirectory, mark: str, noise: NoiseFacts) -> None:
    """Bind a keyed channel. Runs of attncem 0.1 derive the key from the seed: scheme 0."""
    if noise.keyed and noise.scheme == 0:
        old = hashlib.sha256(f"channel key {derive_seed(config.seed, 'channel')}".encode()).digest()
        _channel_of(model).bind(old, mark, scheme=0)
    elif noise.keyed:
        _channel_of(model).bind(directory.noise_key or _stand_in(mark), mark)


def _stand_in(mark: str) -> bytes:
    """A key for an audit without the run's key: noise must repeat for an input, and only its law counts."""
    return hashlib.sha256(f"no key {mark}".encode()).digest()


def _notes(directory: RunDirectory, config: RunConfig, checkpoint: Checkpoint, noise: NoiseFacts) -> list[Finding]:
    manifest, notes = directory.manifest, list[Finding]()
    status = str(manifest.get("status"))
    if status != "finished":
        done, planned = checkpoint.facts["epoch"], config.training.epochs
        notes.append(finding("not_finished", status=status, done=done, planned=planned))
    if noise.keyed and noise.scheme == 0:
        notes.append(finding("scheme_0"))
    if noise.key_missing:
        notes.append(finding("key_missing"))
    if noise.key and (mode := open_mode(directory.path / KEY_FILE)):
        notes.append(finding("key_open", mode=mode))
    return notes


def _changed(plugins: Sequence[PluginUse]) -> list[Finding]:
    """A finding about plugins whose file is not the one that the run was trained with."""
    names = ", ".join(dict.fromkeys(f"{use.name} ({use.file})" for use in plugins))
    return [finding("plugin_changed", names=names)] if names else []
