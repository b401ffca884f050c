"""load(): a model of the package, or any bundle, on this machine: its answers, what leaves, and its audited attacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import RunError
from attncem.live.facts import IMAGE, Shown, Stop, open_shown
from attncem.live.sources import folder_of
from attncem_edge.client import Client, Pixels, open_session
from attncem_edge.manifest import CARD, FEATURE, LOGITS, SERVER, Manifest, read_file

Numbers = NDArray[np.float32]


@dataclass(frozen=True)
class Answer:
    """The answer to one picture. ``released`` is what leaves the client; None where its head answers itself."""

    label: str
    probabilities: Mapping[str, float]
    released: Numbers | None
    steps: list[str]


def load(source: str | Path) -> LoadedModel:
    """The model of a bundle, of a folder of `attncem live --pack`, or of a name in the package; needs no torch."""
    return LoadedModel(open_shown(folder_of(str(source))))


class LoadedModel:
    """Both halves of a bundle in one process, and its audited attacks. ``card`` is its privacy card, None without."""

    def __init__(self, shown: Shown) -> None:
        self.folder, self.manifest, self.stops = shown.folder, shown.manifest, shown.facts.stops
        self.card = _card(shown.folder, shown.manifest)
        self._client = Client(shown.folder)
        server = read_file(shown.folder, shown.manifest, SERVER)
        self._server = open_session(server, FEATURE, [LOGITS], shown.folder / SERVER)
        self._decoders = shown.files

    def __repr__(self) -> str:
        shown = [str(stop.releases) for stop in self.stops if stop.state == "shown"]
        return f"LoadedModel({self.manifest.name}, audited attacks at {', '.join(shown) or 'no'} releases)"

    def predict(self, picture: str | Path | Pixels) -> Answer:
        """The answer to a picture file of any size, or to pixels uint8 [C, H, W]. Nothing leaves this process."""
        pixels, steps = self._client.pixels(picture)
        look = self._client.look(pixels)
        if self._client.answers_itself(look[1]):
            assert look[1] is not None
            return self._answer(look[1], None, steps)
        released = self._client.release(look[0], pixels)
        return self._answer(self._server(released[np.newaxis])[0][0], released, steps)

    def rebuild(self, released: Numbers, releases: int = 1) -> Numbers:
        """What the audited attack rebuilds of the mean of this many releases of a picture: [C, H, W] in [0, 1]."""
        stop = self._stop(releases)
        decode = open_session(self._decoders[stop.file], FEATURE, [IMAGE], self.folder / stop.file)
        image: Numbers = decode(np.asarray(released, np.float32)[np.newaxis])[0][0]
        return image

    def _stop(self, releases: int) -> Stop:
        """The audited attack at this number of releases; RunError names the numbers that have one."""
        stop = next((it for it in self.stops if it.releases == releases and it.state == "shown"), None)
        if stop is None:
            audited = ", ".join(str(it.releases) for it in self.stops if it.state == "shown") or "none"
            raise RunError(f"{self.manifest.name} holds no attack on {releases} averaged releases; it has: {audited}")
        return stop

    def _answer(self, logits: Numbers, released: Numbers | None, steps: list[str]) -> Answer:
        shares = self._client.probabilities(logits)
        return Answer(max(shares, key=lambda it: shares[it]), shares, released, steps)


def _card(folder: Path, manifest: Manifest) -> Mapping[str, Any] | None:
    if CARD not in manifest.files:
        return None
    card: Mapping[str, Any] = json.loads(read_file(folder, manifest, CARD))
    return card
