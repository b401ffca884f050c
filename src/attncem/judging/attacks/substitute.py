"""A substitute client: inversion without the encoder and without queries, from releases that were only observed.

The adversary trains a client f of its own on its own images x, so that f's releases look like the observed ones o, and
a decoder g together with it:

  ‖g(f(x)) − x‖² + moments and MK-MMD between f(x) and o + a critic that separates f(x) from o + ‖f(g(o)) − o‖²
  + cross-entropy of server(f(x)) and y, if there is a server half.

Then g reads releases. The attack is a small member of the family of FORA and SDAR. No pair of image and feature is
available: only distributions, the locality of convolutions and the server tie f to the true client, and the adversary
cannot measure how well they do. Without a server half f may equally be mirrored, and a finding says so.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.base.seeding import make_generator
from attncem.config.options.attacks import SubstituteOptions
from attncem.judging.attacks.base import OwnImages, Standardiser, State
from attncem.judging.attacks.decoding import DecodingAttack, Shape
from attncem.judging.oracle import Oracle
from attncem.models.decoders import DECODERS, ResidualBlock
from attncem.models.split import count_parameters
from attncem.records.audit import Verdict
from attncem.records.findings import finding
from attncem.training.engine import Engine, seeded

_WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Widths of the MMD kernels, in units of the mean squared distance of observed releases."""
_LEAST = 1e-2
"""Lower limit on the total variation of observed releases after scaling: a constant leaves nothing to match."""
_TELL_EVERY = 20


class SubstituteAttack(DecodingAttack):
    """Trains client, decoder and critic together; `reconstruct` is the decoder."""

    options_type = SubstituteOptions
    options: SubstituteOptions
    needs = frozenset({"images", "observed"})
    must_beat = ("mean_image",)

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Make the substitute's releases look like the observed ones, and learn to invert them."""
        training = Training(oracle, self.options, seed)
        for step in range(self.options.steps):
            training.step(self.options.lr * min(1.0, 2 * (1 - step / self.options.steps)))
            if step % _TELL_EVERY == 0:
                self.progress("substitute", step, self.options.steps, {})
        self._standardise, self._decoder = training.scale, training.decoder.eval()
        self._image_shape = oracle.image_shape
        parts = (training.client, training.decoder)
        guided = training.server is not None
        self.verdict = Verdict(guided, num_parameters=sum(count_parameters(part) for part in parts))
        self.findings = [] if guided else [finding("unguided")]

    def blank(self, feature_shape: Shape, image_shape: Shape, state: State) -> nn.Module:
        """The same decoder, untrained."""
        return DECODERS["small"](feature_shape, image_shape)  # type: ignore[arg-type]


class Scale(Standardiser):
    """Subtracts each entry's mean and divides by one deviation for all, which keeps the relative variation."""

    @classmethod
    def of(cls, released: Tensor) -> Scale:
        """From observed releases."""
        released = released.float()
        return cls(released.mean(0), (released - released.mean(0)).square().mean().sqrt().clamp_min(1e-8))

    def undone(self, scaled: Tensor) -> Tensor:
        """Releases on the client's scale."""
        return scaled * self.std + self.mean


class Training:
    """Client, decoder and critic in training."""

    def __init__(self, oracle: Oracle, options: SubstituteOptions, seed: int) -> None:
        own = OwnImages(oracle)
        self.x, self.y, self.options = own.x, own.y, options
        self._variance = own.x[:].var(0, correction=0).mean().clamp_min(1e-6)
        observed = oracle.observed()
        self.scale = Scale.of(observed)
        self.observed, shape = self.scale(observed), tuple(observed.shape[1:])
        labelled = oracle.has_server and oracle.num_classes > 0
        self.server = oracle.server() if labelled else None
        self._draws = make_generator(oracle.device, seed, "substitute")
        with seeded(oracle.device, seed, "substitute init"):
            self.client = Client(oracle.image_shape, shape, options.width).to(oracle.device)
            decoder = DECODERS["small"](shape, oracle.image_shape)  # type: ignore[arg-type]
            self.decoder, self.critic = Engine(oracle.device).place(decoder), Critic(math.prod(shape)).to(oracle.device)
        self._weights = [*self.client.parameters(), *self.decoder.parameters()]
        self._adam = torch.optim.Adam(self._weights, options.lr, betas=(0.5, 0.99))
        self._critic_adam = torch.optim.Adam(self.critic.parameters(), options.lr, betas=(0.5, 0.99))
        self._widths = _mean_distance(self.observed)
        self._covariance = covariance(self.observed)

    def step(self, rate: float) -> None:
        """One step of client, decoder and critic."""
        for group in (*self._adam.param_groups, *self._critic_adam.param_groups):
            group["lr"] = rate
        index = self._chosen(len(self.x))
        x, y, o = self.x[index], self.y[index], self.observed[self._chosen(len(self.observed))]
        made = self.client(x, self._draws)
        self._teach_critic(made.detach(), o)
        loss = self._loss(x, y, o, made)
        self._adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._weights, 1.0)
        self._adam.step()

    def _chosen(self, count: int) -> Tensor:
        size = min(self.options.batch_size, count)
        return torch.randperm(count, generator=self._draws, device=self.x.device)[:size]

    def _loss(self, x: Tensor, y: Tensor, o: Tensor, made: Tensor) -> Tensor:
        options = self.options
        loss: Tensor = F.mse_loss(self.decoder(made), x) / self._variance
        loss = loss + options.match * (mmd(made, o, self._widths) + self._moments(made))
        loss = loss - options.critic * self.critic(made).mean()
        loss = loss + options.cycle * F.mse_loss(self.client(self.decoder(o)), o)
        if self.server is not None:
            loss = loss + options.server * F.cross_entropy(self.server(self.scale.undone(made)), y)
        return loss

    def _moments(self, made: Tensor) -> Tensor:
        """Distance of means and covariance from those of the observed releases."""
        off: Tensor = (covariance(made) - self._covariance).square().sum() / self._covariance.square().sum().clamp_min(
            _LEAST
        )
        return made.mean(0).square().mean() + off

    def _teach_critic(self, made: Tensor, o: Tensor) -> None:
        loss = F.relu(1 - self.critic(o)).mean() + F.relu(1 + self.critic(made)).mean()
        self._critic_adam.zero_grad()
        loss.backward()
        self._critic_adam.step()


