"""The contract of every kind as functions: a plugin's author calls them, and so do the package's own tests.

Each takes a class (or a network's function) and options, and raises `ContractError`, which names every broken law.
"""

from __future__ import annotations

from attncem.testing.attacks import check_attack
from attncem.testing.channels import check_channel
from attncem.testing.laws import ContractError
from attncem.testing.networks import check_network
from attncem.testing.surrogates import check_surrogate

__all__ = ["ContractError", "check_attack", "check_channel", "check_network", "check_surrogate"]
