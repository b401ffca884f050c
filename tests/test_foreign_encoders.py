"""Encoders without a run: audited by one command, with and without labels; own modules from the command line."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import skimage
import torch
from PIL import Image
from torch import Tensor, nn

import attncem
from attncem.base.progress import silent
from attncem.base.types import ConfigError, DataError, RunError
from attncem.cli.main import main
from attncem.config.options.attacks import (
    ClassMeanOptions,
    ImagePriorOptions,
    InformedOptions,
    MeanImageOptions,
    NearestNeighbourOptions,
    OptimisationOptions,
    RidgeOptions,
    SubstituteOptions,
)
from attncem.config.options.encoder import EncoderLimits
from attncem.config.options.probes import LabelLeakageOptions, MembershipOptions
from attncem.config.options.suites import Suite
from attncem.config.threats import THREATS
from attncem.data.folders import list_images, listing_notes
from attncem.data.readers import read_dataset
from attncem.judging.attacks import ridge
from attncem.judging.auditing import Case, audit, describing
from attncem.judging.auditing.describing import describe_subject
from attncem.judging.opening import open_encoder, open_run
from attncem.models.onnx_export import export_onnx
from attncem.models.onnx_network import OnnxNetwork
from attncem.models.releasing import seal_run
from attncem.records.audit import AuditResult
from attncem.records.files import hash_file
from attncem.records.ledger import ledgers
from onnx_making import conv, model, value, write

DATA = {"name": "fashion_mnist_mini", "held_out_fraction": 0.85}
NOISE = {"name": "gaussian", "noise_std": 0.1}
CHANNEL = ["--channel", "{name: gaussian, noise_std: 0.1}"]
QUICK = ["--suite", "quick", "--skip", "decoder small"]


def suite(**rows: Any) -> Suite:
    return Suite(name="some", version=1, meaning="", rows={name.replace("_", " "): row for name, row in rows.items()})


def small_encoder() -> nn.Module:
    """Its features lie row by row in memory, as those of a file do: noise of one seed is the same for both."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 4, 5, 4, 2), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten()).eval()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("exported") / "small net.onnx"
    data = export_onnx(small_encoder(), torch.rand(2, 1, 28, 28))
    assert b"site-packages" not in data and b".py" not in data, "where the source lies is private"
    file.write_bytes(data)
    return file


def photographs(folder: Path, count: int, size: int = 32, classes: bool = False) -> Path:
    """Parts of scikit-image's photographs, as many of each, in one folder or in a folder for each."""
    for name in ("astronaut", "coffee", "chelsea"):
        image = Image.open(Path(skimage.__file__).parent / "data" / f"{name}.png").convert("RGB")
        place = folder / name if classes else folder
        place.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            left, top = (number % 5) * (image.width - size) // 5, (number // 5) * (image.height - size) * 5 // count
            image.crop((left, top, left + size, top + size)).save(place / f"{number:02d}-{name}.png")
    return folder


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty pictures without labels, and a file that is none."""
    folder = photographs(tmp_path_factory.mktemp("flat") / "pictures", 20)
    (folder / "notes.txt").write_text("passed over")
    return folder


@pytest.fixture(scope="module")
def colour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that takes colours at 16 px, or any size."""
    file = tmp_path_factory.mktemp("colour") / "colour.onnx"
    net = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.Tanh())
    file.write_bytes(export_onnx(net, torch.rand(2, 3, 16, 16)))
    return file


