"""The files in examples/: each does what its first lines say, and a page names it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from edge_bundles import make_bundle, photo
from PIL import Image
from torch import Tensor

from attncem.base.plugins import load_plugin
from attncem.config.loading.yaml_text import parse_yaml
from attncem.data.readers import read_dataset
from attncem.testing import check_surrogate
from attncem.training.surrogates import SURROGATES

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PAGES = {
    "own_surrogate.py": "plugins.md",
    "foreign_encoder.py": "networks.md",
    "deployed_client.py": "deploy.md",
    "gate.yaml": "gate.md",
    "privacy.yml": "gate.md",
    "first-hour.ipynb": "terminal.md",
}
"""The page that names each example."""


def page_of(name: str) -> str:
    return (ROOT / "docs" / PAGES[name]).read_text(encoding="utf-8")


def command_of(name: str) -> list[str]:
    """The words of the command in the first lines of an example."""
    (line,) = re.findall(
        r"^(?:python|attncem) .*?(?:  |$)", (EXAMPLES / name).read_text(encoding="utf-8"), re.MULTILINE
    )
    first, *words = shlex.split(line.strip())
    return [sys.executable, *(["-m", "attncem"] if first == "attncem" else []), *words]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the examples, as in the project."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path


def called(place: Path, *words: str, ends: int = 0) -> str:
    """What a command prints in this folder."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "edge/src")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "XDG_STATE_HOME": str(place / "state")}
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == ends, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_every_example_is_named_by_its_page() -> None:
    assert {file.name for file in EXAMPLES.iterdir() if file.is_file()} == PAGES.keys()
    for name in PAGES:
        assert f"](../examples/{name})" in page_of(name), name


def with_loops(surrogate: torch.nn.Module, z: Tensor, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """The loss, and the value of each class: nan without two samples."""
    values = torch.full((surrogate.num_classes,), torch.nan, dtype=z.dtype)
    loss = torch.zeros((), dtype=z.dtype)
    for label in range(len(values)):
        x = z[y == label].flatten(1)
        if len(x) >= 2:
            values[label] = torch.log(1 + x.std(0, correction=0).clamp_min(1e-6) / surrogate.noise_std).mean()
            loss = loss + len(x) / len(z) * values[label]
    return loss, values


@pytest.mark.slow
def test_the_plugin_keeps_the_contract_and_trains(place: Path) -> None:
    load_plugin(EXAMPLES / "own_surrogate.py")
    check_surrogate(SURROGATES["standard_deviation"], reference=with_loops)
    short = ("training.epochs=1", "model.width=4", "data.held_out_fraction=0.8", "device=cpu")
    called(place, *command_of("own_surrogate.py"), *short)
    manifest = json.loads((place / "run/manifest.json").read_text())
    assert manifest["status"] == "finished" and [use["file"] for use in manifest["plugins"]] == ["own_surrogate.py"]


@pytest.mark.slow
def test_the_foreign_encoder_is_made_and_audited(place: Path) -> None:
    printed = called(place, *command_of("foreign_encoder.py"))
    assert re.search(r"^decoder small: MSE 0\.0\d+; the audit is (not )?\w+", printed, re.MULTILINE)
    assert "What it leaves open:\n" in printed and list((place / "audits").rglob("audit.json"))


@pytest.mark.slow
def test_the_deployed_client_asks_the_server_of_this_machine(place: Path) -> None:
    manifest = make_bundle(place / "bundle")
    photo(place).rename(place / "photo.jpg")
    printed = called(place, *command_of("deployed_client.py"))
    answer = re.search(r"^photo\.jpg: (\w+) \(\d+%\), answered by the server, from \d+ bytes$", printed, re.MULTILINE)
    assert answer is not None and answer[1] in manifest.labels
    script = [sys.executable, "examples/deployed_client.py"]
    assert "python examples/deployed_client.py bundle photo.jpg" in called(place, *script, ends=1)
    assert "the server did not start" in called(place, *script, "nowhere", "photo.jpg", ends=1)


def test_the_gate_is_that_of_its_page() -> None:
    suite, workflow = re.findall(r"```yaml\n(.+?)```", page_of("gate.yaml"), re.DOTALL)
    for name, text in (("gate.yaml", suite), ("privacy.yml", workflow)):
        assert parse_yaml((EXAMPLES / name).read_text(encoding="utf-8"), name) == parse_yaml(text, name)


@pytest.mark.slow
def test_the_gate_stops_an_encoder_that_leaks(place: Path) -> None:
    """Its command on 5,000 pictures, a fifth of which are judged, and an encoder that nobody defended."""
    workflow = parse_yaml((EXAMPLES / "privacy.yml").read_text(encoding="utf-8"), "privacy.yml")
    (command,) = (step["run"] for step in workflow["jobs"]["audit"]["steps"] if "attncem audit" in step.get("run", ""))
    model = place / "model"
    write_pictures(model / "pictures", 5000)
    shutil.copy(EXAMPLES / "gate.yaml", model)
    called(place, sys.executable, "-c", "from examples.foreign_encoder import export; export('model/client.onnx')")
    attncem = shlex.join([sys.executable, "-m", "attncem"])
    lines = called(place, "sh", "-c", command.replace("attncem audit", f"{attncem} audit"), ends=3)
    assert re.search(r"^fail: .*re-identification: reidentification\.rank_1>0\.05 holds: 0\.\d+", lines, re.MULTILINE)
    assert json.loads((place / "audit.json").read_text())["exit_code"] == 3
    cases = {case.get("name"): case.find("failure") for case in ElementTree.parse(place / "audit.xml").iter("testcase")}
    assert cases["reidentification.rank_1>0.05"] is not None and cases["--min-images"] is None


def write_pictures(folder: Path, count: int) -> None:
    """Embedded images as PNG files, a folder for each class."""
    data = read_dataset("fashion_mnist_mini")
    for number in range(count):
        place = folder / str(int(data.train_labels[number]))
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.train_images[number, 0]).save(place / f"{number:04d}.png")
