"""Search: what a file may say, what is tried, equal budgets, and going on after a kill."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from rich.console import Console

from attncem.base.progress import silent
from attncem.base.types import ConfigError, RunError
from attncem.campaigns.choosing import error_of
from attncem.campaigns.engines import ENGINES, Ended, Engine, EngineOptions
from attncem.campaigns.expansion import plan_cell
from attncem.campaigns.searches import concluding, searching
from attncem.campaigns.searches.searching import check_space, search
from attncem.campaigns.searches.tuning import JOURNAL, Tuner, open_journal
from attncem.cli.main import main
from attncem.cli.verbs import search as search_verb
from attncem.config.loading.load import load_config
from attncem.config.options.search import (
    Budget,
    Range,
    Search,
    choice_text,
    choice_value,
    load_search,
    packaged_searches,
    parse_budget,
)
from attncem.records.campaign import Cell
from attncem.records.campaign_folder import CampaignFolder, CellView
from attncem.records.files import read_record
from attncem.records.leak import Leak
from attncem.records.leaks import LIMIT
from attncem.records.search import SearchResult
from made_runs import make_plan

TINY: dict[str, Any] = {
    "name": "tiny",
    "set": {"training.epochs": 2},
    "space": {"channel.noise_std": {"low": 0.03, "high": 0.3, "log": True}},
    "methods": {
        "kmeans": {
            "set": {"surrogate.name": "kmeans"},
            "space": {"training.penalty_weight": {"low": 0.25, "high": 4, "log": True}},
        },
        "gated": {
            "set": {"surrogate.name": "gated"},
            "space": {
                "training.penalty_weight": {"low": 0.1, "high": 2, "log": True},
                "model.front_end": [{"name": "none"}, {"name": "local_contrast", "s": 3}],
            },
        },
    },
    "budget": 6,
}


def tiny(**changes: Any) -> dict[str, Any]:
    return {**TINY, **changes}


# what a file may say


@pytest.mark.parametrize("name", packaged_searches())
def test_a_packaged_search_loads_and_its_space_can_be_run(name: str) -> None:
    found = load_search(name)
    assert found.name == name and found.meaning
    check_space(found)
    assert found.audit.on == "validation"


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("20", Budget(trials=20)),
        ("30m", Budget(minutes=30)),
        ("1.5h", Budget(minutes=90)),
        (" 5 min", Budget(minutes=5)),
    ],
)
def test_a_budget_is_trials_or_a_time(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["", "0", "0m", "-3", "m", "3s", "1e9", "ten", "99999999999"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"budget=.*e\.g\. 20, or a time"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"audit": {"on": "test"}}, "audit.on"),
        ({"methods": {}}, "methods"),
        ({"methods": {"kmeans": {}}, "space": {}}, "neither it nor the search has a space"),
        ({"methods": {"undefended": {}}}, "this name is taken"),
        ({"undefended": {"space": {"channel.noise_std": [0.1]}}}, "nothing to search"),
        ({"space": {"channel.noise_std": {"low": 1, "high": 1}}}, "must be below"),
        ({"space": {"channel.noise_std": {"low": 0, "high": 1, "log": True}}}, "above 0 with log"),
        ({"space": {"training.epochs": {"low": 1.5, "high": 3, "integer": True}}}, "whole numbers"),
        ({"space": {"channel.noise_std": []}}, "space"),
        ({"budget": "soon"}, "budget"),
        ({"levels": {}}, "levels"),
        ({"trails": 3}, "trails"),
        ({"levels": {"../../mine": 0.1}}, "is not a valid name"),
        ({"levels": {"light": 5}}, "between 0 and 1"),
        ({"set": {"seed": 3}}, "seed cannot be set here"),
        ({"methods": {"a/b": TINY["methods"]["kmeans"]}}, "a/b"),
    ],
)
def test_a_mistake_in_a_file_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_search(tiny(**change))


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"training.penalty_wieght": {"low": 1, "high": 2}}, "penalty_wieght"),
        ({"channel.noise_std": {"low": -1, "high": 2}}, "noise_std"),
        ({"model.front_end": [{"name": "none"}, {"name": "no_such"}]}, "no_such"),
    ],
)
def test_a_space_that_no_run_can_have_is_refused_before_anything_is_written(
    space: dict[str, Any], said: str, tmp_path: Path, pretended: type[Pretended]
) -> None:
    with pytest.raises(ConfigError, match=rf"arms\.(kmeans|gated).*{said}"):
        search(tiny(space=space), out=tmp_path / "search")
    assert not (tmp_path / "search").exists()


def test_fewer_trials_than_methods_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 methods need at least one trial each"):
        search(TINY, budget="1", out=tmp_path / "search")


def test_without_optuna_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r'pip install "attncem\[sweep\]"'):
        search(TINY, out=tmp_path / "search")


def test_files_are_found_beside_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text("extends: demo-none\nname: own\n")
    given = json.dumps(tiny(config="own.yaml"))  # JSON is YAML
    (tmp_path / "search.yaml").write_text(given)
    monkeypatch.chdir("/")
    assert Path(load_search(tmp_path / "search.yaml").config) == tmp_path / "own.yaml"


def test_overrides_reach_the_runs_of_every_method() -> None:
    found = load_search("search-demo", ["training.epochs=20", "equal_budget=false", "seed=3"])
    assert not found.equal_budget and found.seed == 3
    cells = [plan_cell(found.campaign(), arm, {}, 3) for arm in ("undefended", "kmeans", "gated")]
    assert [planned.config.training.epochs for planned in cells] == [20, 20, 20]
    assert found.methods["gated"].set["surrogate.name"] == "gated", "its own settings stay"
    with pytest.raises(ConfigError, match=r"channel\.noise_std: it is searched for kmeans"):
        load_search("search-demo", ["channel.noise_std=0.1"])


def test_choices_may_be_anything_and_come_back_as_they_were() -> None:
    for value in (1, 0.5, True, None, "text", {"name": "local_contrast", "s": 3}, [1, 2]):
        assert choice_value(choice_text(value)) == value


# what is tried


SPACE = {"x": Range(low=0.1, high=10, log=True), "n": Range(low=1, high=5, integer=True), "kind": [{"a": 1}, None]}


def told(tuner: Tuner, count: int) -> list[Any]:
    """Ask and tell so often; what was asked."""
    found = []
    for _ in range(count):
        tried = tuner.ask()
        x = tried.values["x"]
        tried.tell([math.exp(-x), x])
        found.append(tried.values)
    return found


def test_values_lie_in_their_ranges_and_choices(tmp_path: Path) -> None:
    for values in told(Tuner(open_journal(tmp_path), "kmeans", {"kmeans": SPACE}, 0), 12):
        assert 0.1 <= values["x"] <= 10
        assert values["n"] in range(1, 6) and isinstance(values["n"], int)
        assert values["kind"] in ({"a": 1}, None)


def test_a_process_that_goes_on_tries_what_the_first_would_have(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = told(Tuner(open_journal(tmp_path / "a"), "kmeans", {"kmeans": SPACE}, 7), 9)
    parts = [told(Tuner(open_journal(tmp_path / "b"), "kmeans", {"kmeans": SPACE}, 7), 3) for _ in range(3)]
    assert [values for part in parts for values in part] == whole
    assert len({values["x"] for values in whole}) == 9, "nothing is tried twice"


def test_what_a_kill_leaves_of_the_journal_is_mended(tmp_path: Path) -> None:
    told(Tuner(open_journal(tmp_path), "kmeans", {"kmeans": SPACE}, 0), 2)
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 4, "work')
    (tmp_path / f"{JOURNAL}.lock").touch()
    tuner = Tuner(open_journal(tmp_path), "kmeans", {"kmeans": SPACE}, 0)
    assert len(tuner.tried()) == 2
    told(tuner, 1)
    assert len(Tuner(open_journal(tmp_path), "kmeans", {"kmeans": SPACE}, 0).tried()) == 3


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(b"\x00nothing\n{}\n")
    with pytest.raises(RunError, match=r"search\.journal is damaged"):
        open_journal(tmp_path)


def test_a_study_of_several_methods_chooses_among_them(tmp_path: Path) -> None:
    spaces = {"kmeans": {"x": SPACE["x"]}, "gated": {"x": SPACE["x"], "n": SPACE["n"]}}
    tuner = Tuner(open_journal(tmp_path), "all", spaces, 0)
    told(tuner, 10)
    found = tuner.tried()
    assert {tried.method for tried in found} == {"kmeans", "gated"}
    assert all(set(tried.values) == set(spaces[tried.method]) for tried in found)
    assert len({tried.cell_id for tried in found}) == 10


# the search itself, with an engine that trains nothing


class Pretended(Engine):
    """Every cell is done, or fails, as soon as somebody waits for it; `after` cells it is as if it were killed."""

    states: ClassVar[dict[str, str]] = {}
    fails: tuple[str, ...] = ()
    after = 10**9

    def __init__(self, folder: CampaignFolder, options: EngineOptions, progress: Any = silent) -> None:
        super().__init__(folder, options, progress)
        self.waiting: list[str] = []

    def submit(self, cell_id: str) -> None:
        assert self.folder.plan.cell(cell_id) is not None and self.folder.config(cell_id)
        self.waiting.append(cell_id)

    def wait(self, seconds: float) -> list[Ended]:
        ended = []
        for cell_id in self.waiting:
            if len(self.states) >= self.after:
                raise KeyboardInterrupt
            failed = cell_id.startswith(self.fails) if self.fails else False
            self.states[cell_id] = "failed" if failed else "done"
            ended.append(Ended(cell_id, "it broke" if failed else None))
        self.waiting = []
        return ended

    def stop(self) -> None:
        self.waiting = []


def judged(folder: CampaignFolder, cell_id: str) -> Any:
    """More penalty and more noise: less accurate, more private."""
    config = folder.config(cell_id)
    if config.noise_std > 5:
        return SimpleNamespace(strongest="")
    strength = config.training.penalty_weight / 10 + config.noise_std / 10
    scores = {"mse": SimpleNamespace(mean=strength), "structure": SimpleNamespace(mean=strength / 2)}
    return SimpleNamespace(
        strongest="ridge",
        known_accuracy=SimpleNamespace(mean=0.9 - strength / 10),
        strongest_attack=SimpleNamespace(scores=scores),
    )


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> type[Pretended]:
    class Fresh(Pretended):
        states: ClassVar[dict[str, str]] = {}

    def view(self: CampaignFolder, cell: Cell) -> CellView:
        return CellView(cell, Fresh.states.get(cell.id, "planned"), "", self.run_path(cell.id))  # type: ignore[arg-type]

    monkeypatch.setitem(ENGINES, "local", Fresh)
    monkeypatch.setattr(CampaignFolder, "view", view)
    for module in (searching, concluding):
        monkeypatch.setattr(module, "judged", judged)
    return Fresh


def run(folder: Path, budget: str | None = None, workers: int = 1, **changes: Any) -> SearchResult:
    return search(tiny(**changes), budget=budget, out=folder, options=EngineOptions(workers), progress=silent)


def test_every_method_gets_the_same_number_of_trials(pretended: type[Pretended], tmp_path: Path) -> None:
    result = run(tmp_path / "search", "7")
    assert {method.name: method.trials for method in result.methods} == {"kmeans": 3, "gated": 3}
    assert result.equal_budget and result.complete and result.budget == "7 trials"
    assert result.undefended == pytest.approx(0.9 - 0.001)
    assert len(pretended.states) == 7, "six trials and the undefended model"


def test_the_result_has_fronts_levels_and_configurations_that_train_takes(
    pretended: type[Pretended], tmp_path: Path
) -> None:
    folder = tmp_path / "search"
    result = run(folder, "8")
    for method in result.methods:
        own = {trial.cell: trial for trial in result.trials if trial.method == method.name}
        assert method.front and set(method.front) <= set(own)
        errors = [own[cell].error for cell in method.front]
        assert errors == sorted(errors), "from the most accurate on"  # type: ignore[type-var]
    assert set(result.files) == {f"{m.name}-{level}" for m in result.methods for level in m.levels}
    assert result.files
    for name, file in result.files.items():
        method, _, level = name.rpartition("-")
        cell = next(one for one in result.methods if one.name == method).levels[level]
        config = load_config(file).config
        assert config == load_config(folder / f"cells/{cell}.yaml", {"name": name}).config
        assert Path(file).read_text().startswith(f"# attncem train --config {file}\n# {cell} of the search tiny: ")
    stored = json.loads((folder / "search.json").read_text())
    assert stored["equal_budget"] is True
    assert stored["files"] == {name: f"chosen/{name}.yaml" for name in result.files}, "where the folder lies is private"
    assert stored["folder"] == "search"
    assert CampaignFolder.open(folder).plan.name == "tiny", "it is a campaign's folder"


def test_one_budget_for_all_is_spent_where_the_study_likes(pretended: type[Pretended], tmp_path: Path) -> None:
    result = run(tmp_path / "search", "9", equal_budget=False)
    assert sum(method.trials for method in result.methods) == 9
    assert not result.equal_budget


def test_a_search_that_was_killed_ends_as_if_it_had_not_been(pretended: type[Pretended], tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", "8")
    pretended.states = {}
    for after in (1, 3, 3, 6):
        pretended.after = after
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parts", "8")
    pretended.after = 10**9
    parts = run(tmp_path / "parts", "8")
    assert [replace(trial, seconds=0) for trial in parts.trials] == [
        replace(trial, seconds=0) for trial in whole.trials
    ]
    assert Counter(trial.state for trial in parts.trials) == {"done": 8}


def test_a_larger_budget_goes_on_with_the_folder_alone(pretended: type[Pretended], tmp_path: Path) -> None:
    run(tmp_path / "search", "4")
    more = search(tmp_path / "search", budget="6", progress=silent)
    assert [method.trials for method in more.methods] == [3, 3]
    assert len(pretended.states) == 7, "nothing was done twice"
    with pytest.raises(ConfigError, match="only its budget can be changed"):
        search(tmp_path / "search", ["seed=1"])


def test_another_search_and_foreign_folders_are_left_alone(pretended: type[Pretended], tmp_path: Path) -> None:
    run(tmp_path / "search", "2")
    with pytest.raises(RunError, match="holds another search"):
        run(tmp_path / "search", "2", seed=5)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("…")
    with pytest.raises(RunError, match="was not changed"):
        run(tmp_path / "mine")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_failed_trials_count_and_a_method_that_only_fails_is_given_up(
    pretended: type[Pretended], tmp_path: Path
) -> None:
    pretended.fails = ("gated",)
    result = run(tmp_path / "search", "20")
    kmeans, gated = result.methods
    assert (kmeans.trials, kmeans.failed) == (10, 0)
    assert gated.trials == gated.failed == 5 and gated.front == [] and gated.levels == {}
    assert {trial.reason for trial in result.trials if trial.method == "gated"} == {"it broke"}


def test_without_the_undefended_model_nothing_can_be_judged(pretended: type[Pretended], tmp_path: Path) -> None:
    pretended.fails = ("undefended",)
    with pytest.raises(RunError, match=r"the undefended model has no result.*it broke"):
        run(tmp_path / "search")


def test_an_audit_in_which_no_attack_has_a_result_ends_it_at_once(pretended: type[Pretended], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="undefended-s0: no attack has a result"):
        run(tmp_path / "search", undefended={"set": {"channel.noise_std": 9}})


def test_minutes_are_shared_equally(
    pretended: type[Pretended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gated trial takes three times as long as one of kmeans: it gets a third of the trials."""
    clock = [0.0]
    monkeypatch.setattr(searching.time, "monotonic", lambda: clock[0])
    wait = Pretended.wait

    def slowly(self: Pretended, seconds: float) -> list[Ended]:
        clock[0] += sum(90 if cell_id.startswith("gated") else 30 for cell_id in self.waiting)
        return wait(self, seconds)

    monkeypatch.setattr(pretended, "wait", slowly)
    result = run(tmp_path / "search", "9m")
    assert {method.name: (method.trials, method.seconds) for method in result.methods} == {
        "kmeans": (9, 270),
        "gated": (3, 270),
    }