class Client(nn.Module):
    """A small convolutional client from images to any shape of release, with noise of its own at the end."""

    def __init__(self, image_shape: Shape, feature_shape: Shape, width: int) -> None:
        super().__init__()
        self.shape = feature_shape
        maps = len(feature_shape) == 3
        side = min(feature_shape[1:]) if maps else max(1, image_shape[1] // 4)
        layers: list[nn.Module] = [nn.Conv2d(image_shape[0], width, 3, padding=1), nn.SiLU()]
        size = image_shape[1]
        while size >= 2 * side and size > 1:
            layers += [nn.Conv2d(width, width, 3, stride=2, padding=1), nn.SiLU()]
            size = -(-size // 2)
        grid = feature_shape[1:] if maps else (side, side)
        layers += [nn.AdaptiveAvgPool2d(grid), ResidualBlock(width)]
        if maps:
            layers.append(nn.Conv2d(width, feature_shape[0], 1))
        else:
            layers += [nn.Flatten(), nn.Linear(width * side * side, math.prod(feature_shape))]
        self.body = nn.Sequential(*layers)
        self.log_noise = nn.Parameter(torch.full((1, *[1] * len(feature_shape)), -2.0))

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Releases; without a generator, without noise."""
        z: Tensor = self.body(x - 0.5).view(-1, *self.shape)
        if generator is None:
            return z
        return z + self.log_noise.exp() * torch.randn(z.shape, generator=generator, device=z.device)


class Critic(nn.Module):
    """High for observed releases, low for the substitute's."""

    def __init__(self, features: int) -> None:
        super().__init__()
        linear = torch.nn.utils.parametrizations.spectral_norm
        self.body = nn.Sequential(
            nn.Flatten(),
            linear(nn.Linear(features, 256)),
            nn.LeakyReLU(0.2),
            linear(nn.Linear(256, 128)),
            nn.LeakyReLU(0.2),
            linear(nn.Linear(128, 1)),
        )

    def forward(self, z: Tensor) -> Tensor:
        """The critic's score, [B, 1]."""
        value: Tensor = self.body(z)
        return value


def covariance(z: Tensor) -> Tensor:
    """Second moments about zero of the entries, [D, D]; for many entries, of the channels at each position."""
    flat = z.flatten(1) if z[0].numel() <= 1024 else z.flatten(2).transpose(1, 2).flatten(0, 1)
    return flat.T @ flat / len(flat)


def mmd(a: Tensor, b: Tensor, mean_distance: Tensor) -> Tensor:
    """Squared maximum mean discrepancy with Gaussian kernels of several widths."""

    def kernel(p: Tensor, q: Tensor) -> Tensor:
        distance = (p.square().sum(1)[:, None] + q.square().sum(1) - 2 * p @ q.T) / mean_distance
        return torch.stack([torch.exp(-distance / width) for width in _WIDTHS]).mean()

    a, b = a.flatten(1), b.flatten(1)
    return kernel(a, a) + kernel(b, b) - 2 * kernel(a, b)


def _mean_distance(z: Tensor) -> Tensor:
    return 2 * z.flatten(1).var(0, correction=0).sum().clamp_min(_LEAST)
