"""What is passed on holds nothing private: no absolute path, no user's name, no key, and on request no picture."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from attncem.base.shown_paths import shown_path, without_paths, without_paths_in
from attncem.base.types import RunError
from attncem.campaigns.archive import export_campaign
from attncem.campaigns.planning import plan_campaign
from attncem.campaigns.results import campaign_table, results_text, write_results
from attncem.campaigns.travelling import for_others, is_key
from attncem.campaigns.unpacking import import_campaign
from attncem.cli.main import main
from attncem.config.loading.load import dump_config, load_config
from attncem.data.sources import places
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.files import read_record
from attncem.records.portrait import Portrait
from attncem.records.runs import RunDirectory
from attncem.reporting.campaign.page import write_campaign_report, write_tables
from made_campaigns import ARMS, Made, make_campaign
from made_runs import NUMBERS, failed, make_audit, make_run, rows

MARK = "zqmarker"
"""The user's name: it must be nowhere."""
Pages = dict[str, bytes]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home folder with data; everything private is below it, and its owner runs the tests."""
    folder = tmp_path_factory.mktemp("home") / "home" / MARK
    (folder / "photos" / "a b").mkdir(parents=True)
    Image.new("L", (28, 28), 90).save(folder / "photos" / "a b" / "one.png")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "USER", "LOGNAME"):
            patch.setenv(name, str(folder) if name == "HOME" else MARK)
        yield folder


@pytest.fixture(scope="module")
def runs(home: Path) -> list[Path]:
    """Two runs whose every text that may hold a path holds one, as files of version 0.2 do."""
    reason = f'FileNotFoundError: {home}/a b/x.npz\n  File "{home}/lib/attack.py", line 3, in fit'
    made = []
    for name in ("none", "kmeans"):
        audit = make_audit(name, [*rows(NUMBERS[name][1]), failed("gan", reason=reason)])
        run = make_run(home / "runs", name, audits=[audit])
        settings = {"data.root": f"{home}/photos/a b", "model.init_from": f"{home}/start.safetensors"}
        config = load_config(RunDirectory(run).config, settings if name == "none" else {"data.root": f"{home}/photos"})
        (run / "config.yaml").write_text(dump_config(config.config))
        manifest = json.loads((run / "manifest.json").read_text())
        manifest |= {"config_sha256": None, "init_from": {"source": f"{home}/start.safetensors"}}
        (run / "manifest.json").write_text(json.dumps(manifest | {"onnx_problem": reason, "cautions": [reason]}))
        (row,) = run.glob("audits/*/gan.json")
        old = {key: value for key, value in json.loads(row.read_text()).items() if key != "seal"}  # as version 0.2 did
        row.write_text(json.dumps({**old, "reason": reason}))
        made.append(run)
    return made


@pytest.fixture(scope="module")
def campaign(home: Path) -> CampaignFolder:
    """A campaign with finished cells, one that failed, and one that is not trained to the end."""
    arms = {name: {**arm, "set": {"data.root": f"{home}/photos"}} for name, arm in ARMS.items()}
    folder = make_campaign(home / "camp", Made(arms, seeds=1, pictures=2, epochs=2))
    folder.fail("kmeans-s0", "audit", RuntimeError(f"{home}/photos/x.png is missing"))
    folder.log("failed", cell="kmeans-s0", reason=f"{home}/photos/x.png is missing")
    half = folder.run_path("gated-s0")
    for name in ("noise.key", "noise.key.bak", "NOISE.KEY", "old-noise.key.json", "notes.txt", "tensorboard/ev.host"):
        (half / name).parent.mkdir(exist_ok=True)
        (half / name).write_bytes(b"secret-" * 8)
    manifest = json.loads((half / "manifest.json").read_text())
    manifest |= {"status": "stopped", "config_sha256": hashlib.sha256((half / "config.yaml").read_bytes()).hexdigest()}
    (half / "manifest.json").write_text(json.dumps(manifest))
    with (half / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({"kind": "note", "step": 9, "text": f"{home}/photos"}) + "\n")
    return folder


def made_with(out: Path, *commands: list[str]) -> Pages:
    """The files that these commands write below a folder."""
    for words in commands:
        assert main(words) == 0, words
    return {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file()}


def check_private(files: Pages, home: Path) -> None:
    """Nothing of the home folder is in any of them."""
    assert files
    for name, data in files.items():
        at = data.find(MARK.encode())
        assert at < 0, (name, data[max(0, at - 200) : at + 100])
        assert str(home.parent.parent).encode() not in data, name


# pages, tables and results


def test_no_page_of_runs_holds_a_path(
    runs: list[Path], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both, out = list(map(str, runs)), tmp_path / "out"
    files = made_with(
        out,
        ["report", *both, "--out", str(out / "report.html"), "--csv"],
        ["compare", *both, "--out", str(out / "compare.html"), "--json"],
        ["card", both[0], "--out", str(out / "card"), "--json"],
    )
    assert len(files) == 6
    check_private(files, home)
    assert b"photos" in files["report.html"], "what is no secret stays"
    assert b"x.npz" in files["report.html"]
    check_private({"JSON": capsys.readouterr().out.partition("{")[2].encode()}, home)  # first the page's place


@pytest.mark.slow
def test_the_page_about_an_image_holds_no_path(
    small_run: Callable[..., Path], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = home / "explained"
    shutil.copytree(small_run("demo-none"), run)
    image = str(home / "photos" / "a b" / "one.png")
    files = made_with(tmp_path, ["explain", str(run), image, "--json", "--out", str(tmp_path / "page.html")])
    check_private({**files, "JSON": capsys.readouterr().out.encode()}, home)
    assert b"one.png" in files["page.html"]


def test_the_page_of_a_campaign_holds_no_path(campaign: CampaignFolder, home: Path, tmp_path: Path) -> None:
    page = write_campaign_report(campaign.path, tmp_path / "page.html").read_bytes()
    check_private({"page": page}, home)
    assert b"attncem report camp/runs/none-s0" in page
    assert b"x.png is missing" in page


def test_tables_and_results_of_a_campaign_hold_no_path(campaign: CampaignFolder, home: Path, tmp_path: Path) -> None:
    write_tables(campaign.path, tmp_path / "tables")
    write_results(with_split(campaign.path, tmp_path), tmp_path / "tables" / "results.json")
    check_private(made_with(tmp_path / "tables"), home)


@pytest.mark.parametrize("entry", ["client_macs", "bytes_per_query", "steps", "split"])
def test_a_manifest_with_a_wrong_entry_is_named(campaign: CampaignFolder, tmp_path: Path, entry: str) -> None:
    file = with_split(campaign.path, tmp_path) / "runs/none-s0/manifest.json"
    wrong = {"split": {}, "steps": 3}.get(entry, "x")
    file.write_text(json.dumps({**json.loads(file.read_text()), entry: wrong}))
    with pytest.raises(RunError, match=rf"none-s0/manifest.json is damaged: {entry}"):
        if entry == "split":
            campaign_table(file.parents[2])
        _ = RunDirectory(file.parent).manifest


def with_split(folder: Path, root: Path) -> Path:
    """A copy of the campaign with what its made-up manifests lack for a file of results."""
    copy = root / f"copy-{folder.name}"
    shutil.copytree(folder, copy)
    for file in copy.glob("runs/*/manifest.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "split": {"train": 10}, "config_sha256": None}))
    return copy


# archives


def unpacked(archive: Path) -> Pages:
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.mark.parametrize("pictures", [True, False])
def test_an_archive_holds_no_path_and_no_key(
    campaign: CampaignFolder, home: Path, tmp_path: Path, pictures: bool
) -> None:
    made = export_campaign(campaign.path, tmp_path / "a.zip", pictures=pictures)
    assert (made.cells, made.whole) == (3, 2)
    members = unpacked(made.path)
    check_private({**members, "names": "\n".join(members).encode()}, home)
    assert not any(b"secret-" in data or "ev.host" in name for name, data in members.items())
    assert any(name.endswith(".png") for name in members) == pictures
    there = import_campaign(made.path, tmp_path / "there").folder
    assert [view.state for view in there.views()] == ["done", "failed", "interrupted"]
    assert there.config("none-s0").data.root == "photos"
    assert RunDirectory.open(there.run_path("gated-s0")).config.data.root == "photos"
    for view in (view for view in campaign.views() if view.state == "done"):
        log = "metrics.jsonl"
        assert (there.run_path(view.cell.id) / log).stat().st_size == (view.path / log).stat().st_size
    portrait = read_record(Portrait, there.run_path("gated-s0") / "portrait.json")
    assert portrait.clouds, "the map of its features stays"
    assert any(one.faces for one in portrait.classes) == pictures
    if not pictures:
        page = write_campaign_report(there.path, tmp_path / "page.html").read_text()
        assert "exported with --no-pictures" in page
        assert 'src="data:image' not in page


def test_a_configuration_that_was_changed_is_not_made_whole(campaign: CampaignFolder, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(campaign.path, copy)
    file = copy / "runs/gated-s0/config.yaml"
    file.write_text(file.read_text().replace("epochs: ", "epochs: 1"))
    there = import_campaign(export_campaign(copy, tmp_path / "a.zip").path, tmp_path / "there").folder
    with pytest.raises(RunError, match="is not the configuration that the run was made with"):
        _ = RunDirectory.open(there.run_path("gated-s0")).config


def test_the_command_leaves_pictures_out_and_says_where_it_does_not(
    campaign: CampaignFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["campaign", "export", str(campaign.path), str(tmp_path / "a.zip"), "--no-pictures"]) == 0
    assert not any(name.endswith(".png") for name in unpacked(tmp_path / "a.zip"))
    assert "pictures" not in "".join(capsys.readouterr())
    assert main(["campaign", "export", str(campaign.path), str(tmp_path / "b.zip"), "--results-only"]) == 0
    assert "originals among them; --no-pictures" in "".join(capsys.readouterr())


def test_a_campaign_that_travelled_is_the_same_campaign(campaign: CampaignFolder, tmp_path: Path, home: Path) -> None:
    """Cells come back into the folder they left, the same request adds nothing, and results join."""
    there = import_campaign(export_campaign(campaign.path, tmp_path / "a.zip").path, tmp_path / "there").folder
    back = tmp_path / "back"
    shutil.copytree(campaign.path, back)
    shutil.rmtree(back / "runs/none-s0")
    found = import_campaign(tmp_path / "a.zip", back)
    assert (found.taken, found.left) == (["none-s0"], ["kmeans-s0", "gated-s0"])
    outlook = plan_campaign(campaign.campaign, out=there.path)
    assert (outlook.added, outlook.left_alone) == ([], [])
    here, elsewhere = (campaign_table(with_split(folder, tmp_path)) for folder in (campaign.path, there.path))
    assert [cell.config for cell in here.cells] == [cell.config for cell in elsewhere.cells]
    assert MARK not in results_text(here)


def test_the_data_of_an_archive_is_found_where_the_variable_says(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("ATTNCEM_DATA", str(tmp_path))
    assert places("image_folder", "photos") == [Path("photos"), tmp_path / "photos"]
    assert places("image_folder", tmp_path / "x") == [tmp_path / "x"]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *((name, True) for name in ("noise.key", "NOISE.KEY", "noise.key.bak", "runs/a/Noise_Key.txt", "my.key")),
        *((name, False) for name in ("keyed.json", "noise-guess.json", "monkey.png", "runs/noise.key-s0/config.yaml")),
    ],
)
def test_what_is_a_key(name: str, secret: bool) -> None:
    assert is_key(name) == secret


# one function for paths


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/alice/photos", "photos"),
        ("/home/alice", "~"),
        ("/root/", "~"),
        ("~alice/x/y", "y"),
        ("runs/a", "runs/a"),
        ("../../alice/x", "x"),
        ("..", "~"),
        ("C:\\Users\\Jo Doe\\x y.png", "x y.png"),
        ("test:3", "test:3"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("file:///home/alice/x.html", "x.html"),
    ],
)
def test_a_path_as_shown(path: str, shown: str) -> None:
    assert shown_path(path) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/alice/a/b.json is missing.", "b.json is missing."),
        ("/home/John Doe/x.png cannot be read", "x.png cannot be read"),
        ('File "/usr/lib/my python/z.py", line 3', 'File "z.py", line 3'),
        ("root: /mnt/my disk/photos\nname: a", "root: photos\nname: a"),
        ("- attacker_data: /mnt/my disk/Jane Doe/faces\n", "- attacker_data: faces\n"),
        ("data.root=/photos", "data.root=photos"),
        ("C:\\Users\\Jo Doe\\x.png is missing", "x.png is missing"),
        ("文件 /srv/a/b.png 丢失", "文件 b.png 丢失"),
        ("attncem report /a/b ../c/d --out=/x/y.html", "attncem report b d --out=y.html"),
    ],
)
def test_a_text_as_shown(text: str, shown: str) -> None:
    assert without_paths(text) == shown
    assert without_paths(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("MSE / PSNR and/or 3 /s, 1/2", "https://a.b/c/d.html", "image/png", "runs/a/b.json", "a//b"),
        *("iVBORw0KGgo+/abc/def/gh==", "data:image/jpeg;base64,/9j/4AA/x", "λ·z/τ", "2030/01/02"),
    ],
)
def test_a_text_without_a_path_stays(text: str) -> None:
    assert without_paths(text) == text


def test_a_relative_path_through_the_users_folder(home: Path) -> None:
    assert without_paths(f"attncem report {MARK}/runs/a") == "attncem report runs/a"
    assert shown_path(f"home/{MARK}/runs/a") == "runs/a"
    assert without_paths_in({"a": [f"x {home}/y/z"], "folder": f"{home}/q r"}) == {"a": ["x z"], "folder": "q r"}


def test_logs_keep_their_length(home: Path) -> None:
    lines = [{"kind": "train", "step": 1}, {"text": f"{home}/a/ü.png"}, {"step": 2}]
    log = "".join(json.dumps(line) + "\n" for line in lines).encode() + b'{"half'
    hidden = for_others("metrics.jsonl", log)
    assert len(hidden) == len(log) and MARK.encode() not in hidden
    assert [json.loads(line) for line in hidden.splitlines()[:3]] == [lines[0], {"text": "ü.png"}, lines[2]]
    assert for_others("x.png", b"/home/a/b") == b"/home/a/b"


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_a_page_whose_name_is_no_text(runs: list[Path], tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.html")
    assert main(["report", str(runs[0]), "--out", odd]) == 0
    assert Path(odd).stat().st_size > 1000
