"""Campaigns: what a file may say, which cells it makes, how they are worked on and go on."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import attncem
from attncem.base.progress import silent
from attncem.base.types import ConfigError, RunError
from attncem.campaigns import costs, plan_campaign, run_campaign, stop_campaign
from attncem.campaigns import running as running_module
from attncem.campaigns.cell import seconds_an_epoch, trial, work
from attncem.campaigns.engines import ENGINES, Ended, EngineOptions
from attncem.campaigns.expansion import expand, needs
from attncem.campaigns.naming import cell_id
from attncem.campaigns.results import campaign_table, read_results, results_text
from attncem.campaigns.running import CampaignResult
from attncem.cli.main import main
from attncem.config.loading.load import dump_config, load, load_config, packaged_configs
from attncem.config.options.campaigns import Campaign, load_campaign, packaged_campaigns
from attncem.config.options.search import load_search
from attncem.records.campaign_folder import CampaignFolder, held
from campaigns import SUITE, InProcess, TrainedOnce, campaign, numbers, stamps


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedOnce:
    return TrainedOnce(tmp_path_factory.mktemp("trained"))


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch, trained: TrainedOnce) -> list[str]:
    """Cells are worked on in this process, equal ones trained once; the list says which."""
    monkeypatch.setattr("attncem.campaigns.cell.train_run", trained)
    monkeypatch.setitem(ENGINES, "local", InProcess)
    InProcess.worked = []
    return InProcess.worked


def run(source: Any, out: Path | None = None, **options: Any) -> CampaignResult:
    return run_campaign(source, out=out, progress=silent, **{"options": EngineOptions(workers=1), **options})


def lines_into(said: list[str]) -> Any:
    """A progress that keeps the lines it is told."""

    def told(*_: Any) -> None:
        pass

    told.line = said.append  # type: ignore[attr-defined]
    return told


def have_taken(log: Path, seconds: dict[str, float]) -> None:
    """A campaign's log that says how long its cells took, and nothing else."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    done = [{**line, "seconds": seconds[line["cell"]]} for line in lines if line["event"] == "done"]
    log.write_text("".join(json.dumps(line) + "\n" for line in done), encoding="utf-8")


# what a file may say


def ids(given: dict[str, Any], *overrides: str) -> list[str]:
    return [planned.cell.id for planned in expand(load_campaign(given, overrides))]


def test_cells_are_arms_at_every_point_with_every_seed() -> None:
    arms = {"a": {}, "b": {"config": "demo-kmeans", "grid": {"training.penalty_weight": [0.5, 1]}}}
    given = campaign(arms=arms, grid={"model.cut": [1, 2]}, seeds=[3, 5])
    made = expand(load_campaign(given))
    assert len(made) == (2 + 4) * 2
    assert [planned.cell.seed for planned in made] == [3] * 6 + [5] * 6, "the first seed of everything first"
    assert made[3].cell.id == "b_cut-1_penalty_weight-1-s3"
    config = made[3].config
    assert (config.name, config.seed) == ("b_cut-1_penalty_weight-1-s3", 3)
    assert (config.model.cut, config.training.penalty_weight, config.surrogate.name) == (1, 1, "kmeans")
    assert all(planned.config.training.epochs == 2 for planned in made)


def test_overrides_are_the_campaigns_or_every_runs() -> None:
    made = load_campaign(campaign(), ["seeds=3", "training.epochs=7", "set.model.width=8"])
    assert made.seed_list == [0, 1, 2]
    config = expand(made)[0].config
    assert (config.training.epochs, config.model.width) == (7, 8)


