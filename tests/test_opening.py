"""A run folder rebuilds its model by itself: facts of the data, own modules, the configuration's hash, old folders."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

import attncem
from attncem.base.progress import silent
from attncem.base.types import RunError
from attncem.config.options.attacks import GreyOptions
from attncem.config.options.suites import Suite
from attncem.judging.auditing import audit
from attncem.judging.inference import predict
from attncem.judging.opening import open_encoder, open_run
from attncem.records import runs
from attncem.records.files import hash_file, read_json
from attncem.records.fingerprints import fingerprint
from attncem.training.initial import read_weights
from attncem.training.train import train

Make = Callable[..., Path]
GREY = Suite(name="grey", version=1, meaning="", rows={"grey": GreyOptions()})


def write_pictures(root: Path, count: int = 20, *, light: bool = False) -> None:
    """Two classes of noise, 16 px square."""
    rng = np.random.default_rng(0)
    for part, number in (("train", count), ("test", 2)):
        for name in ("ant", "bee"):
            folder = root / part / name
            folder.mkdir(parents=True, exist_ok=True)
            for place in range(number):
                pixels = np.full((16, 16, 3), 255) if light else rng.integers(0, 256, (16, 16, 3))
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{'light' if light else 'noise'}-{place}.png")


@pytest.fixture(scope="module")
def on_pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run on a folder of pictures, and the folder."""
    root = tmp_path_factory.mktemp("pictures")
    write_pictures(root / "data")
    settings = {
        **{"data.name": "image_folder", "data.root": str(root / "data"), "data.validation_fraction": 0.3},
        **{"model.width": 4, "training.batch_size": 4, "training.epochs": 1},
    }
    return train("demo-none", settings, out=root / "run", progress=silent).path, root / "data"


def copy_of(given: tuple[Path, Path], to: Path) -> tuple[Path, Path]:
    """Run and pictures in another place, where the run finds them."""
    run, data = to / "run", given[1]
    shutil.copytree(given[0], run)
    return run, data


def test_pictures_added_to_the_data_change_nothing_silently(on_pictures: tuple[Path, Path], tmp_path: Path) -> None:
    run, data = on_pictures
    before = open_run(run)
    file = data / "test" / "ant" / "noise-0.png"
    kept = tmp_path / "kept"
    shutil.copytree(data, kept)
    try:
        write_pictures(data, count=4, light=True)
        after = open_run(run)
        assert after.spec == before.spec
        normalise = [opened.model.encoder[0].mean.flatten().tolist() for opened in (before, after)]
        assert normalise[0] == normalise[1] == pytest.approx(list(before.spec.mean))
        assert predict(run, file).predictions[0].top[0].name in ("ant", "bee")
        with pytest.raises(RunError, match="the data or its split has changed"):
            audit(run, GREY, progress=silent)
    finally:
        shutil.rmtree(data)
        shutil.copytree(kept, data)
    assert audit(run, GREY, out=tmp_path / "audits", progress=silent).strongest == "grey"


def test_a_run_is_opened_without_its_data(on_pictures: tuple[Path, Path], tmp_path: Path) -> None:
    run, data = on_pictures
    picture = tmp_path / "one.png"
    shutil.copy(data / "test" / "bee" / "noise-1.png", picture)
    moved = data.rename(data.with_name("away"))
    try:
        opened = open_run(run)
        assert opened.spec.class_names == ("ant", "bee")
        assert predict(run, picture).predictions[0].release.shape == list(
            opened.model.encode(torch.zeros(1, 3, 16, 16))[0].shape
        )
    finally:
        moved.rename(data)


def test_a_run_of_the_first_version_reads_the_facts_from_its_data(
    on_pictures: tuple[Path, Path], tmp_path: Path
) -> None:
    run, _ = copy_of(on_pictures, tmp_path)
    manifest = json.loads((run / "manifest.json").read_text())
    for key in ("data", "architecture", "cut", "noise_scheme", "config_sha256"):
        del manifest[key]
    (run / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 1}))
    old, new = open_run(run), open_run(on_pictures[0])
    assert old.spec == new.spec
    assert old.fingerprint == new.fingerprint
    assert audit(run, GREY, progress=silent).subject.architecture == "small_cnn"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "class_names is missing"),
        ({"shape": "x"}, "shape must be a list"),
        (3, "must be a mapping"),
        ({"shape": [3, 16]}, "must have a shape of three sizes"),
        ({"shape": [3, 16, 10**12]}, "must have a shape of three sizes"),
        ({"num_classes": -2}, "must have a shape of three sizes, and classes"),
        ({"std": [0.5, 0.5]}, "must have a mean and a positive std for each channel"),
    ],
)
def test_damaged_facts_are_named(on_pictures: tuple[Path, Path], tmp_path: Path, data: Any, message: str) -> None:
    run, _ = copy_of(on_pictures, tmp_path)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["data"] = {**manifest["data"], **data} if isinstance(data, dict) and data else data
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match=rf"manifest\.json is damaged: .*{message}"):
        open_run(run)


@pytest.mark.parametrize("part", ["server", "surrogate"])
def test_a_checkpoint_without_one_half_is_named(on_pictures: tuple[Path, Path], tmp_path: Path, part: str) -> None:
    run, _ = copy_of(on_pictures, tmp_path)
    for file in run.glob("checkpoints/*/checkpoint.json"):
        facts = json.loads(file.read_text())
        del facts["sha256"][f"{part}.safetensors"]
        file.write_text(json.dumps(facts))
    if part == "surrogate":
        assert open_run(run).checkpoint is not None, "it is not asked for here"
        return
    for ask in (lambda: predict(run, "test:0"), lambda: read_weights(str(run), ("server",))):
        with pytest.raises(RunError, match=rf"epoch-00001.*: '{part}.* is missing"):
            ask()


