"""predict(): label images with a run, through its true channel, and describe what left the device."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor

from attncem.base.pictures import png_text
from attncem.base.types import ConfigError, DataError, RunError
from attncem.config.loading.suggest import known
from attncem.config.options.channels import RandomOptions
from attncem.judging.opening import OpenRun, open_run
from attncem.models.channels import SYSTEM, Channel, Source
from attncem.models.client_head import confidence
from attncem.models.front_ends import as_seen
from attncem.models.packing import pack, packing_of, unpack
from attncem.models.split import feature_shape
from attncem.records.files import write_new
from attncem.records.prediction import Candidate, Decision, Prediction, PredictionResult, Release, Seen
from attncem.records.runs import RunDirectory
from attncem.training.build import Modules
from attncem.training.engine import limited_threads
from attncem_edge.pictures import read_picture

Image = str | Path
"""A picture file, or `test:17`: the test image of that index."""
_BATCH = 250
FORMATS = ("packed", "safetensors", "npy")
"""Files of a release: the bytes that leave the device (for channels that end with `quantise`), or a tensor."""
_NOT_PACKED = "only the releases of a channel that ends with quantise have a packed form"
_SEEN = ".seen.png"
"""Suffix of the file with the picture as the encoder sees it."""


def predict(
    run: str | Path | RunDirectory,
    images: Image | Sequence[Image],
    *,
    top: int = 3,
    weights: str = "best",
    device: str | None = None,
    save: str | Path | None = None,
    save_as: str | None = None,
    modules: Modules | None = None,
) -> PredictionResult:
    """Label images through the run's own client, channel and server.

    An image is a file of any size, or `test:17`. ``save`` names a folder for the releases, as ``save_as`` packed,
    safetensors or npy (default: packed where the channel ends with `quantise`, else safetensors), and for the picture
    that the encoder sees behind a front end; no file is ever replaced. Noise that leaves the device comes from the
    system, 256 bits for every release, or with `noise: keyed` from the run's key, so that nobody else can repeat it.
    Each image is released alone, on one thread: its release depends neither on the others nor on the number of threads.
    A client with a head answers itself where it is sure: then nothing is released.
    """
    wanted = [images] if isinstance(images, str | Path) else list(images)
    if not wanted or top < 1:
        raise ConfigError("predict needs at least one image" if not wanted else f"top={top}: must be at least 1")
    opened = open_run(run, weights=weights, device=device, modules=modules, threads=1)
    if opened.no_release:
        raise RunError(opened.no_release)
    kind = _format_of(opened, save_as)
    with limited_threads(opened.config.threads):
        inputs = [read_image(opened, image) for image in wanted]
        files = _new_files(Path(save), inputs, kind) if save is not None else []
        asked = ask(opened, torch.stack([given.x for given in inputs]), SYSTEM)
        predictions = [describe(opened, *row, top=top) for row in zip(inputs, asked, strict=True)]
    for position, (file, row) in enumerate(zip(files, asked, strict=False)):
        if row.released is not None:
            write_new(file, _file_of(opened, row.released, kind))
            predictions[position] = _with_files(predictions[position], file)
    return PredictionResult(
        run=opened.name,
        weights=opened.weights,
        dataset=opened.spec.name,
        channel=list(opened.channel),
        predictions=predictions,
        findings=list(opened.findings),
    )


@dataclass(frozen=True)
class Input:
    """One image as the client sees it: x [C, H, W] in [0, 1], and its label if known."""

    source: str
    x: Tensor
    label: int | None
    steps: list[str]
    file_bytes: int | None


def read_image(opened: OpenRun, image: Image) -> Input:
    """One image, from a file or the test images."""
    if str(image).startswith("test:"):
        return _test_image(opened, str(image))
    squash = opened.config.data.image_size is not None
    picture = read_picture(Path(image), opened.spec.shape, squash=squash, others=" or test:NUMBER")
    x = torch.from_numpy(picture.pixels.copy()).to(opened.device).float() / 255
    return Input(str(image), x, None, picture.steps, picture.file_bytes)


def _test_image(opened: OpenRun, source: str) -> Input:
    test = opened.data.test
    number = re.fullmatch(r"test:([0-9]{1,9})", source)
    if number is None or int(number[1]) >= len(test):
        raise DataError(f"{source}: the test images are test:0 to test:{len(test) - 1}")
    images, labels = test.get(slice(int(number[1]), int(number[1]) + 1))
    return Input(source, images[0], int(labels[0]), [], None)


@dataclass(frozen=True)
class Asked:
    """The answer to one image: logits of the server or of the client's head, the release, and the decision about it.

    ``released`` is None where nothing was sent; ``decision`` is None where the client has no head.
    """

    logits: Tensor
    released: Tensor | None
    decision: Decision | None = None


@torch.no_grad()
def ask(opened: OpenRun, x: Tensor, noise: Source, *, anyway: bool = False) -> list[Asked]:
    """The answers to images x, each looked at and released alone on one thread.

    ``anyway``: compute the release also of an image that the client would answer itself, to show it.
    """
    model, asked = opened.model, list[Asked]()
    with limited_threads(1):
        for image in x.split(1):
            if model.head is None:
                asked.append(Asked(x.new_empty(0), model.release(image, generator=noise)[0]))
                continue
            z, answers = model.look(image)
            decision = Decision(bool(model.sends(answers)[0]), float(confidence(answers)[0]), model.threshold)
            released = model.transmit(z, image, noise)[0] if decision.sent or anyway else None
            asked.append(Asked(answers[0].float(), released, decision))
    sent = [place for place, row in enumerate(asked) if row.decision is None or row.decision.sent]
    for places in (sent[start : start + _BATCH] for start in range(0, len(sent), _BATCH)):
        sent_ones = [row for place in places if (row := asked[place].released) is not None]
        logits = model.predict(torch.stack(sent_ones)).float()
        for place, answer in zip(places, logits, strict=True):
            asked[place] = replace(asked[place], logits=answer)
    return asked


def describe(opened: OpenRun, given: Input, asked: Asked, *, top: int) -> Prediction:
    """One image's labels and release in plain numbers."""
    logits = asked.logits
    best = logits.softmax(0).topk(min(top, len(logits)))
    picture = as_seen(opened.model.encoder, given.x.unsqueeze(0))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return Prediction(
        source=given.source,
        top=[Candidate(label, opened.name_of(label), value) for label, value in pairs],
        true_label=given.label,
        true_name=None if given.label is None else opened.name_of(given.label),
        preparation=given.steps,
        release=None if asked.released is None else _describe_release(opened, given, asked.released),
        decision=asked.decision,
        seen=None if picture is None else Seen(opened.config.front_end_options, png_text(picture[0])),
    )