def asked(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, " ".join(said.err.split())


def only_audit(folder: Path) -> AuditResult:
    (ledger,) = ledgers(folder)
    return ledger.result()


# modules and files


def test_a_file_is_audited_as_the_module_it_was_made_of(exported: Path, tmp_path: Path) -> None:
    rows = suite(
        mean=MeanImageOptions(), nearest=NearestNeighbourOptions(), ridge=RidgeOptions(), labels=LabelLeakageOptions()
    )
    opened = [open_encoder(encoder, data=DATA, channel=NOISE) for encoder in (small_encoder(), exported)]
    module, file = (audit(each, rows, out=tmp_path, seed=3, progress=silent) for each in opened)
    assert module.plan.id != file.plan.id
    assert file.accuracy is None
    for row in module.rows:
        other = file.row(row.name)
        assert row.outcome == other.outcome == "ok"
        assert {name: score.mean for name, score in other.scores.items()} == pytest.approx(
            {name: score.mean for name, score in row.scores.items()}, abs=1e-4
        )
    own, foreign = module.subject, file.subject
    assert (own.client_macs, own.bytes_per_query) != (None, 0)
    assert (foreign.client_macs, foreign.client_parameters) == (None, None), "unknown, not nothing"
    assert own.client_activation_bytes and foreign.client_activation_bytes is None
    assert foreign.bytes_per_query == own.bytes_per_query == 4 * 4 * 7 * 7
    assert (foreign.surrogate, foreign.architecture, foreign.foreign) == ("unknown", "small net.onnx", True)
    assert (foreign.encoder["sha256"], foreign.encoder["layout"]) == (hash_file(exported), "nchw")


def test_what_needs_gradients_is_not_applicable_through_a_file(exported: Path, tmp_path: Path) -> None:
    rows = suite(white_box=OptimisationOptions(), prior=ImagePriorOptions(), informed=InformedOptions())
    opened = open_encoder(exported, data=DATA, channel=NOISE)
    assert not opened.differentiable
    found = audit(opened, rows, out=tmp_path, progress=silent).rows
    assert [row.outcome for row in found] == ["not_applicable"] * 3
    assert all("is an ONNX file" in row.reason for row in found)
    module = open_encoder(small_encoder(), data=DATA, channel=NOISE)
    assert module.differentiable
    other = audit(module, suite(white_box=OptimisationOptions()), threat="query_only", out=tmp_path, progress=silent)
    assert "does not know the encoder" in other.rows[0].reason, "the threat model is named where it is the reason"


def test_the_name_covers_file_and_options(exported: Path) -> None:
    def mark(**options: Any) -> str:
        return open_encoder(exported, data=DATA, channel=NOISE, options=options).fingerprint

    marks = [mark(), mark(mean=[0.1]), mark(std=[0.5])]
    assert mark() == marks[0]
    assert len(set(marks)) == 3


def test_a_module_takes_no_options_of_a_file() -> None:
    with pytest.raises(ConfigError, match="these are for an ONNX file"):
        open_encoder(small_encoder(), data=DATA, channel=NOISE, options={"layout": "nhwc"})
    with pytest.raises(ConfigError, match=r"layout=nhcw: .*did you mean nhwc"):
        open_encoder("a.onnx", data=DATA, channel=NOISE, options={"layout": "nhcw"})


@pytest.mark.slow
def test_several_processes_audit_a_file_as_one(exported: Path, tmp_path: Path) -> None:
    rows = suite(mean=MeanImageOptions(), nearest=NearestNeighbourOptions(), ridge=RidgeOptions())
    found = []
    for workers in (1, 2):
        opened = open_encoder(exported, data=DATA, channel=NOISE)
        found.append(audit(opened, rows, out=tmp_path / str(workers), workers=workers, progress=silent))
    assert [row.mse.mean for row in found[0].rows] == [row.mse.mean for row in found[1].rows]


def test_an_encoder_that_draws_at_random_is_refused_by_the_audit(tmp_path: Path) -> None:
    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.avg_pool2d(x, 4) + 0.1 * torch.randn(len(x), 1, 7, 7)

    opened = open_encoder(Noisy(), data=DATA, channel=NOISE)
    with pytest.raises(RunError, match=r"not deterministic.*must be a stage of the channel"):
        audit(opened, suite(mean=MeanImageOptions()), out=tmp_path, progress=silent)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("channel", [{"name": "identity"}, {"name": "gaussian", "noise_std": 0.0}, {"name": "top_k"}])
def test_a_channel_without_noise_is_told(tmp_path: Path, channel: dict[str, Any]) -> None:
    opened = open_encoder(small_encoder(), data=DATA, channel=channel)
    found = audit(opened, suite(mean=MeanImageOptions()), out=tmp_path, progress=silent)
    assert "no_noise" in [item.code for item in found.findings]
    assert "no_noise" not in [item.code for item in open_encoder(small_encoder(), data=DATA, channel=NOISE).findings]


def test_keyed_noise_without_its_key_is_of_the_right_law_and_told() -> None:
    channel = {**NOISE, "noise": "keyed"}
    opened, other = (
        open_encoder(small_encoder(), data=DATA, channel=channel, key=key) for key in (None, bytes(range(32)))
    )
    assert (opened.key_missing, [item.code for item in opened.findings]) == (True, ["key_missing"])
    assert not other.key_missing
    x = opened.data.test.get(slice(0, 3))[0]
    torch.testing.assert_close(opened.model.release(x), opened.model.release(x), rtol=0, atol=0)
    assert not torch.equal(opened.model.release(x), other.model.release(x))


def test_few_releases_of_a_large_feature_are_learned_from_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    class Large(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x.flatten(1), x.flatten(1).cos()], 1)

    data = {"name": "fashion_mnist_mini", "held_out_fraction": 0.88}  # 100 own images, 1,568 entries
    case = Case(open_encoder(Large(), data=data, channel=NOISE), THREATS["train"])
    found = []
    for largest in (10_000, 1000):
        monkeypatch.setattr(ridge, "_LARGEST", largest)
        attack = ridge.RidgeAttack(strengths=(1.0,))
        attack.fit(case.oracle(attack, 0), seed=0)
        found.append(attack.reconstruct(case.released[:50]))
        assert (attack.state().get("projection") is None) == (largest == 10_000)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-4)


