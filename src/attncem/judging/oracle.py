"""The oracle: everything that an attack may access under its threat model.

Every attack gets an oracle of its own, with frozen copies of the victim: an attack that changes them affects neither
the victim nor later attacks.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NoReturn

import torch
from torch import Tensor, nn

from attncem.base.seeding import make_generator
from attncem.base.texts import Sentence, written
from attncem.base.texts.titles import threat_word
from attncem.base.types import NotApplicable
from attncem.config.threats import Need, ThreatModel
from attncem.data.batches import Images
from attncem.judging.answers import Answers
from attncem.judging.attacks.seeing import Combine, Sight, mean_of
from attncem.models.channels import Channel, IdentityChannel
from attncem.models.client_head import sends_about
from attncem.models.split import SplitModel, passes_gradients

_BATCH = 500
_SMALL = 100
"""Batch size on a CPU if every release needs the encoder: a batch of this size stays in the cache."""


def frozen(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode with frozen weights; gradients pass through it to its input."""
    return copy.deepcopy(module).eval().requires_grad_(False)


def require(
    threat: ThreatModel,
    needs: Iterable[Need],
    *,
    has_server: bool,
    weak_noise: bool = False,
    observed: bool = True,
    gradients: bool = True,
    labels: bool = True,
) -> None:
    """NotApplicable unless the threat model grants all needs, and the model and the images provide them."""
    given = {"server": has_server, "generator": weak_noise, "observed": observed}
    known = {"gradient": gradients, "encoder": gradients, "labels": labels}
    for need in needs:
        if threat.missing(need) or not given.get(need, True):
            raise NotApplicable(
                written("threat.lacks", name=threat_word(threat.name), what=written(f"threat.lacks.{need}"))
            )
        if not known.get(need, True):
            raise NotApplicable(written(f"subject.lacks.{need}"))


def has_weak_noise(channel: nn.Module) -> bool:
    """Whether the noise has fewer than 256 bits of entropy: keyed noise of scheme 0."""
    return isinstance(channel, Channel) and any(stage.draws_weakly for stage in channel.single_stages())


def _deciding(model: SplitModel, encoder: nn.Module) -> SplitModel | None:
    """What decides whether the client sends an image, with this copy of its encoder; None: it sends every image."""
    if model.head is None:
        return None
    head = copy.deepcopy(model.head).eval().requires_grad_(False)
    return SplitModel(encoder, IdentityChannel(), None, head=head, threshold=model.threshold)


