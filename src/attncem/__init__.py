"""attncem: train, attack, audit, compare and explain private split models."""

__version__ = "0.1.0"
