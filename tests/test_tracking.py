"""TensorBoard: the event file holds what metrics.jsonl holds, once, also after a resume; nothing else changes."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.cli.main import main
from attncem.config.loading.load import load_config
from attncem.records.runs import RunDirectory
from attncem.training.tracking import FOLDER, hyperparameters, numbers
from attncem.training.train import train

pytest.importorskip("tensorboard")
Curves = dict[str, list[tuple[int, float]]]


def events(run: Path) -> Curves:
    """Every curve of the event file, read by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (file,) = (run / FOLDER).glob("events.out.tfevents.*")
    found: Curves = {}
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            if not value.tag.startswith("_hparams_"):
                found.setdefault(value.tag, []).append((event.step, value.tensor.float_val[0]))
    return found


def logged(run: Path) -> Curves:
    """The same of metrics.jsonl."""
    found: Curves = {}
    for record in RunDirectory(run).records():
        for name, value in numbers(record).items():
            found.setdefault(name, []).append((record["step"], value))
    return found


def same(found: Curves, expected: Curves) -> None:
    assert found.keys() == expected.keys()
    for name, points in expected.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in points], rel=1e-6), name


@pytest.fixture(scope="module")
def options(tiny: dict[str, Any]) -> dict[str, Any]:
    return {**tiny, "training.epochs": 3, "device": "cpu", "training.track": "tensorboard"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, options: dict[str, Any]) -> Path:
    return train("demo", options, out=tmp_path_factory.mktemp("tracked") / "run", progress=silent).path


def test_the_events_are_the_metrics(whole: Path) -> None:
    found = events(whole)
    assert {"train/rob_loss", "train/lr", "validation/accuracy", "validation/ce"} <= found.keys()
    assert len(found["validation/accuracy"]) == 3
    same(found, logged(whole))


def test_metrics_are_the_same_bytes_as_without_tracking(whole: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    plain = train("demo", {**options, "training.track": None}, out=tmp_path / "run", progress=silent)
    assert (plain.path / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert not (plain.path / FOLDER).exists()


class _StopIt(Exception):
    pass


def test_nothing_is_doubled_after_a_resume(whole: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    def stop(stage: str, done: float, total: float, shown: Mapping[str, float]) -> None:
        if done > 0.8 * total:
            raise _StopIt

    with pytest.raises(_StopIt):
        train("demo", options, out=tmp_path / "run", progress=stop)
    before = events(tmp_path / "run")
    assert before["train/lr"][-1][0] > len(before["validation/accuracy"])
    (tmp_path / "run" / FOLDER / "mine.txt").write_text("kept")
    train(resume=tmp_path / "run", progress=silent)
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    same(events(tmp_path / "run"), logged(whole))
    assert (tmp_path / "run" / FOLDER / "mine.txt").read_text() == "kept"


def test_hyperparameters_stand_beside(whole: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    (file,) = (whole / FOLDER).glob("events.out.tfevents.*")
    found: dict[str, Any] = {}
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            if value.tag == "_hparams_/session_start_info":
                start = HParamsPluginData.FromString(value.metadata.plugin_data.content).session_start_info
                found = {key: item.string_value or item.number_value for key, item in start.hparams.items()}
    assert found["surrogate.name"] == RunDirectory(whole).config.surrogate.name
    assert found["training.epochs"] == 3


def test_hyperparameters_have_plain_values() -> None:
    found = hyperparameters(load_config("demo").config)
    assert found["channel.name"] == "gaussian" and "channel.0.name" not in found
    assert {type(value) for value in found.values()} <= {bool, int, float, str}
    assert found["training.warmup_epochs"] == "None"


def test_warnings_and_places_are_no_curves() -> None:
    assert numbers({"kind": "warning", "step": 3, "epoch": 1.0, "value": 3.0}) == {}
    line = {"schema_version": 2, "kind": "train", "step": 3, "epoch": 0.5, "lr": 0.1, "ok": True, "word": "x"}
    assert numbers(line) == {"train/lr": 0.1}


def test_a_missing_extra_is_told_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("torch.utils.tensorboard"):
            raise ModuleNotFoundError("No module named 'tensorboard'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r'training\.track=tensorboard needs tensorboard.*"attncem\[track\]"'):
        train("demo", {"training.track": "tensorboard"}, out=tmp_path / "run", progress=silent)
    assert main(["train", "--track", "--out", str(tmp_path / "run")]) == 2
    assert "attncem[track]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "training.track=wandb"]) == 2
    assert "tensorboard" in capsys.readouterr().err


def test_the_flag_is_short_for_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    manifest = {"best": {"validation_accuracy": 0.5}}

    def note(config: Any, overrides: Any, **_: Any) -> Any:
        given.append(load_config(config, overrides).config.training.track)
        return SimpleNamespace(manifest=manifest, path=tmp_path)

    monkeypatch.setattr("attncem.training.train.train", note)
    monkeypatch.setattr("attncem.cli.verbs.train._show_selection", lambda run: None)
    assert main(["train", "--track"]) == 0
    assert main(["train"]) == 0
    assert given == ["tensorboard", None]
