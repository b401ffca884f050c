"""Make the embedded Fashion-MNIST subset from the four original idx files.

    python scripts/make_fashion_mnist_mini.py FOLDER_WITH_IDX_GZ_FILES

Takes the first 500 training and the first 100 test images of every class, in their original order,
and writes src/attncem/data/embedded/fashion_mnist_mini.npz (images, labels, original indices, notice).
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from pathlib import Path

import numpy as np

EMBEDDED = Path(__file__).parent.parent / "src/attncem/data/embedded"


def read_idx(path: Path) -> np.ndarray:
    """One idx file of unsigned bytes as an array."""
    raw = gzip.decompress(path.read_bytes())
    num_dims = raw[3]
    shape = np.frombuffer(raw, ">i4", count=num_dims, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * num_dims).reshape(shape)


def first_of_each_class(labels: np.ndarray, count: int) -> np.ndarray:
    """Indices of the first `count` images of every class, ascending."""
    chosen = [np.flatnonzero(labels == c)[:count] for c in range(10)]
    return np.sort(np.concatenate(chosen))


def main(folder: Path) -> None:
    """Read, select, write, and print the file's size and hash."""
    arrays: dict[str, np.ndarray] = {}
    for part, prefix, count in (("train", "train", 500), ("test", "t10k", 100)):
        images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")
        labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")
        index = first_of_each_class(labels, count)
        arrays |= {f"{part}_images": images[index], f"{part}_labels": labels[index], f"{part}_index": index}
    arrays["notice"] = np.frombuffer((EMBEDDED / "NOTICE").read_bytes(), np.uint8)
    out = EMBEDDED / "fashion_mnist_mini.npz"
    np.savez_compressed(out, allow_pickle=False, **arrays)
    print(out.name, out.stat().st_size, hashlib.sha256(out.read_bytes()).hexdigest())
    pixels = arrays["train_images"] / 255.0
    print(f"mean {pixels.mean():.4f} std {pixels.std():.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
