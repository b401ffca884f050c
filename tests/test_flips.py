"""count_flips(): an encoder that depends on batch, threads or runtime is counted; an exact one is not."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config
from attncem.judging.flips import count_flips
from attncem.models.channels import build_channel
from attncem.models.split import SplitModel

ONE = [{"name": "quantise", "bits": 1}]
X = torch.tensor([0.1, 0.4999, 0.4, 0.5001, 0.9]).view(5, 1, 1, 1)


class Moving(nn.Module):
    """z = x, moved by what the function gives for the batch."""

    def __init__(self, by: Any = lambda x: 0.0) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) + self.by(x)


def flips(by: Any, stages: list[dict[str, Any]] | None = None, **options: Any) -> dict[tuple[int, int], int]:
    model = SplitModel(Moving(by), build_channel(load_config({"channel": stages or ONE}).config.channel), None).eval()
    rows = count_flips(model, X, **{"runtimes": ("torch",), "batches": (1, 2, 5), **options})
    assert {row.values for row in rows} == {row.queries for row in rows} == {5}
    assert all(row.flips == row.images_changed for row in rows), "one value per image"
    return {(row.batch, row.threads): row.flips for row in rows}


def test_what_depends_on_nothing_never_flips() -> None:
    assert flips(lambda x: 0.0) == {(batch, threads): 0 for threads in (1, 2) for batch in (1, 2, 5)}


def test_what_depends_on_the_batch_is_counted() -> None:
    """A batch of two moves values up by 1e-3, so one crosses; a batch of five by -1e-3, and another one crosses."""
    moved = flips(lambda x: {1: 0.0, 2: 1e-3, 5: -1e-3}[len(x)], threads=(1,))
    assert moved == {(1, 1): 0, (2, 1): 1, (5, 1): 1}


def test_what_depends_on_threads_is_counted_and_the_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    assert flips(lambda x: 0.2 * (torch.get_num_threads() - 1), batches=(1,)) == {(1, 1): 0, (1, 2): 2}
    assert torch.get_num_threads() == before


def test_change_and_distance_are_measured() -> None:
    model = SplitModel(
        Moving(lambda x: 1e-3 * (len(x) > 1)), build_channel(load_config({"channel": ONE}).config.channel), None
    )
    alone, together = count_flips(model, X, batches=(1, 5), threads=(1,), runtimes=("torch",))
    assert alone.largest_change == 0 and together.largest_change == pytest.approx(1e-3, rel=1e-3)
    assert alone.nearest == pytest.approx(1e-4, rel=1e-2)


def test_noise_behind_the_code_does_not_matter_and_before_it_there_is_no_code() -> None:
    noise = {"name": "gaussian", "noise_std": 1.0}
    assert set(flips(lambda x: 0.0, [*ONE, noise]).values()) == {0}
    for stages in ([noise, *ONE], [noise]):
        with pytest.raises(ConfigError, match="quantise, and nothing random before it"):
            flips(lambda x: 0.0, stages)
    with pytest.raises(ConfigError, match="runtimes=tensorrt is unknown"):
        flips(lambda x: 0.0, runtimes=("tensorrt",))


@pytest.mark.slow  # torch's exporter takes seconds to load
@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="the extra onnx is not installed")
def test_onnxruntime_computes_the_same_client() -> None:
    torch.manual_seed(0)
    client = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.Sigmoid())
    model = SplitModel(client, build_channel(load_config({"channel": ONE}).config.channel), None).eval()
    rows = count_flips(model, torch.rand(9, 1, 8, 8), batches=(1, 7), threads=(1,))
    assert [row.runtime for row in rows] == ["torch", "torch", "onnxruntime", "onnxruntime"]
    assert all(row.values == 9 * 2 * 4 * 4 and row.largest_change < 1e-6 for row in rows)
    assert all(row.flips == 0 or row.nearest <= row.largest_change for row in rows)
