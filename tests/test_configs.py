"""Every packaged YAML loads, is accepted and builds, and says how it is run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

import attncem
from attncem.base.types import StepView
from attncem.config.loading.load import load_config, packaged_configs
from attncem.config.options.attention import GatedOptions, SlotOptions
from attncem.data.readers import dataset_spec
from attncem.data.specs import DATASETS
from attncem.models.client_head import doubt
from attncem.training.build import build_model, build_penalties, build_surrogate_for, check
from attncem.training.engine import Engine
from attncem.training.surrogates import SURROGATES

FOLDER = Path(attncem.__file__).parent / "config/packaged/runs"
FILES = sorted(FOLDER.rglob("*.yaml"))
RUN_NAMES = {"demo": "demo-gated"}
"""Where the run is not called like its file: the demo's three runs stand side by side in one report."""
FURTHER = {"own-pictures": " data.root=FOLDER"}
"""What must be given beside the configuration."""


def identifier(file: Path) -> str:
    return str(file.relative_to(FOLDER).with_suffix(""))


def test_there_are_configurations_and_nothing_else() -> None:
    assert {"demo", "demo-none", "demo-kmeans"} <= {identifier(file) for file in FILES}
    assert [p for p in FOLDER.rglob("*") if p.is_file() and p not in FILES] == []


PUBLISHED = ("gated-000", "gated-002", "gated-004", "slot-001", "slot-003", "kmeans-cem", "gmm-002", "hybrid-000")
"""Every variant of the source documents."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_variant_has_a_configuration(name: str) -> None:
    config = load_config(name).config
    surrogate, _, variant = name.partition("-")
    assert (config.surrogate.name, getattr(config.surrogate, "variant", variant)) == (surrogate, variant)
    assert config.training.penalty_weight > 0
    assert config.training.penalty_schedule.name == "cem_lr", "the documents' weight over time"


@pytest.mark.parametrize("level", ["light", "balanced", "strong", "thin-client"])
def test_a_recommended_configuration_cannot_cheat(level: str) -> None:
    options = load_config(f"recommended-{level}").config.surrogate
    assert isinstance(options, GatedOptions | SlotOptions)
    assert options.statistic == "capacity" and options.variance_space == "raw"
    assert options.learn in ("fit", "worst_case") and options.weights_gradient == "detached"


def pictures(root: Path) -> Path:
    for number, name in enumerate("aabb"):
        (root / name).mkdir(exist_ok=True)
        Image.new("RGB", (70 + number, 90 - number), (60 * number, 9, 9)).save(root / name / f"{number}.jpg")
    return root


@pytest.mark.parametrize("file", FILES, ids=identifier)
def test_a_configuration_builds(file: Path, tmp_path: Path) -> None:
    given = {"data.root": str(pictures(tmp_path))} if identifier(file) in FURTHER else {}
    config = load_config(file, given).config
    check(config)
    spec = dataset_spec(config.data) if given else DATASETS[config.data.name]
    model = build_model(config, spec).eval()
    surrogate = build_surrogate_for(config, model, spec)
    assert type(surrogate) is SURROGATES[config.surrogate.name]
    with torch.no_grad():
        x, y = torch.zeros(4, *spec.shape), torch.tensor([0, 0, 1, 1])
        z = model.encode(x)
        logits = model.predict(model.transmit(z))
        assert logits.shape == (4, spec.num_classes)
        doubts = doubt(model.look(x).answers) if surrogate.weighs else None
        assert bool(surrogate(z, y, doubts=doubts).loss.isfinite())
        penalties = build_penalties(config, model, spec, Engine(torch.device("cpu")))
        assert list(penalties) == [options.name for options in config.penalties]
        assert all(bool(penalty(StepView(x, y, z, z, logits))[0].isfinite()) for penalty in penalties.values())


PAPER = ["none", "bottleneck", "noise", "dropout", "distcorr", "nopeek", "ressfl", "arl", "patrol", "sca"]


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_rows_differ_from_their_partners_in_cem_alone(name: str) -> None:
    plain, cem = load_config(f"paper-{name}").config, load_config(f"paper-{name}-cem").config
    assert (plain.surrogate.name, plain.training.penalty_weight) == ("none", 0)
    assert (cem.surrogate.name, cem.training.penalty_weight) == ("kmeans", 16)
    parts = ["data", "model", "penalties", *(["channel"] if name != "none" else [])]
    assert all(getattr(plain, part) == getattr(cem, part) for part in parts)
    assert (cem.training.epochs, cem.training.batch_size, cem.training.schedule.name) == (240, 128, "multi_step")
    assert {f"paper-{row}{end}" for row in PAPER for end in ("", "-cem")} == {
        identifier(file) for file in FILES if file.stem.startswith("paper-")
    }


@pytest.mark.parametrize("file", FILES, ids=identifier)
def test_a_configuration_says_how_it_is_run(file: Path) -> None:
    first, second, *_ = file.read_text(encoding="utf-8").splitlines()
    assert first == f"# attncem train --config {identifier(file)}{FURTHER.get(identifier(file), '')}"
    assert second.startswith("# ") and len(second) > 20, "a line about what it is"
    assert packaged_configs()[identifier(file)] == second.removeprefix("# ")


@pytest.mark.parametrize("file", FILES, ids=identifier)
def test_a_configuration_is_named_after_its_file(file: Path) -> None:
    expected = RUN_NAMES.get(identifier(file), file.stem)
    assert load_config(identifier(file)).config.name == expected
    assert load_config(identifier(file)).config == load_config(file).config
