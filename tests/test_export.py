"""export(): the bundle of a run computes what the run computes, says what was audited, and holds no key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

import attncem
from attncem.base import plugins
from attncem.base.plugins import addition, load_plugin
from attncem.base.progress import silent
from attncem.base.types import ConfigError, RunError
from attncem.cli.main import main
from attncem.config.loading.load import load_config
from attncem.config.options.attacks import ClassMeanOptions, RidgeOptions
from attncem.config.options.certificates import AccountantOptions, LeakageOptions
from attncem.config.options.suites import Suite
from attncem.data.specs import DATASETS
from attncem.deploy import exporting
from attncem.deploy.comparing import Comparison, _code_flips, compare
from attncem.deploy.describing import audits_of, compared_words, stage_facts
from attncem.deploy.exporting import Exported, export
from attncem.deploy.graphs import Halves, halves_of, range_of
from attncem.judging.opening import open_run
from attncem.models.channels import CHANNELS as CHANNELS_OF_PACKAGE
from attncem.models.channels import Secrets, build_channel
from attncem.models.front_ends import FRONT_ENDS
from attncem.models.networks import ARCHITECTURES
from attncem.models.split import SplitModel
from attncem.testing.networks import COLOUR, GREY, NetworkCase, images
from attncem.training.build import build_model
from attncem_edge import Client, noise
from attncem_edge.channel import SUPPORTED, Channel
from attncem_edge.manifest import read_manifest
from serving import serving
from test_plugins import tables_as_before, written

KEY, PRINT = bytes(range(32, 64)), "ab" * 32
CHANNELS: list[list[dict[str, Any]]] = [
    [{"name": "identity"}],
    [{"name": "gaussian", "noise_std": 0.37}],
    [{"name": "laplace", "scale": 0.2}],
    [{"name": "shaped", "tilt": -1.3, "noise_std": 0.2}],
    [{"name": "local_dp", "clip": 2.0, "epsilon": 5.0}],
    [{"name": "dropout", "rate": 0.3}],
    [{"name": "dropout", "rate": 0.3, "rescale": True}],
    [{"name": "top_k", "keep": 0.31}],
    [{"name": "quantise", "bits": 3, "low": -1.3, "high": 0.9}],
    [
        {"name": "gaussian"},
        {"name": "dropout", "rate": 0.2},
        {"name": "top_k", "keep": 0.5},
        {"name": "quantise", "bits": 5},
    ],
]
RANDOM = ("gaussian", "laplace", "shaped", "local_dp", "dropout")


# the channel on a device is the channel of the run


class Planned(Secrets):
    """Secrets that a test knows."""

    def __init__(self) -> None:
        self.plan = iter(bytes([number % 256, number // 256]) * 16 for number in range(10_000))

    def fresh(self) -> bytes:
        return next(self.plan)


@pytest.mark.parametrize("law", ["fresh", "keyed"])
@pytest.mark.parametrize("stages", CHANNELS, ids=lambda stages: "+".join(stage["name"] for stage in stages))
def test_a_device_releases_the_bits_that_torch_releases(
    stages: list[dict[str, Any]], law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = [{**stage, **({"noise": law} if stage["name"] in RANDOM else {})} for stage in stages]
    config = load_config({"channel": stages, "data": {"name": "fashion_mnist_mini"}}).config
    by_torch, on_device = build_channel(config.channel).eval(), Channel([*map(stage_facts, config.channel)], PRINT)
    if config.keyed:
        by_torch.bind(KEY, PRINT)
    ours, theirs = Planned(), Planned()
    monkeypatch.setattr(noise, "fresh_secret", theirs.fresh)
    numbers = np.random.default_rng(0)
    for shape in ((8, 7, 5), (40,), (9, 16)):
        z, pixels = numbers.normal(size=shape).astype(np.float32), numbers.integers(0, 256, (1, 28, 28), np.uint8)
        x = torch.from_numpy(pixels).float()[None] / 255
        expected = by_torch(torch.from_numpy(z)[None], x=x, generator=ours)[0]
        assert np.array_equal(on_device.release(z, pixels.tobytes(), KEY), expected.numpy())
    assert on_device.repeats == by_torch.repeats


def test_every_channel_of_the_package_is_tried() -> None:
    assert {name for name in CHANNELS_OF_PACKAGE if addition("channel", name) is None} == set(SUPPORTED)
    assert {stage["name"] for stages in CHANNELS for stage in stages} == set(SUPPORTED)


# graphs


@pytest.mark.slow
@pytest.mark.parametrize("name", FRONT_ENDS)
def test_front_ends_compute_the_same(name: str) -> None:
    config = load_config("demo-none", [f"model.front_end.name={name}", "model.width=4"]).config
    model = build_model(config, DATASETS["fashion_mnist_mini"]).eval()
    x = images(GREY, 20)
    made = compare(model, halves_of(model, x), x, "random pixels")
    assert made.images == 20 and made.change <= 1e-5 and made.logits_change <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_networks_compute_the_same(name: str) -> None:
    case = NetworkCase(name, None, **({"macs": 3e5} if name == "lean" else {"width": 4}))
    for spec in (GREY, COLOUR):
        model = case.model(spec, case.at(case.cuts[-1], sigmoid=True)).eval()
        x = images(spec, 20)
        halves = halves_of(model, x)
        assert compare(model, halves, x, "random pixels").change <= 1e-5
        assert (halves.low, halves.high) == (0.0, 1.0)


def graph_ending_with(*nodes: Any, constants: dict[str, float] | None = None) -> Any:
    """A graph that makes z by these operators."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("image", "z")]
    kept = [numpy_helper.from_array(np.float32(value), name) for name, value in (constants or {}).items()]
    return helper.make_model(helper.make_graph(list(nodes), "half", ends[:1], ends[1:], kept))


