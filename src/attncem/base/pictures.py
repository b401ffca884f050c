"""Images as PNG files."""

from __future__ import annotations

import base64
import io

import torch
from PIL import Image
from torch import Tensor


def png(image: Tensor) -> bytes:
    """An image [C, H, W] in [0, 1] as the bytes of a PNG file."""
    pixels = (image.detach().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def png_text(image: Tensor) -> str:
    """The same in base64."""
    return base64.b64encode(png(image)).decode()