def test_weights_of_another_network_are_named(on_pictures: tuple[Path, Path], tmp_path: Path) -> None:
    """Their hash is right: they are only not this network's."""
    run, _ = copy_of(on_pictures, tmp_path)
    (folder,) = run.glob("checkpoints/*")
    weights = load_file(folder / "client.safetensors")
    save_file({f"other.{name}": value for name, value in weights.items()}, folder / "client.safetensors")
    facts = json.loads((folder / "checkpoint.json").read_text())
    facts["sha256"]["client.safetensors"] = hash_file(folder / "client.safetensors")
    (folder / "checkpoint.json").write_text(json.dumps(facts))
    with pytest.raises(RunError, match=r"epoch-00001 does not fit the run: .* Missing key"):
        open_run(run)


def test_the_manifest_is_read_once(on_pictures: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr(runs, "read_json", lambda file: asked.append(file.name) or read_json(file))
    opened = open_run(on_pictures[0])
    assert len(opened.data.test) == 4
    assert asked == ["manifest.json"]


def test_a_report_needs_the_name_of_a_file(on_pictures: tuple[Path, Path]) -> None:
    for out in (".", "/", on_pictures[1]):
        with pytest.raises(RunError, match="is a folder, not a file name for a report"):
            attncem.report(on_pictures[0], out)


class MyClient(nn.Sequential):
    """A user's own."""


class MyServer(nn.Sequential):
    """A user's own."""


def test_own_modules_are_recorded_under_their_own_name(tiny: dict[str, Any], tmp_path: Path) -> None:
    modules = MyClient(nn.Conv2d(1, 2, 7, 7), nn.Sigmoid()), MyServer(nn.Flatten(), nn.Linear(32, 10))
    settings = {**tiny, "training.epochs": 1}
    run = attncem.train("demo-none", settings, out=tmp_path / "own", modules=modules, progress=silent)
    subject = audit(run, GREY, modules=modules, progress=silent).subject
    assert (subject.architecture, subject.cut) == ("MyClient + MyServer", "own modules")


def test_a_changed_configuration_stops_audit_and_resume(small_run: Make, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(small_run("demo-none"), run)
    file = run / "config.yaml"
    file.write_text(file.read_text().replace("lr: 0.05", "lr: 0.06").replace("noise_std: 0.1", "noise_std: 0.2"))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "status": "stopped"}))
    for ask in (lambda: audit(run, GREY, progress=silent), lambda: train(resume=run, progress=silent)):
        with pytest.raises(RunError, match="not the configuration that the run was made with: restore it"):
            ask()


def test_the_fingerprint_covers_weights_and_channel(small_run: Make) -> None:
    run = small_run("demo-none")
    best, first = open_run(run), open_run(run, weights="epoch-00001")
    assert best.fingerprint != first.fingerprint
    assert best.fingerprint == fingerprint(best.directory.encoder_sha256("best"), best.channel)  # type: ignore[union-attr]
    around = open_encoder(best.model.encoder, data={"name": "fashion_mnist_mini"}, channel=best.channel)
    assert around.fingerprint == best.fingerprint, "the same client has one name, whichever way it is opened"
    louder = [{**best.channel[0], "noise_std": 0.2}]
    assert open_encoder(best.model.encoder, data={"name": "fashion_mnist_mini"}, channel=louder).fingerprint != (
        best.fingerprint
    )


def test_weights_that_are_not_finite_are_refused(small_run: Make, tmp_path: Path) -> None:
    """Their hash is right: only the numbers are wrong."""
    run = tmp_path / "run"
    shutil.copytree(small_run(), run)
    name = json.loads((run / "best.json").read_text())["checkpoint"]
    folder = run / "checkpoints" / name
    weights = load_file(folder / "server.safetensors")
    next(tensor for tensor in weights.values() if tensor.is_floating_point()).view(-1)[0] = float("nan")
    save_file(weights, folder / "server.safetensors")
    facts = json.loads((folder / "checkpoint.json").read_text())
    facts["sha256"]["server.safetensors"] = hash_file(folder / "server.safetensors")
    (folder / "checkpoint.json").write_text(json.dumps(facts))
    with pytest.raises(RunError, match=f"the weights of {name} are not finite: server.* holds nan; choose another"):
        predict(run, "test:0")


def changed_config(run: Path, change: Callable[[str], str]) -> None:
    """The configuration of a run as another program would have written it, with its hash."""
    text = change((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(text)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (run / "manifest.json").write_text(json.dumps(manifest))


def test_the_configuration_of_a_run_is_read_by_one_parser(small_run: Make, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(small_run(), run)
    changed_config(run, lambda text: text.replace("lr: 0.05", "lr: 5e-05"))
    assert open_run(run).config.training.optimizer.lr == 5e-05
    rows = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    changed_config(run, lambda text: f"a0: &a0 [x]\n{rows}{text}")
    with pytest.raises(RunError, match=r"config\.yaml cannot be used: .*aliases"):
        open_run(run)


def test_no_other_parser_of_yaml_is_used() -> None:
    sources = {file.name: file.read_text() for file in Path(attncem.__file__).parent.rglob("*.py")}
    assert [name for name, text in sources.items() if re.search(r"^\s*(import|from) yaml\b", text, re.M)] == [
        "yaml_text.py"
    ]
    assert "yaml.safe_load" not in sources["yaml_text.py"]
