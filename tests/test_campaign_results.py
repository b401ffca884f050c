"""`attncem campaign results`: a finished campaign in one small file, which is what the committed ones look like."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attncem.base.progress import silent
from attncem.base.types import RunError
from attncem.campaigns.cell import work
from attncem.campaigns.expansion import digest, expand
from attncem.campaigns.results import campaign_table, read_results, results_text, write_results
from attncem.cli.main import main
from attncem.config.options.campaigns import load_campaign
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.metrics import METRICS

RESULTS = Path(__file__).parent.parent / "results"
TINY: dict[str, Any] = {
    "name": "tiny",
    "meaning": "two seeds, one audit on each kind of images",
    "set": {"training.epochs": 1},
    "arms": {"none": {}},
    "grid": {"channel.noise_std": [0.1]},
    "seeds": 2,
    "audits": [
        {"suite": "quick", "only": ["mean image", "ridge"]},
        {"suite": "quick", "only": ["ridge"], "on": "validation", "weights": "last"},
    ],
    "portraits": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> CampaignFolder:
    """A campaign of two cells, of which the first is done."""
    campaign = load_campaign(TINY)
    made = CampaignFolder.create(tmp_path_factory.mktemp("results") / "tiny", campaign, expand(campaign))
    work(made.path, made.plan.cells[0].id, silent)
    return made


def test_a_cell_has_its_accuracy_attacks_cost_and_warnings(folder: CampaignFolder) -> None:
    table = campaign_table(folder.path)
    assert (table.campaign, table.sha256) == ("tiny", folder.plan.sha256)
    (cell,) = table.cells
    assert (cell.arm, cell.point, cell.seed) == ("none", {"channel.noise_std": 0.1}, 0)
    assert table.unfinished == {folder.plan.cells[1].id: "planned"}
    on_test, on_validation = cell.audits
    assert on_test.attacks is not None and list(on_test.attacks) == ["mean image", "ridge"]
    for scores in on_test.attacks.values():
        assert scores.keys() == {*METRICS, "reliable"}
        mean, low, high = scores["mse"]
        assert low <= mean <= high
    assert on_test.row_seconds is not None and list(on_test.row_seconds) == ["mean image", "ridge"]
    assert all(seconds > 0 for seconds in on_test.row_seconds.values())
    found = folder.views()[0].audits()
    by_images = {audit.plan.evaluation: audit for audit in found}
    assert on_test.accuracy == pytest.approx(
        [getattr(by_images["test"].known_accuracy, key) for key in ("mean", "low", "high")], abs=1e-6
    )
    assert on_test.balanced_accuracy == pytest.approx(by_images["test"].known_accuracy.balanced, abs=1e-6)
    assert on_validation.strongest == "ridge" and on_test.strongest == by_images["test"].strongest
    assert cell.client_macs == by_images["test"].subject.client_macs
    costs = ("client_parameters", "client_activation_bytes", "client_milliseconds", "client_timed_on")
    assert [getattr(cell, name) for name in costs] == [getattr(by_images["test"].subject, name) for name in costs]
    assert cell.client_milliseconds and cell.client_timed_on
    assert cell.training_seconds == pytest.approx(by_images["test"].subject.training_seconds, abs=1e-3)
    assert [(audit.evaluation, audit.weights, list(audit.rows)) for audit in table.audits] == [
        ("test", "best", ["mean image", "ridge"]),
        ("validation", "last", ["ridge"]),
    ]
    assert table.audits[0].suite == "quick v3" and table.audits[0].devices
    assert table.command.startswith("attncem campaign run tiny --out FOLDER; ")


def test_results_of_a_search_name_the_search(folder: CampaignFolder) -> None:
    (folder.path / "search.yaml").touch()
    try:
        assert campaign_table(folder.path).command.startswith("attncem search tiny --out FOLDER; ")
    finally:
        (folder.path / "search.yaml").unlink()


def test_the_file_is_read_back_as_it_was_and_written_anew(folder: CampaignFolder, tmp_path: Path) -> None:
    out = tmp_path / "tiny.json"
    table = write_results(folder.path, out)
    assert read_results(out) == table
    assert out.read_text(encoding="utf-8") == results_text(table)
    assert json.loads(out.read_text())["schema_version"]
    write_results(folder.path, out)
    out.write_text(results_text(replace(table, campaign="another")), encoding="utf-8")
    with pytest.raises(RunError, match="holds other content"):
        write_results(folder.path, out)


def test_cells_that_were_finished_elsewhere_stay(folder: CampaignFolder, tmp_path: Path) -> None:
    out, here = tmp_path / "tiny.json", campaign_table(folder.path)
    (own,) = here.cells
    elsewhere = replace(own, seed=1, training_seconds=77.0)
    asked = [replace(audit, devices=["another device"]) for audit in here.audits]
    out.write_text(results_text(replace(here, cells=[elsewhere], audits=asked, unfinished={})), encoding="utf-8")
    both = write_results(folder.path, out)
    assert both.cells == [own, elsewhere] and both.unfinished == {} and read_results(out) == both
    assert all(audit.devices and len(audit.devices) == 2 for audit in both.audits)
    assert write_results(folder.path, out) == both, "and what is there of the folder's own cells is the folder's"
    older = replace(both, cells=[replace(own, training_seconds=1.0), elsewhere])
    out.write_text(results_text(older), encoding="utf-8")
    assert write_results(folder.path, out) == both


def test_a_campaign_that_has_grown_keeps_what_was_finished_before(folder: CampaignFolder, tmp_path: Path) -> None:
    out, here = tmp_path / "tiny.json", campaign_table(folder.path)
    second = digest(folder.config(folder.plan.cells[1].id))
    (own,) = here.cells
    assert (
        own.config
        and own.config != second[:16]
        and digest(folder.config(folder.plan.cells[0].id)).startswith(own.config)
    )
    elsewhere = replace(own, seed=1, config=second[:16])
    out.write_text(results_text(replace(here, cells=[elsewhere], sha256="before it grew")), encoding="utf-8")
    both = write_results(folder.path, out)
    assert both.cells == [own, elsewhere] and both.sha256 == here.sha256 and not both.unfinished


def test_cells_of_another_form_of_the_campaign_are_neither_kept_nor_lost(
    folder: CampaignFolder, tmp_path: Path
) -> None:
    out, here = tmp_path / "tiny.json", campaign_table(folder.path)
    (own,) = here.cells
    before = results_text(replace(here, cells=[own, replace(own, seed=5)], sha256="another"))
    out.write_text(before, encoding="utf-8")
    with pytest.raises(RunError, match="1 cells that the folder has not finished, of another form"):
        write_results(folder.path, out)
    assert out.read_text(encoding="utf-8") == before
    elsewhere = replace(own, seed=1)  # with the options of seed 0, or under other audits, but for the device's name
    for changed in ({"cells": [elsewhere]}, {"audits": here.audits[:1]}, {"cells": [replace(elsewhere, config=None)]}):
        out.write_text(results_text(replace(here, **{"sha256": "another", "cells": [elsewhere], **changed})), "utf-8")
        with pytest.raises(RunError, match="of another form"):
            write_results(folder.path, out)
    out.write_text(results_text(replace(here, sha256="another")), encoding="utf-8")
    assert write_results(folder.path, out).sha256 == here.sha256, "all of its cells were made anew"


def test_what_the_user_has_is_not_overwritten(folder: CampaignFolder, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"mine": true}')
    with pytest.raises(RunError, match="holds other content"):
        write_results(folder.path, tmp_path / "notes.json")
    assert (tmp_path / "notes.json").read_text() == '{"mine": true}'


def test_the_committed_files_have_no_other_keys_than_this_writes(folder: CampaignFolder) -> None:
    def keys(data: Any) -> set[str]:
        table = data["cells"][0]
        return {*data, *table, *(key for audit in (*data["audits"], *table["audits"]) for key in audit)}

    written = keys(campaign_table(folder.path).to_dict())
    files = ("demo_selection", "front_ends_cifar10", "front_ends_selection", "undefended_cifar10")
    for name in files:
        assert keys(json.loads((RESULTS / f"{name}.json").read_text())) <= written | {"schema_version"}


def test_the_command(
    folder: CampaignFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "tiny.json"
    assert main(["campaign", "results", str(folder.path), str(out)]) == 0
    assert "1 cells; 1 are not done" in capsys.readouterr().err
    assert main(["campaign", "results", str(tmp_path), str(out)]) == 2
    assert "is not a campaign's folder" in capsys.readouterr().err


def test_a_campaign_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    campaign = load_campaign(TINY)
    CampaignFolder.create(tmp_path / "tiny", campaign, expand(campaign))
    with pytest.raises(RunError, match="has no finished run yet"):
        campaign_table(tmp_path / "tiny")


def test_a_line_of_the_log_without_a_kind_is_no_warning(folder: CampaignFolder, tmp_path: Path) -> None:
    copied = shutil.copytree(folder.path, tmp_path / "copied")
    log = copied / "runs" / folder.plan.cells[0].id / "metrics.jsonl"
    log.write_text(log.read_text() + '{"step": 1, "begins": true, "cause": "nothing"}\n')
    assert campaign_table(copied).cells == campaign_table(folder.path).cells
