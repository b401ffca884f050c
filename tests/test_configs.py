"""Every packaged YAML loads, is accepted and builds, and says how it is run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import attncem
from attncem.build import build_model, build_surrogate_for, check
from attncem.config.load import load_config, packaged_configs
from attncem.data.specs import DATASETS
from attncem.surrogates import SURROGATES

FOLDER = Path(attncem.__file__).parent / "configs"
FILES = sorted(FOLDER.rglob("*.yaml"))
RUN_NAMES = {"demo": "demo-gated"}
"""Where the run is not called like its file: the demo's three runs stand side by side in one report."""


def identifier(file: Path) -> str:
    return str(file.relative_to(FOLDER).with_suffix(""))


def test_there_are_configurations_and_nothing_else() -> None:
    assert {"demo", "demo-none", "demo-kmeans"} <= {identifier(file) for file in FILES}
    assert [p for p in FOLDER.rglob("*") if p.is_file() and p not in FILES] == []


@pytest.mark.parametrize("file", FILES, ids=identifier)
def test_a_configuration_builds(file: Path) -> None:
    config = load_config(file).config
    check(config)
    spec = DATASETS[config.data.name]
    model = build_model(config, spec).eval()
    surrogate = build_surrogate_for(config, model, spec)
    assert type(surrogate) is SURROGATES[config.surrogate.name]
    with torch.no_grad():
        z = model.encode(torch.zeros(4, *spec.shape))
        assert model.predict(model.transmit(z)).shape == (4, spec.num_classes)
        assert bool(surrogate(z, torch.tensor([0, 0, 1, 1])).loss.isfinite())


@pytest.mark.parametrize("file", FILES, ids=identifier)
def test_a_configuration_says_how_it_is_run(file: Path) -> None:
    first, second, *_ = file.read_text(encoding="utf-8").splitlines()
    assert first == f"# attncem train --config {identifier(file)}"
    assert second.startswith("# ") and len(second) > 20, "a line about what it is"
    assert packaged_configs()[identifier(file)] == second.removeprefix("# ")


@pytest.mark.parametrize("file", FILES, ids=identifier)
def test_a_configuration_is_named_after_its_file(file: Path) -> None:
    expected = RUN_NAMES.get(identifier(file), file.stem)
    assert load_config(identifier(file)).config.name == expected
    assert load_config(identifier(file)).config == load_config(file).config
