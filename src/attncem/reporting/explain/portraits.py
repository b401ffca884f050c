"""portray(): a run's feature clouds and its surrogate's view of some images, saved as RUN/portrait.json."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from attncem import __version__
from attncem.base.pictures import png_text
from attncem.base.seeding import derive_seed, make_generator
from attncem.base.types import SCHEMA_VERSION
from attncem.judging.opening import OpenRun, open_run
from attncem.models.client_head import doubt
from attncem.records.explanation import Gate
from attncem.records.files import explain_os_error, write_atomic
from attncem.records.portrait import PORTRAIT, STEPS, ClassPortrait, Cloud, Face, Of, Portrait
from attncem.records.runs import RunDirectory
from attncem.reporting.explain.explaining import first_of_each, gates_of, parts_of, surrogate_of
from attncem.training.engine import limited_threads

_IMAGES = 300
"""Maximum number of validation images."""
_BATCH = 250
_CLASSES, _FACES = 3, 6
"""Number of classes whose images are shown, and images per class."""
_SIDE = 16
"""Maximum length of a face's longer side, in pixels."""
_LARGEST = 40_000
"""Maximum size of the file in bytes; above it, fewer faces are kept."""
_PERPLEXITY, _ITERATIONS = 30.0, 500
_FLAT = 1e-9
"""A cloud with a smaller spread than this is a single point."""


def portray(run: RunDirectory | Path | str, *, device: str | None = None) -> Portrait:
    """Make a run's portrait from its best weights and write it into its folder, replacing an older one."""
    opened = open_run(run, device=device)
    with limited_threads(opened.config.threads):
        portrait = _smaller(_Painter(opened).portrait())
    assert opened.directory is not None
    with explain_os_error(opened.directory.path, "free some space, and run the same command again"):
        write_atomic(opened.directory.path / PORTRAIT, _packed(portrait))
    return portrait


def _packed(portrait: Portrait) -> bytes:
    """Compact JSON: one line per number would make thousands of lines."""
    data = {"schema_version": SCHEMA_VERSION, **portrait.to_dict()}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _smaller(portrait: Portrait) -> Portrait:
    """Halve the number of faces until the file is small enough."""
    while len(_packed(portrait)) > _LARGEST and any(item.faces for item in portrait.classes):
        classes = [replace(it, faces=it.faces[::2] if len(it.faces) > 1 else []) for it in portrait.classes]
        portrait = replace(portrait, classes=classes)
    return portrait


