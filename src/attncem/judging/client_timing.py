"""Measure the client of a finished run on this machine, and keep the times in its manifest."""

from __future__ import annotations

from pathlib import Path

from attncem.base.types import DatasetSpec
from attncem.judging.opening import open_run
from attncem.models.cost import count_cost, sides
from attncem.models.split import SplitModel
from attncem.records.runs import RunDirectory
from attncem.training.build import build_model, spec_of
from attncem.training.client_time import ClientTime, time_client


def time_run(run: str | Path | RunDirectory) -> ClientTime:
    """Measure by torch and, where the extra `onnx` is installed, by onnxruntime; times of another machine are replaced.

    A run whose client cannot be measured, such as one kept as ONNX, stays as it is.
    """
    directory = RunDirectory.open(run)
    model, spec = _trained(directory)
    client, _ = sides(model)
    taken = time_client(client, spec.shape, onnx=True)
    if taken.client_milliseconds is not None:
        counted = count_cost(model, spec.shape).client_activation_bytes
        with directory.locked():
            directory.update_manifest(client_activation_bytes=counted, **taken._asdict())
    return taken


def _trained(directory: RunDirectory) -> tuple[SplitModel, DatasetSpec]:
    """The model with its best weights, and the facts of its data; `open_run` refuses a run on the client alone."""
    if not directory.config.on_device:
        opened = open_run(directory, device="cpu")
        return opened.model, opened.spec
    directory.require_plugins()
    spec, checkpoint = spec_of(directory, directory.config), directory.load("best", optimizer=False)
    model = build_model(directory.config, spec)
    assert model.server is not None
    checkpoint.restore("client", model.encoder)
    checkpoint.restore("server", model.server)
    return model.eval(), spec