# the command


def test_one_command_audits_pictures_in_folders_of_classes(
    colour: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures, out = photographs(tmp_path / "pictures", 20, classes=True), tmp_path / "audits"
    how = ["--mean", "0.5,0.5,0.5", "--std", "0.25"]
    given = ["audit", "--encoder", colour, "--data", pictures, *CHANNEL, *how, *QUICK, "--out", out]
    code, said, _ = asked(capsys, *given, "--only", "class mean", "--only", "ridge")
    assert code == 0
    assert "colour" in said
    found = only_audit(out)
    assert [row.name for row in found.rows if row.ok] == ["class mean", "ridge"]
    assert found.subject.class_names == ["astronaut", "chelsea", "coffee"]
    assert found.subject.encoder["mean"] == [0.5, 0.5, 0.5]
    assert found.subject.encoder["size"] == [16, 16], "the file's own"
    code, _, _ = asked(capsys, *given, "--fail-if", "mse<1")
    assert code == 3


def test_one_command_audits_pictures_without_labels(
    colour: Path, flat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["audit", "--encoder", colour, "--data", flat, *CHANNEL, *QUICK, "--size", "16", "--out", "audits"]
    assert asked(capsys, *given)[0] == 0
    found = only_audit(Path("audits"))
    assert found.accuracy is None
    assert found.row("class mean").outcome == "not_applicable"
    assert found.row("class mean").reason == "the images have no labels"
    assert found.strongest == "ridge"
    assert found.strongest_attack.mse.mean < 0.7 * found.row("mean image").mse.mean
    assert found.strongest_attack.mse.per_class == []
    assert {picture.label for picture in found.strongest_attack.pictures} == {-1}
    for place in ("audits", found.folder):
        assert asked(capsys, "report", place, "--out", "page.html", "--csv")[0] == 0
        page = Path("page.html").read_text()
        assert "no label" in page and "the images have no labels" in page and "class -1" not in page
        assert "without a run" in page and "colour.onnx" in page
        assert 'href="#classes"' not in page and 'id="classes"' not in page
    assert "colour,unknown,," in Path("page.csv").read_text()
    for verb in (["predict", "audits", "test:0"], ["explain", found.folder, "test:0"], ["audit", "audits"]):
        code, _, wrong = asked(capsys, *verb)
        assert code == 2
        assert "is not a run folder" in wrong and "It holds an audit, which attncem report shows" in wrong


@pytest.mark.parametrize("parts", [["all"], ["train", "test"], ["train/all", "test/all"]], ids=["one", "parts", "both"])
def test_pictures_of_one_class_are_audited_as_without_labels(
    colour: Path, tmp_path: Path, parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for part in parts:
        photographs(tmp_path / "pictures" / part, 20, size=16)
    given = ["--encoder", colour, "--data", tmp_path / "pictures", "--channel", "gaussian", "--out", tmp_path / "a"]
    code, _, told = asked(capsys, "audit", *given, "--suite", "quick", "--only", "mean image", "--only", "class mean")
    assert code == 0
    assert "channel gaussian noise=fresh noise_std=0.1 images 3x16x16, normalised with mean 0, std 1" in told
    assert "limits of an ONNX file: 60 s for each batch, 4 GiB of memory" in told
    found = only_audit(tmp_path / "a")
    assert (found.subject.num_classes, found.subject.class_names) == (0, [])
    assert found.row("mean image").ok
    assert found.row("class mean").reason == "the images have no labels"


def test_the_start_lines_tell_where_memory_has_no_limit(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_encoder(exported, data=DATA, channel=NOISE, options={"mean": [0.5]}, limits={"seconds": 7})
    monkeypatch.setattr(describing, "LIMITS_MEMORY", False)
    told = describe_subject(opened)
    assert "images 1x28x28, normalised with mean 0.5, std 1" in told
    assert "7 s for each batch; its memory has no limit on\n  this system: use only files that you trust" in told
    assert "only the network can normalise" in describe_subject(open_encoder(small_encoder(), data=DATA, channel=NOISE))


def test_probes_that_need_labels_are_not_applicable_without(colour: Path, flat: Path, tmp_path: Path) -> None:
    rows = suite(labels=LabelLeakageOptions(), membership=MembershipOptions(), means=ClassMeanOptions())
    data = {"name": "image_folder", "root": str(flat)}
    found = audit(open_encoder(colour, data=data, channel=NOISE), rows, out=tmp_path / "a", progress=silent).rows
    assert {row.reason for row in found} == {"the images have no labels"}


def test_certificates_need_no_labels_and_those_that_need_gradients_say_so(
    colour: Path, flat: Path, tmp_path: Path
) -> None:
    data = {"name": "image_folder", "root": str(flat)}
    opened = open_encoder(colour, data=data, channel=NOISE)
    found = audit(opened, "certificates", skip=["reidentification"], out=tmp_path / "a", progress=silent)
    outcomes = {row.name: row.outcome for row in found.rows}
    assert "failed" not in outcomes.values(), [row.reason for row in found.rows]
    assert outcomes["leakage"] == outcomes["accountant"] == outcomes["Fano's bound"] == "ok"
    assert "gives no gradients" in found.row("Fisher information").reason
    by_class = audit(
        opened, "certificates", ["leakage.cells=class"], only=["leakage"], out=tmp_path / "b", progress=silent
    )
    assert "no labels" in by_class.row("leakage").reason
    assert not [item for item in found.findings if item.code == "few_images" and item.about == "leakage"]


def wrong_words(colour: Path, pictures: Path) -> list[tuple[list[Any], str]]:
    given = ["--encoder", colour, "--data", pictures, *CHANNEL, "--out", "audits"]
    return [
        (["--encoder", colour], "--encoder needs --data"),
        (["--encoder", colour, "--data", pictures, "--out", "a"], "--encoder needs --channel"),
        (given[:-2], "--encoder needs --out"),
        ([*given, "run"], "or --encoder FILE.onnx"),
        ([], "needs at least one run folder, or --encoder"),
        (["run", "--size", "16"], "--size is for an encoder without a run"),
        ([*given, "--weights", "last"], "an encoder's file holds one set of weights"),
        ([*given, "--mean", "half"], "--mean half: must be numbers with commas"),
        ([*given, "--layout", "nchv"], "did you mean nchw?"),
        ([*given, "--size", "4"], "size=4"),
        ([*given, "--size", "32"], "takes images of 16x16 px, and these have 32x32"),
        ([*given, "--output", "nothing"], "has no tensor nothing that depends on its input"),
        ([*given, "--data", "nowhere"], "--data nowhere: is not a folder, and no data set has this name"),
        ([*given, "--data", "fashion_mnist_mini"], "takes images of 16x16 px, and these have 28x28"),
        ([*given, "--data", "fashion_mnist_mini", "--size", "16"], "has 28 px and is not scaled"),
        ([*given, "--channel", "{name: gauss}"], "did you mean gaussian?"),
        ([*given, "--channel", "3"], "--channel 3: must be a stage"),
        ([*given, "--channel", "{name: gaussian"], "--channel"),
        ([*given, "--encoder", pictures], "is a folder; give an ONNX file"),
        ([*given, "--encoder-seconds", "0"], "seconds=0.0: must be a number >= 1"),
        ([*given, "--encoder-memory", "0.1"], "memory=0.1: must be a number >= 0.25"),
        (["run", "--encoder-memory", "8"], "--encoder-memory is for an encoder without a run"),
    ]


@pytest.mark.parametrize("number", range(22))
def test_wrong_words_are_named(
    colour: Path,
    flat: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    cases = wrong_words(colour, flat)
    assert len(cases) == 22
    words, said = cases[number]
    code, _, wrong = asked(capsys, "audit", *words)
    assert code == 2
    assert said in wrong
    assert not Path("audits").exists()


def test_the_command_names_the_extra(colour: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    given = ["--encoder", colour, "--data", "fashion_mnist_mini", *CHANNEL, "--out", "audits"]
    code, _, wrong = asked(capsys, "audit", *given)
    assert code == 2
    assert 'pip install "attncem[onnx]"' in wrong


# pictures in one folder


def test_a_flat_folder_is_divided_by_name(tmp_path: Path) -> None:
    folder = photographs(tmp_path, 4)
    listing = list_images("image_folder", folder)
    assert (listing.classes, len(listing.train), len(listing.test)) == ((), 10, 2)
    assert [path.name for path, _ in listing.test] == ["01-chelsea.png", "03-astronaut.png"]
    assert "have no labels; they can be audited, not trained on" in listing_notes("image_folder", folder)[0]
    raw = read_dataset("image_folder", folder)
    assert (raw.spec.num_classes, raw.spec.shape) == (0, (3, 32, 32))
    with pytest.raises(DataError, match="has 4 pictures only; 5 are needed"):
        for file in sorted(folder.iterdir())[4:]:
            file.unlink()
        list_images("image_folder", folder)


def test_pictures_without_labels_are_not_trained_on(flat: Path, tmp_path: Path, capsys: Any) -> None:
    data = {"data.name": "image_folder", "data.root": str(flat)}
    with pytest.raises(ConfigError, match=r"has pictures without labels.*put the pictures of each class into a folder"):
        attncem.train("demo-none", data, out=tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()
    code, said, _ = asked(capsys, "data", "--verify", "--root", flat)
    assert code == 0
    assert "its pictures have no labels" in " ".join(said.split())


def test_too_few_pictures_are_told(colour: Path, tmp_path: Path) -> None:
    data = {"name": "image_folder", "root": str(photographs(tmp_path / "pictures", 8))}
    opened = open_encoder(colour, data=data, channel=NOISE)
    with pytest.raises(ConfigError, match=r"leaves the attacker 16 images, and 20 are needed: .*add images"):
        audit(opened, suite(mean=MeanImageOptions()), out=tmp_path / "a", progress=silent)


# own modules


class Client(nn.Module):
    """A user's own, with something that no packaged network has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Conv2d(1, 3, 7, 7), nn.Parameter(torch.ones(3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(self.layer(x)) * self.scale).flatten(1)


def own_modules() -> tuple[nn.Module, nn.Module]:
    return Client(), nn.Sequential(nn.Linear(48, 10))


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> Path:
    """A run of own modules behind a front end, with keyed noise."""
    out = tmp_path_factory.mktemp("own") / "run"
    settings = {**tiny, "training.checkpoint_every": 1, "model.front_end.name": "standardise", "device": "cpu"}
    settings["channel.noise"] = "keyed"
    return attncem.train("demo", settings, out=out, modules=own_modules(), progress=silent).path


def test_own_modules_are_audited_asked_and_explained_from_the_command_line(
    own_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(own_run, tmp_path / "run")
    assert asked(capsys, "audit", run, "--suite", "quick", "--only", "ridge", "--only", "class mean")[0] == 0
    by_file = only_audit(run / "audits")
    assert by_file.subject.client_macs == json.loads((run / "manifest.json").read_text())["client_macs"]
    rows = suite(
        ridge=RidgeOptions(),
        means=ClassMeanOptions(),
        white_box=OptimisationOptions(),
        substitute=SubstituteOptions(steps=1),
    )
    module = audit(run, rows, modules=own_modules(), out=tmp_path / "a", progress=silent, only=["ridge", "means"])
    other = audit(run, rows, out=tmp_path / "a", progress=silent)
    assert other.plan.id != module.plan.id, "rows by file and by module do not mix"
    assert other.row("white box").outcome == "not_applicable"
    assert other.row("substitute").reason == "the server half is an ONNX file, which gives no gradients"
    assert other.subject.fingerprint == module.subject.fingerprint, "it is the same client"
    assert other.known_accuracy.mean == pytest.approx(module.known_accuracy.mean, abs=2e-3)
    for name in ("ridge", "means"):
        assert other.row(name).mse.mean == pytest.approx(module.row(name).mse.mean, abs=1e-4)
    code, said, _ = asked(capsys, "predict", run, "test:0", "--json")
    assert code == 0
    assert json.loads(said)["predictions"][0]["release"]["shape"] == [48]
    assert asked(capsys, "explain", run, "test:1", "--out", tmp_path / "page.html")[0] == 0
    assert asked(capsys, "report", run, "--out", tmp_path / "report.html")[0] == 0
    assert "Client + Sequential" in open_run(run).facts["architecture"]


CLIENT_FILE = "client-without-noise.onnx"


def test_a_stored_client_warns_that_it_has_no_noise(own_run: Path) -> None:
    model = onnx.load(own_run / "onnx" / "epoch-00002" / CLIENT_FILE)
    assert "no noise" in model.doc_string and "attncem export RUN" in model.doc_string


def test_a_client_under_its_old_name_is_read(own_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(own_run, tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    for name, kept in manifest["onnx"].items():
        (run / "onnx" / name / CLIENT_FILE).rename(run / "onnx" / name / "client.onnx")
        manifest["onnx"][name] = {"client.onnx": kept.pop(CLIENT_FILE), **kept}
        manifest["onnx"][name].pop("seal", None)
    (run / "manifest.json").write_text(json.dumps(manifest))
    seal_run(run)
    x = torch.rand(2, *open_run(run).spec.shape)
    torch.testing.assert_close(open_run(run).model.encode(x), open_run(own_run).model.encode(x), rtol=0, atol=0)


def test_halves_run_in_processes_with_limits(own_run: Path) -> None:
    """A run folder may be as foreign as a file."""
    networks = [part for part in open_run(own_run).model.modules() if isinstance(part, OnnxNetwork)]
    assert [network.limits for network in networks] == [EncoderLimits()] * 2


def test_halves_of_the_best_and_the_last_checkpoint_are_kept(own_run: Path, tmp_path: Path) -> None:
    manifest = json.loads((own_run / "manifest.json").read_text())
    names = {manifest["best"]["checkpoint"], "epoch-00002"}
    assert set(manifest["onnx"]) == names == {path.name for path in (own_run / "onnx").iterdir()}
    run = shutil.copytree(own_run, tmp_path / "run")
    if "epoch-00001" not in names:
        with pytest.raises(RunError, match=r"those of epoch-00002 are kept as ONNX and not those of epoch-00001"):
            open_run(run, weights="epoch-00001")
    file = run / "onnx" / "epoch-00002" / CLIENT_FILE
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(RunError, match=r"client-without-noise\.onnx is damaged: its SHA-256 is not the recorded one"):
        open_run(run, weights="last")
    file.unlink()
    with pytest.raises(RunError, match=r"client-without-noise\.onnx is missing; pass your networks again as modules="):
        open_run(run, weights="last")
    assert open_run(run, weights="last", modules=own_modules()).differentiable


def test_another_client_as_onnx_breaks_the_seal(own_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(own_run, tmp_path / "run")
    file, manifest = run / "onnx" / "epoch-00002" / CLIENT_FILE, json.loads((run / "manifest.json").read_text())
    file.write_bytes(b"another network")
    manifest["onnx"]["epoch-00002"][CLIENT_FILE] = hash_file(file)
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match=r"the seal of .* does not fit"):
        open_run(run, weights="last")
    assert not open_run(run, weights="last", modules=own_modules()).no_release, "the file is not used"
    shutil.copy(own_run / "onnx" / "epoch-00002" / CLIENT_FILE, file)
    del manifest["onnx"]["epoch-00002"]["seal"]
    manifest["onnx"]["epoch-00002"][CLIENT_FILE] = hash_file(file)
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert "has no seal" in open_run(run, weights="last").no_release
    seal_run(run)
    assert open_run(run, weights="last").no_release == ""


class Unexportable(Client):
    """Takes a way that depends on the numbers."""

    def forward(self, x: Tensor) -> Tensor:
        z = super().forward(x)
        return z if float(z.detach().sum()) < 1e9 else -z


@pytest.mark.parametrize("why", ["module", "extra"])
def test_a_run_that_cannot_be_kept_as_onnx_is_whole(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    said: list[str] = []

    class Told:
        def __call__(self, *numbers: Any) -> None:
            pass

        def line(self, text: str) -> None:
            said.append(text)

    if why == "extra":
        monkeypatch.setitem(sys.modules, "onnxscript", None)
    modules = (Unexportable() if why == "module" else Client(), own_modules()[1])
    run = attncem.train(
        "demo-none", {**tiny, "training.epochs": 1}, out=tmp_path / "run", modules=modules, progress=Told()
    )
    assert run.manifest["status"] == "finished"
    reason = "torch cannot export it as ONNX" if why == "module" else r'pip install "attncem[onnx]"'
    assert any("could not be saved as ONNX" in line and reason in line for line in said), said
    with pytest.raises(RunError, match=r"not kept as ONNX \(.*\): pass them again as modules="):
        open_run(run)
    assert open_run(run, modules=(Client(), own_modules()[1])).differentiable


def test_an_export_that_answers_otherwise_is_not_kept() -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x + self.calls

    with pytest.raises(RunError, match="the exported ONNX file gives other results"):
        export_onnx(Counting(), torch.rand(2, 3))


# a network of others


@pytest.mark.slow
def test_a_network_that_no_code_of_ours_made_is_audited_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ResNet-50 inside the onnx package: batch 1, 224 px, 2016's operators; its weights are made by the graph."""
    file = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    pictures = photographs(tmp_path / "pictures", 12, size=128)
    how = ["--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225", "--output", "r3"]
    few: Sequence[str] = ("decoder.epochs=1", "decoder.max_epochs=1", "decoder.least_steps=1")
    given = ["audit", "--encoder", file, "--data", pictures, *CHANNEL, *how, "--suite", "quick"]
    code, _, _ = asked(capsys, *given, "--out", tmp_path / "audits", *few)
    assert code == 0
    found = only_audit(tmp_path / "audits")
    assert found.subject.bytes_per_query == 4 * 64 * 56 * 56
    assert found.subject.encoder["size"] == [224, 224]
    outcomes = {row.name: row.outcome for row in found.rows}
    assert [outcomes.pop(name) for name in ("class mean", "label leakage")] == ["not_applicable"] * 2, "no labels"
    assert set(outcomes.values()) == {"ok"}
    assert found.strongest == "ridge"
    assert found.strongest_attack.mse.mean < 0.8 * found.row("mean image").mse.mean
    assert np.isfinite(found.strongest_attack.scores["ssim"].mean)
    assert asked(capsys, "report", tmp_path / "audits", "--out", tmp_path / "page.html")[0] == 0


def test_a_file_with_one_picture_at_a_time_is_audited(tmp_path: Path) -> None:
    made = model([conv()], inputs=[value("x", [1, 1, 28, 28])])
    opened = open_encoder(write(tmp_path / "one.onnx", made), data=DATA, channel=NOISE)
    found = audit(opened, suite(ridge=RidgeOptions(num_releases=1)), out=tmp_path / "a", progress=silent)
    assert found.strongest == "ridge"
