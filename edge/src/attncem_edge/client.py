"""Client: a picture's label by a bundle, answered on the device or by a server that gets no more than the audited z."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem_edge.budget import Budget, Counter, Spending, costs
from attncem_edge.channel import Channel, Feature
from attncem_edge.device import RELEASES, default_folder, noise_key
from attncem_edge.errors import BundleError, ConfigError, DataError
from attncem_edge.manifest import ANSWERS, CLIENT, FEATURE, IMAGE, read_file, read_manifest
from attncem_edge.pictures import read_picture
from attncem_edge.wire import Server, make_request

Pixels = NDArray[np.uint8]
"""An image [C, H, W] of the size that the bundle takes."""
TOKEN = "ATTNCEM_TOKEN"
"""The environment variable that holds the token, where none is passed."""


@dataclass(frozen=True)
class Prediction:
    """The answer for one picture.

    ``probabilities`` are by label, in the order of the bundle. ``bytes_sent`` is the size of the request's body; 0 if
    the client answered itself. ``confidence`` is that of the client's head, None without a head. ``steps`` say how the
    picture was converted.
    """

    label: str
    probabilities: dict[str, float]
    on_device: bool
    bytes_sent: int
    confidence: float | None = None
    steps: list[str] = field(default_factory=list)


class Client:
    """A bundle on a device. Threads may share it.

    ``url``: the server's address; without it, only pictures that the client answers itself have an answer. ``token``:
    for the server; default: the environment variable ATTNCEM_TOKEN. ``budget``: limits of what may leave. ``device``:
    the folder of the device's key and counts (default: the user's state folder). ``identity``: the bundle's identity as
    you know it from its maker; another bundle is refused. ``timeout``, ``retries``, ``ca``, ``plain_http``: see Server.
    """

    def __init__(
        self,
        bundle: str | Path,
        *,
        url: str | None = None,
        token: str | None = None,
        budget: Budget | None = None,
        device: str | Path | None = None,
        identity: str | None = None,
        **connection: Any,
    ) -> None:
        self.manifest = read_manifest(bundle)
        if identity is not None and identity != self.manifest.identity:
            raise BundleError(f"{bundle} is another bundle: its identity is {self.manifest.identity}, not {identity}")
        self._channel = Channel(self.manifest.channel, self.manifest.fingerprint, self.manifest.noise_scheme)
        names = [FEATURE, *([ANSWERS] if self.manifest.decision is not None else [])]
        file = Path(bundle) / CLIENT
        self._session = open_session(read_file(bundle, self.manifest, CLIENT), IMAGE, names, file)
        self._device = default_folder() if device is None else Path(device)
        if connection and url is None:
            raise ConfigError(f"{', '.join(connection)}: without url nothing is sent")
        token = token if token is not None else os.environ.get(TOKEN) or None
        self._server = None if url is None else Server(url, token=token, **connection)
        self._counter = None if budget is None else Counter(budget, Path(budget.file or self._device / RELEASES))
        self._cost = costs("releases" if budget is None else budget.unit, self.manifest.nats)

    def predict(self, picture: str | Path | Pixels) -> Prediction:
        """The label of a picture file of any size, or of pixels [C, H, W] of the client's size."""
        pixels, steps = self.pixels(picture)
        z, answers = self.look(pixels)
        confidence = None if answers is None else float(_softmax(answers).max())
        if answers is not None and self.answers_itself(answers):
            return self._prediction(answers, 0, confidence, steps)
        if self._server is None:
            raise ConfigError("this picture must be sent, and the client has no url")
        request = make_request(self.release(z, pixels), self.manifest.fingerprint)
        logits = self._server.ask(self.manifest.name, request, len(self.manifest.labels))
        return self._prediction(logits, len(request.body), confidence, steps)

    def look(self, pixels: Pixels) -> tuple[Feature, Feature | None]:
        """What the client computes from pixels: z before the channel, and its head's logits. Never send this z."""
        x = pixels[np.newaxis].astype(np.float32) / np.float32(255)
        made = self._session(x)
        z = made[0][0]
        if list(z.shape) != self.manifest.feature.shape or not all(np.isfinite(it).all() for it in made):
            raise BundleError("the client of the bundle gave a z of another shape, or numbers that are not finite")
        return z, made[1][0] if len(made) > 1 else None

    def answers_itself(self, answers: Feature | None) -> bool:
        """Whether the head is sure enough of these logits to answer; then nothing is sent."""
        decision = self.manifest.decision
        return answers is not None and decision is not None and float(_softmax(answers).max()) > decision.threshold

    def probabilities(self, logits: Feature) -> dict[str, float]:
        """The probabilities by label that logits mean, in the order of the bundle."""
        return dict(zip(self.manifest.labels, _softmax(logits).tolist(), strict=True))

    def pixels(self, picture: str | Path | Pixels) -> tuple[Pixels, list[str]]:
        """Pixels uint8 [C, H, W] of a picture, and how it was converted."""
        shape = self.manifest.image.shape
        if not isinstance(picture, np.ndarray):
            read = read_picture(Path(picture), shape, squash=self.manifest.image.squash)
            return np.ascontiguousarray(read.pixels), read.steps
        if picture.dtype != np.uint8 or picture.shape != shape:
            raise DataError(f"pixels are {picture.dtype} {picture.shape}; the client takes uint8 {shape}")
        return np.ascontiguousarray(picture), []

    def release(self, z: Feature, pixels: Pixels) -> Feature:
        """What may leave the device: counted, then drawn, with noise of its own for every call (or keyed)."""
        key = self._key if self._channel.keyed else None
        if self._counter is not None:
            source = _source_of(self._channel, key)
            self._counter.count(Spending(pixels.tobytes(), source, self._cost, self._channel.repeats))
        return self._channel.release(z, pixels.tobytes(), key)

    @cached_property
    def _key(self) -> bytes:
        return noise_key(self._device)

    def _prediction(self, logits: Feature, sent: int, confidence: float | None, steps: list[str]) -> Prediction:
        shares = self.probabilities(logits)
        return Prediction(max(shares, key=lambda it: shares[it]), shares, sent == 0, sent, confidence, steps)

    def close(self) -> None:
        """Close the connection to the server."""
        if self._server is not None:
            self._server.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _source_of(channel: Channel, key: bytes | None) -> str:
    """What determines a release besides the pixels: model, key, and for codes the runtime that computes them."""
    parts = [channel.fingerprint]
    if key is not None:
        parts.append(hashlib.sha256(b"attncem source" + key).hexdigest())
    if channel.rounds:
        parts.append(f"onnxruntime {_runtime().__version__}")
    return " ".join(parts)


