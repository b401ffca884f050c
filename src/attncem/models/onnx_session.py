"""A session of onnxruntime on the CPU, in this process. Needs the extra `onnx`; no torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import RunError
from attncem.models.onnx_file import OnnxFile, need


class Session:
    """Runs a checked file; no operator library is ever registered. Copies share it, because it keeps no state."""

    def __init__(self, file: OnnxFile, threads: int) -> None:
        runtime = need("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4  # important messages come as errors
        self._file = file
        try:
            self._run = runtime.InferenceSession(file.graph, options, providers=["CPUExecutionProvider"]).run
        except Exception as error:  # onnxruntime's errors have no common base class
            raise RunError(f"{file.path} cannot be run by onnxruntime: {_first(error)}") from error

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        """The output of the file for an input [B, …]."""
        try:
            return np.asarray(self._run([self._file.output], {self._file.input: x})[0])
        except Exception as error:
            raise RunError(
                f"{self._file.path} cannot be run on an input of {list(x.shape)}: {_first(error)}"
            ) from error

    def __deepcopy__(self, memo: object) -> Session:
        return self


def _first(error: Exception) -> str:
    """The message of onnxruntime, in one line of limited length."""
    return " ".join(str(error).split())[:400]
