"""Shapes of a lean client by arithmetic: image, budget of multiply-accumulates, z. No torch.

A lean client is a 3x3 stem, inverted residuals with squeeze-excitation in stages that halve the map, and a 1x1
convolution to z. Widths and depth grow together with the budget, so that every stage takes a similar share of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from attncem.base.texts import text
from attncem.base.types import ConfigError

CHANNELS = 8
"""Channels of z if the options name none."""
LEAST_USE = 0.97
"""Share of the budget that a plan uses at least."""
EXPANSION, FIRST_EXPANSION = 4, 3
"""Hidden channels of a block for each of its input channels. The first block has fewer: its map is the largest."""
BASE = 0.95
"""Share of the expansions that a plan begins with; the hidden channels then grow while the budget lasts."""
SQUEEZE = 8
"""Hidden channels per channel of squeeze-excitation."""
FULL_STEM = 2000
"""Multiply-accumulates per pixel and halving from which the stem keeps the image's resolution. Of the measured clients,
those with 10,200 and more (three halvings) and 3,700 (two) have such a stem; the one with 3,700 and three has not."""
POOLED = 500
"""Multiply-accumulates per pixel below which the image is first averaged over 2x2 pixels, which costs none. At least
two halvings remain, unless nothing else fits. A choice of ours: below it, the stem of an image of 96 px had 5 channels.
"""
SMALL_SIDE = 1_200_000 / 28
"""Budget per pixel of the image's side from which z is about 4x4 by default."""
SHARES = (1 / 3, 2 / 3, 1.0)
"""Widths of the last three stages, relative to the last."""
EARLIER = 0.7
"""Width of a stage before these, relative to the next. It has one block, so that large images do not take depth from
the stages where most of the work is done."""
SMALLEST, LARGEST = 4, 1024
"""Width of the last stage of the smallest plan, and one that no plan reaches."""
WIDER = 9
"""Further channels that the stem may get."""
Map = tuple[int, int]
"""Height and width."""


