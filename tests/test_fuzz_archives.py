"""Archives, campaign folders and audits that were damaged in any way: read, or refused by an error for people.

More of them: ATTNCEM_FUZZ_COUNT=2000 ATTNCEM_FUZZ_SEED=7 pytest -s -o timeout=0 tests/test_fuzz_archives.py -k many
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attncem.campaigns.archive import LISTING, export_campaign
from attncem.campaigns.unpacking import import_campaign
from attncem.records.campaign_folder import CampaignFolder
from fuzzing import Tally, amount, contents, fuzz_in_places, limited_memory, start
from made_campaigns import ARMS, Made, make_campaign
from made_runs import make_run
from test_fuzz_runs import DEEP, VALUES, Damage, ask, dumped, places

FEW, MANY = 6, 80
SECONDS = 10.0
"""Processor time of one command; a page takes one second."""
NAMES = (
    *("../evil", "/etc/evil", "runs/../../x", "runs/none-s0/aux", "runs/none-s0/COM1.json", "runs/a/b.json "),
    *("runs/none-s0/\x1b[2J", "runs/none-s0/\u202e.json", "runs/none-s0/noise.key", "runs/none-s0/NOISE.KEY.bak"),
    *("Campaign.json", "campaign.yaml/x", "cells", "", ".", "a" * 300, "runs/none-s0/" + "d/" * 30 + "x", "stop"),
    *("runs/none-s0/new.json", "cells/other-s0.yaml", "failures/none-s0.json", "runs/new-s0/config.yaml", "log.jsonl"),
)


class Archive:
    """An archive as its members and its list; each change is one that a hostile or broken writer could make."""

    def __init__(self, rng: random.Random, file: Path) -> None:
        self.rng, self.said = rng, list[str]()
        with zipfile.ZipFile(file) as packed:
            self.members = [(name, packed.read(name)) for name in packed.namelist() if name != LISTING]
        self.listing: Any = None

    def change(self) -> None:
        """Change one thing."""
        way = self.rng.choice(
            [self._rename, self._add, self._twice, self._drop, self._contents, self._contents, self._list]
        )
        self.said.append(way.__name__)
        way()

    def _place(self) -> int:
        return self.rng.randrange(len(self.members))

    def _rename(self) -> None:
        place = self._place()
        self.members[place] = (self.rng.choice(NAMES), self.members[place][1])

    def _add(self) -> None:
        self.members.append((self.rng.choice(NAMES), self.rng.choice((b"", b"{}", b"x" * 9000, self.members[0][1]))))

    def _twice(self) -> None:
        name, data = self.members[self._place()]
        self.members.append((self.rng.choice((name, name.upper(), name.title())), data))

    def _drop(self) -> None:
        self.members.pop(self._place())

    def _contents(self) -> None:
        """Another content under an honest hash: what a member holds is met inside."""
        texts = [place for place, (name, _) in enumerate(self.members) if name.endswith((".json", ".yaml", ".jsonl"))]
        place = self.rng.choice(texts)
        name, data = self.members[place]
        self.said[-1] += f" {name}"
        others = (b"", b"[]", b"{}", b"null", data[: len(data) // 2], data + data, b"\xff" + data, b"[" * 9000)
        self.members[place] = (name, self._changed(data) if self.rng.random() < 0.7 else self.rng.choice(others))

    def _changed(self, data: bytes) -> bytes:
        try:
            tree = json.loads(data)
            holder, key = self.rng.choice(list(places(tree)))
        except (ValueError, IndexError, TypeError):
            return data.replace(b":", self.rng.choice((b": -", b"", b":: ", b": [")), 1)
        holder[key] = self.rng.choice((*VALUES, tree[next(iter(tree))] if isinstance(tree, dict) else 3))
        return dumped(tree).encode("utf-8", "surrogatepass")

    def _list(self) -> None:
        tree = {"members": self._honest()}
        holder, key = self.rng.choice(list(places(tree)))
        holder[key] = self.rng.choice((*VALUES, 2**62, -5, DEEP))
        self.listing = tree

    def _honest(self) -> list[dict[str, Any]]:
        return [{"name": n, "bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in self.members]

    def write(self, file: Path) -> None:
        """Write it; sometimes some bytes are changed as well."""
        listing = dumped({"members": self._honest()} if self.listing is None else self.listing)
        with pytest.MonkeyPatch.context() as patch, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            patch.setattr("warnings.warn", lambda *_, **__: None)  # names that are there twice
            packed.writestr(LISTING, listing.encode("utf-8", "surrogatepass"))
            for name, data in self.members:
                packed.writestr(zipfile.ZipInfo(name or "?"), data)
        if self.rng.random() < 0.3:
            self.said.append("bytes")
            raw = bytearray(file.read_bytes())
            for _ in range(self.rng.choice((1, 3, 30))):
                raw[self.rng.randrange(len(raw))] ^= 1 << self.rng.randrange(8)
            file.write_bytes(raw[: self.rng.choice((len(raw), len(raw), self.rng.randrange(len(raw))))])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> CampaignFolder:
    """A campaign of one finished cell, one that failed and one that is not trained to the end."""
    made = make_campaign(tmp_path_factory.mktemp("campaign") / "c", Made(ARMS, seeds=1, pictures=1, epochs=2))
    made.fail("kmeans-s0", "audit", RuntimeError("broken"))
    made.log("done", cell="none-s0", seconds=3.0)
    half = made.run_path("gated-s0") / "manifest.json"
    half.write_text(json.dumps({**json.loads(half.read_text()), "status": "stopped"}))
    for file in made.path.glob("runs/*/manifest.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "split": {"train": 10}}))
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs with an audit each."""
    root = tmp_path_factory.mktemp("runs")
    return [make_run(root, name) for name in ("none", "kmeans")]


