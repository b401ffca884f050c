"""Re-identification by picture: the rank of the true image among candidates, given a reconstruction of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from attncem.config.options.probes import ByPictureOptions
from attncem.judging.judges import Probe
from attncem.judging.probes.base import Numbers, Standardised
from attncem.judging.probes.reidentification import EXACT, groups, rank_chance, true_ranks
from attncem.models.split import SplitModel
from attncem.records.findings import finding

if TYPE_CHECKING:
    from attncem.judging.case import Case

_BATCH = 250
_MEASURES = ("rank_1", "rank")


class ReidentificationByPicture(Probe):
    """Ranks candidates by their distance to an attack's reconstruction, in pixels and in a network's features.

    The reconstructions are those of the strongest attack so far, or of a ridge if that attack kept no state. The
    features are those of the case's reference, an undefended network of the same data; without it only pixels are
    compared.
    """

    options_type = ByPictureOptions
    options: ByPictureOptions
    needs = frozenset({"images", "queries"})

    def score(self, case: Case, *, seed: int) -> Mapping[str, Numbers]:
        """Rank of the true image and whether it is 1, in each space; ties count as if broken at random."""
        case.require(self.needs)
        self.by, images = case.recovered(seed)
        x = case.x[: len(images)]
        self.index = np.arange(len(images), dtype=np.int64)
        spaces = {"pixel": (images.flatten(1), x.flatten(1))}
        if case.reference is None:
            self.findings.append(finding("pixels_alone"))
        else:
            if case.reference.config.defence != "none":
                self.findings.append(finding("reference_defended", run=case.reference.name))
            spaces["feature"] = _in_features(case.reference.model, images, x)
        values: dict[str, Numbers] = {}
        for number, (space, (pictures, candidates)) in enumerate(spaces.items()):
            self.progress("re-identification by picture", number, len(spaces), {})
            values |= self._ranked(space, pictures, candidates, seed)
        return values

    def _ranked(self, space: str, pictures: Tensor, candidates: Tensor, seed: int) -> dict[str, Numbers]:
        size = min(self.options.candidates, len(pictures))
        found = {name: torch.empty(len(pictures), dtype=torch.float64, device=pictures.device) for name in _MEASURES}
        for judged, chosen in groups(len(pictures), size, seed, pictures.device):
            hit, _, rank = true_ranks(torch.cdist(pictures[judged], candidates[chosen], compute_mode=EXACT))
            found["rank_1"][judged], found["rank"][judged] = hit, rank
        chance = rank_chance(size)
        self.chance |= {f"{space}_{name}": chance[name] for name in _MEASURES}
        return {f"{space}_{name}": numbers.cpu().numpy() for name, numbers in found.items()}


def _in_features(model: SplitModel, images: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Reconstructions and images in the network's features, in units of their deviation over the candidates."""
    candidates = features_of(model, x)
    standardised = Standardised(candidates)
    return standardised(features_of(model, images)).float(), standardised(candidates).float()


@torch.no_grad()
def features_of(model: SplitModel, x: Tensor) -> Tensor:
    """The input of the network's last linear layer, without the channel's noise; z if there is no such layer."""
    layers = [] if model.server is None else [part for part in model.server.modules() if isinstance(part, nn.Linear)]
    if not layers:
        return torch.cat([model.encode(part).flatten(1) for part in x.split(_BATCH)])
    seen: list[Tensor] = []
    hook = layers[-1].register_forward_pre_hook(lambda _, given: seen.append(given[0].flatten(1)))
    try:
        for part in x.split(_BATCH):
            model.predict(model.encode(part))
    finally:
        hook.remove()
    return torch.cat(seen)
