"""attncem-edge: the client of a private split model on a device, without torch."""

from __future__ import annotations

__version__ = "0.3.0"
