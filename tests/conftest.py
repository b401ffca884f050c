"""What many tests share: one torch thread, and settings under which a run takes half a second."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from browsing import Opened, open_page, start_browser
from budget import Budget
from remembering import remember

LONGEST = (
    *("test_surrogates", "test_attacks", "test_engines", "test_attack_laws", "test_kills", "test_processes"),
    *("test_campaign_kills", "test_distributions", "test_live_browser", "test_adding_an_attack", "test_first_hour"),
    *("test_training", "test_export", "test_penalties", "test_auditing", "test_reporting", "test_workers"),
    *("test_example_notebook", "test_resume", "test_campaigns", "test_flow", "test_sending_pages", "test_notebook"),
    *("test_image_prior", "test_lean", "test_search", "test_site", "test_live_runs", "test_fuzz"),
    *("test_demonstration", "test_adding_a_measure", "test_learned_front_end", "test_ledger", "test_chinese_pages"),
    *("test_models", "test_foreign_encoders", "test_write_results", "test_campaign_archive", "test_campaign_report"),
    *("test_campaign_browser", "test_cli", "test_adding_a_surrogate", "test_pitfalls", "test_portraits"),
    *("test_certificates", "test_hints", "test_end_to_end", "test_fuzz_runs", "test_fuzz_data", "test_benchmarks"),
    *("test_report_browser", "test_card", "test_networks_table", "test_reaching", "test_explain", "test_forecast"),
    *("test_plugins_page", "test_travelling", "test_fuzz_onnx", "test_fuzz_archives", "test_selective_audits"),
    *("test_selective_training", "test_doubt_weights", "test_plugins", "test_onnx_process", "test_docs_deploy"),
    *("test_pruning", "test_floor", "test_gan", "test_serve_load", "test_examples", "test_distributions"),
)
"""Test files of more than about ten seconds, quick or slow."""

torch.set_num_threads(1)
gc.set_threshold(10_000, 20, 20)  # a run, an audit or a page makes and frees many small objects
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's script starts what it does not wait for
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else no process of a test could be interrupted


def pytest_configure(config: pytest.Config) -> None:
    """Name the quick tests that take too long at the end."""
    config.pluginmanager.register(Budget(), "budget of quick tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, so that two workers end at about the same time."""
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


class Lasting:
    """What stays in memory to the end and is left out of garbage collections: each training makes a full one."""

    modules = 0
    """How many modules were imported when it was last counted."""

    @classmethod
    def leave_out(cls) -> None:
        """Collect garbage, then count everything that is left as lasting."""
        remember()
        gc.collect()
        gc.freeze()
        cls.modules = len(sys.modules)


def pytest_collection_finish() -> None:
    """Leave out modules and collected tests."""
    Lasting.leave_out()


def pytest_runtest_setup() -> None:
    """Leave out what earlier tests have imported."""
    if len(sys.modules) > Lasting.modules + 50:
        Lasting.leave_out()


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    """Overrides for a run of two epochs on 500 images."""
    return {
        "model.width": 4,
        "data.held_out_fraction": 0.8,
        "training.batch_size": 32,
        "training.epochs": 2,
        "training.log_every": 5,
    }


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> Callable[..., Path]:
    """Makes a finished run of a packaged configuration with overrides, once; nothing may change it."""
    made: dict[str, Path] = {}

    def make(config: str = "demo", **overrides: Any) -> Path:
        from attncem.base.progress import silent
        from attncem.training.train import train

        key = f"{config} {overrides}"
        if key not in made:
            out = tmp_path_factory.mktemp("small") / "run"
            made[key] = train(config, {**tiny, "device": "cpu", **overrides}, out=out, progress=silent).path
        return made[key]

    return make


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser without a network."""
    with start_browser() as started:
        yield started


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Opened]:
    """The page that the test file makes, `file`, watched to the end."""
    found = open_page(browser, file)
    yield found
    assert found.requests == [] and found.said == [], "nothing is asked for, and nothing goes wrong, whatever is done"
    found.page.context.close()
