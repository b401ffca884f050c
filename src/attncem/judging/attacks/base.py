"""Attack, the base class of all attacks, and what attacks share: standardised features, and the attacker's images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from attncem.base.progress import Progress, silent
from attncem.config.options.base import Options
from attncem.config.threats import Need
from attncem.judging.attacks.forecast import Seconds
from attncem.judging.attacks.seeing import mean_of
from attncem.judging.oracle import Oracle
from attncem.records.audit import Verdict
from attncem.records.findings import Finding

State = dict[str, Tensor]


class Attack(ABC):
    """Recovers images from releases: `fit` once with the oracle, then `reconstruct` any release.

    Built from an options object, or from options by keyword: ``DecoderAttack(size="strong")``.
    """

    options_type: ClassVar[type[Options]]
    needs: ClassVar[frozenset[Need]] = frozenset({"images", "queries"})
    """What the attack requires; it is not applicable under a threat model that lacks one of these."""
    sees: ClassVar[Literal["nothing", "label", "release"]] = "release"
    """Input of the reconstruction; an attack that sees `nothing` or the `label` is a floor, not an attack."""
    must_beat: ClassVar[tuple[str, ...]] = ()
    """Methods that this attack must beat; if it loses to one, it is broken."""
    options: Any

    def __init__(self, options: Options | None = None, *, progress: Progress = silent, **by_name: Any) -> None:
        self.options = options or self.options_type(**by_name)
        self.progress = progress
        self.verdict = Verdict()
        self.findings: list[Finding] = []

    @abstractmethod
    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Learn from what the oracle grants; sets `verdict` and `findings` where they apply."""

    @abstractmethod
    def reconstruct(self, released: Tensor) -> Tensor:
        """Images in [0, 1] for a batch of releases; each image depends on its own release alone."""

    def combine(self, releases: Iterable[Tensor]) -> Tensor:
        """Combine a stream of releases of the same inputs: their mean, unless a subclass overrides it."""
        return mean_of(releases)

    def samples(self, released: Tensor) -> Tensor | None:
        """Several plausible images for each release, [S, B, …] in [0, 1]; None: the attack gives a single image."""
        return None

    @property
    def num_images(self) -> int | None:
        """Maximum number of evaluation images to attack; None: all of them."""
        return getattr(self.options, "images", None)

    def forecast(self, trial: Oracle, own: int, images: int) -> Seconds | None:
        """Time of `fit` on `own` attacker images and of `reconstruct` on `images` others; None: unknown.

        ``trial`` is an oracle with a few of the attacker's images, for timing. It is called on a CPU only, on an attack
        object that serves no other purpose.
        """
        return None

    def state(self) -> State | None:
        """The fitted state as tensors; None where fitting again is cheap, or where the tensors would be the images."""
        return None

    def network(self) -> nn.Module | None:
        """The fitted reconstruction as one network, releases to images, for export; None where it is none."""
        return None

    def load(self, state: State) -> None:
        """Restore what `state` returned; replaces `fit`."""
        raise NotImplementedError(f"{type(self).__name__} keeps no state")


class Standardiser:
    """Centres and scales a release by the statistics of the attacker's own releases.

    Without it, a defence that only shrinks z would look private to the decoder. An entry that hardly varies
    is divided by a tenth of the mean deviation instead of its own, so that it cannot blow up.
    """

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.mean, self.std = mean, std

    @classmethod
    def of(cls, released: Tensor) -> Standardiser:
        """Statistics of the attacker's own releases."""
        released = released.float()
        mean = released.mean(0)
        std = released.std(0) if len(released) > 1 else torch.ones_like(mean)
        return cls(mean, torch.maximum(std, 0.1 * std.mean()).clamp_min(1e-8))

    def __call__(self, released: Tensor) -> Tensor:
        """(released - mean) / std."""
        return (released.float() - self.mean) / self.std


class OwnImages:
    """The attacker's images x, their labels y and fresh releases of them; `x[index]` gives some images, `x[:]` all."""

    def __init__(self, oracle: Oracle) -> None:
        self.x, self.y = oracle.auxiliary_in_parts()
        self._oracle = oracle

    def release(self, index: Tensor, generator: torch.Generator) -> Tensor:
        """A fresh draw of what the adversary sees of each image at `index`."""
        return self._oracle.release_auxiliary(index, generator=generator)

    def release_all(self, generator: torch.Generator, batch: int = 1000) -> Tensor:
        """A fresh draw of what the adversary sees of every image."""
        index = torch.arange(len(self.x), device=self.x.device)
        return torch.cat([self.release(part, generator) for part in index.split(batch)])


def held_out(count: int, fraction: float) -> int:
    """Number of images, out of `count`, held out for validation: at least one, and not all."""
    return min(max(1, round(fraction * count)), count - 1)


def divide(count: int, fraction: float, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices of the attacker's training and validation images, at least one each."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    held = held_out(count, fraction)
    return order[held:].to(device), order[:held].to(device)
