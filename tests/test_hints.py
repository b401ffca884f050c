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
        (["reprot", "x"], "did you mean report?"),
        (["audit", "x", "--suite", "standart"], "did you mean standard?"),
        (["train", "data.name=cifar"], "did you mean cifar10?"),
        (["train", "--config", "recommended-balance"], "did you mean recommended-balanced?"),
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
    r"^\| `attncem (.+?)` \| (.+?) \|$", (Path(__file__).parent.parent / "docs/mistakes.md").read_text(), re.MULTILINE
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
