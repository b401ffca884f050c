"""The suite `standard` on four CIFAR-10 models: which attack is strongest where, and what each row costs.

    python scripts/ladder_cifar10.py CIFAR10_FOLDER results/ladder_cifar10.json [--minutes 9]
    python scripts/ladder_cifar10.py --page docs/audit.md results/ladder_cifar10.json

Of a model with a front end also `decoder informed`, which knows it. Models that the file holds already are left as they
are, so that a stopped measurement goes on. For a GPU: a model takes about two minutes on an H200. With --page nothing
is measured: the tables of the page are written from the file.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from front_ends_cifar10 import SETTING, STANDARD, Setting, overrides

import attncem
from attncem.files import write_json
from attncem.progress import silent

MODELS: dict[str, Setting] = {
    "undefended": ("none", "none", 0, 0),
    "kmeans": ("none", "kmeans", 2, 0.1),
    "gated": ("none", "gated", 0.1, 0.1),
    "gated, local contrast": ("local_contrast", "gated", 0.1, 0.1),
}
"""Name → front end, surrogate, λ, σ."""
BASELINE, WHITE_BOX, INFORMED = "baseline's decoder", "white box", "decoder informed"
TABLES = re.compile(r"(?<=<!-- results: ladder -->\n).*?(?=\n<!-- end -->)", re.DOTALL)


def measure(setting: Setting, data: str, folder: Path) -> dict[str, Any]:
    """Train one model and audit it."""
    own = [f"data.root={data}", "seed=0"]
    run = attncem.train(None, [*SETTING, *overrides(setting), *own], out=folder / "run", progress=silent)
    began = time.monotonic()
    audit = attncem.audit(run, "standard", progress=silent)
    seconds, rows = time.monotonic() - began, list(audit.rows)
    if setting[0] != "none":
        rows += [attncem.audit(run, "full", only=[INFORMED], progress=silent).row(INFORMED)]
    accuracy = audit.known_accuracy
    return {
        "setting": list(setting),
        "accuracy": [accuracy.mean, accuracy.low, accuracy.high],
        "strongest": audit.strongest,
        "audit_seconds": round(seconds, 1),
        "rows": {row.name: _row(row) for row in rows},
        "findings": [found.text for found in audit.findings],
    }


def _row(row: Any) -> dict[str, Any]:
    """One row: what it saw, what it took, and mean and interval of every measure."""
    scores = {
        name: [round(value, 6) for value in (score.mean, score.low, score.high)] for name, score in row.scores.items()
    }
    facts = {"outcome": row.outcome, "seconds": round(row.seconds, 2), "releases": row.releases}
    return {**facts, "reliable": row.verdict.reliable, "images": row.num_images, **scores}


def renewed(page: str, found: dict[str, Any]) -> str:
    """The page with its tables as the file has them."""
    return TABLES.sub(lambda _: f"{errors_table(found)}\n\n{summary_table(found)}", page)


def errors_table(found: dict[str, Any]) -> str:
    """MSE of every row on every model, the strongest of those that see one release in bold; and seconds."""
    models = found["models"]
    head = ["attack", *(f"{name}, MSE" for name in models), "seconds"]
    lines = [_line(head), "|---|" + "--:|" * (len(head) - 1)]
    for name in dict.fromkeys(name for model in models.values() for name in model["rows"]):
        cells = [_error(model, name) for model in models.values()]
        seconds = [model["rows"][name]["seconds"] for model in models.values() if name in model["rows"]]
        lines.append(_line([name, *cells, _range(seconds)]))
    without = [model["audit_seconds"] - model["rows"][WHITE_BOX]["seconds"] for model in models.values()]
    lines.append(_line(["all but the white box", *["" for _ in models], _range(without)]))
    return "\n".join(lines)


def _error(model: dict[str, Any], name: str) -> str:
    row = model["rows"].get(name)
    if row is None:
        return ""
    said = f"{row['mse'][0]:.4f}" + ("" if row["reliable"] else " (not converged)")
    return f"**{said}**" if name == model["strongest"] else said


def _range(values: list[float]) -> str:
    low, high = (f"{value:.1f}" if value < 10 else f"{value:.0f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def summary_table(found: dict[str, Any]) -> str:
    """Who is strongest, by how much the baseline's attack falls short of it."""
    head = [
        "model",
        "front end, surrogate, λ, σ",
        "accuracy %",
        "strongest",
        "its MSE",
        "the baseline's",
        "too high by %",
    ]
    lines = [_line(head), "|---|---|--:|---|" + "--:|" * 3]
    for name, model in found["models"].items():
        front_end, surrogate, weight, noise = model["setting"]
        best, published = (model["rows"][row]["mse"][0] for row in (model["strongest"], BASELINE))
        setting = f"{front_end}, {surrogate}, {weight:g}, {noise:g}"
        numbers = [f"{best:.4f}", f"{published:.4f}", f"{100 * (published / best - 1):.1f}"]
        lines.append(_line([name, setting, f"{100 * model['accuracy'][0]:.1f}", model["strongest"], *numbers]))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure what is missing, as far as the time goes, and write the file after every model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no model after so many")
    parser.add_argument("--page", type=Path, help="measure nothing, write the tables of this page")
    options = parser.parse_args()
    if options.page is not None:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(renewed(page, json.loads(options.out.read_text())), encoding="utf-8")
        return
    deadline = time.monotonic() + 60 * options.minutes
    models: dict[str, Any] = json.loads(options.out.read_text())["models"] if options.out.exists() else {}
    for name, setting in MODELS.items():
        if name in models or time.monotonic() > deadline:
            continue
        with tempfile.TemporaryDirectory() as folder:
            models[name] = measure(setting, options.data, Path(folder))
        seconds, strongest = models[name]["audit_seconds"], models[name]["strongest"]
        print(f"{name}: {100 * models[name]['accuracy'][0]:.2f} %, {strongest}, {seconds:.0f} s", flush=True)
        head = {"train": "attncem train " + " ".join(SETTING), "suite": f"standard v{STANDARD.version}"}
        write_json(options.out, {**head, "models": {key: models[key] for key in MODELS if key in models}})


if __name__ == "__main__":
    main()
