"""The server and an exported run: what is served is what the run computes, asked by clients of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tritonclient import http as triton

from attncem.cli.main import main
from attncem.deploy.exporting import export
from attncem.judging.opening import open_run
from attncem.models.channels import SYSTEM
from attncem_edge.wire import Server as Wire
from attncem_edge.wire import make_request
from bundles import make_bundle, weights
from serving import numbers, serving

IMAGES = 10_000


def test_a_device_is_answered(tmp_path: Path) -> None:
    bundle, z = make_bundle(tmp_path / "demo"), numbers(1)
    with serving(tmp_path / "log", [bundle], ATTNCEM_TOKEN="t" * 32) as server:
        device = Wire(f"http://{server.url}", token="t" * 32, retries=0)
        logits = device.ask("demo", make_request(z[0], "ab" * 32), 5)
        device.close()
    np.testing.assert_allclose(logits, (z.reshape(1, -1) @ weights())[0], atol=1e-5)


@pytest.mark.slow
def test_served_is_what_the_run_computes_in_memory(tmp_path: Path, small_run: Callable[..., Path]) -> None:
    run = small_run()
    manifest = export(run, tmp_path / "bundle").manifest
    opened = open_run(run, device="cpu")
    data = opened.data
    images = torch.cat([part.get(slice(None))[0] for part in (data.train, data.held_out, data.test)])
    images = torch.cat([images, images.flip(-1), images.flip(-2)])[:IMAGES]
    assert len(images) == IMAGES
    with serving(tmp_path / "log", [tmp_path / "bundle"]) as server, torch.inference_mode():
        client = triton.InferenceServerClient(server.url)
        for x in images.split(32):
            released = opened.model.release(x, generator=SYSTEM)
            here = opened.model.predict(released).numpy()
            there = asked(client, manifest.name, released.numpy(), manifest.fingerprint)
            np.testing.assert_allclose(there, here, atol=1e-4)
            np.testing.assert_array_equal(there.argmax(1), here.argmax(1))
        client.close()


def asked(client: Any, name: str, released: np.ndarray[Any, Any], fingerprint: str) -> np.ndarray[Any, Any]:
    """The logits that the server gives to tritonclient."""
    z = triton.InferInput("z", list(released.shape), "FP32")
    z.set_data_from_numpy(released)
    logits: np.ndarray[Any, Any] = client.infer(name, [z], parameters={"fingerprint": fingerprint}).as_numpy("logits")
    return logits


@pytest.mark.slow
def test_export_writes_a_model_repository_too(
    tmp_path: Path, small_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", str(tmp_path / "bundle"), "--triton", str(tmp_path / "models")]
    assert main(["export", str(small_run()), *words]) == 0
    assert f"tritonserver --model-repository={tmp_path / 'models'}" in capsys.readouterr().out
    (config,) = (tmp_path / "models").glob("*/config.pbtxt")
    assert (config.parent / "1/model.onnx").read_bytes() == (tmp_path / "bundle/server.onnx").read_bytes()
