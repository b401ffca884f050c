"""attncem-edge: the client of a private split model on a device, without torch.

    client = attncem_edge.Client("bundle", url="https://example.org", budget=attncem_edge.Budget(per_image=4))
    client.predict("photo.jpg").label

Names are loaded when first used, so importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncem_edge.budget import Budget
    from attncem_edge.client import Client, Prediction
    from attncem_edge.errors import AttncemError, BudgetSpent, BundleError, ConfigError, DataError, ServerError

__version__ = "0.3.0"

_HOME = {
    "AttncemError": "errors",
    "Budget": "budget",
    "BudgetSpent": "errors",
    "BundleError": "errors",
    "Client": "client",
    "ConfigError": "errors",
    "DataError": "errors",
    "Prediction": "client",
    "ServerError": "errors",
}

__all__ = [
    "AttncemError",
    "Budget",
    "BudgetSpent",
    "BundleError",
    "Client",
    "ConfigError",
    "DataError",
    "Prediction",
    "ServerError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