@dataclass(frozen=True)
class Block:
    """An inverted residual: 1x1 to `hidden`, depthwise 3x3, squeeze-excitation, 1x1 to `outputs`."""

    inputs: int
    outputs: int
    hidden: int
    stride: int
    size: Map
    """Height and width of its input."""

    @property
    def after(self) -> Map:
        """Height and width of its output."""
        return self.size if self.stride == 1 else halved(self.size)

    @property
    def squeezed(self) -> int:
        """Inner width of the squeeze-excitation."""
        return max(1, self.hidden // SQUEEZE)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one image."""
        filters = area(self.size) * self.inputs + area(self.after) * (9 + self.outputs)
        return self.hidden * (filters + 2 * self.squeezed)


@dataclass(frozen=True)
class LeanPlan:
    """All sizes of a lean client."""

    shape: tuple[int, int, int]
    """Channels, height and width of the images."""
    budget: int
    pooled: int
    """Number of averages over 2x2 pixels before the stem."""
    stem: int
    """Channels of the stem."""
    stem_stride: int
    stages: tuple[tuple[Block, ...], ...]
    """Blocks by the size of their output, from the largest map."""
    channels: int
    """Channels of z."""
    spent: int = 0
    """Multiply-accumulates of the client's other parts: the front end, sparse coding."""
    classes: int = 0
    """Of the client's own classifier, which then takes the place of the convolution to z; 0: there is none."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks in order."""
        return tuple(block for stage in self.stages for block in stage)

    @property
    def width(self) -> int:
        """Channels before the convolution to z."""
        return self.blocks[-1].outputs

    @property
    def size(self) -> Map:
        """Height and width of z."""
        return self.blocks[-1].after

    @property
    def side(self) -> int:
        """The longer side of z."""
        return max(self.size)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one image, as `models/cost.py` counts them."""
        stem = area(self.blocks[0].size) * 9 * self.shape[0] * self.stem
        last = self.width * self.classes if self.classes else area(self.size) * self.width * self.channels
        return self.spent + stem + sum(block.macs for block in self.blocks) + last

    @property
    def use(self) -> float:
        """Share of the budget that is used."""
        return self.macs / self.budget

    @property
    def path(self) -> str:
        """Every map from the image to z, with the number of blocks of each stage."""
        maps = maps_of(self.shape)
        steps = [_shown(self.shape[0], size) for size in maps[: self.pooled + 1]]
        steps.append(_shown(self.stem, self.blocks[0].size))
        steps += [f"{len(stage)} × {_shown(stage[-1].outputs, stage[-1].after)}" for stage in self.stages]
        steps.append(str(self.classes) if self.classes else f"z {_shown(self.channels, self.size)}")
        return " → ".join(steps)

    def facts(self) -> dict[str, int | str]:
        """What a manifest holds of it: multiply-accumulates, budget, path."""
        return {"macs": self.macs, "budget": self.budget, "path": self.path}

    def describe(self) -> str:
        """One sentence: multiply-accumulates, and every map from the image to z."""
        return described(self.facts())


def described(facts: Mapping[str, Any]) -> str:
    """The sentence of a plan from its facts in a manifest."""
    macs, budget = int(facts["macs"]), int(facts["budget"])
    share = f"{100 * macs / budget:.1f}"
    return text("lean.plan", macs=f"{macs:,}", budget=f"{budget:,}", share=share, path=facts["path"])


def area(size: Map) -> int:
    """Pixels of a map."""
    return size[0] * size[1]


def halved(size: Map) -> Map:
    """The map behind a stride of 2."""
    return -(-size[0] // 2), -(-size[1] // 2)


def _shown(channels: int, size: Sequence[int]) -> str:
    return "×".join(map(str, (channels, *size)))


def maps_of(shape: tuple[int, int, int]) -> list[Map]:
    """The image's size and those that strides of 2 reach, the last of side 2 or more."""
    sizes = [(shape[1], shape[2])]
    while max(after := halved(sizes[-1])) >= 2 and after != sizes[-1]:
        sizes.append(after)
    return sizes


def allowed_sides(shape: tuple[int, int, int]) -> list[int]:
    """Longer sides of z that two strides of 2 or more reach: a larger z holds the image nearly as it is."""
    sides = [max(size) for size in maps_of(shape)[2:]]
    if not sides:
        raise ConfigError(f"model.name=lean: images of {_shown(*_split(shape))} are too small to be halved twice")
    return sides


def size_of(shape: tuple[int, int, int], macs: float, side: int | None) -> Map:
    """Height and width of z; `side` None: the default."""
    return maps_of(shape)[_halvings(shape, default_side(shape, macs) if side is None else side)]


def default_side(shape: tuple[int, int, int], macs: float) -> int:
    """The smallest side of at least 4; one halving less for a budget below `SMALL_SIDE` per pixel of the image's side.

    Where z was 4x4, one release of a defended client gave little more than the label, at an accuracy near that of
    undefended clients: from 3.8 M multiply-accumulates for colour images of 32 px, at 1.2 M for grey images of 28 px.
    With fewer, most of the work is the server's: z of 8x8 leaves it more to work with (at 3.8 M 89.2 % correct against
    86.3), and leaks more. Smaller clients at both sides were not compared.
    """
    sides = allowed_sides(shape)
    fitting = [side for side in sides if side >= 4] or sides[:1]
    return fitting[-2:][0 if macs < SMALL_SIDE * max(shape[1:]) else -1]


def plan(
    shape: tuple[int, int, int],
    macs: float,
    side: int | None = None,
    channels: int | None = None,
    *,
    spent: int = 0,
    classes: int = 0,
) -> LeanPlan:
    """The shapes of the largest client within the budget `macs` for images of this shape.

    It uses at least 97 % of the budget, of which other parts of the client take `spent`. `side` is the longer side of z
    (None: `default_side`), `channels` its number of channels. With `classes`, the plan is that of a whole network:
    pooling and a linear layer in place of the 1x1 convolution to z. ConfigError for a side that no strides reach, and
    for a budget that is too small.
    """
    channels = CHANNELS if channels is None else channels
    if channels < 1:
        raise ConfigError(f"model.channels={channels}: z needs 1 channel or more")
    if not 0 < macs < math.inf:
        raise ConfigError(f"model.macs={macs}: the budget must be a positive number, e.g. 4e6")
    budget = int(macs)
    halvings = _halvings(shape, default_side(shape, budget) if side is None else side)
    empty = LeanPlan(shape, budget, 0, 0, 1, (), channels, spent, classes)
    best: LeanPlan | None = None
    for pooled, stride in _stems(shape, budget, halvings):
        made = _largest(replace(empty, pooled=pooled, stem_stride=stride), halvings)
        if made is not None and made.use >= LEAST_USE:
            return made
        best = made if best is None or (made is not None and made.macs > best.macs) else best
    raise _refused(empty, halvings, best)


def _refused(empty: LeanPlan, halvings: int, best: LeanPlan | None) -> ConfigError:
    """The error for a budget that no plan uses, with one that a plan does use."""
    target = "" if empty.classes else f" and z of {_shown(empty.channels, maps_of(empty.shape)[halvings])}"
    about = f"for images of {_shown(*_split(empty.shape))}{target}"
    if best is not None:
        return ConfigError(
            f"model.macs={empty.budget}: no client {about} uses {100 * LEAST_USE:.0f} % of it, as one channel more "
            f"costs too much; use model.macs={best.macs}"
        )
    made = [replace(empty, pooled=it, stem_stride=2) for it in range(halvings)]
    smallest = min(_grown(it, halvings, SMALLEST).macs for it in made)
    return ConfigError(f"model.macs={empty.budget}: too small {about}; the smallest possible is {smallest}")


def _split(shape: tuple[int, int, int]) -> tuple[int, Map]:
    return shape[0], (shape[1], shape[2])


def _halvings(shape: tuple[int, int, int], side: int) -> int:
    """Number of strides of 2 from the image to a map of this side."""
    sides = allowed_sides(shape)
    if side in sides:
        return 2 + sides.index(side)
    raise ConfigError(
        f"model.side={side}: two strides of 2 or more do not reach it from images of {_shown(*_split(shape))}; "
        f"allowed: {', '.join(map(str, sides))}"
    )


def _stems(shape: tuple[int, int, int], budget: int, halvings: int) -> Iterator[tuple[int, int]]:
    """Averages before the stem and its stride, the preferred ones first."""
    pixels = area((shape[1], shape[2]))
    if budget >= FULL_STEM * halvings * pixels:
        yield 0, 1
    poolings = range(halvings)
    enough = [it for it in poolings if budget * 4**it >= POOLED * pixels or it >= halvings - 2]
    yield from ((pooled, 2) for pooled in dict.fromkeys([*enough, *poolings]))


def _largest(empty: LeanPlan, halvings: int) -> LeanPlan | None:
    """The largest plan within the budget, the rest of which goes to the hidden channels; None: none fits.

    Where channels are so few that the rest cannot be spent, a smaller plan or a wider stem leaves another rest.
    """
    low, high = SMALLEST - 1, LARGEST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _grown(empty, halvings, middle).macs <= empty.budget else (low, middle - 1)
    if low == LARGEST:
        largest = _grown(empty, halvings, LARGEST).macs - 1
        raise ConfigError(f"model.macs={empty.budget}: larger than any lean client; the largest possible is {largest}")
    best: LeanPlan | None = None
    for wider, scale in product(range(WIDER), range(low, SMALLEST - 1, -1)):
        made = _grown(empty, halvings, scale, wider)
        if made.macs <= empty.budget and (best is None or best.use < LEAST_USE):
            filled = _filled(made)
            best = filled if best is None or filled.macs > best.macs else best
        if best is not None and best.use >= LEAST_USE:
            break
    return best


def _grown(empty: LeanPlan, halvings: int, scale: int, wider: int = 0) -> LeanPlan:
    """The plan whose last stage is about `scale` wide; everything else follows, and nothing shrinks as it grows.

    `wider`: further channels of the stem.
    """
    sizes = maps_of(empty.shape)[empty.pooled : halvings + 1]
    shares = list(SHARES[-(len(sizes) - 1) :])
    while len(shares) < len(sizes) - 1:
        shares.insert(0, EARLIER * shares[0])
    before = max(0, len(shares) - len(SHARES))
    widths = [_snapped(scale * share) for share in shares]
    stem = _snapped(0.75 * scale * shares[0]) + wider
    size, inputs = (sizes[0] if empty.stem_stride == 1 else halved(sizes[0])), stem
    stages: list[tuple[Block, ...]] = []
    for number, outputs in enumerate(widths):
        blocks = []
        for position in range(1 + _depth(scale, number - before, min(len(SHARES), len(widths)))):
            stride = 2 if position == 0 and (number > 0 or empty.stem_stride == 1) else 1
            expansion = FIRST_EXPANSION if number == position == 0 else EXPANSION
            blocks.append(Block(inputs, outputs, _snapped(BASE * expansion * inputs), stride, size))
            size, inputs = (halved(size) if stride == 2 else size), outputs
        stages.append(tuple(blocks))
    return replace(empty, stem=stem, stages=tuple(stages))


def _depth(scale: int, stage: int, stages: int) -> int:
    """Residual blocks of one of the last three stages, fewer in the first of several; none before these."""
    first = (36, 92, 150, 210) if stage == 0 and stages > 1 else (10, 38, 60, 130, 190)
    return sum(scale >= step for step in first) if stage >= 0 else 0


def _snapped(width: float) -> int:
    """The nearest width that suits processors: a multiple of 8 from 24, of 4 from 12, of 2 from 6; at least 2."""
    unit = _unit(width)
    return max(2, unit * int(width / unit + 0.5))


def _unit(width: float) -> int:
    return 8 if width >= 24 else 4 if width >= 12 else 2 if width >= 6 else 1


def _filled(made: LeanPlan) -> LeanPlan:
    """Hidden channels added while the budget lasts, each time where their share of the usual number is smallest."""
    blocks, left = list(made.blocks), made.budget - made.macs
    usual = [(FIRST_EXPANSION if number == 0 else EXPANSION) * block.inputs for number, block in enumerate(blocks)]
    for unit in (8, 4, 2, 1):
        open_ = set(range(len(blocks)))
        while open_ and (unit == 8 or left > (1 - LEAST_USE) * made.budget):
            number = min(open_, key=lambda it: (blocks[it].hidden / usual[it], it))
            step = min(unit, _unit(blocks[number].hidden))
            wider = replace(blocks[number], hidden=blocks[number].hidden + step)
            if (more := wider.macs - blocks[number].macs) <= left:
                blocks[number], left = wider, left - more
            else:
                open_.discard(number)
    rest = iter(blocks)
    return replace(made, stages=tuple(tuple(next(rest) for _ in stage) for stage in made.stages))
