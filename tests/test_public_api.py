"""The public names: few, sorted, importable, and cheap until they are used."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import attncem
from attncem import _HOME


def test_the_names_are_sorted_and_few() -> None:
    assert attncem.__all__ == sorted(attncem.__all__)
    assert len(set(attncem.__all__)) == len(attncem.__all__) <= 34


def test_the_names_are_pinned() -> None:
    """A change of the public names is a decision: make it here too."""
    assert attncem.__all__ == [
        "ATTACKS",
        "AttncemError",
        "AuditResult",
        "CHANNELS",
        "ConfigError",
        "DataError",
        "DatasetSpec",
        "METRICS",
        "OpenRun",
        "Row",
        "RunConfig",
        "RunDirectory",
        "RunError",
        "SURROGATES",
        "SplitModel",
        "Surrogate",
        "SurrogateOutput",
        "THREATS",
        "ThreatModel",
        "TrainingError",
        "__version__",
        "audit",
        "build_surrogate",
        "compare",
        "explain",
        "load",
        "load_config",
        "open_encoder",
        "open_run",
        "predict",
        "privacy_card",
        "report",
        "run_campaign",
        "train",
    ]


def test_every_name_has_a_home() -> None:
    assert set(_HOME) == set(attncem.__all__) - {"__version__"}
    assert dir(attncem) == attncem.__all__


@pytest.mark.parametrize("name", sorted(_HOME))
def test_every_name_is_what_its_home_has(name: str) -> None:
    home = importlib.import_module(f"attncem.{_HOME[name]}")
    value = getattr(attncem, name)
    assert value is getattr(home, name)
    assert value is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tran'"):
        attncem.tran  # noqa: B018
    with pytest.raises(ImportError):
        from attncem import tran  # noqa: F401


def test_no_module_has_the_name_of_a_public_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(attncem.__path__)}
    assert {"training", "judging", "reporting"} <= modules
    assert not modules & set(attncem.__all__)


def test_functions_stay_functions_after_their_modules_are_imported() -> None:
    for module in ("training.train", "judging.auditing", "reporting", "training.build", "training.surrogates"):
        importlib.import_module(f"attncem.{module}")
    for name in ("reporting.card", "reporting.campaign.page", "reporting.comparison.page", "campaigns.running"):
        importlib.import_module(f"attncem.{name}")
    verbs = ("train", "audit", "report", "compare", "privacy_card", "run_campaign")
    for name in (*verbs, "open_run", "build_surrogate", "load_config"):
        assert callable(getattr(attncem, name)), name


def test_importing_the_package_is_cheap() -> None:
    code = (
        "import sys, attncem; attncem.__version__; dir(attncem); "
        "heavy = {'torch', 'pydantic', 'numpy', 'matplotlib'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "name",
    [
        *("ConfigError", "RunConfig", "load_config", "RunDirectory", "METRICS", "THREATS", "AuditResult"),
        *("report", "compare", "privacy_card", "run_campaign", "load"),
    ],
)
def test_names_without_computation_do_not_import_torch(name: str) -> None:
    code = f"import sys, attncem; attncem.{name}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


BFLOAT16_PRODUCT = """
import os, attncem, torch
product = torch.ones(512, 512, dtype=torch.bfloat16) @ torch.ones(512, 512, dtype=torch.bfloat16)
print(float(product[0, 0]), os.environ.get("ONEDNN_MAX_CPU_ISA", "unset"))
"""


def test_bfloat16_does_not_end_the_process() -> None:
    """Some virtual machines name matrix units that cannot be used: an illegal instruction ended such a process."""
    done = subprocess.run([sys.executable, "-c", BFLOAT16_PRODUCT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "512.0"


def test_the_persons_own_choice_of_instructions_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    done = subprocess.run([sys.executable, "-c", BFLOAT16_PRODUCT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["512.0", "AVX2"]
