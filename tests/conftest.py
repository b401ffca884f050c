"""What many tests share: one torch thread, and settings under which a run takes half a second."""

from __future__ import annotations

from typing import Any

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    """Overrides for a run of two epochs on 500 images."""
    return {
        "model.width": 4,
        "data.held_out_fraction": 0.8,
        "training.batch_size": 32,
        "training.epochs": 2,
        "training.log_every": 5,
    }
