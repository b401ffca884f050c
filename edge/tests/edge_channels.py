"""Every stage of a channel with usual options, and stages that no client applies."""

from __future__ import annotations

from typing import Any

EXAMPLES: dict[str, dict[str, Any]] = {
    "identity": {},
    "gaussian": {"noise": "fresh", "noise_std": 0.5},
    "laplace": {"noise": "fresh", "noise_std": 0.5, "scale": None},
    "shaped": {"noise": "fresh", "noise_std": 0.5, "tilt": 1.0},
    "local_dp": {"noise": "fresh", "noise_std": 1.0, "grid": 2.0**-11, "clip": 1.0, "epsilon": 10.0, "delta": 1e-5},
    "dropout": {"noise": "fresh", "rate": 0.25, "rescale": True},
    "top_k": {"keep": 0.25},
    "quantise": {"bits": 3, "low": -1.0, "high": 1.0},
}
"""The options of every stage that a bundle may have."""


def example(name: str, **others: Any) -> dict[str, Any]:
    return {"name": name, **EXAMPLES[name], **others}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "mine"}, "'mine' is unknown: this program knows identity, gaussian"),
    ({"name": "gaussian"}, "needs noise, noise_std"),
    (example("gaussian", noise_std=-1), "noise_std=-1"),
    (example("gaussian", noise_std="0"), "noise_std='0'"),
    (example("gaussian", noise_std=True), "noise_std=True"),
    (example("gaussian", noise="none"), "noise='none'"),
    (example("gaussian", less=1), "has the options"),
    (example("local_dp", grid=0.3), "grid=0.3"),
    (example("quantise", bits=17), "bits=17"),
    (example("quantise", low=2.0), "empty range"),
    (example("top_k", keep=0), "keep=0"),
    (example("dropout", rate=1.0), "rate=1.0"),
    (example("shaped", tilt=9), "tilt=9"),
]
"""Stages that cannot be applied, and words of the reason."""
