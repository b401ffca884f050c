"""The client for browsers (`edge/web/`) in this package: one script, the WebAssembly of onnxruntime, licences."""

from __future__ import annotations

from pathlib import Path

from attncem.base.types import ConfigError

SCRIPT, WASM, LICENSES = "attncem-web.js", "ort-wasm-simd-threaded.wasm", "LICENSES.txt"
FOLDER = Path(__file__).parents[1] / "live" / "built"


def web_client(folder: Path = FOLDER) -> Path:
    """The folder with SCRIPT, WASM and LICENSES; ConfigError where the package was built without them."""
    if not all((folder / name).is_file() for name in (SCRIPT, WASM, LICENSES)):
        raise ConfigError(
            "attncem was installed without the client for browsers, because npm did not build it: install Node.js 18 "
            "or newer with npm, then install attncem again from its sources"
        )
    return folder
