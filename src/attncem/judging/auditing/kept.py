"""The strongest attack of an audit, restored from its saved state."""

from __future__ import annotations

import torch
from torch import Tensor

from attncem.judging.attacks import ATTACKS
from attncem.judging.attacks.base import Attack
from attncem.records.audit import Row
from attncem.records.checkpoints import fitting, read_tensors
from attncem.records.ledger import Ledger


def kept_attack(ledger: Ledger, row: Row, released: Tensor) -> Attack | None:
    """The row's fitted attack, ready to reconstruct; None if its state was not kept.

    It is tried on some releases; a RunError says if the state does not fit them.
    """
    file = ledger.state_file(row.name)
    if file is None or row.method not in ATTACKS:  # of a plugin that is not loaded
        return None
    with fitting(f"{file} does not fit its row"):
        kind = ATTACKS[row.method]
        attack = kind(kind.options_type.model_validate(dict(row.options)))
        attack.load({name: tensor.to(released.device) for name, tensor in read_tensors(file).items()})
        if not bool(attack.reconstruct(released).isfinite().all()):
            raise ValueError("what it recovers is not finite")
    return attack


def strongest_kept(ledger: Ledger, released: Tensor) -> tuple[str, Attack] | None:
    """The strongest attack so far and its name; None if there is none, or if it kept no state."""
    result = ledger.result()
    if not result.strongest:
        return None
    with torch.no_grad():
        attack = kept_attack(ledger, result.strongest_attack, released)
    return None if attack is None else (result.strongest, attack)
