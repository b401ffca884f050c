"""The model repository that Triton and KServe read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from attncem.base.types import AttncemError
from attncem.deploy.triton import write_triton
from bundles import make_bundle, weights
from serving import numbers

CONFIG = """\
name: "demo"
platform: "onnxruntime_onnx"
max_batch_size: 32
input [{ name: "z" data_type: TYPE_FP32 dims: [ 4, 3, 3 ] }]
output [{ name: "logits" data_type: TYPE_FP32 dims: [ 5 ] }]
dynamic_batching { }
parameters { key: "fingerprint" value { string_value: "FINGERPRINT" } }
parameters { key: "identity" value { string_value: "IDENTITY" } }
"""


def test_the_repository_holds_the_server_half_and_its_configuration(tmp_path: Path) -> None:
    from attncem_edge.manifest import read_manifest

    bundle = make_bundle(tmp_path / "bundle")
    folder = write_triton(bundle, tmp_path / "models")
    assert folder == tmp_path / "models" / "demo"
    assert {str(file.relative_to(tmp_path / "models")) for file in tmp_path.glob("models/**/*") if file.is_file()} == {
        "demo/config.pbtxt",
        "demo/1/model.onnx",
    }
    manifest = read_manifest(bundle)
    expected = CONFIG.replace("FINGERPRINT", manifest.fingerprint).replace("IDENTITY", manifest.identity)
    assert (folder / "config.pbtxt").read_text() == expected
    z = numbers(3)
    session = onnxruntime.InferenceSession(folder / "1/model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["logits"], {"z": z})[0], z.reshape(3, -1) @ weights(), atol=1e-5)


def test_nothing_is_overwritten_and_a_changed_bundle_is_refused(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    write_triton(bundle, tmp_path / "models")
    with pytest.raises(AttncemError, match="exists already"):
        write_triton(bundle, tmp_path / "models")
    (bundle / "server.onnx").write_bytes(b"other")
    with pytest.raises(AttncemError, match="was changed"):
        write_triton(bundle, tmp_path / "other")
    assert not (tmp_path / "other").exists()