@pytest.mark.parametrize(
    ("nodes", "limits"),
    [
        ([("Sigmoid", ["image"], ["z"])], (0, 1)),
        ([("Tanh", ["image"], ["z"])], (-1, 1)),
        ([("Relu", ["image"], ["a"]), ("Flatten", ["a"], ["b"]), ("Identity", ["b"], ["z"])], (0, None)),
        ([("Clip", ["image", "low", "high"], ["z"])], (-2, 3)),
        ([("Clip", ["image", "", "high"], ["z"])], (None, 3)),
        ([("Clip", ["image", "low"], ["z"])], (-2, None)),
        ([("Abs", ["image"], ["z"])], (None, None)),
        ([("Identity", ["image"], ["z"])], (None, None)),
    ],
)
def test_limits_of_z_follow_from_the_last_operator(nodes: Any, limits: Any) -> None:
    model = graph_ending_with(*(helper.make_node(*node) for node in nodes), constants={"low": -2.0, "high": 3.0})
    assert range_of(model) == limits


# bundles


@pytest.fixture(scope="module")
def plain(small_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The bundle of a run without audit."""
    return export(small_run(), tmp_path_factory.mktemp("plain") / "bundle")


def test_a_bundle_computes_what_its_run_computes(plain: Exported, small_run: Callable[..., Path]) -> None:
    opened = open_run(small_run())
    manifest = read_manifest(plain.folder)
    assert manifest == plain.manifest and manifest.fingerprint == opened.fingerprint
    assert manifest.labels[0] == "T-shirt/top" and manifest.channel == opened.channel
    assert (manifest.feature.low, manifest.feature.high) == (0, 1)
    assert {path.name for path in plain.folder.iterdir()} == {*manifest.files, "manifest.json"}
    x, _ = opened.data.test.get(slice(0, 40))
    client = Client(plain.folder)
    z = np.stack([client.look((image * 255).round().byte().numpy())[0] for image in x])
    with torch.no_grad():
        expected = opened.model.encode(x).numpy()
    assert np.abs(z - expected).max() <= 1e-5 * np.abs(expected).max()
    assert manifest.checked["images"] == 256 and manifest.checked["pictures"] == "test images"


def test_neither_noise_nor_channel_is_in_the_graph_and_it_says_so(plain: Exported) -> None:
    model = onnx.load(plain.folder / "client.onnx")
    assert "no noise" in model.doc_string
    random = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Dropout"}
    assert not random & {it.op_type for it in model.graph.node}
    assert [it.name for it in (*model.graph.input, *model.graph.output)] == ["image", "z"]
    assert b".py" not in (plain.folder / "client.onnx").read_bytes()
    server = onnx.load(plain.folder / "server.onnx")
    assert [it.name for it in (*server.graph.input, *server.graph.output)] == ["z", "logits"]
    assert server.graph.input[0].type.tensor_type.shape.dim[0].dim_param


@pytest.fixture(scope="module")
def unsure_run(small_run: Callable[..., Path]) -> Path:
    """A run of a client with a head and codes."""
    settings = {"release.when": "unsure", "release.threshold": 0.13, "data.held_out_fraction": 0.5}
    return small_run("demo-none", **settings, channel=[{"name": "quantise", "bits": 4}])


@pytest.fixture(scope="module")
def selective(unsure_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Its bundle."""
    return export(unsure_run, tmp_path_factory.mktemp("selective") / "bundle")


def test_decisions_and_codes_are_compared(selective: Exported) -> None:
    facts = selective.manifest.checked
    assert (facts["decisions"], facts["codes"]) == (256, 256 * int(np.prod(selective.manifest.feature.shape)))
    assert selective.manifest.decision is not None and selective.manifest.decision.threshold == 0.13
    assert facts["runtimes"] == (2 if facts["decision_flips"] or facts["code_flips"] else 1)
    readme = (selective.folder / "README.md").read_text()
    assert "decisions differ" in readme and "codes differ" in readme
    client = Client(selective.folder)
    answers = [client.look(np.full((1, 28, 28), grey, np.uint8))[1] for grey in range(0, 256, 40)]
    assert all(answer is not None and answer.shape == (10,) for answer in answers)


def test_flips_are_counted_in_the_bound() -> None:
    made = Comparison(256, "test images", 0.0, 0.0, 100, 3)
    words = compared_words(made)
    assert any("3 of 100 codes differ" in line for line in words) and any("count 2 runtimes" in line for line in words)
    assert (made.runtimes, Comparison(256, "test images", 0.0, 0.0, 100, 0).runtimes) == (2, 1)


@pytest.mark.parametrize(("law", "codes"), [("keyed", True), ("fresh", False)])
def test_codes_behind_noise_are_compared_where_they_repeat(law: str, codes: bool) -> None:
    stages = [{"name": "gaussian", "noise": law}, {"name": "quantise", "bits": 2}]
    channel = build_channel(load_config({"channel": stages, "data": {"name": "fashion_mnist_mini"}}).config.channel)
    model = SplitModel(nn.Identity(), channel, None).eval()
    if law == "keyed":
        channel.bind(KEY, PRINT)
    x, z = images(GREY, 5), torch.linspace(0, 1, 500).view(5, 100)
    assert _code_flips(model, x, z, z) == ((500, 0) if codes else (0, 0))
    assert (_code_flips(model, x, 1 - z, z)[1] > 100) == codes


def test_a_run_without_audit_says_so(plain: Exported) -> None:
    assert not plain.manifest.audited and plain.manifest.audits == [] and plain.manifest.nats == {}
    assert "Not audited" in (plain.folder / "README.md").read_text()
    assert not (plain.folder / "card.json").exists()


def test_an_audited_run_brings_its_card_and_its_limits(small_run: Callable[..., Path], tmp_path: Path) -> None:
    run = shutil.copytree(small_run(), tmp_path / "run")
    rows = {
        "ridge": RidgeOptions(strengths=(1.0,)),
        "class mean": ClassMeanOptions(),
        "leakage": LeakageOptions(),
        "accountant": AccountantOptions(releases=(1, 4)),
    }
    attncem.audit(run, Suite(name="tiny", version=3, meaning="", rows=rows), progress=silent)
    made = export(run, tmp_path / "bundle")
    (facts,) = made.manifest.audits
    assert made.manifest.audited
    assert (facts["suite"], facts["suite_version"], facts["strongest"]["row"]) == ("tiny", 3, "ridge")
    assert list(made.manifest.nats) == ["1", "4"] and 0 < made.manifest.nats["1"] <= made.manifest.nats["4"]
    assert made.manifest.nats["1"] == facts["limit_nats"]
    card = json.loads((tmp_path / "bundle" / "card.json").read_text())
    assert card["subject"]["fingerprint"] == made.manifest.fingerprint
    text = "".join(path.read_text() for path in (tmp_path / "bundle").glob("*.*") if path.suffix in (".json", ".md"))
    assert "Not audited" not in text and str(tmp_path) not in text
    other = open_run(
        run, weights=next(name for name in ("epoch-00001", "epoch-00002") if name != open_run(run).weights)
    )
    assert audits_of(other) == [], "an audit of other weights says nothing"


# own modules


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 5, 4, 2), nn.BatchNorm2d(4), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layers(x)
        return made