def test_it_stops_when_asked(pretended: type[Pretended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Pretended.wait

    def asked(self: Pretended, seconds: float) -> list[Ended]:
        if len(self.states) == 3:
            self.folder.ask_to_stop()
        return wait(self, seconds)

    monkeypatch.setattr(pretended, "wait", asked)
    result = run(tmp_path / "search", "8")
    assert not result.complete and len(result.trials) == 3
    assert not (tmp_path / "search/stop").exists()


def test_an_audit_on_test_images_is_never_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SimpleNamespace(
        finished=lambda _: SimpleNamespace(audits={"key": "audit"}), run_path=lambda name: tmp_path / name
    )
    found = SimpleNamespace(plan=SimpleNamespace(evaluation="test"))
    monkeypatch.setattr(concluding, "joined", lambda _: found)
    with pytest.raises(AssertionError, match="test images must choose nothing"):
        concluding.judged(folder, "kmeans-000")  # type: ignore[arg-type]
    assert Search.model_validate(TINY).campaign().audits[0].on == "validation"
    assert error_of({"mse": 1, "structure": 1}) == 1


# the command, and real trials

REAL: dict[str, Any] = {
    **TINY,
    "methods": {"kmeans": TINY["methods"]["kmeans"]},
    "audit": {"suite": "quick", "only": ["mean image", "ridge"]},
    "budget": 3,
}


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "search")
    for words, said in (
        (["search", "search-dmeo"], "did you mean search-demo?"),
        (["search", "search-demo", "--budget", "soon", "--out", out], "budget='soon'"),
        (["search", "search-demo", "--engine", "lokal", "--out", out], "engine"),
        (["search", "search-demo", "--out", out, "levls={}"], "levls"),
        (["search", str(tmp_path)], "is not a search's folder"),
    ):
        assert main(words) == 2, words
        assert said in capsys.readouterr().err
    assert not Path(out).exists()


def test_the_command_shows_methods_and_levels(
    pretended: type[Pretended], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(TINY))
    assert main(["search", str(file), "--budget", "4", "--out", str(tmp_path / "search"), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "kmeans" in shown and "gated" in shown and "Every method had the same share of 4 trials" in shown
    pretended.fails = ("gated",)
    pretended.states.clear()
    assert main(["search", str(file), "--budget", "4", "--out", str(tmp_path / "other"), "--workers", "1"]) == 3


@pytest.mark.slow
def test_a_real_search_that_is_killed_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text(json.dumps(REAL))
    words = [sys.executable, "-m", "attncem", "search", str(tmp_path / "real.yaml"), "--workers", "1", "--out"]
    killed = tmp_path / "killed"
    for cells in (1, 3):
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([*words, str(killed)], stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while len(list(killed.glob("runs/*/metrics.jsonl"))) < cells:
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)
        process.kill()
        process.wait()
    for folder in (killed, tmp_path / "whole"):
        subprocess.run([*words, str(folder)], check=True, timeout=200, capture_output=True)
    after, whole = (read_record(SearchResult, folder / "search.json") for folder in (killed, tmp_path / "whole"))
    assert [(t.cell, t.values, t.accuracy, t.error, t.state) for t in after.trials] == [
        (t.cell, t.values, t.accuracy, t.error, t.state) for t in whole.trials
    ]
    assert len(after.trials) == 3 and after.methods[0].front == whole.methods[0].front
    plans = [json.loads(file.read_text()) for file in killed.glob("runs/*/audits/*/audit.json")]
    assert len(plans) == 4 and {plan["evaluation"] for plan in plans} == {"validation"}
    for file in after.files.values():
        assert load_config(killed / file).config.surrogate.name == "kmeans"


def test_by_nats_the_smallest_limit_is_searched_for_and_chosen(
    pretended: type[Pretended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def certified(folder: CampaignFolder, cell_id: str) -> Any:
        audit = judged(folder, cell_id)
        audit.leaks, nats = {}, 1000 * audit.strongest_attack.scores["mse"].mean  # more nats where the error is larger
        least = 10 - nats / 100  # more where the limit is smaller
        audit.leak = {LIMIT: Leak(nats, nats, nats), "infonce": Leak(least, least, least, ceiling=20.0)}.get
        audit.plan = make_plan()
        return audit

    for module in (searching, concluding):
        monkeypatch.setattr(module, "judged", certified)
    asked = {"suite": "certificates", "only": ["ridge", "leakage"]}
    found = run(tmp_path / "nats", choose="nats", audit=asked)
    assert found.choose == "nats" and all(trial.nats is not None for trial in found.trials)
    for method in found.methods:
        tried = [trial for trial in found.trials if trial.method == method.name]
        for level, cell in method.levels.items():
            fitting = [it for it in tried if (it.accuracy or 0) >= found.undefended - found.levels[level]]
            assert found.trial(cell).nats == min(it.nats or 0 for it in fitting)
            words = Path(found.files[f"{method.name}-{level}"]).read_text()
            assert "and a leak of at most" in words and f"{found.trial(cell).error:.4g}" in words
            assert list(found.trial(cell).beside) == ["infonce"]
    chosen = {cell for method in found.methods for cell in method.levels.values()}
    pairs = [(item.values["a"], item.values["b"]) for item in found.findings]
    assert len(pairs) == len(chosen) * (len(chosen) - 1) / 2 > 0, "InfoNCE contradicts every pair of chosen trials"
    assert all((found.trial(a).nats or 0) < (found.trial(b).nats or 0) and {a, b} <= chosen for a, b in pairs)
    assert read_record(SearchResult, tmp_path / "nats" / "search.json").findings == found.findings
    console = Console(file=io.StringIO(), width=200)
    search_verb._show(found, console)
    shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "InfoNCE" in shown and shown.count("do not rank them by the limit alone") == len(pairs)
    by_error = run(tmp_path / "error", audit=asked)
    assert all(trial.nats is None and not trial.beside for trial in by_error.trials) and not by_error.findings
