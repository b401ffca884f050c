"""Costs of clients of CIFAR-10's size relative to VGG's at cut 4: counted, and timed on one CPU thread.

python scripts/client_costs.py results/client_costs.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from attncem.base.types import DatasetSpec
from attncem.config.options.channels import IdentityOptions
from attncem.config.options.model import ModelOptions
from attncem.models.channels import IdentityChannel
from attncem.models.cost import count_cost
from attncem.models.networks import build_halves
from attncem.models.split import SplitModel
from attncem.training.client_time import cpu_name, exported, median_milliseconds, on_cpu

ROUNDS = 31
"""Number of times that every client is timed."""
SPEC = DatasetSpec("cifar10", (3, 32, 32), 10, mean=(0.5,) * 3, std=(0.25,) * 3)
CLIENTS: Mapping[str, Mapping[str, Any]] = {
    "vgg11_bn cut=4": {"name": "vgg11_bn", "cut": 4},
    "thin_vgg11_bn cut=4": {"name": "thin_vgg11_bn", "cut": 4},
    "mobilenet_v2 cut=5": {"name": "mobilenet_v2", "cut": 5},
    "lean macs=21.23e6": {"name": "lean", "macs": 21.23e6},
    "lean macs=4e6": {"name": "lean", "macs": 4e6},
}
"""Options of the networks; the first is what the others are compared with."""
COUNTED = ("client_macs", "client_parameters", "client_activation_bytes")
Pass = Callable[[], object]
"""Sends one image through a client."""


def counts(name: str) -> tuple[dict[str, int], nn.Module]:
    """The counted costs of a client, and the client itself."""
    client, server = build_halves(SPEC, ModelOptions.model_validate(CLIENTS[name]))
    cost = count_cost(SplitModel(client, IdentityChannel(IdentityOptions()), server), SPEC.shape)
    return {key: getattr(cost, key) for key in COUNTED}, client


def passes(client: nn.Module) -> tuple[Pass, Pass]:
    """A pass of the client by torch, and one by onnxruntime."""
    image, on_one_thread = torch.full((1, *SPEC.shape), 0.5), on_cpu(client)
    session, pixels = exported(on_one_thread, image), image.numpy()
    return lambda: on_one_thread(image), lambda: session(pixels)


def ratios(clients: Mapping[str, Pass]) -> dict[str, float]:
    """Each client's time divided by the first client's time in the same round: the median of all rounds."""
    rounds = [{name: median_milliseconds(run) for name, run in clients.items()} for _ in range(ROUNDS)]
    return {name: round(median(times[name] / next(iter(times.values())) for times in rounds), 2) for name in clients}


@torch.no_grad()
def measure() -> dict[str, Any]:
    """The counted costs of all clients, and their times as multiples of the first client's time."""
    torch.set_num_threads(1)
    counted = {name: counts(name) for name in CLIENTS}
    timed = {name: passes(client) for name, (_, client) in counted.items()}
    by_torch = ratios({name: by_torch for name, (by_torch, _) in timed.items()})
    by_onnx = ratios({name: by_onnx for name, (_, by_onnx) in timed.items()})
    return {
        "command": "python scripts/client_costs.py results/client_costs.json",
        "rounds": ROUNDS,
        "cpu": cpu_name(),
        "versions": {"torch": torch.__version__, "onnxruntime": version("onnxruntime")},
        "clients": {
            name: {**costs, "times_as_long_torch": by_torch[name], "times_as_long_onnx": by_onnx[name]}
            for name, (costs, _) in counted.items()
        },
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
