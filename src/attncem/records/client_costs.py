"""Costs of one image on the client that files of older versions lack."""

from __future__ import annotations

from attncem.base.record import Record


class ClientCosts(Record, kw_only=True):
    """Peak bytes of activations, and median milliseconds by torch and by onnxruntime on one thread of the CPU
    ``client_timed_on``, measured once after the training. None: not known.
    """

    client_activation_bytes: int | None = None
    client_milliseconds: float | None = None
    client_milliseconds_onnx: float | None = None
    client_timed_on: str | None = None
