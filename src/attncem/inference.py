"""predict(): label images with a run, through its true channel, and say what left the device."""

from __future__ import annotations

import io
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor

from attncem.build import Modules, RunData, data_of, restore
from attncem.config.channels import RandomOptions
from attncem.config.suggest import known
from attncem.data.pictures import read_picture
from attncem.data.readers import dataset_spec
from attncem.engine import limited_threads, resolve_device
from attncem.runs import RunDirectory, write_new
from attncem.types import Candidate, ConfigError, DataError, Prediction, PredictionResult, Release, RunError

Image = str | Path
"""A picture file, or `test:17`: the test image of that index."""
_BATCH = 250


def predict(
    run: str | Path | RunDirectory,
    images: Image | Sequence[Image],
    *,
    top: int = 3,
    weights: str = "best",
    device: str | None = None,
    save: str | Path | None = None,
    save_as: str = "safetensors",
    seed: int | None = None,
    modules: Modules | None = None,
) -> PredictionResult:
    """Label images through the run's own client, channel and server.

    An image is a file of any size, or `test:17`. ``save`` names a folder for the released tensors, as
    ``save_as`` safetensors or npy; no file is ever replaced. Fresh noise comes from the system, so that nobody can
    repeat it; ``seed`` makes it repeatable, for experiments only.
    """
    wanted = [images] if isinstance(images, str | Path) else list(images)
    if not wanted or top < 1:
        raise ConfigError("predict needs at least one image" if not wanted else f"top={top}: must be at least 1")
    known("save_as", save_as, ("safetensors", "npy"))
    loaded = LoadedRun(run, weights=weights, device=device, modules=modules)
    with limited_threads(loaded.config.threads):
        inputs = [loaded.read(image) for image in wanted]
        files = _new_files(Path(save), inputs, save_as) if save is not None else []
        noise = torch.Generator(loaded.device).manual_seed(secrets.randbits(63) if seed is None else seed)
        released, logits = loaded.ask(torch.stack([given.x for given in inputs]), noise)
        rows = zip(inputs, released, logits, strict=True)
        predictions = [loaded.describe(*row, top=top) for row in rows]
    for position, file in enumerate(files):
        write_new(file, _file_of(released[position], save_as))
        predictions[position] = replace(predictions[position], saved=str(file))
    return PredictionResult(
        run=loaded.config.name,
        weights=loaded.checkpoint.name,
        dataset=loaded.spec.name,
        channel=[stage.model_dump(mode="json") for stage in loaded.config.channel],
        predictions=predictions,
        notes=loaded.notes,
    )


@dataclass(frozen=True)
class Input:
    """One image as the client sees it: x [C, H, W] in [0, 1]; its label where it is known."""

    source: str
    x: Tensor
    label: int | None
    steps: list[str]
    file_bytes: int | None


class LoadedRun:
    """A run ready to be asked: its model in evaluation mode on a device; its data only when needed."""

    def __init__(
        self, run: str | Path | RunDirectory, *, weights: str, device: str | None, modules: Modules | None
    ) -> None:
        self.directory = RunDirectory.open(run)
        self.config, model, self.checkpoint = restore(self.directory, weights=weights, modules=modules)
        self.device = resolve_device(device or self.config.device)
        self.model = model.to(self.device)
        self.spec = dataset_spec(self.config.data)

    @cached_property
    def data(self) -> RunData:
        """The data the run was trained with."""
        return data_of(self.directory, self.config, self.device)

    @property
    def notes(self) -> list[str]:
        """What a person should know about these weights."""
        status = str(self.directory.manifest.get("status"))
        if status == "finished":
            return []
        done, planned = self.checkpoint.facts["epoch"], self.config.training.epochs
        return [f"the run is not finished (status {status}): these are the weights of epoch {done} of {planned}"]

    def name_of(self, label: int) -> str:
        """The class's name, or its number where the data set has no names."""
        names = self.spec.class_names
        return names[label] if label < len(names) else f"class {label}"

    def read(self, image: Image) -> Input:
        """One image, from a file or the test images."""
        if str(image).startswith("test:"):
            return self._test_image(str(image))
        picture = read_picture(Path(image), self.spec.shape, squash=self.config.data.image_size is not None)
        x = torch.from_numpy(picture.pixels.copy()).to(self.device).float() / 255
        return Input(str(image), x, None, picture.steps, picture.file_bytes)

    def _test_image(self, source: str) -> Input:
        test = self.data.test
        number = re.fullmatch(r"test:([0-9]{1,9})", source)
        if number is None or int(number[1]) >= len(test):
            raise DataError(f"{source}: the test images are test:0 to test:{len(test) - 1}")
        images, labels = test.get(slice(int(number[1]), int(number[1]) + 1))
        return Input(source, images[0], int(labels[0]), [], None)

    @torch.no_grad()
    def ask(self, x: Tensor, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """What leaves the client for images x, and the server's logits."""
        released = torch.cat([self.model.release(part, generator=noise) for part in x.split(_BATCH)])
        return released, torch.cat([self.model.predict(part).float() for part in released.split(_BATCH)])

    def describe(self, given: Input, released: Tensor, logits: Tensor, *, top: int) -> Prediction:
        """One image's labels and release in plain numbers."""
        best = logits.softmax(0).topk(min(top, len(logits)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Prediction(
            source=given.source,
            top=[Candidate(label, self.name_of(label), value) for label, value in pairs],
            true_label=given.label,
            true_name=None if given.label is None else self.name_of(given.label),
            preparation=given.steps,
            release=self._describe_release(given, released),
        )

    def _describe_release(self, given: Input, released: Tensor) -> Release:
        kinds = sorted({stage.noise for stage in self.config.channel if isinstance(stage, RandomOptions)})
        return Release(
            shape=list(released.shape),
            dtype=str(released.dtype).removeprefix("torch."),
            bytes=released.numel() * released.element_size(),
            minimum=float(released.min()),
            maximum=float(released.max()),
            noise=" and ".join(kinds) or "none",
            noise_std=self.config.noise_std,
            image_bytes=given.x.numel(),
            file_bytes=given.file_bytes,
        )


def _new_files(folder: Path, inputs: Sequence[Input], kind: str) -> list[Path]:
    """A file for each image's release; refused where one is there already."""
    stems = [re.sub(r"[^\w.-]+", "-", Path(given.source).stem).strip("-") for given in inputs]
    files = [folder / f"{position:03d}-{stem}.{kind}" for position, stem in enumerate(stems)]
    for file in files:
        if file.exists():
            raise RunError(f"{file} exists already and is left as it is; choose another folder")
    return files


def _file_of(released: Tensor, kind: str) -> bytes:
    """The tensor as the bytes of a file."""
    tensor = released.cpu().contiguous()
    if kind == "safetensors":
        return to_safetensors({"released": tensor})
    buffer = io.BytesIO()
    np.save(buffer, tensor.numpy(), allow_pickle=False)
    return buffer.getvalue()
