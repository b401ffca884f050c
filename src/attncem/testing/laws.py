"""Laws: functions that take a case and fail where it breaks them; and the check that calls all of a kind."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

CaseT = TypeVar("CaseT")
Law = Callable[[CaseT], None]


class ContractError(AssertionError):
    """A class that breaks laws of its kind: one line for each."""


def holds(condition: object, said: str) -> None:
    """Fail with a sentence unless the condition is true."""
    if not condition:
        raise AssertionError(said)


def check_laws(what: str, laws: Sequence[Law[CaseT]], case: CaseT) -> None:
    """Call every law; ContractError lists those that fail, each with its meaning and the reason."""
    broken = []
    before = torch.get_rng_state()
    for law in laws:
        try:
            law(case)
        except Exception as error:  # whatever a user's class raises is a broken law
            broken.append(_line(law, error))
        finally:
            torch.set_rng_state(before)
    if broken:
        raise ContractError("\n".join([f"{what} breaks {len(broken)} of {len(laws)} laws:", *broken]))


def _line(law: Law[CaseT], error: Exception) -> str:
    meaning = (law.__doc__ or "").partition("\n")[0]
    said = " ".join(str(error).split()) or "it does not hold"
    if not isinstance(error, AssertionError):
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {said} ({place.filename.rpartition('/')[2]}, line {place.lineno})"
    return f"  {getattr(law, '__name__', law)}: {meaning} {said}"
