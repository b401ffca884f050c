"""Draw the output of every front end for four pictures: docs/front-ends.png.

    python scripts/draw_front_ends.py docs/front-ends.png

Two photographs from scikit-image, at 64 px, and two of the embedded images.
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from skimage import data

from attncem.base.types import DatasetSpec
from attncem.data.readers import read_dataset
from attncem.models.front_ends import FRONT_ENDS, as_seen

OPTIONS: dict[str, dict[str, Any]] = {
    "standardise": {},
    "high_pass": {},
    "high_pass_standardise": {"a": 0.2},
    "local_contrast": {},
    "block_dct": {"n": 3},
}
"""Options of each front end that differ from the defaults."""


def pictures() -> list[NDArray[np.uint8]]:
    """Pictures [H, W, C]."""
    astronaut, cat = data.astronaut(), data.chelsea()  # type: ignore[no-untyped-call]
    photographs = [astronaut[0:384, 32:416], cat[0:300, 60:360]]
    small = [np.asarray(Image.fromarray(photo).resize((64, 64), Image.Resampling.LANCZOS)) for photo in photographs]
    raw = read_dataset("fashion_mnist_mini", None, None)
    first = [int(np.flatnonzero(raw.test_labels == label)[0]) for label in (9, 0)]
    return [*small, *(raw.test_images[index].transpose(1, 2, 0) for index in first)]


def seen(picture: NDArray[np.uint8], name: str) -> NDArray[np.float32]:
    """A picture after a front end, as `explain` shows it."""
    x = torch.tensor(picture.transpose(2, 0, 1)).unsqueeze(0) / 255
    channels = x.shape[1]
    shape = (channels, x.shape[2], x.shape[3])
    spec = DatasetSpec("picture", shape, 2, (0.5,) * channels, (0.25,) * channels, ("a", "b"))
    kind = FRONT_ENDS[name]
    shown = as_seen(kind(kind.options_type(**OPTIONS[name]), spec), x)
    assert shown is not None
    return np.asarray(shown[0].permute(1, 2, 0))


def title(name: str) -> str:
    """A front end with its options."""
    kind = FRONT_ENDS[name].options_type(**OPTIONS[name])
    options = ", ".join(f"{key} = {value:g}" for key, value in kind.model_dump().items() if key != "name")
    return f"{name}\n{options}"


def main(out: str) -> None:
    """One row per picture, one column per front end."""
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    rows = pictures()
    figure, axes = plt.subplots(len(rows), 1 + len(OPTIONS), figsize=(11, 7.6), squeeze=False)
    for picture, line in zip(rows, axes, strict=True):
        for axis, image in zip(line, [picture, *(seen(picture, name) for name in OPTIONS)], strict=True):
            axis.imshow(image, cmap="gray", interpolation="nearest")
            axis.set_axis_off()
    for axis, words in zip(axes[0], ["image", *map(title, OPTIONS)], strict=True):
        axis.set_title(words, fontsize=9)
    figure.tight_layout(pad=0.4)
    figure.savefig(out, dpi=80, metadata={"Software": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
