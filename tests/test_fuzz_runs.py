"""Run folders that were damaged in any way: every verb reads them or says what is wrong, and touches nothing else.

More of them: ATTNCEM_FUZZ_COUNT=1200 ATTNCEM_FUZZ_SEED=7 pytest -s -o timeout=0 tests/test_fuzz_runs.py -k many
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from attncem.base.progress import silent
from attncem.base.types import AttncemError
from attncem.cli.main import main
from attncem.training.train import train
from fuzzing import Tally, amount, contents, fuzz_in_places, limited_memory, start
from made_runs import reseal

FEW, MANY = 4, 40
SECONDS = 10.0
"""Processor time of one verb; a page takes one second."""
STEPS = 4
"""So many lines of progress a resumed run may give before it is stopped."""
ROWS = ("grey", "class mean", "ridge")
AUDIT = ("--suite", "quick", *(word for row in ROWS for word in ("--only", row)), "--device", "cpu")
DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 0.5, -0.0, 1e308, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 1e-320),
    *(float("nan"), float("inf"), float("-inf"), "1e999 bare", "", "x", "\0", "\ud800", "\x1b[31m", "ok", "failed"),
    *("../../outside/kept.txt", "/etc/passwd", "a" * 5000, "epoch-00001", "epoch-00009", "best", "finished", "running"),
    *([], {}, [[]], [1, 2, 3], ["a", "b"], [None], {"a": 1}, {"": None}, {"mean": "x"}, DEEP, [0] * 3000, [-1, 0, 0]),
)
WORDS = ("~", "[]", "{}", "-1", "0", "1e30", ".nan", "!!int x", "'", "&a [*a]", "[[", "text", "\ud800", "2024-01-01")
HASHED = ("client.safetensors", "server.safetensors", "surrogate.safetensors", "optimizer.pt")


class Damage:
    """Changes one run folder, from one random generator; what it did is in `said`."""

    def __init__(self, rng: random.Random, run: Path, outside: Path) -> None:
        self.rng, self.run, self.outside, self.said = rng, run, outside, list[str]()
        self.reaches_a_page = False
        """Whether a report may read what was damaged: it draws for a second, and reads no weights."""

    def once(self) -> None:
        """Damage one file; often so that the recorded hashes fit it again."""
        file = self._chosen()
        ways: list[Callable[[Path], None]] = [self._bytes] * 3 + [self._place] * 2
        by_kind = {".json": self._json, ".jsonl": self._lines, ".yaml": self._yaml, ".npz": self._npz, ".pt": self._pt}
        inside = self._tensors if file.suffix == ".safetensors" else by_kind.get(file.suffix)
        way = self.rng.choice([*ways, *([inside] * 9 if inside else [])])
        self.said.append(f"{way.__name__} {file.relative_to(self.run)}")
        self.reaches_a_page |= way == self._place or file.suffix in (".json", ".jsonl", ".yaml", ".png")
        if file.is_file() or way == self._place:
            way(file)
        if self.rng.random() < 0.7:
            rehash(self.run)

    def _chosen(self) -> Path:
        """Any file; pictures seldom."""
        files = sorted(path for path in self.run.rglob("*") if path.is_file())
        return self.rng.choices(files, [weight(file) for file in files])[0]

    # any file

    def _bytes(self, file: Path) -> None:
        data, rng = bytearray(file.read_bytes()), self.rng
        place = rng.randrange(len(data) + 1)
        flipped = bytearray(data)
        for _ in range(rng.randint(1, 8) if data else 0):
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        longer = data[:place] + rng.randbytes(rng.choice((1, 8, 3000))) + data[place:]
        others = (b"", data[:place], data + data, b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n"), longer)
        more = (b"\0" * len(data), data.decode("latin1").encode("utf-16"), data[::-1], b"[" * 9000, b'{"a":' * 9000)
        file.write_bytes(rng.choice((*[flipped] * 5, *others, *more)))

    def _place(self, file: Path) -> None:
        """Something else in the file's place, or the file in another."""
        another, kept = self._chosen(), self.outside / "kept.txt"
        moved = file.read_bytes()
        file.unlink()
        kind = self.rng.choice(
            ("gone", "folder", "full folder", "link", "loop", "dangling", "pipe", "swap", "folder gone")
        )
        self.said[-1] += f": {kind}"
        if "folder" in kind and kind != "folder gone":
            file.mkdir()
            (file / "inside" if kind == "full folder" else self.run / "extra").write_text("{}")
        elif kind == "swap":
            file.write_bytes(another.read_bytes() if another.is_file() else b"")
            another.write_bytes(moved) if another.is_file() else None
        elif kind == "pipe":
            os.mkfifo(file)
        elif kind == "folder gone" and file.parent != self.run:
            shutil.rmtree(file.parent)
        elif kind in ("link", "loop", "dangling"):
            file.symlink_to({"link": kept, "loop": file, "dangling": self.outside / "none"}[kind])

    # what is inside

    def _json(self, file: Path) -> None:
        with contextlib.suppress(ValueError, RecursionError):
            file.write_text(dumped(self._changed(json.loads(file.read_text()))))

    def _lines(self, file: Path) -> None:
        lines = file.read_text().splitlines() or ["{}"]
        place = self.rng.randrange(len(lines))
        with contextlib.suppress(ValueError, RecursionError):
            lines[place] = dumped(self._changed(json.loads(lines[place])))
        file.write_text("\n".join([*lines, *self.rng.choices(lines, k=self.rng.randrange(3)), ""]))

    def _changed(self, data: Any) -> Any:
        for _ in range(self.rng.choice((1, 1, 1, 2, 5))):
            holder, key = self.rng.choice(list(places(data)) or [({"": data}, "")])
            value = self.rng.choice((*VALUES, holder[key], data))
            if self.rng.random() < 0.2 and holder is not data:
                value = [holder[key], holder[key]]
            if self.rng.random() < 0.2:
                del holder[key]
            else:
                holder[key] = json.loads(dumped(value, bare=False)) if value is data else value
        return data

    def _yaml(self, file: Path) -> None:
        lines = file.read_text(errors="replace").splitlines() or [""]
        for _ in range(self.rng.randint(1, 3)):
            place = self.rng.randrange(len(lines))
            line, word = lines[place], self.rng.choice(WORDS)
            new = (
                f"{line.partition(':')[0]}: {word}",
                "",
                f"{line}\n{line}",
                f"  {line}",
                f"{line}\nextends: demo",
                word,
            )
            lines[place] = self.rng.choice(new)
        file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))

    def _tensors(self, file: Path) -> None:
        with contextlib.suppress(SafetensorError):  # it was damaged before
            file.write_bytes(save(self._retensored(load_file(file))))

    def _retensored(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        name = self.rng.choice(sorted(tensors) or [""])
        value = tensors.get(name, torch.zeros(2))
        changed = (
            value.flatten(),
            value[:0] if value.ndim else value,
            value.to(torch.int8),
            value.double(),
            value * 1e30,
        )
        more = (
            value * float("nan"),
            value * float("inf"),
            value.to(torch.bfloat16),
            torch.zeros(1),
            -value,
            value.bool(),
        )
        new = {**tensors, name: self.rng.choice((*changed, *more))}
        less = {other: tensor for other, tensor in tensors.items() if other != name}
        return self.rng.choice((new, new, new, less, {**less, f"{name}x": value}, {}))

    def _pt(self, file: Path) -> None:
        with contextlib.suppress(Exception):
            state = torch.load(file, weights_only=True)
            holder, key = self.rng.choice(list(places(state)))
            holder[key] = self.rng.choice((*VALUES, torch.zeros(3), torch.tensor(float("nan"))))
            torch.save(self.rng.choice((state, state, [state], {}, {"model": 3})), file)

    def _npz(self, file: Path) -> None:
        with contextlib.suppress(Exception):
            with np.load(file, allow_pickle=False) as data:
                arrays = {key: np.asarray(data[key]) for key in data.files}
            key = self.rng.choice(sorted(arrays))
            value = arrays.pop(key)
            others = (value[:0], value[:, None], value.astype("U8"), value.astype("M8[s]"), value[:1], value * np.nan)
            new = (
                *others,
                value + 2**60,
                value.astype(complex),
                np.array(3),
                np.array([None, {}], object),
                value[::-1],
            )
            more: dict[str, Any] = {key: self.rng.choice(new)} if self.rng.random() < 0.8 else {}
            np.savez(file, **arrays, **more)


def weight(file: Path) -> float:
    """How often a file is chosen."""
    if file.name in ("manifest.json", "config.yaml"):
        return 4
    return 0.05 if file.suffix == ".png" else 2 if file.suffix == ".jsonl" or file.name == "audit.json" else 1


def places(value: Any) -> Any:
    """Every (container, key) inside JSON data."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(pairs):
        yield value, key
        if item is not DEEP:
            yield from places(item)


def dumped(data: Any, *, bare: bool = True) -> str:
    text = json.dumps(data, indent=None)
    return text.replace('"1e999 bare"', "1e999") if bare else text


def rehash(run: Path) -> None:
    """Make the recorded hashes fit the files, where both can be read: what is damaged is then met farther inside."""
    manifest, config = run / "manifest.json", run / "config.yaml"
    with contextlib.suppress(ValueError, OSError, TypeError, RecursionError):
        new = hashlib.sha256(config.read_bytes() if config.is_file() else b"").hexdigest()
        write_hashes(manifest, {"config_sha256": new})
    for facts in filter(Path.is_file, run.glob("checkpoints/*/checkpoint.json")):
        with contextlib.suppress(ValueError, OSError, TypeError, KeyError, RecursionError):
            known = json.loads(facts.read_text())["sha256"]
            files = {name: facts.with_name(name) for name in HASHED if name in known}
            new = {
                name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if file.is_file()
            }
            write_hashes(facts, {"sha256": {**known, **new}})
    for folder in filter(Path.is_dir, run.glob("audits/*")):
        with contextlib.suppress(ValueError, OSError, TypeError, KeyError, AttributeError, RecursionError):
            reseal(folder)


def write_hashes(file: Path, entries: Mapping[str, Any]) -> None:
    if file.is_file() and not file.is_symlink():
        file.write_text(dumped({**json.loads(file.read_text()), **entries}))


# the runs that are damaged


def write_pictures(root: Path) -> None:
    """Two classes, 16 px square, that a ridge regression recovers."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 24), ("test", 4)):
        for label, name in enumerate(("ant", "bee")):
            folder = root / part / name
            folder.mkdir(parents=True)
            for place in range(count):
                colour = rng.integers(0, 256, (1, 1, 3)) * np.linspace(label, 1 - label, 16)[:, None, None]
                Image.fromarray(np.broadcast_to(colour, (16, 16, 3)).astype(np.uint8)).save(folder / f"{place}.png")


class Enough(KeyboardInterrupt):
    """Ends a run that has shown that it goes on."""


def stopping(steps: int) -> Callable[..., None]:
    left = [steps]

    def told(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Enough

    return told


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Folder of data, a finished run and one that was stopped, both with keyed noise and an audit."""
    root = tmp_path_factory.mktemp("originals")
    write_pictures(root / "data")
    settings = {
        **{"data.name": "image_folder", "data.root": str(root / "data"), "data.validation_fraction": 0.3},
        **{"model.width": 4, "training.batch_size": 8, "training.epochs": 3, "training.log_every": 1},
        **{"channel.noise": "keyed", "device": "cpu", "threads": 1},
    }
    finished = train("demo", settings, out=root / "finished", progress=silent)
    with pytest.raises(Enough):
        train("demo", settings, out=root / "stopped", progress=stopping(5))
    for run in (finished, root / "stopped"):
        ask("audit", str(os.fspath(run)), *AUDIT)
    assert list(root.glob("*/audits/*/*.safetensors")), "the strongest attack has something that it learned"
    assert list((root / "stopped" / "checkpoints").iterdir())
    return root / "data", root / "finished", root / "stopped"


def ask(*words: str, fine: tuple[int, ...] = (0,)) -> str:
    """Give a command in this process: what it printed; an AttncemError where it ended with an error for people.

    ``fine`` are the exit codes of a command that did its work.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    said = [stream.seek(0) or stream.read() for stream in (out, err)]
    if code == 2:
        assert "attncem: error: " in said[1], said[1]
        raise AttncemError(said[1])
    assert code in fine, f"exit code {code}: {said}"
    return said[0]


def resume(run: Path) -> None:
    with contextlib.suppress(Enough):
        train(resume=run, progress=stopping(STEPS))


def fuzz_run(number: int, rng: random.Random, originals: tuple[Path, ...], place: Path, tally: Tally) -> None:
    """Damage a copy of a run and give every command that reads it."""
    run, outside, pages = place / "runs" / "run", place / "outside", place / "pages"
    outside.mkdir(parents=True)
    (outside / "kept.txt").write_text("a person's")
    shutil.copytree(originals[1 + number % 2], run)
    damage = Damage(rng, run, outside)
    for _ in range(rng.choice((1, 1, 2))):
        damage.once()
    others = contents((outside, originals[0]))
    before, folder = contents((run,)), str(run)
    tally.ended["run folders"] += 1
    page = [("report", folder, "--out", str(pages / "report.html"))] * (damage.reaches_a_page or number % 8 == 0)
    for words in (
        ("runs", str(run.parent)),
        *page,
        ("predict", folder, "test:0", str(originals[0] / "test" / "bee" / "1.png")),
        ("explain", folder, "test:1", "--out", str(pages / "explained.html")),
    ):
        tally.survives(lambda words=words: ask(*words), (number, words[0], damage.said))
    tally.expect(contents((run,)) == before, "what only reads has changed the run", (number, damage.said))
    tally.survives(lambda: ask("audit", folder, *AUDIT), (number, "audit", damage.said))
    tally.survives(lambda: ask("seal", folder, *["--new-key"] * (number % 2)), (number, "seal", damage.said))
    tally.survives(lambda: resume(run), (number, "resume", damage.said))
    tally.expect(contents((outside, originals[0])) == others, "files outside were changed", (number, damage.said))


def fuzz(count: int, seed: int, originals: tuple[Path, ...], root: Path) -> None:
    tally = Tally("commands on run folders", SECONDS)
    fuzz_in_places(tally, lambda number, rng, place: fuzz_run(number, rng, originals, place, tally), count, seed, root)


def test_a_few_damaged_runs(originals: tuple[Path, ...], tmp_path: Path) -> None:
    fuzz(FEW, 5, originals, tmp_path)


@pytest.mark.slow
def test_many_damaged_runs(originals: tuple[Path, ...], tmp_path: Path) -> None:
    with limited_memory():
        fuzz(amount(MANY), start(6), originals, tmp_path)
