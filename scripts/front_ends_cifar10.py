"""Front ends on CIFAR-10: what they cost in accuracy and what an attacker is left with, beside the baseline's penalty.

    python scripts/front_ends_cifar10.py CIFAR10_FOLDER results/front_ends_cifar10.json [--minutes 9] [--part evidence]
    python scripts/front_ends_cifar10.py --page docs/front-ends.md results/front_ends_cifar10.json

`selection` trains every setting once and attacks it on validation images: the recommended configurations are chosen
from it (`choose`). `evidence` trains the arms of the comparison with three seeds and attacks them on test images.
Rows that the file holds already are left as they are, so that a stopped measurement goes on; every row is written at
once. For a GPU: a row takes about a minute on an H200. With --page nothing is measured: the tables of the page are
written from the file.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import attncem
from attncem.config.load import load
from attncem.config.suites import Suite
from attncem.files import write_json
from attncem.metrics import METRICS
from attncem.progress import silent
from attncem.texts import text

SETTING = [
    "data.name=cifar10",
    "data.crop_padding=4",
    "data.horizontal_flip=true",
    "data.held_out_fraction=0",
    "data.validation_fraction=0.05",
    "model.name=vgg11_bn",
    "model.cut=4",
    "training.epochs=40",
    "training.batch_size=256",
    "training.precision=bf16-mixed",
    "training.checkpoint_every=40",
    "training.selection_window=0.025",
    "training.optimizer.lr=0.1",
    "training.optimizer.nesterov=true",
]
ROWS = ("mean image", "ridge", "decoder global")
STANDARD = load(Suite, "standard").config
GLOBAL = STANDARD.rows["decoder global"].model_copy(update={"epochs": 15.0, "max_epochs": 60.0})
SUITE = Suite(
    name="front-ends",
    version=1,
    meaning="a floor, ridge and the global decoder of standard, with the budgets that it had when this was measured",
    rows={name: GLOBAL if name == "decoder global" else STANDARD.rows[name] for name in ROWS},
)
FRONT_ENDS = {
    "none": "model.front_end={name: none}",
    "standardise": "model.front_end={name: standardise}",
    "high_pass": "model.front_end={name: high_pass, s: 2}",
    "high_pass_standardise a 0.2": "model.front_end={name: high_pass_standardise, s: 2, a: 0.2}",
    "local_contrast": "model.front_end={name: local_contrast, s: 3}",
    "local_contrast s 1.5": "model.front_end={name: local_contrast, s: 1.5}",
    "local_contrast a 0.2": "model.front_end={name: local_contrast, s: 3, a: 0.2}",
    "local_contrast s 2 a 0.2": "model.front_end={name: local_contrast, s: 2, a: 0.2}",
    "block_dct": "model.front_end={name: block_dct, n: 1}",
    "block_dct 3": "model.front_end={name: block_dct, n: 3}",
}
SURROGATES = {
    "none": ["surrogate.name=none"],
    "kmeans": ["surrogate.name=kmeans"],
    "capacity": ["surrogate.name=capacity"],
    "gated": ["surrogate.name=gated", "surrogate.statistic=capacity", "surrogate.learn=worst_case"],
    "slot": ["surrogate.name=slot", "surrogate.statistic=capacity", "surrogate.learn=fit"],
    "hybrid": [
        "surrogate.name=hybrid",
        "surrogate.gated={statistic: capacity, learn: worst_case}",
        "surrogate.slot={statistic: capacity, learn: fit}",
    ],
}
Setting = tuple[str, str, float, float]
"""Front end, surrogate, λ, σ."""
SELECTION: list[Setting] = [
    ("none", "none", 0, 0),
    ("none", "none", 0, 0.05),
    ("none", "gated", 0.03, 0.05),
    ("local_contrast a 0.2", "none", 0, 0.02),
    ("local_contrast s 2 a 0.2", "none", 0, 0.05),
    ("high_pass_standardise a 0.2", "none", 0, 0.05),
    ("local_contrast", "none", 0, 0.05),
    ("local_contrast", "gated", 0.03, 0.05),
    ("local_contrast", "kmeans", 1, 0.1),
    ("local_contrast", "gated", 0.05, 0.1),
    ("local_contrast s 2 a 0.2", "gated", 0.15, 0.1),
    ("local_contrast", "gated", 0.1, 0.1),
    ("local_contrast", "kmeans", 2, 0.1),
    ("local_contrast", "slot", 0.1, 0.1),
    ("local_contrast s 2 a 0.2", "kmeans", 1.5, 0.1),
]
EVIDENCE: list[Setting] = [
    ("none", "kmeans", 2, 0.1),
    ("local_contrast", "kmeans", 2, 0.1),
    ("local_contrast", "gated", 0.1, 0.1),
    ("local_contrast", "kmeans", 1.4, 0.1),
]
SEEDS = (0, 1, 2)
LEVELS = {"light": 0.005, "balanced": 0.015, "strong": 0.03}
"""How far below the undefended accuracy a recommended configuration may be, on validation images."""


def overrides(setting: Setting) -> list[str]:
    """What makes a setting of SETTING."""
    front_end, surrogate, weight, noise = setting
    own = [*SURROGATES[surrogate], f"training.penalty_weight={weight}", f"channel.noise_std={noise}"]
    return [FRONT_ENDS[front_end], *own]


def measure(setting: Setting, seed: int, on: str, data: str, folder: Path) -> dict[str, Any]:
    """Train one setting and attack it."""
    run = attncem.train(
        None,
        [*SETTING, *overrides(setting), f"data.root={data}", f"seed={seed}"],
        out=folder / "run",
        progress=silent,
    )
    audit = attncem.audit(run, SUITE, on=on, progress=silent)
    front_end, surrogate, weight, noise = setting
    row = {"front_end": front_end, "surrogate": surrogate, "weight": weight, "noise_std": noise, "seed": seed}
    accuracy = audit.known_accuracy
    row |= {"accuracy": [accuracy.mean, accuracy.low, accuracy.high], "strongest": audit.strongest}
    row["attacks"] = {attack.name: _scores(attack) for attack in audit.attacks}
    row |= {"client_macs": audit.subject.client_macs, "training_seconds": audit.subject.training_seconds}
    row["warnings"] = sorted({item.code for item in audit.findings} | _warned(run))
    shutil.rmtree(run.path)
    return row


def _scores(attack: Any) -> dict[str, Any]:
    """Mean and interval of every measure, and whether the attack converged."""
    means = {
        name: [round(value, 6) for value in (score.mean, score.low, score.high)]
        for name, score in attack.scores.items()
    }
    return {**means, "reliable": attack.verdict.reliable}


def _warned(run: attncem.RunDirectory) -> set[str]:
    """Causes of warnings that began during the training."""
    return {str(record["cause"]) for record in run.records() if record["kind"] == "warning" and record["begins"]}


def error(row: dict[str, Any]) -> float:
    """What is chosen by: the geometric mean of MSE and structure error under the strongest attack."""
    scores = row["attacks"][row["strongest"]]
    return math.sqrt(scores["mse"][0] * scores["structure"][0])


def choose(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For every level the defended setting with the largest error among those that are accurate enough, if any is."""
    undefended = next(row for row in rows if row["surrogate"] == row["front_end"] == "none" and row["noise_std"] == 0)
    defended = [row for row in rows if row is not undefended]
    floors = {level: undefended["accuracy"][0] - drop for level, drop in LEVELS.items()}
    fitting = {level: [row for row in defended if row["accuracy"][0] >= floor] for level, floor in floors.items()}
    keys = ("front_end", "surrogate", "weight", "noise_std")
    return {level: {key: max(some, key=error)[key] for key in keys} for level, some in fitting.items() if some}


