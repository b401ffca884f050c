"""From a configuration to a report: in this process, and from a wheel installed elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import attncem
from attncem.base.progress import silent
from attncem.config.options.attacks import DecoderOptions, GreyOptions, RidgeOptions
from attncem.config.options.suites import Suite
from attncem.records.ledger import read_audit

CHECKOUT = Path(__file__).resolve().parent.parent
SMALL = Suite(
    name="small",
    version=1,
    meaning="a floor, ridge and a decoder that has no time to learn",
    rows={
        "grey": GreyOptions(),
        "ridge": RidgeOptions(strengths=(0.01,), num_releases=1),
        "decoder": DecoderOptions(epochs=0.5, max_epochs=0.5),
    },
)


def test_train_audit_report(tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = attncem.train("demo", {**tiny, "training.penalty_weight": 0.1}, out=tmp_path / "run", progress=silent)
    result = attncem.audit(run, suite=SMALL, progress=silent)
    page = attncem.report([run], out=tmp_path / "report.html")

    assert result.subject.run == "demo-gated"
    assert [row.name for row in result.attacks] == ["grey", "ridge", "decoder"]
    assert result.strongest_attack.mse.mean == min(row.mse.mean for row in result.attacks)
    assert result.strongest != "grey", "a barely trained encoder leaks"
    (folder,) = (run.path / "audits").iterdir()
    assert read_audit(folder) == result
    text = page.read_text(encoding="utf-8")
    assert "demo-gated" in text
    assert f"{100 * result.known_accuracy.mean:.1f}" in text


def test_an_audit_is_reproducible_and_kept_beside_the_first(tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = attncem.train("demo-none", {**tiny, "training.epochs": 1}, out=tmp_path / "run", progress=silent)
    first, second = (attncem.audit(run, suite=SMALL, fresh=fresh, progress=silent) for fresh in (False, True))
    assert [row.mse for row in first.attacks] == [row.mse for row in second.attacks]
    assert first.subject == second.subject
    assert sorted(run.path / "audits" / name for name in (first.plan.id, f"{first.plan.id}-2")) == sorted(
        (run.path / "audits").iterdir()
    )


PROGRAM = """
import sys
from pathlib import Path
import attncem
from attncem.config.options.attacks import GreyOptions, RidgeOptions
from attncem.config.options.suites import Suite

site = Path(sys.argv[1])
assert Path(attncem.__file__).is_relative_to(site), attncem.__file__
import attncem_edge.command
assert Path(attncem_edge.command.__file__).is_relative_to(site), attncem_edge.__file__
tiny = {"model.width": 4, "data.held_out_fraction": 0.8, "training.batch_size": 32, "training.epochs": 1}
rows = {"grey": GreyOptions(), "ridge": RidgeOptions(strengths=(0.01,))}
suite = Suite(name="small", version=1, meaning="", rows=rows)
run = attncem.train("demo", tiny)
result = attncem.audit(run, suite=suite)
attncem.report([run], out="report.html")
assert result.plan.num_evaluation == 1000
"""


@pytest.mark.slow
def test_an_installed_wheel_works_outside_the_checkout(tmp_path: Path) -> None:
    wheels, site, elsewhere = tmp_path / "wheels", tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    build = (*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, CHECKOUT)
    if subprocess.run([sys.executable, "-c", "import hatchling"], capture_output=True, check=False).returncode:
        build = tuple(word for word in build if word != "--no-build-isolation")
    subprocess.run(build, check=True)
    (wheel,) = wheels.glob("attncem-*.whl")
    subprocess.run((*pip, "install", "--no-deps", "--target", site, wheel), check=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-P", "-c", PROGRAM, site], check=True, cwd=elsewhere, env=environment)
    assert (elsewhere / "runs" / "demo-gated-001" / "manifest.json").is_file()
    assert "demo-gated" in (elsewhere / "report.html").read_text(encoding="utf-8")
    listed = subprocess.run(
        [sys.executable, "-P", "-m", "attncem", "config", "--list"],
        check=True,
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "demo-kmeans" in listed.stdout
