"""The client for browsers and exported runs: features, codes and decisions on 200 test images are those of torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attncem.deploy.exporting import export
from attncem.judging.opening import open_run
from attncem_edge.client import Client
from web import ask_web, encoded, needs_web

pytestmark = [needs_web, pytest.mark.slow]
IMAGES = 200
RUNS: dict[str, dict[str, Any]] = {
    "codes and a head": {
        **{"release.when": "unsure", "release.threshold": 0.28, "data.held_out_fraction": 0.5},
        "channel": [{"name": "quantise", "bits": 4}],
    },
    "a front end": {"model.front_end.name": "standardise"},
}


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_a_page_computes_what_the_run_computes(
    settings: dict[str, Any], tmp_path: Path, small_run: Callable[..., Path]
) -> None:
    run = small_run("demo-none", **settings)
    export(run, tmp_path / "bundle")
    opened, place = open_run(run, device="cpu"), str(tmp_path / "bundle")
    pixels = (opened.data.test.get(slice(0, IMAGES))[0] * 255).round().byte()
    names = [encoded(image.numpy()) for image in pixels]
    looks, releases = ask_web(("look", place, names), ("releases", place, {}, names))
    with torch.inference_mode():
        z = opened.model.encode(pixels / 255).numpy()
        released = opened.model.release(pixels / 255).numpy()
    made = np.array([look["z"] for look in looks], np.float32).reshape(z.shape)
    np.testing.assert_allclose(made, z, rtol=0, atol=1e-5 * np.abs(z).max())
    if opened.channel[-1]["name"] == "quantise":
        np.testing.assert_allclose(np.array(releases).reshape(z.shape), released, rtol=0, atol=1e-6)
    client = Client(tmp_path / "bundle")
    decision = client.manifest.decision
    for image, look in zip(pixels.numpy(), looks, strict=True):
        _, answers = client.look(image)
        assert (look["answers"] is None) == (answers is None) == (decision is None)
        if answers is not None and decision is not None:
            shares = np.exp(answers.astype(np.float64) - answers.max())
            assert look["onDevice"] == (shares.max() / shares.sum() > decision.threshold)
    assert decision is None or 0 < sum(look["onDevice"] for look in looks) < IMAGES