def _with_files(row: Prediction, file: Path) -> Prediction:
    """The prediction with the name of its file; writes the picture that the encoder sees next to that file."""
    if row.seen is None:
        return replace(row, saved=str(file))
    picture = file.with_suffix(_SEEN)
    write_new(picture, base64.b64decode(row.seen.picture))
    return replace(row, saved=str(file), seen=replace(row.seen, saved=str(picture)))


def _describe_release(opened: OpenRun, given: Input, released: Tensor) -> Release:
    kinds = sorted({stage.noise for stage in opened.config.channel if isinstance(stage, RandomOptions)})
    channel = opened.model.channel
    packing = packing_of(channel)
    return Release(
        shape=list(released.shape),
        dtype=str(released.dtype).removeprefix("torch."),
        bytes=released.numel() * released.element_size() if packing is None else len(pack(released, packing)),
        minimum=float(released.min()),
        maximum=float(released.max()),
        noise=" and ".join(kinds) or "none",
        noise_std=opened.config.noise_std,
        image_bytes=given.x.numel(),
        file_bytes=given.file_bytes,
        bits=None if packing is None else packing.bits,
        repeats=isinstance(channel, Channel) and channel.repeats,
    )


def unpack_release(opened: OpenRun, data: bytes) -> Tensor:
    """A release that this run's client sent packed, as the server takes it; DataError where the bytes do not fit."""
    packing = packing_of(opened.model.channel)
    if packing is None:
        raise ConfigError(_NOT_PACKED)
    return unpack(data, feature_shape(opened.model.encoder, opened.spec.shape), packing).to(opened.device)


def _new_files(folder: Path, inputs: Sequence[Input], kind: str) -> list[Path]:
    """A file name for each image's release; RunError if a file already exists."""
    stems = [re.sub(r"[^\w.-]+", "-", Path(given.source).stem).strip("-") for given in inputs]
    files = [folder / f"{position:03d}-{stem}.{kind}" for position, stem in enumerate(stems)]
    for file in chain.from_iterable((file, file.with_suffix(_SEEN)) for file in files):
        if file.exists():
            raise RunError(f"{file} already exists and was not changed; choose another folder")
    return files


def _format_of(opened: OpenRun, wanted: str | None) -> str:
    """The format of files of releases; ConfigError where it is unknown, or the channel's releases cannot be packed."""
    packing = packing_of(opened.model.channel)
    if wanted is None:
        return "safetensors" if packing is None else "packed"
    if wanted == "packed" and packing is None:
        raise ConfigError(f"save_as=packed: {_NOT_PACKED}")
    return known("save_as", wanted, FORMATS)


def _file_of(opened: OpenRun, released: Tensor, kind: str) -> bytes:
    """The content of a file with the release."""
    packing = packing_of(opened.model.channel)
    if kind == "packed" and packing is not None:
        return pack(released, packing)
    tensor = released.cpu().contiguous()
    if kind == "safetensors":
        return to_safetensors({"released": tensor})
    buffer = io.BytesIO()
    np.save(buffer, tensor.numpy(), allow_pickle=False)
    return buffer.getvalue()
