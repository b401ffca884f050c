"""The client's own head: its answers, and the rule by which it sends an image.

An image is sent if the head's largest probability, its confidence, is at most a threshold. The confidence comes from
clean features alone, so the same image is decided the same way every time, and repeated queries reveal no more.

Only rounding can change a decision: on a CPU, logits move by about 1e-6 with the batch, the number of threads and the
library; on a GPU, convolutions keep 10 bits (TF32). So a threshold lies in the middle between two confidences, and
`sends_about` says which images another batch might send.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

ROUNDING = 1e-5
"""On a CPU, a confidence moves by less than this with the batch, the number of threads and the library."""
COARSE = 5e-3
"""The same on a GPU, where convolutions keep 10 bits: an estimate, not measured."""


class Look(NamedTuple):
    """What the client computes from images: the clean feature z, and its head's logits."""

    z: Tensor
    answers: Tensor


class ClientHead(nn.Module):
    """Logits from the client's trunk, or from z.

    ``layers`` is the number of layers of the encoder before the head, all of `layers_of`; None: the head reads z, where
    the layers of a client are not known.
    """

    def __init__(self, classifier: nn.Module, layers: int | None) -> None:
        super().__init__()
        self.classifier, self.layers = classifier, layers

    def look(self, encoder: nn.Module, x: Tensor) -> Look:
        """Z of images and the head's logits, in one pass through the encoder."""
        if self.layers is None:
            z = encoder(x)
            return Look(z, self.classifier(z))
        answers: Tensor | None = None
        for number, layer in enumerate(layers_of(encoder), 1):
            x = layer(x)
            if number == self.layers:
                answers = self.classifier(x)
        assert answers is not None, "the head is behind the last layer of the encoder"
        return Look(x, answers)


class HeadedClient(nn.Module):
    """All that a client with a head computes: z and the head's logits."""

    def __init__(self, encoder: nn.Module, head: ClientHead) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Z and the logits of images."""
        z, answers = self.head.look(self.encoder, x)
        return z, answers


def layers_of(encoder: nn.Module) -> Iterator[nn.Module]:
    """The layers of an encoder in order; nested sequences are opened."""
    if type(encoder) is not nn.Sequential:
        yield encoder
        return
    for part in encoder:
        yield from layers_of(part)


def confidence(answers: Tensor) -> Tensor:
    """The largest probability of each row of logits, in float64 on any device."""
    return answers.double().softmax(1).amax(1)


def sends_about(answers: Tensor, threshold: float) -> Tensor:
    """Which images may be sent: also those whose confidence is above the threshold by no more than rounding."""
    return confidence(answers) <= threshold + (COARSE if answers.is_cuda else ROUNDING)


def doubt(answers: Tensor) -> Tensor:
    """1 − confidence, in [0, 1), without a gradient: nothing is gained by being unsure."""
    return 1 - answers.detach().float().softmax(1).amax(1)


# thresholds


def threshold_of_share(sure: Tensor, share: float) -> float:
    """The threshold that sends this share of images with these confidences, as nearly as equal confidences allow."""
    ordered = sure.double().sort().values
    counts = possible_counts(ordered).nonzero().flatten()
    nearest = (counts - round(share * len(ordered))).abs().argmin()
    return threshold_of_count(ordered, int(counts[nearest]))


def threshold_of_accuracy(sure: Tensor, alone: Tensor, sent: Tensor, accuracy: float) -> float | None:
    """The threshold that sends the fewest images with which this accuracy is reached; None: none reaches it.

    ``alone`` and ``sent`` say for each image whether the head, and whether the server, is right.
    """
    ordered, right = _right_if_possible(sure, alone, sent)
    reached = right >= math.ceil(accuracy * len(ordered) - 1e-9)
    return threshold_of_count(ordered, int(reached.double().argmax())) if bool(reached.any()) else None


def threshold_of_best(sure: Tensor, alone: Tensor, sent: Tensor) -> float:
    """The threshold that sends the fewest images with which the highest accuracy is reached."""
    ordered, right = _right_if_possible(sure, alone, sent)
    return threshold_of_count(ordered, int(right.argmax()))


def _right_if_possible(sure: Tensor, alone: Tensor, sent: Tensor) -> tuple[Tensor, Tensor]:
    """The confidences in order, and the number of right answers by the number sent; −1 where no threshold sends it."""
    order = sure.double().argsort(stable=True)
    ordered = sure.double()[order]
    return ordered, torch.where(possible_counts(ordered), right_by_count(alone[order], sent[order]), -1)


def possible_counts(ordered: Tensor) -> Tensor:
    """Whether some threshold sends exactly the first k of images with these confidences, for k = 0 … n.

    Images of equal confidence are sent together: a sure head gives many of them the confidence 1.
    """
    edge = ordered.new_ones(1, dtype=torch.bool)
    return torch.cat([edge, ordered[:-1] < ordered[1:], edge])


def threshold_of_count(ordered: Tensor, count: int) -> float:
    """A threshold that sends the first images of these confidences, in the middle to the next confidence."""
    if count in (0, len(ordered)):
        return float(count > 0)
    last, following = float(ordered[count - 1]), float(ordered[count])
    middle = (last + following) / 2
    return middle if middle < following else last


def right_by_count(alone: Tensor, sent: Tensor) -> Tensor:
    """Number of right answers if the first k images are sent, for k = 0 … n; images from the least sure one on."""
    from_server = torch.cat([sent.new_zeros(1, dtype=torch.int64), sent.long().cumsum(0)])
    from_head = torch.cat([alone.new_zeros(1, dtype=torch.int64), alone.long().cumsum(0)])
    return from_server + from_head[-1] - from_head
