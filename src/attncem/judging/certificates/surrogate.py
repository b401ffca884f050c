"""The surrogate as a bound: what its partition of the classes implies on images that it was not fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.config.options.certificates import SurrogateLeakageOptions
from attncem.judging.certificates.coding import nearest_cells
from attncem.judging.certificates.making import Numbers, largest_entropy, measured
from attncem.judging.certificates.mixture import fit_cells, image_nats
from attncem.judging.certificates.passage import (
    assumptions_of,
    clean_features,
    evaluation_features,
    noise_of,
    releases_of,
    training_features,
    training_images,
)
from attncem.judging.judges import Certificate
from attncem.records.bounds import Bound
from attncem.records.findings import finding
from attncem.training.build import restore_surrogate
from attncem.training.health import finite

if TYPE_CHECKING:
    from attncem.judging.case import Case

FLATTERS = 1.1
"""A finding is added if evaluation images leak more than this many times what training images leak."""
_EXPLAINED = 1000
"""Approximate number of training images that the surrogate divides into parts."""


class SurrogateLeakage(Certificate):
    """Cells: slots, clusters or components of each class, or the classes of a surrogate that does not divide them.

    An image belongs to the nearest part mean of its class. Shares, means and variances are those of training images, as
    in the penalty; on training images the sum is the surrogate's claim, on evaluation images it is a bound.
    """

    options_type = SurrogateLeakageOptions
    options: SurrogateLeakageOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`leakage` on evaluation images, and `leakage_training`."""
        opened = case.subject
        if opened.checkpoint is None or opened.config.defence == "none":
            raise NotApplicable(written("reason.no_surrogate"))
        noise = noise_of(case.model.channel)
        releases = releases_of(case, noise)
        centres = part_centres(case)
        features, labels = training_features(case, noise)
        clean = clean_features(case, training_images(case)[0], "training")
        own = nearest_cells(clean.flatten(1).float(), labels, centres)
        judged = nearest_cells(clean_features(case, case.x, "evaluation").flatten(1).float(), case.y, centres)
        fit = fit_cells(noise.law, features, own, centres.shape[0] * centres.shape[1])
        pairs = {"evaluation": (evaluation_features(case, noise), judged), "training": (features, own)}

        def nats_of(entering: Tensor, cells: Tensor) -> Numbers:
            def nats(count: int) -> Numbers:
                each = image_nats(noise.law, fit, entering, cells, noise.std, count)
                return np.asarray(each.cpu().numpy())

            return noise.together(releases, nats)

        nats = {name: nats_of(*pair) for name, pair in pairs.items()}
        self.images = {"leakage": nats["evaluation"]}
        made = {name: measured(each, "nats", "leakage", assumptions_of(noise)) for name, each in nats.items()}
        self._compare(made)
        bound = replace(made["evaluation"], vacuous=made["evaluation"].claim >= largest_entropy(case.x.shape[1:]))
        told = replace(made["training"], kind="estimate", assumptions=["fitted_to"], by=last_penalty(case))
        return {"leakage": bound, "leakage_training": told}

    def _compare(self, made: Mapping[str, Bound]) -> None:
        """Add a finding if the penalty was too optimistic: small on the images it was fitted to, larger on others."""
        training, evaluation = made["training"].value, made["evaluation"].value
        if evaluation > FLATTERS * training:
            self.findings.append(finding("surrogate_flatters", training=training, evaluation=evaluation))


def last_penalty(case: Case) -> str:
    """The last logged penalty of the training; empty if none was logged."""
    directory = case.subject.directory
    records = [] if directory is None else directory.records()
    logged = [finite(record.get("rob_loss")) for record in records if record.get("kind") == "train"]
    penalty = next((value for value in reversed(logged) if value is not None), None)
    return "" if penalty is None else f"rob_loss {penalty:.3g}"


@torch.no_grad()
def part_centres(case: Case) -> Tensor:
    """Means [C, K, m] of the parts that the surrogate divides each class into, over training images.

    A part without images gets the mean of its class's largest part, so that no image is assigned to it first.
    """
    opened = case.subject
    surrogate = restore_surrogate(opened.config, opened.model, opened.spec, opened.checkpoint).to(opened.device)
    x, labels = training_images(case)
    some = slice(None, None, max(1, len(x) // _EXPLAINED))
    z, y = clean_features(case, x, "training")[some], labels[some]
    shares = surrogate.explain(z, y).get("shares")
    parts = torch.zeros_like(y) if shares is None else shares.argmax(1)
    count = 1 if shares is None else shares.shape[1]
    flat, classes = z.flatten(1).float(), opened.spec.num_classes
    cells = y * count + parts
    sizes = torch.bincount(cells, minlength=classes * count).view(classes, count)
    sums = flat.new_zeros(classes * count, flat.shape[1]).index_add_(0, cells, flat).view(classes, count, -1)
    means = sums / sizes.clamp_min(1).unsqueeze(2)
    fullest = means.gather(1, sizes.argmax(1).view(-1, 1, 1).expand(-1, 1, flat.shape[1]))
    return torch.where((sizes > 0).unsqueeze(2), means, fullest)