def asked_of_campaign(path: Path, place: Path, *, page: bool) -> list[tuple[str, ...]]:
    """Every command that reads a campaign's folder; the page, which is slow, only sometimes."""
    pages = [("report", str(path), "--out", str(place / "page.html"))] if page else []
    others = (
        ("status", str(path)),
        ("results", str(path), str(place / "r.json")),
        ("export", str(path), str(place / "e.zip")),
    )
    return [("campaign", *words) for words in (*others, *pages)]


def try_all(tally: Tally, commands: list[tuple[str, ...]], given: object) -> None:
    for words in commands:
        tally.survives(lambda words=words: ask(*words, fine=(0, 3)), (given, words[:2]))


def fuzz_archive(number: int, rng: random.Random, place: Path, good: Path, tally: Tally) -> None:
    """Change an archive and import it; what is accepted must be usable, and nothing else may be written."""
    place.mkdir()
    (place / "kept.txt").write_text("a person's")
    archive = Archive(rng, good)
    for _ in range(rng.choice((1, 1, 2))):
        archive.change()
    archive.write(place / "a.zip")
    before = contents((place,))
    tally.ended["archives"] += 1
    tally.survives(lambda: import_campaign(place / "a.zip", place / "there"), (number, archive.said))
    after = {path: data for path, data in contents((place,)).items() if place / "there" not in (path, *path.parents)}
    tally.expect(after == before, "something beside the folder was written", (number, archive.said))
    if (place / "there").exists():
        tally.ended["imported"] += 1
        try_all(tally, asked_of_campaign(place / "there", place, page=number % 8 == 7), (number, archive.said))


def fuzz_folder(number: int, rng: random.Random, place: Path, source: Path, tally: Tally) -> None:
    """Damage a campaign's folder and give every command that reads it."""
    copy, outside = place / "c", place / "outside"
    outside.mkdir(parents=True)
    (outside / "kept.txt").write_text("a person's")
    shutil.copytree(source, copy)
    damage = Damage(rng, copy, outside)
    for _ in range(rng.choice((1, 1, 2))):
        damage.once()
    others, before = contents((outside,)), contents((copy,))
    tally.ended["campaign folders"] += 1
    try_all(tally, asked_of_campaign(copy, place, page=number % 4 == 0), (number, damage.said))
    tally.expect(contents((outside, copy)) == {**others, **before}, "what only reads has changed", damage.said)


def fuzz_audits(number: int, rng: random.Random, place: Path, runs: list[Path], tally: Tally) -> None:
    """Damage the audits and the manifest of a run and give every command that reads them without its weights."""
    copies, outside = [place / run.name for run in runs], place / "outside"
    outside.mkdir(parents=True)
    for run, copy in zip(runs, copies, strict=True):
        shutil.copytree(run, copy)
    part = copies[0] if rng.random() < 0.3 else copies[0] / "audits"
    damage = Damage(rng, part, outside)
    damage.once()
    if rng.random() < 0.3 and any(file.is_file() for file in part.rglob("*")):  # the first may have removed all
        damage.once()
    first, second, out = str(copies[0]), str(copies[1]), place / "out"
    tally.ended["audits"] += 1
    commands = [("runs", str(place)), ("compare", first, second), ("card", first, "--out", str(out / "card"))]
    if number % 4 == 0:
        commands += [
            ("report", first, "--out", str(out / "a.html")),
            ("report", f"{first}/audits", "--out", str(out / "b.html")),
        ]
    try_all(tally, commands, (number, damage.said))


def fuzz(what: str, count: int, seed: int, root: Path, one: Callable[..., None], given: Any) -> None:
    tally = Tally(what, SECONDS)
    fuzz_in_places(tally, lambda number, rng, place: one(number, rng, place, given, tally), count, seed, root)


@pytest.fixture(scope="module")
def archive(folder: CampaignFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_campaign(folder.path, tmp_path_factory.mktemp("archive") / "a.zip").path


def test_a_few_damaged_archives(archive: Path, tmp_path: Path) -> None:
    fuzz("archives", FEW, 3, tmp_path, fuzz_archive, archive)


@pytest.mark.slow
def test_many_damaged_archives(archive: Path, tmp_path: Path) -> None:
    with limited_memory():
        fuzz("archives", amount(5 * MANY), start(6), tmp_path, fuzz_archive, archive)


@pytest.mark.slow
def test_many_damaged_campaign_folders(folder: CampaignFolder, tmp_path: Path) -> None:
    with limited_memory():
        fuzz("campaign folders", amount(MANY), start(7), tmp_path, fuzz_folder, folder.path)


@pytest.mark.slow
def test_many_damaged_audits(runs: list[Path], tmp_path: Path) -> None:
    with limited_memory():
        fuzz("audits", amount(MANY), start(8), tmp_path, fuzz_audits, runs)