class Oracle:
    """Releases, copies and answers of a split model under a threat model, for one attack.

    For each input, `releases_per_input` releases are drawn and combined into one by `combine` (`Sight`). ``features``
    are the clean features of the attacker's images if already computed, ``fixed`` their releases if these repeat, as
    with keyed noise. ``observed`` is what the attack sees of the images that it is judged on. With ``answers``
    the client answers nothing else. A client with a head answers easy images itself: an adversary that does not know
    the encoder gets no release of these.
    """

    def __init__(
        self,
        model: SplitModel,
        threat: ThreatModel,
        x: Tensor | Images,
        y: Tensor,
        *,
        num_classes: int,
        seed: int = 0,
        combine: Combine = mean_of,
        features: Tensor | None = None,
        fixed: Tensor | None = None,
        observed: Tensor | None = None,
        answers: Answers | None = None,
    ) -> None:
        self.threat = threat
        self.num_classes = num_classes
        self.image_shape = tuple(x.shape[1:])
        self.device = x.device
        channel, server = frozen(model.channel), None if model.server is None else frozen(model.server)
        if (
            isinstance(channel, Channel) and not threat.may_query
        ):  # it runs the channel by itself, with a key of its own
            channel.bind(hashlib.sha256(f"own key {seed}".encode()).digest(), "")
        self._model = SplitModel(frozen(model.encoder), channel, server).eval()
        self._decides = None if threat.knows_encoder else _deciding(model, self._model.encoder)
        self._weak_noise, self._observed = has_weak_noise(model.channel), observed
        self._gradients = passes_gradients(model.encoder)
        self._x, self._y = x if isinstance(x, Images) else Images.of(x), y
        self._noise = make_generator(x.device, seed, "oracle")
        seen_through = self._model
        if not (threat.may_query or threat.knows_channel):  # the adversary runs the encoder without a channel
            seen_through = SplitModel(self._model.encoder, IdentityChannel(), None).eval()
        self._sight = Sight(seen_through, threat, combine)
        moved = bool(threat.jitter)
        self._features = None if moved else features
        self._fixed = fixed if threat.may_query and not moved else None
        self._answers = answers
        self._look: Callable[[Tensor], Tensor] = lambda released: released

    def require(self, *needs: Need) -> None:
        """NotApplicable unless the adversary has all needs."""
        given = {"has_server": self.has_server, "weak_noise": self._weak_noise, "observed": self._observed is not None}
        require(self.threat, needs, **given, gradients=self._gradients, labels=self.num_classes > 0)

    @property
    def num_auxiliary(self) -> int:
        """Number of the attacker's images."""
        return len(self._x)

    def auxiliary(self) -> tuple[Tensor, Tensor]:
        """The attacker's images x in [0, 1] and labels y; the attack may change these tensors."""
        x, y = self.auxiliary_in_parts()
        return x[:], y

    def auxiliary_in_parts(self) -> tuple[Images, Tensor]:
        """The attacker's images and labels, with images read a few at a time."""
        self.require("images")
        return self._x, self._y.clone()

    @property
    def may_ask(self) -> bool:
        """Whether it gets releases of any image, not only the answers that it already has."""
        return self._answers is None and self._decides is None

    def _require_open(self) -> None:
        """NotApplicable if the client answers no further query."""
        if self._answers is not None:
            self._refuse(written("threat.lacks.more_queries", count=self.threat.queries))

    def _require_sent(self, x: Images) -> None:
        """NotApplicable if the client would answer one of these images itself, so that no release of it leaves."""
        model = self._decides
        if model is None:
            return
        if not all(bool(sends_about(model.look(part).answers, model.threshold).all()) for part in x.split(_BATCH)):
            self._refuse(written("threat.lacks.unsent"))

    def _refuse(self, what: Sentence) -> NoReturn:
        raise NotApplicable(written("threat.lacks", name=threat_word(self.threat.name), what=what))

    def owning(self, x: Tensor, y: Tensor) -> Oracle:
        """The same adversary with other images, which it may derive from its own."""
        return self._owning(Images.of(x), y)

    def only(self, index: Tensor) -> Oracle:
        """The same adversary with some of its images."""
        if self._answers is None:
            return self._holding(Images.of(self._x[index]), self._y[index])
        other = copy.copy(self)
        other._x, other._y, other._answers = Images.of(self._x[index]), self._y[index], self._answers.only(index)
        return other

    def mirrored(self) -> Oracle:
        """The same adversary with all of its images mirrored."""
        return self._owning(replace(self._x, mirrored=not self._x.mirrored), self._y)

    @torch.no_grad()
    def _owning(self, x: Images, y: Tensor) -> Oracle:
        self._require_open()
        self._require_sent(x)
        return self._holding(x, y)

    @torch.no_grad()
    def _holding(self, x: Images, y: Tensor) -> Oracle:
        """The same adversary with these images."""
        self.require("images")
        other = copy.copy(self)
        other._x, other._y, other._features, other._fixed = x, y, None, None
        if self._fixed is not None:
            other._fixed = torch.cat([other._model.release(part) for part in x.split(_BATCH)])
        return other

    def looking(self, through: Callable[[Tensor], Tensor]) -> Oracle:
        """The same adversary with a function that is applied first to everything it sees of images."""
        other, before = copy.copy(self), self._look
        other._look = lambda released: through(before(released))
        return other

    def before_channel(self) -> Oracle:
        """The same adversary with clean features, which it computes itself, instead of releases."""
        self.require("encoder")
        other = copy.copy(self)
        other.threat = replace(self.threat, releases_per_input=1, jitter=0)
        other._sight = Sight(SplitModel(self._model.encoder, IdentityChannel(), None).eval(), other.threat)
        other._fixed, other._observed = None, None
        return other

    @torch.no_grad()
    def release(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """What the adversary sees of any images: all of its releases of each, combined."""
        self.require("queries")
        self._require_open()
        self._require_sent(Images.of(x))
        noise = generator or self._noise
        return self._look(torch.cat([self._sight(part, noise) for part in x.split(_BATCH)]))

    @torch.no_grad()
    def release_auxiliary(self, index: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """What the adversary sees of its own images; clean features are computed once, except with jitter."""
        self.require("images", "queries")
        return self._look(self._released(index, generator or self._noise))

    def _released(self, index: Tensor, noise: torch.Generator) -> Tensor:
        if self._answers is not None:
            return self._answers.draw(index, noise)
        if self._fixed is not None:
            return self._sight.repeated(self._fixed[index])
        if self.threat.jitter:
            size = _SMALL if self.device.type == "cpu" else _BATCH
            return torch.cat([self._sight(self._x[part], noise) for part in index.split(size)])
        if self._features is None:
            self._features = torch.cat([self._model.encode(part) for part in self._x.split(_BATCH)])
        return self._sight(self._x[index], noise, self._features[index])

    def observed(self) -> Tensor:
        """The releases that the attack must invert, without images and labels: every observer of releases has them."""
        self.require("observed")
        assert self._observed is not None
        return self._look(self._observed.clone())

    def server(self) -> nn.Module:
        """A copy of the server half, which receives releases; gradients pass through it."""
        self.require("server")
        assert self._model.server is not None
        if not passes_gradients(self._model.server):
            raise NotApplicable(written("subject.lacks.server_gradient"))
        return frozen(self._model.server)

    @torch.no_grad()
    def predict(self, released: Tensor) -> Tensor:
        """The server's logits."""
        self.require("server")
        return self._model.predict(released)

    @property
    def has_server(self) -> bool:
        """Whether there is a server half to query."""
        return self._model.server is not None

    def encoder(self) -> nn.Module:
        """A copy of the victim's encoder, for white-box attacks; gradients pass through it."""
        self.require("encoder")
        return frozen(self._model.encoder)

    def channel(self) -> nn.Module:
        """A copy of the channel, in evaluation mode: `channel(z, x=…, generator=…)`; it has the law, never the key."""
        self.require("channel")
        own = frozen(self._model.channel)
        return own.unbind() if isinstance(own, Channel) else own