def own_modules() -> tuple[nn.Module, nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Own(), nn.Sequential(nn.Flatten(), nn.Linear(4 * 49, 10))


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> Path:
    """A run of own modules behind a front end, with a head and keyed noise."""
    settings = {**tiny, "training.epochs": 1, "model.front_end.name": "standardise", "channel.noise": "keyed"}
    settings |= {"release.when": "unsure", "release.share": 0.5, "data.held_out_fraction": 0.5, "device": "cpu"}
    out = tmp_path_factory.mktemp("own") / "run"
    return attncem.train("demo-none", settings, out=out, modules=own_modules(), progress=silent).path


@pytest.fixture(scope="module")
def by_file(own_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The bundle of a run of own modules, of which only the stored ONNX is there."""
    return export(own_run, tmp_path_factory.mktemp("own") / "bundle")


def test_own_modules_are_exported_without_their_classes(own_run: Path, by_file: Exported) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 28, 28), dtype=np.uint8)
    z, answers = Client(by_file.folder).look(pixels)
    expected = open_run(own_run, modules=own_modules()).model.look(torch.from_numpy(pixels).float()[None] / 255)
    assert answers is not None and np.abs(z - expected.z[0].detach().numpy()).max() < 1e-5
    assert np.abs(answers - expected.answers[0].detach().numpy()).max() < 1e-5
    assert (by_file.manifest.feature.low, by_file.manifest.feature.high) == (0, 1)
    assert [it.name for it in onnx.load(by_file.folder / "client.onnx").graph.output] == ["z", "answers"]


@pytest.mark.slow
def test_own_modules_are_exported_from_their_classes(own_run: Path, by_file: Exported, tmp_path: Path) -> None:
    by_class = export(own_run, tmp_path / "bundle", modules=own_modules())
    pixels = np.random.default_rng(0).integers(0, 256, (1, 28, 28), dtype=np.uint8)
    looks = [Client(made.folder).look(pixels) for made in (by_file, by_class)]
    for one, other in zip(*looks, strict=True):
        assert one is not None and other is not None and np.abs(one - other).max() < 1e-5
    assert by_file.manifest.fingerprint == by_class.manifest.fingerprint


def test_the_key_is_never_in_a_bundle(own_run: Path, by_file: Exported) -> None:
    key = (own_run / "noise.key").read_bytes()
    data = b"".join(path.read_bytes() for path in by_file.folder.iterdir())
    assert key not in data and key.hex().encode() not in data
    assert "each device makes its own" in (by_file.folder / "README.md").read_text()


class Svd(Own):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0 * torch.linalg.svdvals(x).sum((1, 2)).view(-1, 1, 1, 1)


class Choosing(Own):
    def forward(self, x: Tensor) -> Tensor:
        z = super().forward(x)
        return z if float(z.detach().sum()) < 1e9 else -z


class Restless(Own):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.5, training=True)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Svd, r"the operator aten\._linalg_svd has no ONNX form; replace it"),
        (Choosing, r"chooses by the values of a tensor.*torch\.where"),
        (Restless, r"the exported z differ from those of the model|depends on the other images"),
    ],
)
def test_what_cannot_be_exported_is_named_and_nothing_is_written(
    own_run: Path, tmp_path: Path, kind: type[Own], words: str
) -> None:
    with pytest.raises(RunError, match=words):
        export(own_run, tmp_path / "bundle", modules=(kind(), own_modules()[1]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_device_with_the_key_of_the_run_answers_as_predict_does(
    own_run: Path, by_file: Exported, tmp_path: Path
) -> None:
    """Front end, own modules, head, keyed noise and server: all of it over the network, without torch."""
    (tmp_path / "device").mkdir()
    shutil.copy(own_run / "noise.key", tmp_path / "device")
    here = attncem.predict(own_run, [f"test:{number}" for number in range(60)], top=10).predictions
    x, _ = open_run(own_run).data.test.get(slice(0, 60))
    with (
        serving(tmp_path / "log", [by_file.folder]) as server,
        Client(by_file.folder, url=f"http://{server.url}", device=tmp_path / "device") as client,
    ):
        there = [client.predict((image * 255).round().byte().numpy()) for image in x]
    assert [it.label for it in there] == [it.top[0].name for it in here]
    for one, other in zip(there, here, strict=True):
        assert other.decision is not None and one.on_device == (not other.decision.sent)
        assert one.probabilities == pytest.approx({it.name: it.probability for it in other.top}, abs=1e-5)
    assert {it.on_device for it in there} == {True, False}


# refusals


def small_model() -> SplitModel:
    return build_model(load_config("demo-none", ["model.width=4"]).config, DATASETS["fashion_mnist_mini"]).eval()


@pytest.fixture(scope="module")
def ours() -> Halves:
    """The halves of a small network without a head."""
    return halves_of(small_model(), images(GREY, 8))


def test_halves_that_differ_are_refused(selective: Exported, unsure_run: Path, ours: Halves) -> None:
    client, server = ((selective.folder / name).read_bytes() for name in ("client.onnx", "server.onnx"))
    model, x = open_run(unsure_run).model, images(GREY, 8)
    for halves, what in ((Halves(client, ours.server, None, None), "logits"), (Halves(ours.client, server, 0, 1), "z")):
        judged = model if what == "logits" else SplitModel(model.encoder, model.channel, model.server).eval()
        with pytest.raises(RunError, match=f"the exported {what} differ .* nothing was written"):
            compare(judged, halves, x, "random pixels")


class Widened(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return z[:, :128].view(-1, 8, 4, 4)


class Rounding(Own):
    def forward(self, x: Tensor) -> Tensor:
        return (super().forward(x) + 3e3) - 3e3


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Restless, "A forward function must compute the same every time"),
        (Rounding, "Rounding grows in this network: its own z in float32 differ by"),
        (Own, "The file computes something else than the network"),
    ],
)
def test_the_cause_of_a_difference_is_named(ours: Halves, kind: type[Own], words: str) -> None:
    """The files are those of another network."""
    model = small_model()
    judged = SplitModel(nn.Sequential(kind(), nn.Flatten(), Widened()), model.channel, model.server).eval()
    with pytest.raises(RunError, match=f"nothing was written. {words}"):
        compare(judged, ours, images(GREY, 8), "random pixels")


def test_an_existing_folder_is_never_overwritten(small_run: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("empty", "file", "link"):
        place = tmp_path / name
        place.mkdir() if name == "empty" else place.touch() if name == "file" else place.symlink_to(tmp_path / "no")
        with pytest.raises(RunError, match="already exists and was not changed"):
            export(small_run(), place)
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "file", "link"}


def test_an_error_while_writing_leaves_nothing(
    small_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Iterator[None]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "write_atomic", full)
    with pytest.raises(RunError, match="No space left on device"):
        export(small_run(), tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_may_release_nothing_is_not_exported(own_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(own_run, tmp_path / "run")
    (run / "noise.key").chmod(0o644)
    with pytest.raises(RunError, match="chmod 600"):
        export(run, tmp_path / "bundle")
    (run / "noise.key").unlink()
    with pytest.raises(RunError, match=r"noise\.key is missing"):
        export(run, tmp_path / "bundle")


@pytest.fixture
def _no_plugin_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that a plugin adds outlives its test."""
    for name in ("_additions", "_loaded"):
        monkeypatch.setattr(plugins, name, {})
    with tables_as_before():
        yield


@pytest.mark.usefixtures("_no_plugin_stays")
def test_a_channel_of_a_plugin_is_refused(tmp_path: Path, tiny: dict[str, Any]) -> None:
    load_plugin(written(tmp_path, "more.py"))
    settings = {**tiny, "training.epochs": 1, "channel": [{"name": "uniform", "width": 0.3}], "device": "cpu"}
    run = attncem.train("demo-none", settings, out=tmp_path / "run", progress=silent)
    with pytest.raises(ConfigError, match=r"channel\.name=uniform cannot be exported.*it can apply identity, gaussian"):
        export(run, tmp_path / "bundle")


# the command


def asked(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_command_says_what_it_wrote(
    small_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "a bundle"
    code, out, err = asked(capsys, "export", small_run(), "--out", bundle)
    said = " ".join((out + err).split())
    assert code == 0 and read_manifest(bundle).identity in said and "not audited" in said and "256 test images" in said
    code, out, err = asked(capsys, "export", small_run(), "--out", bundle)
    assert code == 2 and "already exists" in err and "Traceback" not in err


def test_the_command_writes_json_and_speaks_chinese(
    small_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = asked(capsys, "export", small_run(), "--out", tmp_path / "b", "--json", "--lang", "zh")
    assert code == 0 and json.loads(out)["identity"] == read_manifest(tmp_path / "b").identity
    assert "未经审计" in (tmp_path / "b" / "README.md").read_text()
    code, _, err = asked(capsys, "export", tmp_path / "nowhere", "--out", tmp_path / "c")
    assert code == 2 and "nowhere" in err