def test_names_of_cells_are_folders_and_differ() -> None:
    assert cell_id("a", {}, 0) == "a-s0"
    assert cell_id("a", {"model.name": "x", "surrogate.name": "y"}, 1) == "a_model.name-x_surrogate.name-y-s1"
    odd = cell_id("a", {"model.bottleneck": {"channels": 8}}, 0)
    other = cell_id("a", {"model.bottleneck": {"channels": 9}}, 0)
    assert odd != other
    assert all(letter.isalnum() or letter in "._-" for letter in odd)
    assert len(cell_id("a" * 40, {f"training.{'k' * 50}": "v" * 50}, 12)) <= 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arms": {}}, "arms"),
        ({"arms": {"a/b": {}}}, "a/b"),
        ({"arms": {"a": {"set": {"training.epoch": 3}}}}, "did you mean training.epochs"),
        ({"arms": {"a": {"set": {"seed": 3}}}}, "seed cannot be set here"),
        ({"grid": {"name": ["x"]}}, "name cannot be set here"),
        ({"grid": {"training.epochs": []}}, "grid"),
        ({"grid": {"training.epochs": [2, 2]}}, "a grid lists a value twice"),
        ({"seeds": [1, 1]}, "twice"),
        ({"seeds": 0}, "seeds"),
        ({"equal_time_to": "nobody"}, "no arm of this name; arms: none, kmeans"),
        ({"audits": [{"reference": "nobody"}]}, "no arm of this name"),
        ({"audits": [{}, {}]}, "the same audit is listed twice"),
        ({"audits": [{"suite": "quik"}]}, "quick"),
        ({"audits": [{"only": ["grei"]}]}, "did you mean grey"),
        ({"audits": [{"threat": "trian"}]}, "did you mean train"),
        ({"grid": {"training.epochs": list(range(2, 102)), "model.width": list(range(1, 102))}}, "20200 cells"),
        ({"arm": {}}, "did you mean arms"),
    ],
)
def test_mistakes_name_their_key_and_nothing_is_made(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(campaign(**change), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_partner_that_cannot_be_told_is_refused() -> None:
    arms = {"a": {"grid": {"training.epochs": [2, 3]}}, "b": {}}
    with pytest.raises(ConfigError, match="not exactly one of its runs matches b-s0"):
        expand(load_campaign(campaign(arms=arms, equal_time_to="a")))


def test_files_are_found_beside_the_campaigns_and_suites_taken_in(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("extends: demo-none\ntraining: {epochs: 3}\n")
    (tmp_path / "rows.yaml").write_text("name: mine\nversion: 1\nmeaning: x\nrows: {grey: {name: grey}}\n")
    file = tmp_path / "campaign.yaml"
    file.write_text("name: c\narms: {a: {config: own.yaml}}\naudits: [{suite: rows.yaml}]\n")
    made = load_campaign(file)
    assert made.arms["a"].config == str(tmp_path / "own.yaml")
    assert isinstance(made.audits[0].suite, dict)
    assert expand(made)[0].config.training.epochs == 3
    assert load(Campaign, {**made.model_dump()}).config == made
    assert "own.yaml" in dump_config(made)


@pytest.mark.parametrize("name", packaged_campaigns())
def test_packaged_campaigns_can_be_planned(name: str) -> None:
    made = load_campaign(name)
    assert made.name == name
    assert expand(made)


def test_the_documents_examples_are_a_campaign_and_a_search() -> None:
    page = (Path(__file__).parent.parent / "docs" / "campaigns.md").read_text(encoding="utf-8")
    example, of_a_search = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(expand(load_campaign(yaml.safe_load(example)))) == 21
    assert list(load_search(yaml.safe_load(of_a_search)).methods) == ["kmeans", "gated"]
    assert "= 21 cells" in page


def test_disk_is_foretold_from_the_networks(tmp_path: Path) -> None:
    outlook = plan_campaign(campaign(seeds=2), out=tmp_path / "c")
    one = plan_campaign(campaign(arms={"a": {}}), out=tmp_path / "c")
    assert (outlook.checkpoints or 0) == 4 * (one.checkpoints or 0) > 0
    assert one.checkpoints is not None
    run(campaign(arms={"a": {}}, audits=[]), tmp_path / "c")
    taken = costs.size_of(tmp_path / "c" / "runs" / "a-s0" / "checkpoints")
    assert 0.3 < taken / one.checkpoints < 1.5


# running


def test_a_campaign_runs_once_and_is_then_left_as_it_is(tmp_path: Path, in_process: list[str]) -> None:
    out = tmp_path / "c"
    before = plan_campaign(campaign(seeds=2), out=out)
    assert not out.exists(), "planning writes nothing"
    assert (before.states, before.to_come) == ({"planned": 4}, None)
    result = run(campaign(seeds=2), out)
    assert result.done
    assert in_process == ["none-s0", "kmeans-s0", "none-s1", "kmeans-s1"]
    (audit,) = result.cells[3].audits()
    assert [row.name for row in audit.rows] == ["grey", "mean image"]
    assert (audit.subject.run, audit.subject.seed) == ("kmeans-s1", 1)
    there = stamps(out)
    with (out / "log.jsonl").open("a") as log:
        log.write('{"event": "cut sho')
    assert run(out).done
    assert run(campaign(seeds=2), out).done
    assert len(in_process) == 4
    assert stamps(out) == there
    after = plan_campaign(out)
    assert after.to_come == costs.Cost(0.0, 0)
    with (out / "log.jsonl").open("a") as log:
        log.write('{"event": "done", "cell": "none-s0"}\n')
    assert plan_campaign(out).to_come == costs.Cost(0.0, 0)
    whole = (out / "log.jsonl").read_text()
    (out / "log.jsonl").write_text(whole + '{"event": "done", "cell": "none-s0", "seconds": "x"}\n')
    with pytest.raises(RunError, match=r"log\.jsonl: line \d+.*seconds"):
        plan_campaign(out)
    (out / "log.jsonl").write_text(whole)
    assert [event["event"] for event in result.folder.events()][:3] == ["run", "begun", "done"]


def test_what_a_changed_campaign_no_longer_asks_for_is_left_alone(tmp_path: Path, in_process: list[str]) -> None:
    out = tmp_path / "c"
    first = campaign(arms={"a": {}, "b": {"set": {"model.width": 5}}})
    run(first, out)
    there = stamps(out)
    second = campaign(arms={"a": {}, "b": {"set": {"model.width": 6}}, "c": {"set": {"model.width": 7}}}, seeds=1)
    outlook = plan_campaign(second, out=out)
    (renamed,) = outlook.anew
    assert renamed.startswith("b-s0-")
    assert (outlook.added, outlook.left_alone) == ([renamed, "c-s0"], ["b-s0"])
    assert (outlook.to_come or costs.Cost()).seconds > 0, "foretold from those that are done"
    assert run(second, out).done
    assert in_process == ["a-s0", "b-s0", renamed, "c-s0"]
    assert there.items() <= stamps(out).items(), "nothing of the first is changed"
    assert plan_campaign(second, out=out).added == [], "the same again finds the same names"
    assert run(second, out).folder.config(renamed).model.width == 6


def test_a_further_audit_is_made_of_runs_that_are_there(tmp_path: Path, in_process: list[str]) -> None:
    out, one = tmp_path / "c", campaign(arms={"a": {}})
    run(one, out)
    there = stamps(out)
    more = {**one, "audits": [*one["audits"], {**one["audits"][0], "on": "validation"}]}
    assert plan_campaign(more, out=out).states == {"trained": 1}
    result = run(more, out)
    assert result.done
    assert [audit.plan.evaluation for audit in result.cells[0].audits()] == ["test", "validation"]
    assert there.items() <= stamps(out).items()


def test_a_failing_cell_is_written_down_and_the_others_go_on(tmp_path: Path, in_process: list[str]) -> None:
    data = tmp_path / "data"
    given = campaign(arms={"bad": {"set": {"data.root": str(data)}}, "good": {}})
    result = run(given, tmp_path / "c")
    assert [view.state for view in result.cells] == ["failed", "done"]
    failure = result.folder.failure("bad-s0")
    assert failure is not None
    assert (failure.stage, failure.attempts) == ("train", 1)
    assert str(data) in failure.reason
    assert "Traceback" in failure.details
    run(tmp_path / "c")
    assert in_process == ["bad-s0", "good-s0"], "it is not tried again by itself"
    with pytest.raises(ConfigError, match="good-s0 has not failed"):
        run(tmp_path / "c", retry=["good-s0"])
    with pytest.raises(RunError, match="has no cell worse"):
        run(tmp_path / "c", retry=["worse"])
    run(tmp_path / "c", retry=["bad-s0"])
    assert (result.folder.failure("bad-s0") or failure).attempts == 2
    data.mkdir()
    shutil.copy(Path(attncem.__file__).parent / "data" / "embedded" / "fashion_mnist_mini.npz", data)
    assert run(tmp_path / "c", retry=[]).done
    assert result.folder.failure("bad-s0") is None


def test_a_part_of_what_failed_can_be_tried_again_alone(tmp_path: Path, in_process: list[str]) -> None:
    data, out = str(tmp_path / "data"), tmp_path / "bad.json"
    given = campaign(arms={"bad": {"set": {"data.root": data}}, "worse": {"set": {"data.root": data}}, "good": {}})
    folder = run(given, tmp_path / "c", cells=["bad-*", "worse-*"]).folder
    (tmp_path / "data").mkdir()
    shutil.copy(Path(attncem.__file__).parent / "data" / "embedded" / "fashion_mnist_mini.npz", data)
    retry = ["campaign", "retry", str(folder.path)]
    words = ["--cells", "bad-*", "--results", str(out), "--workers", "1"]
    assert main([*retry, "worse-s0", *words]) == 2 and folder.failure("worse-s0") is not None, (
        "what is not begun stays failed"
    )
    assert main([*retry, *words]) == 3, "one is still failed"
    assert {view.cell.id: view.state for view in folder.views()} == {
        "bad-s0": "done",
        "worse-s0": "failed",
        "good-s0": "planned",
    }
    assert in_process == ["bad-s0", "worse-s0", "bad-s0"]
    assert [cell.arm for cell in read_results(out).cells] == ["bad"]


def test_a_failed_row_fails_the_cell_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attncem.judging.attacks.floors import MeanImageFloor

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(MeanImageFloor, "fit", fails)
        result = run(campaign(arms={"a": {}}), tmp_path / "c")
    assert result.cells[0].state == "failed"
    assert "mean image" in result.cells[0].reason
    grey = next((tmp_path / "c").glob("runs/a-s0/audits/*/grey.json"))
    stamp = grey.stat().st_mtime_ns
    assert run(tmp_path / "c", retry=[]).done
    assert grey.stat().st_mtime_ns == stamp


def test_a_process_that_dies_fails_its_cell_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(folder: Path, cell: str, progress: Any) -> None:
        if cell == "none-s0":
            raise SystemError("without a word")
        work(folder, cell, progress)

    monkeypatch.setattr("campaigns.work", dies)
    result = run(campaign(), tmp_path / "c")
    assert [view.state for view in result.cells] == ["failed", "done"]
    failure = result.folder.failure("none-s0")
    assert failure is not None
    assert (failure.stage, failure.reason) == ("process", "without a word")


def test_cells_wait_for_what_they_need(tmp_path: Path, in_process: list[str]) -> None:
    arms = {"late": {}, "first": {"set": {"data.root": "/nowhere"}}}
    audits = [{"suite": campaign()["audits"][0]["suite"], "reference": "first"}]
    result = run(campaign(arms=arms, audits=audits), tmp_path / "c")
    assert in_process == ["first-s0"]
    assert [view.state for view in result.cells] == ["planned", "failed"]
    folder = result.folder
    assert needs(folder.campaign, folder.plan, folder.cell("late-s0")) == ["first-s0"]


def test_only_the_cells_that_are_named_and_what_they_need(tmp_path: Path, in_process: list[str]) -> None:
    audits = [{"suite": campaign()["audits"][0]["suite"], "reference": "none"}]
    arms = {"kmeans": {"config": "demo-kmeans"}, "none": {}, "other": {"set": {"data.root": "/nowhere"}}}
    given = campaign(arms=arms, audits=audits, seeds=2)
    result = run(given, tmp_path / "c", cells=["km*-s1"])
    assert in_process == ["none-s1", "kmeans-s1"] and not result.done and not result.failed
    assert [view.cell.id for view in result.cells if view.state == "done"] == ["kmeans-s1", "none-s1"]
    result = run(tmp_path / "c", cells=["none-*", "kmeans-*"])
    assert in_process[2:] == ["none-s0", "kmeans-s0"], "the rest of them, from the folder alone"
    with pytest.raises(ConfigError, match=r"--cells s\*: no cell has this name"):
        run(given, tmp_path / "d", cells=["none-*", "s*"])
    assert not (tmp_path / "d").exists()


def test_cells_are_worked_on_in_the_order_of_the_patterns(tmp_path: Path, in_process: list[str]) -> None:
    given = campaign(arms={"a": {}, "b": {}}, seeds=2)
    assert run(given, tmp_path / "c", cells=["b-s1", "*-s0", "*"]).done
    assert in_process == ["b-s1", "a-s0", "b-s0", "a-s1"]


def test_results_are_kept_after_every_cell(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine that the folder is on may go away in the middle."""
    out, kept, log = tmp_path / "tiny.json", list[int](), CampaignFolder.log

    def logged(folder: CampaignFolder, event: str, **facts: Any) -> None:
        if event in ("begun", "ended"):
            kept.append(len(read_results(out).cells) if out.exists() else 0)
        log(folder, event, **facts)

    monkeypatch.setattr(CampaignFolder, "log", logged)
    result = run(campaign(seeds=2), tmp_path / "c", results=out, options=EngineOptions(workers=1))
    assert result.done and kept == [0, 1, 2, 3, 4]
    assert out.read_text(encoding="utf-8") == results_text(campaign_table(tmp_path / "c", command_to=out.name))
    out.unlink()
    assert run(tmp_path / "c", results=out).done and len(read_results(out).cells) == 4, "also of what was done before"


def test_a_file_for_results_that_cannot_be_one(tmp_path: Path, in_process: list[str]) -> None:
    wrong = tmp_path / "notes.json"
    wrong.write_text("{}", encoding="utf-8")
    with pytest.raises(RunError, match=r"notes\.json already exists and holds other content"):
        run(campaign(), tmp_path / "c", results=wrong)
    with pytest.raises(RunError, match="is not a folder"):
        run(campaign(), tmp_path / "c", results=tmp_path / "nowhere" / "tiny.json")
    assert not in_process and not (tmp_path / "c").exists(), "before any work"
    out = tmp_path / "tiny.json"
    assert run(campaign(), tmp_path / "c", results=out).done
    before, said = out.read_bytes(), list[str]()
    other = campaign(audits=[{"suite": {**SUITE, "version": 2}}], arms={"more": {}})
    result = run_campaign(
        other, out=tmp_path / "d", results=out, options=EngineOptions(workers=1), progress=lines_into(said)
    )
    assert result.done and any("of another form of this campaign" in line for line in said)
    assert out.read_bytes() == before, "told, and nothing is lost on either side"


def test_progress_counts_the_cells_that_are_to_be_worked_on(tmp_path: Path, in_process: list[str]) -> None:
    given, far = campaign(arms={"a": {}, "b": {}}, seeds=2), list[tuple[int, int]]()

    def told(_: str, done: int, total: int, numbers: Any) -> None:
        far.append((done, total))

    for cells, first, last in (["b-*"], (0, 2), (2, 2)), ([], (2, 4), (4, 4)):
        run_campaign(given, out=tmp_path / "c", cells=cells, options=EngineOptions(workers=1), progress=told)
        assert (far[0], far[-1]) == (first, last)
        far.clear()


def test_no_cell_is_begun_that_would_not_be_done_in_time(tmp_path: Path, in_process: list[str]) -> None:
    said, given = list[str](), campaign(arms={"a": {}, "b": {}}, seeds=2)
    run(given, tmp_path / "c", cells=["a-s0", "b-s0"])
    have_taken(tmp_path / "c" / "log.jsonl", {"a-s0": 1.0, "b-s0": 500.0})
    result = run_campaign(tmp_path / "c", within=5, options=EngineOptions(workers=1), progress=lines_into(said))
    assert in_process == ["a-s0", "b-s0", "a-s1"] and result.stopped and not result.failed
    assert said[-1] == "1 not started: too little time is left"
    assert {view.cell.id: view.state for view in result.cells}["b-s1"] == "planned"
    result = run(tmp_path / "c", within=60)
    assert result.done and not result.stopped


def test_a_cell_that_the_quickest_of_its_kind_says_fits_is_begun(tmp_path: Path, in_process: list[str]) -> None:
    run(campaign(arms={"a": {}, "b": {}}, seeds=2), tmp_path / "c", cells=["a-s*"])
    have_taken(tmp_path / "c" / "log.jsonl", {"a-s0": 1000.0, "a-s1": 100.0})
    assert run(tmp_path / "c", within=1).stopped and in_process == ["a-s0", "a-s1"], "no cell took less than 100 s"
    assert run(tmp_path / "c", within=2).done, "the mean is 550 s: nobody waits for the end beside work that may fit"


def test_what_a_cell_has_cost_already_counts_towards_its_time(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(campaign(arms={"a": {}}, seeds=2), tmp_path / "c", cells=["a-s0"])
    monkeypatch.setattr(running_module, "spent", lambda run: costs.Cost(400.0 if run.name == "a-s1" else 500.0))
    monkeypatch.setattr(costs, "spent", lambda run: costs.Cost(500.0))
    assert run(tmp_path / "c", within=1).stopped and in_process == ["a-s0"], "100 s are left of it"
    assert run(tmp_path / "c", within=2).done


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan")])
def test_no_time_at_all_is_refused(minutes: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"within=.*: must be more than 0 minutes"):
        run(campaign(), tmp_path / "c", within=minutes)
    assert not (tmp_path / "c").exists()


def test_at_the_end_of_its_time_a_campaign_ends_whatever_is_at_work(tmp_path: Path) -> None:
    class Slow(InProcess):
        """Never done with a cell."""

        def wait(self, seconds: float) -> list[Ended]:
            time.sleep(0.05)
            return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENGINES, "local", Slow)
        result = run(campaign(), tmp_path / "c", within=0.005)
    assert result.stopped and not result.done
    assert json.loads((tmp_path / "c" / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])["event"] == "stopped"
    assert run(tmp_path / "c").done


def test_a_reference_is_the_run_of_the_same_seed(tmp_path: Path, in_process: list[str]) -> None:
    audits = [{"suite": campaign()["audits"][0]["suite"], "reference": "none"}]
    arms = {"kmeans": {"config": "demo-kmeans"}, "none": {}}
    result = run(campaign(arms=arms, audits=audits, seeds=[4]), tmp_path / "c")
    assert result.done
    assert in_process == ["none-s4", "kmeans-s4"]
    said = [audit.plan.reference.partition(" ")[0] for view in result.cells for audit in view.audits()]
    assert said == ["none-s4", ""]


def test_equal_time_scales_the_epochs_once(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def seconds(config: Any) -> float:
        measured.append(config.name)
        manifest = CampaignFolder.open(tmp_path / "c").run_path("kmeans-s0") / "manifest.json"
        return float(json.loads(manifest.read_text())["training_seconds"]) / 4

    monkeypatch.setattr("attncem.campaigns.cell.seconds_an_epoch", seconds)
    result = run(campaign(equal_time_to="kmeans", seeds=2), tmp_path / "c")
    assert result.done
    assert measured == ["none-s0"], "measured for the first seed alone"
    assert in_process == ["kmeans-s0", "none-s0", "kmeans-s1", "none-s1"]
    for view in result.cells:
        asked = result.folder.finished(view.cell.id).equal_time
        lines = (view.path / "timing.jsonl").read_text().splitlines()
        assert len(lines) == (2 if view.cell.arm == "kmeans" else 4)
        assert (asked is None) == (view.cell.arm == "kmeans")
        assert asked is None or (asked.factor, asked.epochs, asked.to) == (2.0, 4, "kmeans")


def test_the_trial_of_equal_time_measures_seconds() -> None:
    config = expand(load_campaign(campaign(arms={"b": {"config": "demo-kmeans"}})))[0].config
    assert 0 < seconds_an_epoch(config) < 60


@pytest.mark.parametrize("name", packaged_configs())
def test_every_packaged_configuration_has_a_trial(name: str) -> None:
    made = trial(load_config(name).config)
    assert made.training.epochs == 3
    assert made.warmup_epochs == 0
    assert all(penalty.warmup_epochs == 0 for penalty in made.penalties)


# stopping and refusing


def test_a_campaign_stops_when_asked_and_goes_on(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_module, "_PATIENCE", 0.3)
    out = tmp_path / "c"

    def asks(folder: Path, cell: str, progress: Any) -> None:
        work(folder, cell, progress)
        with pytest.raises(RunError, match="still running"):
            stop_campaign(folder)

    with monkeypatch.context() as patch:
        patch.setattr("campaigns.work", asks)
        result = run(campaign(), out)
    assert result.stopped
    assert [view.state for view in result.cells] == ["done", "planned"]
    assert not (out / "stop").exists()
    assert stop_campaign(out) is False, "nothing runs"
    assert run(out).done
    assert in_process == ["none-s0", "kmeans-s0"]


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "c"
    run(campaign(arms={"a": {}}), out)
    with held(out), pytest.raises(RunError, match="is being run by another process"):
        run(out)


def test_places_that_cannot_be_used_are_told_before_the_first_run(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file.txt").write_text("mine")
    with pytest.raises(RunError, match="already exists and was not changed"):
        run(campaign(), tmp_path / "mine")
    with pytest.raises(RunError, match="cannot write to"):
        run(campaign(), tmp_path / "mine" / "file.txt" / "below")
    monkeypatch.setattr(running_module.shutil, "disk_usage", lambda _: _Full())
    with pytest.raises(RunError, match="MiB are free and 64 are needed"):
        run(campaign(), tmp_path / "full")
    assert not (tmp_path / "full").exists()
    assert in_process == []


def test_a_disk_that_fills_ends_the_campaign_before_every_cell_fails(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fills(*_: Any) -> None:
        monkeypatch.setattr(running_module.shutil, "disk_usage", lambda _: _Full())
        raise RunError("cannot write: no space left")

    monkeypatch.setattr("campaigns.work", fills)
    with pytest.raises(RunError, match="MiB are free"):
        run(campaign(), tmp_path / "c")
    assert in_process == ["none-s0"]


class _Full:
    free = 2**20


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(RunError, match="cannot write to"):
        run(campaign(), tmp_path / "locked" / "c")


def test_a_folder_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    out = tmp_path / "c"
    run(campaign(arms={"a": {}}), out)
    begun = tmp_path / "begun"
    (begun / "cells").mkdir(parents=True)
    (begun / "cells" / "a-s0.yaml").write_bytes((out / "cells" / "a-s0.yaml").read_bytes()[:20])
    assert run(campaign(arms={"a": {}}), begun).done
    assert numbers(begun) == numbers(out)


# the command


def test_the_command_runs_lists_and_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "c.yaml", str(tmp_path / "c")
    file.write_text(yaml.safe_dump(campaign(arms={"a": {}, "b": {"set": {"data.root": "/nowhere"}}})))
    assert main(["campaign", "plan", str(file), "--out", out, "seeds=2"]) == 0
    said = capsys.readouterr().out
    assert "4 planned" in said
    assert "unknown until the first cell is done" in said
    assert not Path(out).exists()
    assert main(["campaign", "run", str(file), "--out", out, "--workers", "1"]) == 3
    assert "b-s0 failed (train)" in capsys.readouterr().out
    assert main(["campaign", "status", out]) == 3
    assert "1 done, 1 failed" in capsys.readouterr().out
    assert main(["campaign", "retry", out, "b-s0"]) == 3
    assert main(["campaign", "stop", out]) == 0
    assert "is not running" in capsys.readouterr().err
    assert main(["campaign", "list"]) == 0
    assert "demo" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "demmo"], "did you mean demo"),
        (["run", "demo", "--engine", "locall"], "did you mean local"),
        (["run", "demo", "training.epoch=1"], "did you mean training.epochs"),
        (["run", "demo", "--workers", "0", "--out", "OUT"], "workers=0"),
        (["run", "demo", "--cells", "nobody-*"], "no cell has this name"),
        (["run", "demo", "--within", "0"], "within=0: must be more than 0 minutes"),
        (["status", "nowhere"], "nowhere is not a campaign's folder"),
        (["run", "."], "is not a campaign's folder"),
        (["import", "nowhere.zip", "x"], "nowhere.zip is missing"),
    ],
)
def test_mistakes_at_the_command_end_with_2(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["campaign", *words]) == 2
    assert said in capsys.readouterr().err
