"""Archives of campaigns: results without weights, going on elsewhere, and files that must not be trusted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncem.base.pictures import png
from attncem.base.progress import silent
from attncem.base.types import RunError
from attncem.campaigns import checking, run_campaign, unpacking
from attncem.campaigns.archive import LISTING, MOST_LINES, export_campaign, thinned_audit, thinned_metrics
from attncem.campaigns.engines import ENGINES, EngineOptions
from attncem.campaigns.unpacking import import_campaign
from attncem.cli.main import main
from attncem.records.campaign_folder import CampaignFolder, held
from attncem.reporting import report
from campaigns import InProcess, campaign, numbers, stamps

ONE = EngineOptions(workers=1)


class Killed(BaseException):
    """As a kill: nothing that handles errors sees it."""


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cells are worked on in this process; the list says which."""
    monkeypatch.setitem(ENGINES, "local", InProcess)
    InProcess.worked = []
    return InProcess.worked


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of two runs that is done; nothing may change it."""
    out = tmp_path_factory.mktemp("campaign") / "c"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENGINES, "local", InProcess)
        InProcess.worked = []
        keyed = {"none": {"set": {"channel.noise": "keyed"}}, "kmeans": {"config": "demo-kmeans"}}
        assert run_campaign(campaign(arms=keyed), out=out, options=ONE, progress=silent).done
    return out


def names(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as file:
        return file.namelist()


def test_results_travel_without_weights_scores_and_keys(finished: Path, tmp_path: Path) -> None:
    made = export_campaign(finished, tmp_path / "a.zip")
    assert (made.cells, made.whole) == (2, 0)
    assert (finished / "runs/none-s0/noise.key").is_file()
    kinds = {Path(name).suffix for name in names(made.path)}
    assert kinds <= {".json", ".jsonl", ".yaml", ".png"}
    assert not any(word in name for name in names(made.path) for word in ("checkpoints", "key", "lock"))
    there = import_campaign(made.path, tmp_path / "there")
    assert there.taken == ["none-s0", "kmeans-s0"]
    assert numbers(tmp_path / "there") != {}
    for old, new in zip(CampaignFolder.open(finished).views(), there.folder.views(), strict=True):
        assert new.state == "done"
        for before, after in zip(old.audits(), new.audits(), strict=True):
            assert after.plan == before.plan
            assert (after.strongest, after.findings) == (before.strongest, before.findings)
            assert [row.scores for row in after.rows] == [row.scores for row in before.rows]
            assert all(
                (Path(after.folder) / "pictures" / p.image).is_file() for row in after.rows for p in row.pictures
            )
    page = report([view.path for view in there.folder.views()], tmp_path / "report.html")
    assert "mean image" in page.read_text(encoding="utf-8"), "results without weights can be reported"
    with pytest.raises(RunError, match="already exists"):
        export_campaign(finished, tmp_path / "a.zip")


def test_without_pictures_a_report_says_so(finished: Path, tmp_path: Path) -> None:
    assert any(name.endswith(".png") for name in names(export_campaign(finished, tmp_path / "a.zip").path))
    made = export_campaign(finished, tmp_path / "b.zip", pictures=False)
    assert not any(name.endswith(".png") for name in names(made.path))
    there = import_campaign(made.path, tmp_path / "there").folder
    page = report([there.run_path("none-s0")], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "exported with --no-pictures" in page
    assert 'src="data:image' not in page


def test_a_campaign_moved_in_the_middle_goes_on_without_repeating(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import attncem.campaigns.cell as cell_module

    given = campaign(set={**campaign()["set"], "training.epochs": 4}, seeds=1)
    whole = tmp_path / "whole"
    run_campaign(given, out=whole, options=ONE, progress=silent)
    begun, stops = tmp_path / "begun", iter([False, True])

    def breaks_off(config: Any, run: Path, progress: Any) -> Path:
        """The second run is left after its second epoch, as by a kill."""
        if not next(stops):
            return real(config, run, progress)

        def told(stage: str, done: float, total: float, numbers: Any) -> None:
            if done > total / 2:
                raise Killed

        real(config, run, told)
        return run

    real = cell_module.train_run
    with monkeypatch.context() as patch:
        patch.setattr(cell_module, "train_run", breaks_off)
        with pytest.raises(Killed):
            run_campaign(given, out=begun, options=ONE, progress=silent)
    states = [view.state for view in CampaignFolder.open(begun).views()]
    assert states == ["done", "interrupted"]
    made = export_campaign(begun, tmp_path / "a.zip")
    assert (made.cells, made.whole) == (2, 1)
    shutil.rmtree(begun)
    moved = tmp_path / "elsewhere" / "c"
    import_campaign(made.path, moved)
    checkpoints = sorted(path.name for path in (moved / "runs/kmeans-s0/checkpoints").iterdir())
    assert checkpoints == ["epoch-00002"] or len(checkpoints) == 2
    there, resumed = stamps(moved), len((moved / "runs/kmeans-s0/timing.jsonl").read_text().splitlines())
    assert resumed == 2
    in_process.clear()
    assert run_campaign(moved, options=ONE, progress=silent).done
    assert in_process == ["kmeans-s0"]
    done = {name: stamp for name, stamp in there.items() if name.startswith("runs/none-s0")}
    assert done.items() <= stamps(moved).items(), "what was done is not touched"
    again, before = numbers(moved), numbers(whole)
    for cell in before:
        assert again[cell][:2] == before[cell][:2], cell
        kept = [{key: value for key, value in row.items() if key != "pictures"} for row in again[cell][2]]
        assert kept == [{key: value for key, value in row.items() if key != "pictures"} for row in before[cell][2]]


def test_an_archive_adds_cells_that_are_not_there(finished: Path, tmp_path: Path, in_process: list[str]) -> None:
    made = export_campaign(finished, tmp_path / "a.zip")
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    shutil.rmtree(other / "runs/kmeans-s0")
    (other / "cells/kmeans-s0.json").unlink()
    before = stamps(other)
    found = import_campaign(made.path, other)
    assert (found.taken, found.left) == (["kmeans-s0"], ["none-s0"])
    assert before.items() <= stamps(other).items()
    assert run_campaign(other, options=ONE, progress=silent).done
    assert in_process == []
    strange = tmp_path / "strange"
    run_campaign(campaign(name="strange", arms={"a": {}}, audits=[]), out=strange, options=ONE, progress=silent)
    with pytest.raises(RunError, match="is of the campaign tiny"):
        import_campaign(made.path, strange)


def test_a_running_campaign_is_not_exported(finished: Path, tmp_path: Path) -> None:
    with held(finished), pytest.raises(RunError, match="is running"):
        export_campaign(finished, tmp_path / "a.zip")


def test_results_only_leaves_behind_what_is_not_done(finished: Path, tmp_path: Path, in_process: list[str]) -> None:
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    (other / "cells/kmeans-s0.json").unlink()
    assert export_campaign(other, tmp_path / "a.zip").whole == 1
    assert any("checkpoints" in name for name in names(tmp_path / "a.zip"))
    made = export_campaign(other, tmp_path / "b.zip", results_only=True)
    assert (made.cells, made.whole) == (1, 0)
    assert not any("checkpoints" in name or "kmeans-s0/" in name for name in names(made.path))
    import_campaign(made.path, tmp_path / "there")
    assert run_campaign(tmp_path / "there", options=ONE, progress=silent).done
    assert in_process == ["kmeans-s0"], "it begins anew, and what was done stays"


def test_what_came_as_results_alone_is_not_audited_further(finished: Path, tmp_path: Path) -> None:
    import_campaign(export_campaign(finished, tmp_path / "a.zip").path, tmp_path / "there")
    (tmp_path / "there/cells/kmeans-s0.json").unlink()
    half = tmp_path / "there/runs/kmeans-s0/checkpoints/.partial-1"
    half.mkdir(parents=True)
    (half / "checkpoint.json").write_text("{}")  # a kill's leftover is no checkpoint
    result = run_campaign(tmp_path / "there", options=ONE, progress=silent)
    assert [failure.reason for failure in result.failed if "only its results were imported" in failure.reason]


# files that must not be trusted


def remade(archive: Path, target: Path, change: Callable[[dict[str, bytes]], None], *, honest: bool = True) -> Path:
    """The archive with some members changed; an honest one has a list that fits."""
    with zipfile.ZipFile(archive) as file:
        members = {name: file.read(name) for name in file.namelist() if name != LISTING}
        listing = file.read(LISTING)
    change(members)
    if honest:
        facts = [{"name": n, "bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in members.items()]
        listing = json.dumps({"schema_version": 2, "members": facts}).encode()
    with zipfile.ZipFile(target, "w") as file:
        file.writestr(LISTING, listing)
        for name, data in members.items():
            file.writestr(name, data)
    return target


@pytest.mark.parametrize(
    "name",
    [
        *("../evil.json", "/tmp/evil.json", "runs/../../evil.json", "runs/a/../../../evil.json", "C:/evil", "evil.py"),
        *(
            "runs/a\\..\\evil",
            "cells/../evil.yaml",
            ".lock",
            "runs/none-s0/noise.key",
            "runs/none-s0/.lock",
            "runs/./x",
        ),
        *("stop", "runs/none-s0", "cells/a/b.yaml", "runs//x"),
        *("runs/none-s0/aux", "runs/none-s0/AUX.json", "runs/com1/config.yaml", "runs/none-s0/x.json.", "runs/a/nul"),
        *("runs/none-s0/\x1b[31m.json", "runs/none-s0/\u202egnp.json", "runs/none-s0/a\u200b.json", "runs/a/b?.json"),
        *("runs/none-s0/NOISE.KEY", "runs/none-s0/noise.key.bak", "runs/none-s0/Config.yaml"),
    ],
)
def test_names_without_a_place_are_refused(finished: Path, tmp_path: Path, name: str) -> None:
    good = export_campaign(finished, tmp_path / "a.zip").path
    bad = remade(good, tmp_path / "bad.zip", lambda members: members.update({name: b"{}"}))
    with pytest.raises(RunError, match=r"does not belong in a campaign|damaged"):
        import_campaign(bad, tmp_path / "x" / "there")
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "evil.json").exists()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("campaign.json", b'"kmeans-s0"', b'"../../../x"'),
        ("campaign.json", b'"kmeans-s0"', b'"none-s0"'),
        ("campaign.json", b"{", b"["),
        ("campaign.yaml", b"arms:", b"harms:"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(finished: Path, tmp_path: Path, file: str, old: bytes, new: bytes) -> None:
    good = export_campaign(finished, tmp_path / "a.zip").path
    change = {file: (finished / file).read_bytes().replace(old, new)}
    bad = remade(good, tmp_path / "bad.zip", lambda members: members.update(change))
    with pytest.raises(RunError, match=r"damaged|cannot be used"):
        import_campaign(bad, tmp_path / "there")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "bad.zip"]


def test_links_and_strange_packings_are_refused(finished: Path, tmp_path: Path) -> None:
    good = export_campaign(finished, tmp_path / "a.zip").path
    for mark, (mode, packing) in {"link": (0o120777, zipfile.ZIP_STORED), "xz": (0o100644, zipfile.ZIP_LZMA)}.items():
        with zipfile.ZipFile(good) as file:
            members = {name: file.read(name) for name in file.namelist()}
        with zipfile.ZipFile(tmp_path / f"{mark}.zip", "w") as file:
            for name, data in members.items():
                info = zipfile.ZipInfo(name)
                if name.endswith("metrics.jsonl"):
                    info.external_attr, info.compress_type = mode << 16, packing
                file.writestr(info, data)
        with pytest.raises(RunError, match="is a link, or is packed in an unknown way"):
            import_campaign(tmp_path / f"{mark}.zip", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_damaged_and_absurd_archives_are_refused(finished: Path, tmp_path: Path) -> None:
    good = export_campaign(finished, tmp_path / "a.zip").path

    def changed(members: dict[str, bytes]) -> None:
        members["campaign.json"] = members["campaign.json"].replace(b"tiny", b"fine")

    def without(members: dict[str, bytes]) -> None:
        del members["campaign.json"]

    def refused(file: Path, said: str) -> None:
        with pytest.raises(RunError, match=said):
            import_campaign(file, tmp_path / "there")
        assert not (tmp_path / "there").exists()
        assert not list(tmp_path.glob(".partial-*"))

    refused(remade(good, tmp_path / "1.zip", changed, honest=False), "is not what its list says")
    refused(remade(good, tmp_path / "2.zip", without, honest=False), "those of its list")
    refused(remade(good, tmp_path / "3.zip", without), "campaign.json is missing")
    whole = good.read_bytes()
    (tmp_path / "4.zip").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path / "4.zip", "damaged, or is not a campaign archive")
    (tmp_path / "6.zip").write_text("no zip")
    refused(tmp_path / "6.zip", "is not a campaign archive")
    with zipfile.ZipFile(tmp_path / "7.zip", "w") as file:
        facts = [{"name": "campaign.json", "bytes": 2**60, "sha256": ""}]
        file.writestr(LISTING, json.dumps({"members": facts}))
        file.writestr("campaign.json", "{}")
    refused(tmp_path / "7.zip", "would take")
    with zipfile.ZipFile(tmp_path / "8.zip", "w", zipfile.ZIP_DEFLATED) as file:
        facts = [{"name": "campaign.json", "bytes": 10, "sha256": ""}]
        file.writestr(LISTING, json.dumps({"members": facts}))
        file.writestr("campaign.json", b"0" * 2**24)
    refused(tmp_path / "8.zip", "not what its list says")


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(RunError, match="is not a file"):
            import_campaign(place, tmp_path / "there")


def packed(target: Path, members: dict[str, bytes], listing: Any = None) -> Path:
    """An archive of these members; the list is honest unless one is given."""
    facts = [{"name": n, "bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in members.items()]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(LISTING, json.dumps({"members": facts} if listing is None else listing))
        for name, data in members.items():
            file.writestr(name, data)
    return target


def test_an_archive_that_grows_too_far_is_refused(
    finished: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {**_plain(finished), "runs/none-s0/metrics.jsonl": bytes(5 * 2**20)}
    bad = packed(tmp_path / "a.zip", large)
    monkeypatch.setattr(unpacking, "_SMALL", 2**20)
    with pytest.raises(RunError, match=r"would take 5 MiB, and the limit is 1; .*--limit"):
        import_campaign(bad, tmp_path / "there")
    assert main(["campaign", "import", str(bad), str(tmp_path / "there"), "--limit", "0.003"]) == 2
    assert "the limit is 3" in capsys.readouterr().err
    assert main(["campaign", "import", str(bad), str(tmp_path / "there"), "--limit", "-1"]) == 2
    assert not (tmp_path / "there").exists()
    assert import_campaign(bad, tmp_path / "there", limit=2**30).taken


def _plain(finished: Path) -> dict[str, bytes]:
    return {name: (finished / name).read_bytes() for name in ("campaign.yaml", "campaign.json")}


def test_a_list_out_of_proportion_is_not_read(finished: Path, tmp_path: Path) -> None:
    one = {"name": "campaign.json", "bytes": 1, "sha256": ""}
    bad = packed(tmp_path / "long.zip", _plain(finished), {"members": [one] * 10_000})
    with pytest.raises(RunError, match="its list takes"):
        import_campaign(bad, tmp_path / "there")
    bad = packed(tmp_path / "twice.zip", _plain(finished), {"members": [one] * 2})
    with pytest.raises(RunError, match="names a member twice"):
        import_campaign(bad, tmp_path / "there")
    plan = {**_plain(finished), "campaign.json": b"[" + b" " * 2**24 + b"]"}
    with pytest.raises(RunError, match="larger than"):
        import_campaign(packed(tmp_path / "plan.zip", plan), tmp_path / "there")


def test_a_zip_of_too_many_members_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(tmp_path / "a.zip", {f"runs/a/{number}.json": b"" for number in range(50)})
    monkeypatch.setattr(checking, "MOST_MEMBERS", 40)
    with pytest.raises(RunError, match="51 members"):
        import_campaign(tmp_path / "a.zip", tmp_path / "there")
    data = (tmp_path / "a.zip").read_bytes()
    at = data.rfind(b"PK\x05\x06")
    (tmp_path / "b.zip").write_bytes(data[: at + 8] + b"\1\0\1\0" + data[at + 12 :])  # it claims to have one
    monkeypatch.setattr(checking, "MOST_MEMBERS", 20)
    with pytest.raises(RunError, match="members"):
        import_campaign(tmp_path / "b.zip", tmp_path / "there")


def test_a_changed_byte_is_found_or_means_nothing(finished: Path, tmp_path: Path) -> None:
    good = export_campaign(finished, tmp_path / "a.zip").path
    import_campaign(good, tmp_path / "good")
    expected, whole = contents(tmp_path / "good"), good.read_bytes()
    found = 0
    for place in np.random.default_rng(0).integers(0, len(whole), 25).tolist():
        spoiled = bytearray(whole)
        spoiled[place] ^= 255
        (tmp_path / "bad.zip").write_bytes(spoiled)
        try:
            import_campaign(tmp_path / "bad.zip", tmp_path / f"there-{place}")
        except RunError:
            found += 1
            assert not (tmp_path / f"there-{place}").exists()
        else:
            assert contents(tmp_path / f"there-{place}") == expected
    assert found > 15


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# size


def test_a_long_log_is_thinned_evenly() -> None:
    lines = [json.dumps({"kind": "train", "step": step}) + "\n" for step in range(2000)]
    lines.insert(700, json.dumps({"kind": "validation", "accuracy": 0.5}) + "\n")
    kept = thinned_metrics("".join(lines).encode()).decode().splitlines(keepends=True)
    assert len(kept) == MOST_LINES + 1
    assert (kept[0], kept[-1]) == (lines[0], lines[-1])
    assert lines[700] in kept
    assert thinned_metrics("".join(kept).encode()).decode().splitlines(keepends=True) == kept


@pytest.mark.slow
def test_a_hundred_runs_fit_into_16_mib(finished: Path, tmp_path: Path) -> None:
    """Made up: eight rows with twenty noisy colour pictures each, and a log of 4000 lines of random numbers."""
    (source,) = (finished / "runs/kmeans-s0/audits").iterdir()
    draw = np.random.default_rng(0)
    sizes = []
    for number in range(3):
        folder = tmp_path / f"audit-{number}"
        shutil.copytree(source, folder)
        _grow(folder, draw)
        files = thinned_audit(folder)
        log = "".join(json.dumps(_line(step, draw)) + "\n" for step in range(4000)).encode()
        files["metrics.jsonl"] = thinned_metrics(log)
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
            for name, data in files.items():
                file.writestr(name, data)
        assert sum(name.startswith("pictures/") for name in files) >= 8, "every row keeps some"
        sizes.append((tmp_path / f"{number}.zip").stat().st_size)
    assert 100 * max(sizes) < 15.5 * 2**20, sizes


def _grow(folder: Path, draw: np.random.Generator) -> None:
    """Rows and pictures as a CIFAR-10 audit has them."""
    import torch

    plan, row = (json.loads((folder / name).read_text()) for name in ("audit.json", "mean-image.json"))
    del plan["seal"], row["seal"]  # as version 0.2 wrote them
    plan["rows"] = [f"row {number}" for number in range(8)]
    for old in [*folder.glob("*.npz"), folder / "joined.json", folder / "grey.json", folder / "mean-image.json"]:
        old.unlink()
    shutil.rmtree(folder / "pictures")
    (folder / "pictures").mkdir()
    for number, name in enumerate(plan["rows"]):
        pictures = []
        for index in range(20):
            for word in (f"original-{index}.png", f"row-{number}-{index}.png"):
                pixels = torch.tensor(draw.random((3, 32, 32)), dtype=torch.float32)
                (folder / "pictures" / word).write_bytes(png(pixels))
            pictures.append(
                {"index": index, "label": 0, "role": "fixed", "original": f"original-{index}.png"}
                | {"image": f"row-{number}-{index}.png", "mse": draw.random()}
            )
        scores = {measure: _noisy(score, draw) for measure, score in row["scores"].items()}
        new = {**row, "name": name, "pictures": pictures, "scores": scores}
        (folder / f"row-{number}.json").write_text(json.dumps(new))
    (folder / "audit.json").write_text(json.dumps(plan))


def _noisy(value: Any, draw: np.random.Generator) -> Any:
    if isinstance(value, dict):
        return {key: _noisy(item, draw) for key, item in value.items()}
    if isinstance(value, list):
        return [_noisy(item, draw) for item in value]
    return float(draw.random()) if isinstance(value, float) else value


def _line(step: int, draw: np.random.Generator) -> dict[str, Any]:
    numbers = {f"some_number_{place}": float(draw.random()) for place in range(14)}
    return {"schema_version": 2, "kind": "train", "step": step, "epoch": step / 390, **numbers}
