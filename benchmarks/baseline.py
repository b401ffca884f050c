"""The baseline's loop compared with ours: its structure, written again from a description of it.

Loader workers that crop, mirror, rotate and normalise image by image; a penalty that loops over classes and clusters
and reads from the device in between; one backward pass for the penalty and one for the loss; a second augmented pass;
clustering class by class.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset

from attncem.config.options.run import RunConfig
from attncem.data.readers import RawData, read_dataset
from attncem.data.splits import split_data
from attncem.models.split import SplitModel
from attncem.training.build import build_model
from attncem.training.surrogates.clusters import ROUNDING
from benchmarks.common import EPOCH_IMAGES, NOISE_STD, Case, Row, Setting, Table, free_memory, synchronise
from benchmarks.epochs import measure_epochs

CLUSTERS = 5
LLOYD_ITERATIONS = 50
GAMMA = 0.01
VAR_THRESHOLD = 0.125
WORKERS = 8
PENALTY_WEIGHT = 0.32
"""The baseline's weight 16 at the schedule's first factor, 0.02."""


def baseline(setting: Setting) -> list[Table]:
    """One epoch of the baseline's loop, extrapolated from a few batches, and epochs of ours."""
    free_memory()
    plain = replace(setting.plain, surrogate="kmeans")
    config = setting.config(plain, EPOCH_IMAGES if setting.on_gpu else 1_000, epochs=2)
    loop = BaselineLoop(config, setting.device, workers=_workers(setting))
    batches = 4 if setting.tiny else 60 if setting.on_gpu else 10
    parts = loop.measure(batches)
    whole = sum(parts.values())
    shares = [{"part": name, "part_seconds": seconds, "share": seconds / whole} for name, seconds in parts.items()]
    rows: list[Row] = [{"loop": "the baseline's", "precision": "32-true", "fast": "", "epoch_seconds": whole}]
    for case in setting.in_time(_ours(setting, plain)):
        ours = setting.once("epoch", case, measure_epochs)
        row = {"loop": "ours", "precision": case.precision, "fast": case.fast, "epoch_seconds": ours["epoch_seconds"]}
        rows.append(row)
    note = (
        f"kmeans, batch {plain.batch_size}, {loop.workers} loader workers. The baseline's epoch: the start of a pass "
        f"and {batches} batches measured and scaled to {loop.steps} batches, the clustering on all features; its test "
        "pass is not counted, our validation is."
    )
    compared = [{**row, "times_as_fast": whole / row["epoch_seconds"]} for row in rows]
    return [Table("The baseline's loop and ours", compared, note), Table("Where the baseline's epoch goes", shares)]


def _ours(setting: Setting, plain: Case) -> list[Case]:
    if not setting.on_gpu:
        return [plain]
    ways = (("32-true", "off"), ("32-true", "capture"), ("bf16-mixed", "capture"), ("bf16-mixed", "compile"))
    return [replace(plain, precision=precision, fast=fast) for precision, fast in ways]


def _workers(setting: Setting) -> int:
    return 1 if setting.tiny else min(WORKERS, os.cpu_count() or 1)


class AugmentedImages(Dataset[tuple[Tensor, int]]):
    """Images cropped, mirrored, rotated and normalised one at a time on the CPU."""

    def __init__(self, raw: RawData, index: NDArray[np.int64]) -> None:
        self.images = np.ascontiguousarray(raw.train_images[index].transpose(0, 2, 3, 1))
        self.labels = raw.train_labels[index].tolist()
        self.mean, self.std = (torch.tensor(values).view(-1, 1, 1) for values in (raw.spec.mean, raw.spec.std))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        pixels = self.images[position]
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        left, top = random.randint(0, 8), random.randint(0, 8)
        image = ImageOps.expand(image, 4).crop((left, top, left + image.width, top + image.height))
        if random.random() < 0.5:
            image = ImageOps.mirror(image)
        image = image.rotate(random.uniform(-15, 15))
        values = torch.from_numpy(np.array(image, np.float32)).view(*pixels.shape).permute(2, 0, 1) / 255
        return (values - self.mean) / self.std, self.labels[position]


@dataclass(frozen=True)
class ClassClusters:
    """Centres [K, D] of a class, their variances and shares [K], and covariances [K, D, D] that are only logged."""

    centres: Tensor
    variances: Tensor
    shares: Tensor
    covariances: Tensor


