"""docs/adding.md: an attack, executed step by step in a copy of the project."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pages import STEP, copy_project, follow, read_part, run_python, run_testers

PAGE = read_part("adding.md", "Adding an attack")
TESTERS = ["tests/contracts/test_attacks.py", "tests/test_imports.py", "tests/test_readme.py"]
AUDIT = """
import json, sys
from pathlib import Path
import torch
import attncem
from attncem.base.progress import silent
from attncem.cli.main import main
from attncem.records.files import hash_file

torch.set_num_threads(1)
out, overrides = Path(sys.argv[1]), json.loads(sys.argv[2])
attncem.train("demo-none", overrides, out=out, progress=silent)
victim = attncem.open_run(out)
tensors = {key: tensor.clone() for key, tensor in victim.model.state_dict().items()}
files = {str(file): hash_file(file) for file in sorted((out / "checkpoints").rglob("*.safetensors"))}
shares = [parameter.requires_grad for parameter in victim.model.parameters()]
steps = "white_box.steps=50"
assert main(["audit", str(out), "--suite", "white-box", steps, "--threat", "query_only"]) == 0
threats = {
    threat: attncem.audit(victim, "white-box", [steps], threat=threat, progress=silent)
    for threat in ("train", "query_only")
}
assert len(list((out / "audits").iterdir())) == 2
print(json.dumps({
    "rows": {
        threat: {row.name: [row.outcome, row.reason, row.num_images, row.ok and row.mse.mean] for row in found.rows}
        for threat, found in threats.items()
    },
    "warnings": threats["train"].warnings,
    "files": [len(files), all(hash_file(Path(file)) == sha256 for file, sha256 in files.items())],
    "weights": all(torch.equal(tensor, tensors[key]) for key, tensor in victim.model.state_dict().items()),
    "training": any(module.training for module in victim.model.modules()),
    "shares": [parameter.requires_grad for parameter in victim.model.parameters()] == shares,
    "gradients": any(parameter.grad is not None for parameter in victim.model.parameters()),
}))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_project(tmp_path)


def test_every_block_of_the_page_is_a_step() -> None:
    assert len(STEP.findall(PAGE)) == PAGE.count("\n```\n") == 9


def test_the_page_makes_an_attack_that_passes_the_testers(project: Path) -> None:
    follow(PAGE, project)
    done = run_testers(project, *TESTERS, "-k", "white_box or left_out or first_line or imports", "-m", "not slow")
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 20, done.stdout


def test_the_page_makes_an_attack_that_audits_a_run(project: Path, tiny: dict[str, Any]) -> None:
    follow(PAGE, project)
    done = run_python(project, "-c", AUDIT, str(project / "run"), json.dumps({**tiny, "device": "cpu"}))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    rows = found["rows"]["train"]
    assert [outcome for outcome, *_ in rows.values()] == ["ok"] * 4
    assert [count for _, _, count, _ in rows.values()] == [1000, 1000, 1000, 100]
    errors = {name: error for name, (*_, error) in rows.items()}
    assert errors["white box"] < 0.85 * errors["mean image"] < 0.85 * errors["grey"]
    said = [warning for warning in found["warnings"] if "white box" in warning and "suite" not in warning]
    assert said == ["white box: evaluated on 100 images: with fewer than 1000 the mean says little about other images"]
    outcome, reason, *_ = found["rows"]["query_only"].pop("white box")
    assert outcome == "not_applicable"
    assert reason == "the adversary of the threat model query_only does not know the encoder"
    assert [outcome for outcome, *_ in found["rows"]["query_only"].values()] == ["ok"] * 3
    assert found["files"][0] > 0
    assert found["files"][1] and found["weights"] and found["shares"]
    assert not found["training"] and not found["gradients"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "caught"),
    [
        ("            images.data.clamp_(0, 1)\n", "", "answers_are_images"),
        ("        target, steps = ", "        released.mul_(2)\n        target, steps = ", "answers_are_images"),
        ("self._standardise(released), self.", "Standardiser.of(released)(released), self.", "own_release_alone"),
        (".repeat(len(released), 1, 1, 1)", ".repeat(len(released), 1, 1, 1).add_(torch.rand(()))", "own_generator"),
        ('{"images", "queries", "gradient"}', '{"images", "queries"}', "what_it_needs_is_enough"),
        ("            adam.step()\n", "", "beat_ridge_where_their_kind_can"),
        ('    "white_box": WhiteBoxOptions(steps=50),\n', "", "left_out"),
    ],
    ids=["no bound", "in place", "statistics of the batch", "torch's generator", "a quiet need", "no step", "no case"],
)
def test_a_page_with_a_mistake_does_not_pass(project: Path, right: str, wrong: str, caught: str) -> None:
    assert PAGE.count(right) == 1
    follow(PAGE.replace(right, wrong), project)
    chosen = caught if caught == "left_out" else f"white_box and {caught}"
    done = run_testers(project, TESTERS[0], "-k", chosen, "-m", "not slow")
    assert done.returncode == 1, done.stdout
    assert " passed" not in done.stdout