class _Painter:
    """One open run with the images, features and releases of its portrait."""

    def __init__(self, opened: OpenRun) -> None:
        self.opened = opened
        classes = min(opened.spec.num_classes, _IMAGES // 2)
        self.x, self.y = first_of_each(opened, classes, max(2, _IMAGES // classes))
        noise = make_generator(opened.device, opened.config.seed, "portrait")
        with torch.no_grad():
            parts = [(x, opened.model.encode(x)) for x in self.x.split(_BATCH)]
            self.z = torch.cat([z.float() for _, z in parts])
            self.released = torch.cat([opened.model.transmit(z, x, noise).float() for x, z in parts])

    def portrait(self) -> Portrait:
        opened = self.opened
        surrogate = None if opened.config.surrogate.name == "none" else surrogate_of(opened)
        return Portrait(
            run=opened.name,
            surrogate=opened.config.defence,
            dataset=opened.spec.name,
            data_sha256=opened.data_sha256,
            weights=opened.weights,
            class_names=list(opened.spec.class_names),
            labels=self.y.tolist(),
            clouds=[*self._components(), *self._neighbours()],
            part="" if surrogate is None else surrogate.part,
            classes=[] if surrogate is None else self._classes(surrogate),
            noise_std=opened.config.noise_std,
            versions={"attncem": __version__, "torch": torch.__version__, "scikit-learn": version("scikit-learn")},
        )

    # clouds

    def _components(self) -> list[Cloud]:
        """Two principal components of pixels and of clean features; releases are projected on the latter's axes."""
        pixels, clean, released = (_rows(part) for part in (self.x, self.z, self.released))
        axes, share = _axes(clean)
        if released.shape[1] != clean.shape[1]:  # the channel changes the shape: no projection on these axes
            return [_components("pixels", pixels), _components("clean", clean), _components("released", released)]
        released = _rows(self.released, self.z)
        points, noisy = clean @ axes, released @ axes
        unit = _unit(torch.cat([points, noisy]))
        held = float(noisy.square().sum() / released.square().sum().clamp_min(1e-30))
        return [
            _components("pixels", pixels),
            _cloud("clean", points, share, unit),
            _cloud("released", noisy, held, unit),
        ]

    def _neighbours(self) -> list[Cloud]:
        """t-SNE of clean features and of releases, if there are enough images."""
        if len(self.y) < 8:
            return []
        clouds: tuple[tuple[Of, Tensor], ...] = (("clean", self.z), ("released", self.released))
        return [_cloud(of, _tsne(_rows(part), self.opened.config.seed), None) for of, part in clouds]

    # the surrogate

    @torch.no_grad()
    def _classes(self, surrogate: Any) -> list[ClassPortrait]:
        rows = surrogate.explain(self.z, self.y, doubts=self._doubts() if surrogate.weighs else None)
        labels = [label for label in self.y.unique().tolist() if int((self.y == label).sum()) > 1]
        return [self._class(label, rows) for label in labels[:_CLASSES]] if rows else []

    def _doubts(self) -> Tensor:
        """The doubts of the client's head about the images."""
        return torch.cat([doubt(self.opened.model.look(x).answers) for x in self.x.split(_BATCH)])

    def _class(self, label: int, rows: dict[str, Tensor]) -> ClassPortrait:
        members = (self.y == label).nonzero().flatten()
        attention, parts = rows.get("attention"), parts_of(rows, members)
        weights = attention[members] if attention is not None else torch.zeros(len(members))
        order = weights.argsort(descending=True, stable=True)
        places = torch.linspace(0, len(order) - 1, min(_FACES, len(order))).round().long()
        return ClassPortrait(
            label=label,
            name=self.opened.name_of(label),
            images=len(members),
            attentions=[] if attention is None else _rounded(weights[order]),
            shares=[] if parts is None else _rounded(parts.mean(0)),
            gates=[_shortened(gate) for gate in gates_of(rows, int(members[0]), divided=parts is not None)],
            faces=[
                Face(
                    png_text(_thumbnail(self.x[members[place]])),
                    None if attention is None else _rounded(weights[place].flatten())[0],
                    [] if parts is None else _rounded(parts[place]),
                )
                for place in order[places]
            ],
        )


def _shortened(gate: Gate) -> Gate:
    return Gate(gate.name, *_rounded(torch.tensor([gate.mean, gate.low, gate.high, gate.saturated])))


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]


def _thumbnail(image: Tensor) -> Tensor:
    """The image, with at most _SIDE pixels per side."""
    height, width = image.shape[1:]
    if max(height, width) <= _SIDE:
        return image
    scale = _SIDE / max(height, width)
    size = max(1, round(height * scale)), max(1, round(width * scale))
    return interpolate(image.unsqueeze(0), size=size, mode="area")[0]


def _rows(part: Tensor, centre: Tensor | None = None) -> Tensor:
    """One row per image, minus the mean row (of ``centre``, if given); doubles give the same result anywhere."""
    flat = part.flatten(1).double().cpu()
    return flat - (flat if centre is None else centre.flatten(1).double().cpu()).mean(0)


def _axes(rows: Tensor) -> tuple[Tensor, float]:
    """The first two principal axes [D, 2], and the share of the variance along them."""
    _, sizes, axes = torch.linalg.svd(rows, full_matrices=False)
    axes = axes[:2].T
    if axes.shape[1] < 2:
        axes = torch.nn.functional.pad(axes, (0, 2 - axes.shape[1]))
    # The sign of an axis is arbitrary: make its largest entry positive.
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    power = sizes.square()
    return axes * torch.where(signs == 0, 1.0, signs), float(power[:2].sum() / power.sum().clamp_min(1e-30))


def _tsne(rows: Tensor, seed: int) -> Tensor:
    TSNE = import_module("sklearn.manifold").TSNE  # imported by name: an extra without type hints
    # Fifty principal components first, as is usual; `exact` gives the same result on any number of threads.
    _, _, axes = torch.linalg.svd(rows, full_matrices=False)
    reduced = (rows @ axes[:50].T).numpy()
    perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
    state = derive_seed(seed, "portrait", "tsne") % 2**31
    if float(abs(reduced).max()) < _FLAT:
        return torch.zeros(len(rows), 2)
    made = TSNE(2, perplexity=perplexity, max_iter=_ITERATIONS, init="pca", method="exact", random_state=state)
    points = torch.from_numpy(made.fit_transform(reduced)).double()
    return points - points.mean(0)


def _components(of: Of, rows: Tensor) -> Cloud:
    axes, share = _axes(rows)
    return _cloud(of, rows @ axes, share)


def _unit(points: Tensor) -> float:
    largest = float(points.abs().max())
    return largest / STEPS if largest > _FLAT and math.isfinite(largest) else 1.0


def _cloud(of: Of, points: Tensor, kept: float | None, unit: float | None = None) -> Cloud:
    unit = _unit(points) if unit is None else unit
    steps = (points / unit).round().long()
    share = None if kept is None else float(f"{kept:.4g}")
    x, y = steps.T.tolist()
    return Cloud(of, "pca" if kept is not None else "tsne", x, y, float(f"{unit:.6g}"), share)