class BaselineLoop:
    """Network, loader, penalty and clustering of one epoch."""

    def __init__(self, config: RunConfig, device: torch.device, *, workers: int) -> None:
        self.device, self.workers = device, workers
        raw = read_dataset(config.data.name, config.data.root)
        self.num_classes = raw.spec.num_classes
        self.images = AugmentedImages(raw, split_data(raw, config.data).train)
        self.batch_size = config.training.batch_size
        self.steps = len(self.images) // self.batch_size
        self.model: SplitModel = build_model(config, raw.spec).to(device)
        assert self.model.server is not None
        options: dict[str, Any] = {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
        self.client = SGD(self.model.encoder.parameters(), **options)
        self.server = SGD(self.model.server.parameters(), **options)
        self.clusters: list[ClassClusters] = []

    def measure(self, batches: int) -> dict[str, float]:
        """Seconds of the training pass, of the second pass and of the clustering of one epoch."""
        features, labels = self._all_features()
        self.cluster(features, labels)
        began = time.perf_counter()
        self.cluster(features, labels)
        synchronise(self.device)
        clustering = time.perf_counter() - began
        self.model.train()
        training = self._scaled_pass(self.step, batches)
        self.model.eval()
        second = self._scaled_pass(self.collect, batches)
        return {"training pass": training, "second pass": second, "clustering": clustering}

    @torch.no_grad()
    def _all_features(self) -> tuple[Tensor, Tensor]:
        """Features of every image, without the loader: the input of the timed clustering."""
        self.model.eval()
        images = torch.from_numpy(self.images.images).permute(0, 3, 1, 2)
        z = [self.model.encode(part.to(self.device).float() / 255).flatten(1).cpu() for part in images.split(1000)]
        return torch.cat(z), torch.tensor(self.images.labels)

    def _scaled_pass(self, work: Callable[[Tensor, Tensor], None], batches: int) -> float:
        """Seconds of a whole pass: its start with the first batch, and the mean of later batches for the others."""
        warm = min(2 * self.workers + 1, max(1, self.steps - batches - 1))
        pinned = self.device.type == "cuda"
        began = time.perf_counter()
        loader = DataLoader(
            self.images, self.batch_size, shuffle=True, num_workers=self.workers, drop_last=True, pin_memory=pinned
        )
        first = middle = end = began
        for position, (images, labels) in enumerate(loader):
            work(images.to(self.device), labels.to(self.device))
            if position in (0, warm, warm + batches):
                synchronise(self.device)
                end = time.perf_counter()
            if position == 0:
                first = end
            if position == warm:
                middle = end
            if position == warm + batches:
                break
        else:
            raise ValueError(f"{self.steps} batches are too few to measure {batches} after {warm}")
        return first - began + (self.steps - 1) * (end - middle) / batches

    def step(self, x: Tensor, y: Tensor) -> None:
        """A training step: the penalty's gradients for the client, those of the loss, their sum, two updates."""
        z = self.model.encode(x)
        logits = self.model.predict(z + NOISE_STD * torch.randn_like(z))
        penalty = self.penalty(z.flatten(1), y)
        parameters = list(self.model.encoder.parameters())
        aside = torch.autograd.grad(penalty, parameters, retain_graph=True)
        F.cross_entropy(logits, y).backward()
        for parameter, gradient in zip(parameters, aside, strict=True):
            assert parameter.grad is not None
            parameter.grad += PENALTY_WEIGHT * gradient
        for optimizer in (self.client, self.server):
            optimizer.step()
            optimizer.zero_grad()

    def penalty(self, z: Tensor, y: Tensor) -> Tensor:
        """The kmeans penalty class by class and cluster by cluster; the host reads values from the device."""
        labels = y.cpu().numpy()
        own = torch.stack([self.clusters[label].centres for label in labels])
        nearest = (z.detach().unsqueeze(1) - own).square().sum(2).cpu().numpy().argmin(1)
        total = torch.zeros((), device=z.device)
        present = np.unique(labels)
        for label in present:
            known = self.clusters[label]
            for cluster in np.unique(nearest[labels == label]):
                members = np.flatnonzero((labels == label) & (nearest == cluster))
                spread = (z[torch.from_numpy(members).to(z.device)] - known.centres[cluster]).square().mean()
                share, prior = known.shares[cluster].item(), known.variances[cluster].item()
                ratio = 10 * len(members) / max(share * len(self.images) / self.num_classes, 1e-12)
                own_part = ratio if ratio < 1 - ROUNDING else 0.99
                mixed = own_part * spread + (1 - own_part) * prior
                entropy = (mixed + GAMMA).log() - math.log(VAR_THRESHOLD * NOISE_STD**2 + GAMMA)
                if entropy.item() > 0:
                    total = total + share * entropy
        return total / len(present) + 0 * z.sum()

    @torch.no_grad()
    def collect(self, x: Tensor, y: Tensor) -> None:
        """The second pass: copies features to the host."""
        self.model.encode(x).flatten(1).cpu()
        y.cpu()

    @torch.no_grad()
    def cluster(self, features: Tensor, labels: Tensor) -> None:
        """KMeans in one class after the other, on the host's copy of the features."""
        before: Sequence[ClassClusters | None] = self.clusters or [None] * self.num_classes
        self.clusters = [
            self._cluster_class(features[labels == label].to(self.device), before[label])
            for label in range(self.num_classes)
        ]

    def _cluster_class(self, x: Tensor, before: ClassClusters | None) -> ClassClusters:
        centres = x[torch.randperm(len(x))[:CLUSTERS].to(x.device)] if before is None else before.centres
        labels = torch.full((len(x),), -1, device=x.device)
        for _ in range(LLOYD_ITERATIONS):
            nearest = torch.cdist(x, centres).argmin(1)
            if torch.equal(nearest, labels):
                break
            labels = nearest
            centres = torch.stack(
                [x[labels == k].mean(0) if bool((labels == k).any()) else centres[k] for k in range(CLUSTERS)]
            )
        members = [x[labels == k] - centres[k] for k in range(CLUSTERS)]
        return ClassClusters(
            centres,
            torch.stack([part.square().mean() if len(part) else part.new_zeros(()) for part in members]),
            torch.tensor([len(part) / len(x) for part in members], device=x.device),
            torch.stack([part.T @ part / max(len(part), 1) for part in members]),
        )
