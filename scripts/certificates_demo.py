"""Certificates of the demo's models, for docs/certificates.md.

python scripts/certificates_demo.py results/certificates_demo.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import attncem
from attncem.records.audit import AuditResult

CONFIGS = ("demo-none", "demo-kmeans", "demo")
KEYS = ("value", "limit", "unit", "kind", "direction", "vacuous", "by", "assumptions")
"""The fields of a bound that the file keeps."""


def main() -> None:
    """Train, certify and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        found = [_judged(name, Path(folder) / name) for name in CONFIGS]
    out.write_text(json.dumps({"schema_version": 1, "runs": found}, indent=1) + "\n", encoding="utf-8")


def _judged(config: str, folder: Path) -> dict[str, Any]:
    run = attncem.train(config, {"device": "cpu"}, out=folder)
    result = attncem.audit(run, "certificates")
    rows = [row for row in result.rows if row.kind == "certificate"]
    return {
        "config": config,
        "accuracy": result.known_accuracy.mean,
        "strongest": result.strongest,
        "mse": result.strongest_attack.mse.mean,
        "bounds": _bounds(result),
        "absent": {row.name: row.reason for row in rows if not row.ok},
    }


def _bounds(result: AuditResult) -> list[dict[str, Any]]:
    return [
        {"row": row.name, "bound": name, **{key: getattr(bound, key) for key in KEYS}}
        for row in result.rows
        for name, bound in row.bounds.items()
    ]


if __name__ == "__main__":
    main()