PARTS: dict[str, tuple[str, list[tuple[Setting, int]]]] = {
    "selection": ("validation", [(setting, 0) for setting in SELECTION]),
    "evidence": ("test", [(setting, seed) for seed in SEEDS for setting in EVIDENCE]),
}
"""Part → the images it is judged on, and its settings and seeds in the order of measuring."""


def key(row: dict[str, Any]) -> tuple[Setting, int]:
    """Setting and seed of a row."""
    return (row["front_end"], row["surrogate"], row["weight"], row["noise_std"]), row["seed"]


def told(row: dict[str, Any]) -> str:
    """One line for the terminal."""
    scores = row["attacks"][row["strongest"]]
    numbers = "  ".join(f"{name} {scores[name][0]:.4f}" for name in ("mse", "structure", "ssim"))
    name = f"{row['front_end']} / {row['surrogate']} {row['weight']:g} / σ {row['noise_std']:g} / seed {row['seed']}"
    return f"{name:66} {100 * row['accuracy'][0]:.2f} %  {numbers}  {row['strongest']} {row['warnings']}"


SELECTION_SHOWN = ("mse", "structure", "ssim", "edges")
SHOWN = ("mse", "structure", "ssim", "edges", "band_mean", "band_low", "band_high")
TABLE = re.compile(r"(<!-- results: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def renewed(page: str, found: dict[str, Any]) -> str:
    """The page with its tables as the file has them."""
    tables = {"evidence": evidence_table(found), "selection": selection_table(found)}
    return TABLE.sub(lambda place: f"{place[1]}{tables[place[2]]}{place[3]}", page)


def selection_table(found: dict[str, Any]) -> str:
    """Every setting that was tried, the undefended first, then from the most accurate; what was chosen is named."""
    head = ["front end", "surrogate, λ", "σ", "accuracy %", *(text(f"measure.{name}") for name in SELECTION_SHOWN)]
    lines = [f"| {' | '.join([*head, 'chosen'])} |", "|---|---|" + "--:|" * (len(head) - 2) + "---|"]
    rows = sorted(found["selection"], key=lambda row: (row["noise_std"] > 0, -row["accuracy"][0]))
    names = {tuple(setting.values()): f"`recommended-{level}`" for level, setting in found["chosen"].items()}
    for row in rows:
        front_end, surrogate, weight, noise = setting = key(row)[0]
        scores = row["attacks"][row["strongest"]]
        numbers = [_decimal(name, [scores[name][0]]) for name in SELECTION_SHOWN]
        method = surrogate if surrogate == "none" else f"{surrogate} {weight:g}"
        cells = [front_end, method, f"{noise:g}", f"{100 * row['accuracy'][0]:.1f}", *numbers, names.get(setting, "")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def evidence_table(found: dict[str, Any]) -> str:
    """The arms, each a mean over its seeds ± their standard deviation; first what a blind guess scores."""
    head = ["front end", "surrogate, λ", "accuracy %", *(text(f"measure.{name}") for name in SHOWN), "MSE of ridge"]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "--:|" * (len(head) - 2)]
    floor = found["evidence"][0]["attacks"]["mean image"]
    blind = ["mean image, blind", "", "", *(_decimal(name, [floor[name][0]]) for name in SHOWN), ""]
    arms: dict[Setting, list[dict[str, Any]]] = {}
    for row in found["evidence"]:
        arms.setdefault(key(row)[0], []).append(row)
    cells = [blind, *(_arm(setting, rows) for setting, rows in arms.items())]
    return "\n".join([*lines, *(f"| {' | '.join(line)} |" for line in cells)])


def _arm(setting: Setting, rows: list[dict[str, Any]]) -> list[str]:
    front_end, surrogate, weight, _ = setting
    accuracy = [100 * row["accuracy"][0] for row in rows]
    strongest = [row["attacks"][row["strongest"]] for row in rows]
    numbers = [_decimal(name, [scores[name][0] for scores in strongest]) for name in SHOWN]
    ridge = _decimal("mse", [row["attacks"]["ridge"]["mse"][0] for row in rows])
    spread = f"{statistics.mean(accuracy):.1f} ± {statistics.stdev(accuracy):.1f}"
    return [front_end, f"{surrogate} {weight:g}", spread, *numbers, ridge]


def _decimal(measure: str, values: list[float]) -> str:
    digits = METRICS[measure].decimals
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def main() -> None:
    """Measure what is missing, as far as the time goes, and write the file after every row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no row after so many")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part")
    parser.add_argument("--page", type=Path, help="measure nothing, write the tables of this page")
    options = parser.parse_args()
    if options.page is not None:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(renewed(page, json.loads(options.out.read_text())), encoding="utf-8")
        return
    deadline = time.monotonic() + 60 * options.minutes
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    for part in options.part or PARTS:
        on, wanted = PARTS[part]
        rows = {key(row): row for row in found.get(part, [])}
        for setting, seed in wanted:
            if (setting, seed) in rows or time.monotonic() > deadline:
                continue
            with tempfile.TemporaryDirectory() as name:
                rows[setting, seed] = measure(setting, seed, on, options.data, Path(name))
            print(told(rows[setting, seed]), flush=True)
            found = _written(found, part, [rows[one] for one in wanted if one in rows], options.out)


def _written(found: dict[str, Any], part: str, rows: list[dict[str, Any]], out: Path) -> dict[str, Any]:
    """The file's content with these rows, on disk."""
    parts = {name: rows if name == part else found.get(name, []) for name in PARTS}
    head = {
        "train": "attncem train " + " ".join(SETTING),
        "attacks": {name: row.model_dump(mode="json", exclude_defaults=True) for name, row in SUITE.rows.items()},
    }
    chosen = {"chosen": choose(parts["selection"])} if parts["selection"] else {}
    content = {**head, **chosen, **parts}
    write_json(out, content)
    return content


if __name__ == "__main__":
    main()