def _softmax(logits: Feature) -> NDArray[np.float64]:
    powers = np.exp(logits.astype(np.float64) - float(logits.max()))
    shares: NDArray[np.float64] = powers / powers.sum()
    return shares


def open_session(graph: bytes, source: str, names: list[str], file: str | Path) -> Callable[[Feature], list[Feature]]:
    """A half of a bundle in onnxruntime on one thread, from these bytes; BundleError where it cannot be run."""
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        if [it.name for it in session.get_inputs()] != [source] or [it.name for it in session.get_outputs()] != names:
            raise BundleError(f"{file} must take {source} and give {' and '.join(names)}: export the bundle again")
    except BundleError:
        raise
    except Exception as error:  # onnxruntime's errors have no common base class
        raise BundleError(f"{file} cannot be run by onnxruntime: {' '.join(str(error).split())[:400]}") from error

    def run(x: Feature) -> list[Feature]:
        try:
            return [np.asarray(it, np.float32) for it in session.run(names, {source: x})]
        except Exception as error:
            raise BundleError(
                f"{file} cannot be run on {list(x.shape)}: {' '.join(str(error).split())[:400]}"
            ) from error

    return run


def _runtime() -> Any:
    try:
        return import_module("onnxruntime")
    except ImportError as error:
        raise ConfigError(f"the client needs onnxruntime: pip install onnxruntime ({error})") from error
