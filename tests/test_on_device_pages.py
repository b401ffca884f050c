"""What pages, tables and findings say of the client alone, and the campaigns that train it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attncem.base.texts import speaking
from attncem.base.types import ConfigError
from attncem.campaigns.expansion import digest, expand, needs
from attncem.campaigns.results import campaign_table, write_results
from attncem.config.loading.load import dump_config
from attncem.config.options.campaigns import load_campaign, packaged_campaigns
from attncem.records.audit import AuditResult
from attncem.records.bounds import Bound
from attncem.records.campaign import CampaignPlan
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.campaign_table import Ends
from attncem.records.ledger import ledgers
from attncem.records.on_device import Reference, Worth, worth_of
from attncem.records.study import Cell, RunFacts
from attncem.records.study.campaign import study_of_campaign
from attncem.records.study.results import study_of_results
from attncem.reporting import on_device
from attncem.reporting.campaign.page import campaign_figures, write_campaign_report, write_tables
from made_campaigns import ARMS, Made, make_campaign

ALONE = Ends(0.90, 0.89, 0.91)


def worth(mean: float, low: float, high: float) -> Worth:
    reference = Reference("alone", {"test": ALONE, "validation": ALONE}, 4_000_000, 0)  # type: ignore[dict-item]
    return worth_of([(Ends(mean, low, high), ALONE, reference)])


@pytest.mark.parametrize(
    ("score", "verdict", "shown"),
    [
        ((0.95, 0.94, 0.96), "better", "+5.0 points [+3.6, +6.4]"),
        ((0.905, 0.895, 0.915), "not_shown", "+0.5 points [-0.9, +1.9] (not shown to be better)"),
        ((0.90, 0.89, 0.91), "not_better", "+0.0 points [-1.4, +1.4]"),
        ((0.8998, 0.8898, 0.9138), "not_better", "+0.0 points [-1.4, +1.7]"),
        ((0.85, 0.84, 0.86), "not_better", "-5.0 points [-6.4, -3.6]"),
    ],
)
def test_the_server_is_worth_it_only_where_it_adds_accuracy(
    score: tuple[float, float, float], verdict: str, shown: str
) -> None:
    found = worth(*score)
    assert found.verdict == verdict and on_device.points(found) == shown
    assert [item.code for item in found.findings] == (["server_not_worth_it"] if verdict == "not_better" else [])
    sentence = on_device.said(found, "leaks up to 7.9 nats")
    client = "the client alone (4 M multiply-accumulates): 90.0 % [89.0, 91.0]"
    assert sentence == f"{client}; the server adds {shown} and leaks up to 7.9 nats"
    with speaking("zh"):
        assert "仅用客户端（4 M 次乘加）：90.0 %" in on_device.said(found, "")


@pytest.mark.parametrize(
    ("score", "lang", "said"),
    [
        ((0.85, 0.84, 0.86), "en", "which adds -5.0 points [-6.4, -3.6]: what is released buys no accuracy"),
        ((0.899, 0.889, 0.909), "en", "which adds -0.1 points [-1.5, +1.3]: no difference is shown"),
        ((0.85, 0.84, 0.86), "zh", "服务器带来 -5.0 个百分点 [-6.4, -3.6]：发布的内容没有换来准确率"),
        ((0.899, 0.889, 0.909), "zh", "服务器带来 -0.1 个百分点 [-1.5, +1.3]：未显示差异"),
    ],
)
def test_the_finding_says_whether_the_difference_is_shown(
    score: tuple[float, float, float], lang: str, said: str
) -> None:
    (warned,) = worth(*score).findings
    with speaking(lang):
        assert said in warned.text


def test_a_reference_with_another_recipe_shows_no_gain() -> None:
    reference = Reference("alone", {"test": ALONE, "validation": ALONE}, 10, 0, same_recipe=False)  # type: ignore[dict-item]
    apart = worth_of([(Ends(0.95, 0.94, 0.96), ALONE, reference)])
    assert apart.verdict == "not_shown" and "had another training recipe: no fair comparison" in on_device.points(apart)


def test_the_command_that_is_named_works_where_the_page_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "my runs" / "split"
    run.mkdir(parents=True)
    cell: on_device.JudgedCell = Cell("split", 0, run=RunFacts(run))
    monkeypatch.chdir(tmp_path)
    assert on_device.unknown(cell).endswith("attncem train --on-device 'my runs/split'")
    monkeypatch.chdir(run.parent)
    assert on_device.unknown(cell).endswith("--on-device split")
    monkeypatch.chdir(run)
    assert on_device.unknown(cell).endswith("--on-device split"), "a page has no absolute path"
    assert on_device.unknown(cell, local=True).endswith(f"--on-device '{run.resolve()}'")
    monkeypatch.chdir("/")
    assert on_device.unknown(cell).endswith("--on-device split"), "from the root, every path is an absolute one"
    uses = {"plugins": [{"kind": "surrogate", "name": "mine", "file": "mine.py"}]}
    assert on_device.unknown(replace(cell, run=RunFacts(run, manifest=uses))).endswith("split --plugin mine.py")


def test_seeds_with_references_of_their_own_have_an_interval_and_others_none() -> None:
    scores = [Ends(value, value - 0.01, value + 0.01) for value in (0.95, 0.96, 0.94)]
    names = [Reference(name, {"test": ALONE, "validation": ALONE}, 10, 0) for name in "abc"]  # type: ignore[dict-item]
    apart = worth_of([(one, ALONE, name) for one, name in zip(scores, names, strict=True)])
    assert apart.low is not None and apart.low > 0 and apart.verdict == "better" and apart.names == ["a", "b", "c"]
    together = worth_of([(one, ALONE, names[0]) for one in scores])
    assert (together.low, together.high, together.verdict) == (None, None, "not_shown")
    assert together.difference == pytest.approx(apart.difference)


# campaigns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> CampaignFolder:
    """Two arms over two seeds, of which neither beats the client alone."""
    arms = {name: ARMS[name] for name in ("none", "gated")}
    made = Made(arms, seeds=2, attacks=("ridge",), pictures=1, portraits=False, alone=0.99)
    return make_campaign(tmp_path_factory.mktemp("campaign") / "made", made)


def test_every_cost_of_a_client_gets_its_candidates_once() -> None:
    same = {"config": "demo-none", "set": {"training.epochs": 3}}
    campaign = load_campaign(
        {
            "name": "it",
            "arms": {"a": same, "b": {**same, "set": {"channel.noise_std": 0.2}}, "c": {"config": "demo-kmeans"}},
            "seeds": [3, 1],
            "on_device": True,
        }
    )
    cells = expand(campaign)
    alone = [planned for planned in cells if planned.cell.budget is not None]
    assert [planned.cell.seed for planned in cells] == sorted((p.cell.seed for p in cells), key=[3, 1].index)
    assert len({planned.cell.arm for planned in alone}) == 1, "all three clients cost the same"
    assert [planned.cell.point["network"] for planned in alone if planned.cell.seed == 3] == [
        "trunk",
        "lean-7",
        "lean-4",
    ]
    assert all(it.config.on_device and it.config.seed == it.cell.seed and it.config.name == it.cell.id for it in alone)
    assert len({planned.cell.id for planned in cells}) == len(cells) == 2 * (3 + 3)
    plan = CampaignPlan("it", "", "", [planned.cell for planned in cells])
    assert all(needs(campaign, plan, planned.cell) == [] for planned in alone)


def test_an_arm_that_releases_nothing_is_refused() -> None:
    undefended = {"on_device": True, "channel.name": "identity"}
    arms = {"none": {}, "device": {"set": undefended}}
    with pytest.raises(ConfigError, match=r"arms\.device: on_device=true releases nothing to audit"):
        expand(load_campaign({"name": "it", "config": "demo-none", "arms": arms}))


def test_a_campaign_without_the_word_is_what_it_was() -> None:
    """Its file has no new key, its cells no new option, and their hashes, which results hold, are those of before."""
    without = [campaign for name in packaged_campaigns() if not (campaign := load_campaign(name)).on_device]
    assert len(without) > 20
    for campaign in without:
        assert "on_device" not in dump_config(campaign)
    campaign = load_campaign("beyond-cifar10")
    results = Path(__file__).parent.parent / "results" / "beyond_cifar10.json"
    known = json.loads(results.read_text(encoding="utf-8"))
    assert hashlib.sha256(dump_config(campaign).encode()).hexdigest() == known["sha256"]
    place = [(cell["arm"], cell["point"], cell["seed"], cell["config"]) for cell in known["cells"]]
    made = ((planned.cell, digest(planned.config, anywhere=True)[:16]) for planned in expand(campaign))
    assert [(cell.arm, cell.point, cell.seed, mark) for cell, mark in made] == place


def test_a_campaign_shows_the_client_alone_as_an_arm_without_audit(folder: CampaignFolder, tmp_path: Path) -> None:
    assert {view.state for view in folder.views()} == {"done"}
    study = study_of_campaign(folder)
    alone = [arm for arm in study.arms if arm.on_device]
    assert len(study.cells) == len(folder.plan.cells) and alone
    for arm in alone:
        assert [cell.seed for cell in arm.cells] == [0, 1] and len(arm.others) == 4 and not arm.audits()
        assert arm.values("accuracy", study.kinds[0]) == [0.99, 0.99]
    write_tables(folder.path, tmp_path)
    headline = (tmp_path / "headline.csv").read_text(encoding="utf-8").splitlines()
    assert "server_adds" in headline[0] and any("client alone" in line for line in headline)
    (plot, *_) = campaign_figures(folder.path)
    from matplotlib.figure import Figure

    from attncem.reporting.campaign.plots import PAPER

    assert "nothing released (dashed line)" in plot.draw(Figure().add_subplot(), PAPER)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_its_page_says_whether_the_server_is_worth_it(folder: CampaignFolder, tmp_path: Path, lang: str) -> None:
    page = write_campaign_report(folder.path, tmp_path / "page.html", lang=lang).read_text(encoding="utf-8")
    words = {
        "en": (
            "Is the server worth it?",
            "the server adds -",
            "what is released buys no accuracy",
            "is not known here",
        ),
        "zh": ("服务器值得吗？", "服务器带来 -", "发布的内容没有换来准确率", "此处不知道仅用客户端"),
    }[lang]
    assert all(said in page for said in words[:3]) and words[3] not in page


def test_the_list_of_runs_says_what_the_server_adds(
    folder: CampaignFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from attncem.cli.main import main

    copy = Path(shutil.copytree(folder.path, tmp_path / "copy"))
    monkeypatch.chdir(tmp_path)
    assert on_device.of_folder("copy") == [], "these audits are of other weights"
    monkeypatch.setattr(on_device, "newest_audit", lambda run: ledgers(run.path / "audits")[-1].result())
    lines = on_device.of_folder("copy")
    assert [line.partition(":")[0] for line in lines] == [
        f"runs/{name}-s{s}" for name in ("gated", "none") for s in (0, 1)
    ]
    assert all("the server adds -" in line for line in lines)
    assert main(["runs", "copy"]) == 0
    assert lines[0] in re.sub(r"\s+", " ", capsys.readouterr().out)
    monkeypatch.setattr(on_device, "_LISTED", 1)
    assert on_device.of_folder("copy")[1:] == ["the client alone: known for 3 more; attncem report copy shows it"]
    for file in copy.glob("runs/*/on_device.json"):
        file.unlink()
    assert on_device.of_folder("copy") == [
        "runs/gated-s0: the client alone: not known; run attncem train --on-device copy/runs/gated-s0",
        "the client alone: not known for 3 more",
    ]
    (copy / "runs" / "gated-s0" / "manifest.json").write_text("{", encoding="utf-8")
    assert on_device.of_folder("copy")[0].startswith("runs/gated-s1:"), "a damaged run has no sentence"
    assert on_device.of_folder("nowhere") == []


def test_a_campaign_without_the_client_alone_says_so_once(tmp_path: Path) -> None:
    made = Made({"none": ARMS["none"]}, seeds=1, attacks=("ridge",), pictures=1, portraits=False)
    there = make_campaign(tmp_path / "made", made)
    page = write_campaign_report(there.path, tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("The client alone is not known here") == 1 and "Is the server worth it?" not in page
    write_tables(there.path, tmp_path / "tables")
    assert "server_adds" not in (tmp_path / "tables" / "headline.csv").read_text(encoding="utf-8")


def test_results_carry_the_client_alone_and_the_warning(folder: CampaignFolder, tmp_path: Path) -> None:
    table = write_results(folder.path, tmp_path / "made.json")
    judged = [cell for cell in table.cells if cell.alone is None]
    alone = [cell for cell in table.cells if cell.alone is not None]
    assert all("server_not_worth_it" in (cell.warnings or ()) for cell in judged)
    assert sum(bool(cell.alone) for cell in alone) == len(alone) / 3 and all(cell.audits == [] for cell in alone)
    study, again = study_of_campaign(folder), study_of_results(table)
    assert [(arm.label, len(arm.cells), len(arm.others)) for arm in again.arms] == [
        (arm.label, len(arm.cells), len(arm.others)) for arm in study.arms
    ]
    assert again.arms[-1].values("accuracy") == [0.99, 0.99]
    assert campaign_table(folder.path).cells == table.cells


def test_a_leak_is_named_by_its_proven_limit_or_by_the_strongest_attack(folder: CampaignFolder) -> None:
    study = study_of_campaign(folder)
    arm = study.arms[0]
    cell = arm.cells[0]
    audit = cell.results[0]
    first = on_device.Audited(cell, audit)
    assert "without a proven limit" in on_device.leak_of([[audit]], [first])
    bound = Bound(7.5, "nats", 7.3, 7.7, "bound", about="leakage", limit=7.87)
    row = replace(audit.rows[0], name="leakage", kind="certificate", scores={}, bounds={"leakage": bound})
    for changed, said in (
        (bound, "leaks up to 7.87 nats"),
        (replace(bound, value=0.03, limit=0.0412), "leaks up to 0.0412 nats"),
        (replace(bound, kind="estimate"), "without a proven limit"),
        (replace(bound, vacuous=True), "without a proven limit"),
        (replace(bound, direction="at_least"), "without a proven limit"),
    ):
        certified = replace(audit, rows=[*audit.rows, replace(row, bounds={"leakage": changed})])
        assert said in on_device.leak_of([[certified]], [first]), changed
    named = replace(audit, rows=[*audit.rows, replace(row, bounds={"code_entropy": bound})])
    assert "leaks up to 7.87 nats" in on_device.leak_of([[named]], [first]), "as in the tables, whatever its name"


def test_a_limit_of_other_weights_or_of_another_adversary_is_not_said(folder: CampaignFolder) -> None:
    cell = study_of_campaign(folder).arms[0].cells[0]
    (audit,) = cell.results
    bound = Bound(7.5, "nats", 7.3, 7.7, "bound", about="leakage", limit=7.87)
    row = replace(audit.rows[0], name="leakage", kind="certificate", scores={}, bounds={"leakage": bound})
    other = replace(audit, rows=[row])

    def said(other: AuditResult) -> str:
        both = replace(cell, audits={**cell.audits, replace(next(iter(cell.audits)), suite="certificates"): other})
        return on_device.leak_of([[audit]], [on_device.Audited(both, audit)])

    assert "leaks up to 7.87 nats" in said(replace(other, plan=replace(other.plan, suite="certificates")))
    for changed in (
        replace(other, plan=replace(other.plan, subject=replace(other.subject, fingerprint="0" * 64))),
        replace(other, plan=replace(other.plan, threat=replace(other.plan.threat, jitter=1))),
        replace(other, plan=replace(other.plan, evaluation="validation")),
    ):
        assert "without a proven limit" in said(changed)


def test_an_interrupted_choice_is_completed(folder: CampaignFolder, tmp_path: Path) -> None:
    """The record of the choice belongs to the best candidate alone, and only once all are trained."""
    copy = CampaignFolder.open(shutil.copytree(folder.path, tmp_path / "copy"))
    chosen = next(cell for cell in copy.plan.cells if cell.point.get("network") == "trunk")
    (copy.run_path(chosen.id) / "on_device.json").unlink()
    states = {view.cell.id: view.state for view in copy.views()}
    assert states.pop(chosen.id) == "trained" and set(states.values()) == {"done"}
    other = next(
        cell for cell in copy.plan.cells if cell.arm == chosen.arm and cell.seed == chosen.seed and cell.id != chosen.id
    )
    manifest = json.loads((copy.run_path(other.id) / "manifest.json").read_text(encoding="utf-8"))
    (copy.run_path(other.id) / "manifest.json").write_text(
        json.dumps({**manifest, "status": "stopped"}), encoding="utf-8"
    )
    states = {view.cell.id: view.state for view in copy.views()}
    assert (states[chosen.id], states[other.id]) == ("done", "interrupted")


def words_of(page: Path) -> str:
    text = re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8"))
    return re.sub(r"\s+", " ", text).replace("\u00a0", " ")


@pytest.mark.slow
def test_a_campaign_and_a_run_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train, audit, train alone, and read: report, comparison, card, list and terminal say the same sentence."""
    from attncem.base.progress import silent
    from attncem.campaigns.archive import export_campaign
    from attncem.campaigns.running import run_campaign
    from attncem.campaigns.unpacking import import_campaign
    from attncem.cli.main import main
    from attncem.judging.auditing import audit
    from attncem.reporting import compare, privacy_card, report
    from attncem.training.train import train

    monkeypatch.chdir(tmp_path)
    tiny: dict[str, Any] = {"model.width": 8, "device": "cpu", "data.images_per_class": 40}
    tiny |= {"training.batch_size": 32, "training.epochs": 2}
    run = train("demo-none", tiny, out="runs/split", progress=silent)
    assert audit(run, "quick", only=["ridge", "mean image"], progress=silent).strongest
    unknown = "the client alone: not known; run attncem train --on-device runs/split"
    report([run], "before.html")
    assert unknown in words_of(Path("before.html"))
    alone = train(run, on_device=True, progress=silent)
    assert alone.path.parent == Path("runs")
    report([run], "after.html")
    found = re.search(r"the client alone \([^)]*\): .*?blind guess’s error\)", words_of(Path("after.html")))
    assert found and unknown not in words_of(Path("after.html"))
    both = compare([run, alone])
    assert both.alone[0] == f"demo-none: {found[0]}" and "accuracy" in both.groups[1].numbers
    card, _ = privacy_card(run)
    assert found[0][1:] in card.purpose[-1]
    with pytest.raises(Exception, match="nothing is released"):
        privacy_card(alone)
    assert on_device.of_folder("runs") == [f"split: {found[0]}"]
    assert main(["runs", "runs"]) == 0 and main(["predict", str(alone.path), "test:0"]) == 2
    campaign = {
        **{"name": "tiny", "config": "demo-none", "arms": {"none": {}}, "set": tiny, "on_device": True},
        **{"portraits": False, "audits": [{"suite": "quick", "only": ["ridge"]}]},
    }
    result = run_campaign(campaign, out="campaign", progress=silent)
    assert result.done and len(result.cells) == 4
    assert run_campaign("campaign", progress=silent).done
    choices = list(Path("campaign/runs").glob("*/on_device.json"))
    assert len(choices) == 1, "only the chosen candidate is measured on test images"
    export_campaign(Path("campaign"), Path("campaign.zip"))
    import_campaign(Path("campaign.zip"), Path("elsewhere"))
    here, there = (study_of_campaign(CampaignFolder.open(path)) for path in ("campaign", "elsewhere"))
    assert [cell.alone for cell in there.cells] == [cell.alone for cell in here.cells], "an archive carries the choice"
