"""A mistake that many make is answered with what was meant; what the hint says works as it is printed."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from attncem.base.types import ConfigError
from attncem.cli.main import main
from attncem.config.loading.load import load_config
from attncem.config.loading.suggest import MEANT
from attncem.config.loading.tree import known_keys, option_tree
from attncem.config.options.run import RunConfig
from attncem.judging.auditing import audit
from attncem.training.train import train

VALUES = {"lr": 0.1, "lambda": 2, "noise": 0.2, "epochs": 3}
FLAGS = {
    **{"arch": "resnet20", "cutlayer": 3, "num_epochs": 5, "learning_rate": 0.1, "lambd": 2, "dataset": "cifar10"},
    **{"random_seed": 7, "regularization_strength": 0.2, "bottleneck_option": None, "filename": "x"},
}
GUESS = re.compile(r"did you mean ([\w.=]+)\?")


@pytest.mark.parametrize(("key", "value"), [*VALUES.items(), *FLAGS.items()])
def test_a_usual_name_leads_to_the_key_that_takes_its_value(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as told:
        load_config("demo", {key: value})
    guess = GUESS.search(str(told.value))
    assert guess is not None, str(told.value)
    before, after = load_config("demo").config, load_config("demo", {guess[1]: value}).config
    assert before != after


def test_every_meant_key_is_there() -> None:
    assert set(MEANT.values()) <= set(known_keys(option_tree(RunConfig)))
    assert not set(MEANT) & set(known_keys(option_tree(RunConfig)))


@pytest.mark.parametrize("given", ["model=resnet20", "data=cifar10", "surrogate=slot", "training.schedule=constant"])
def test_a_name_in_the_place_of_options_leads_to_its_name(given: str) -> None:
    with pytest.raises(ConfigError) as told:
        load_config("demo-none", [given])
    guess = GUESS.search(str(told.value))
    assert guess is not None
    load_config("demo-none", [guess[1]])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "did you mean train?"),
        (["deploy", "x"], "did you mean export?"),
        (["reprot", "x"], "did you mean report?"),
        (["audit", "x", "--suite", "standart"], "did you mean standard?"),
        (["train", "data.name=cifar"], "did you mean cifar10?"),
        (["train", "--config", "recommended-balance"], "did you mean recommended-balanced?"),
        (["train", "data.name=CIFAR10"], "did you mean cifar10?"),
        (
            ["audit", "--encoder", "x", "--data", "CIFAR10", "--channel", "identity", "--out", "y"],
            "did you mean cifar10?",
        ),
        (["audit", "x", "--suit", "quick"], "audit: unexpected --suit; did you mean --suite?"),
        (["train", "--inti_from", "x"], "train: unexpected --inti_from; did you mean --init-from?"),
        (["campaign", "run", "demo", "--worker=2"], "did you mean --workers?"),
        (["data", "--verfy"], "did you mean --verify?"),
        (["--lang", "zh", "trian"], "did you mean train?"),
        (["help", "trian"], "did you mean train?"),
        (["audit", "phtos"], "there is no such folder; did you mean photos?"),
        (["card", "phtos"], "there is no such folder; did you mean photos?"),
        (["campaign", "report", "phtos"], "did you mean photos?"),
        (["audit", "runs/none"], "there is no such folder"),
        (["report", "nothing"], "there is no such folder"),
        (["train", "data.root=missing"], "there is no folder missing"),
        (["train", "data.root=photos"], "data.name=image_folder"),
    ],
)
def test_a_mistake_is_answered_with_what_was_meant(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    assert main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["card", "audit", "predict"])
def test_a_folder_of_runs_leads_to_one_of_them(
    verb: str, small_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(small_run(), run := tmp_path / "runs" / "mine")
    assert main([verb, str(tmp_path / "runs"), *(["test:0"] if verb == "predict" else [])]) == 2
    assert capsys.readouterr().err.endswith(f"It is a folder of runs: name one of them, such as {run}\n")


def test_a_run_without_audits_leads_to_an_audit_that_works(
    small_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(small_run(), run := tmp_path / "my run")
    assert main(["card", str(run)]) == 2
    hint = capsys.readouterr().err.partition("; run attncem ")[2]
    assert main([*shlex.split(hint), "--only", "mean image"]) == 0
    assert main(["card", str(run)]) == 0


def test_a_page_of_another_verb_is_named(
    small_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "explanation.html"
    page.write_text('<meta name="generator" content="attncem-explain 0.2.0">')
    assert main(["report", str(small_run()), "--out", str(page)]) == 2
    assert "is a page of attncem explain and was not replaced; choose another name" in capsys.readouterr().err
    assert "attncem-explain" in page.read_text()


class Stop:
    """Interrupts once some work was done."""

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        if done > 0:
            raise KeyboardInterrupt

    def line(self, text: str) -> None:
        pass


def test_an_interrupted_training_says_how_it_goes_on(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my run"
    monkeypatch.setattr("attncem.training.train.train", lambda *a, **k: train(*a, **{**k, "progress": Stop()}))
    options = [f"{key}={value}" for key, value in tiny.items()]
    assert main(["train", "--config", "demo", "--out", str(out), *options]) == 130
    hint = capsys.readouterr().err.partition("resume with: attncem ")[2]
    monkeypatch.undo()
    assert str(out) in hint
    assert main(shlex.split(hint)) == 0


def test_an_interrupted_audit_says_where_its_rows_are(
    small_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attncem.judging.auditing.audit", lambda *a, **k: audit(*a, **{**k, "progress": Stop()}))
    words = ["audit", str(small_run()), "--suite", "quick", "--only", "grey", "--only", "ridge", "--out", str(tmp_path)]
    assert main(words) == 130
    said = capsys.readouterr().err
    (folder,) = (file.parent for file in tmp_path.glob("*/audit.json"))
    assert str(folder) in said and "the same command continues" in said
    monkeypatch.undo()
    assert main(words) == 0


MISTAKES = re.findall(
    r"^\| `attncem (.+?)` \| (.+?) \|$", (Path(__file__).parent.parent / "docs/terminal.md").read_text(), re.MULTILINE
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, small_run: Callable[..., Path]) -> Path:
    """A folder with a run, and one for pictures."""
    folder = tmp_path_factory.mktemp("mistakes")
    shutil.copytree(small_run(), folder / "runs/mine")
    (folder / "photos").mkdir()
    return folder


def test_fifteen_mistakes_are_written_down() -> None:
    assert len(MISTAKES) == 15


@pytest.mark.parametrize(("typed", "said"), MISTAKES, ids=[typed for typed, _ in MISTAKES])
def test_a_common_mistake_is_answered_as_the_page_says(
    typed: str, said: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    try:
        code = main(shlex.split(typed))
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err
    assert sorted(place.rglob("*")) == before
