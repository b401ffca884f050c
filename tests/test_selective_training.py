"""Runs of a client with a head: what they keep, resume, seal and refuse; and the command line from end to end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attncem.training.objective as objective
from attncem.base.progress import silent
from attncem.base.record import read
from attncem.base.types import ConfigError, RunError
from attncem.cli.main import main
from attncem.config.loading.load import load_config
from attncem.data.specs import DATASETS
from attncem.judging.inference import predict
from attncem.judging.opening import open_run
from attncem.models.releasing import seal_run
from attncem.records.files import hash_file
from attncem.records.fingerprints import fingerprint, release_of
from attncem.records.run_files import CheckpointFacts
from attncem.records.runs import RunDirectory
from attncem.training.build import build_model
from attncem.training.on_device import alone
from attncem.training.train import train
from attncem.training.trainer import Trainer
from editing import edit_config

Make = Callable[..., Path]
MINI = DATASETS["fashion_mnist_mini"]
SHARE: dict[str, Any] = {"release.when": "unsure", "release.share": 0.3}
HEAD: dict[str, Any] = {**SHARE, "release.learn": "head", "training.penalty_weight": 0, "surrogate": {"name": "none"}}


@pytest.fixture(scope="module")
def joint(small_run: Make) -> RunDirectory:
    """A run whose head learns with client and server."""
    return RunDirectory.open(small_run("demo", **SHARE))


@pytest.fixture(scope="module")
def base(small_run: Make) -> RunDirectory:
    """A run without a head."""
    return RunDirectory.open(small_run("demo-none", **{"channel": [{"name": "gaussian", "noise_std": 0.1}]}))


@pytest.fixture(scope="module")
def added(base: RunDirectory, small_run: Make) -> RunDirectory:
    """The same client and server with a head that was added to them."""
    channel = [{"name": "gaussian", "noise_std": 0.1}]
    return RunDirectory.open(small_run("demo-none", channel=channel, **HEAD, **{"model.init_from": str(base.path)}))


def facts_of(run: RunDirectory, name: str = "best") -> dict[str, Any]:
    return dict(run.load(name).facts)


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


# what a run keeps


def test_a_run_keeps_its_head_and_its_threshold_in_every_checkpoint(joint: RunDirectory) -> None:
    for name in joint.checkpoints():
        checkpoint = joint.load(name)
        release = read(CheckpointFacts, checkpoint.facts, name).release
        assert release is not None and 0 < release.threshold < 1
        assert release.share == pytest.approx(0.3, abs=0.01) and release.images == 500
        assert set(checkpoint.weights) == {"client", "server", "surrogate", "head"}
    assert facts_of(joint)["release"]["accuracy"] == joint.manifest["best"]["validation_accuracy"]


def test_the_log_has_the_head_and_the_share(joint: RunDirectory) -> None:
    validated = [record for record in joint.records() if record["kind"] == "validation"]
    for record in validated:
        assert record["share_sent"] == pytest.approx(0.3, abs=0.01)
        assert {"accuracy", "accuracy_alone", "accuracy_all_sent", "threshold"} <= record.keys()
    trained = [record for record in joint.records() if record["kind"] == "train"]
    assert trained[-1]["head_ce"] < trained[0]["head_ce"], "the head learns"
    assert validated[-1]["threshold"] == facts_of(joint, "last")["release"]["threshold"]


def test_an_opened_run_decides_as_its_validation_did(joint: RunDirectory) -> None:
    opened = open_run(joint.path)
    assert opened.model.threshold == facts_of(joint)["release"]["threshold"]
    x, _ = opened.data.validation.get(slice(None))
    with torch.no_grad():
        share = float(opened.model.sends(opened.model.look(x).answers).double().mean())
    assert share == facts_of(joint)["release"]["share"]


@pytest.mark.parametrize("goal", [{"release.accuracy": 0.3}, {"release.threshold": 0.5}])
def test_other_goals(tmp_path: Path, tiny: dict[str, Any], goal: dict[str, Any]) -> None:
    options = {**tiny, "training.epochs": 1, "release.when": "unsure", **goal}
    release = facts_of(train("demo-none", options, out=tmp_path / "run", progress=silent))["release"]
    if "release.threshold" in goal:
        assert release["threshold"] == 0.5
    else:
        assert release["reached"] == (release["accuracy"] >= 0.3)


def test_the_client_alone_of_a_selective_run_has_no_head_and_sends_nothing() -> None:
    config = load_config("demo-none", {"model.name": "lean", "model.cut": 2, "model.macs": 1.0e6, **SHARE}).config
    reference = alone(config, "lean")
    assert reference.on_device and not reference.release.selective


# resuming


def parts_of(run: RunDirectory) -> dict[str, bytes]:
    """Everything that training determines."""
    last = run.path / "checkpoints" / run.checkpoint_name("last")
    kept = {file.name: file.read_bytes() for file in last.glob("*.safetensors")}
    return {**kept, "metrics": (run.path / "metrics.jsonl").read_bytes(), "best": str(run.manifest["best"]).encode()}


class Killed(BaseException):
    """The end of a process."""


def stopping(after: str) -> Callable[..., None]:
    """Progress that ends the training at the first report of the second epoch."""

    def report(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        if numbers.get("epoch", 0) >= 2:
            raise Killed(after)

    return report


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, tiny: dict[str, Any], joint: RunDirectory) -> None:
    out = tmp_path / "run"
    with pytest.raises(Killed):
        train("demo", {**tiny, "device": "cpu", **SHARE}, out=out, progress=stopping("epoch 1"))
    assert RunDirectory.open(out).checkpoints() == ["epoch-00001"]
    assert parts_of(train(resume=out, progress=silent)) == parts_of(joint)


def test_a_resumed_head_equals_an_uninterrupted_one(
    tmp_path: Path, tiny: dict[str, Any], base: RunDirectory, added: RunDirectory
) -> None:
    options = {**tiny, "device": "cpu", "channel": [{"name": "gaussian", "noise_std": 0.1}], **HEAD}
    with pytest.raises(Killed):
        train("demo-none", options, out=tmp_path / "run", init_from=base.path, progress=stopping("epoch 1"))
    assert RunDirectory.open(tmp_path / "run").checkpoints() == ["epoch-00001"]
    assert parts_of(train(resume=tmp_path / "run", progress=silent)) == parts_of(added)


# a head on a finished client


def test_a_head_is_added_without_changing_a_bit_of_client_or_server(base: RunDirectory, added: RunDirectory) -> None:
    """Nor the statistics of batch norm, nor by weight decay."""
    finished = base.load("best").weights
    heads = []
    for name in added.checkpoints():
        weights = added.load(name).weights
        assert same(weights["client"], finished["client"]) and same(weights["server"], finished["server"])
        heads.append(weights["head"])
    assert len(heads) == 2 and not same(*heads), "the head learns"
    release, numbers = facts_of(added)["release"], [r for r in base.records() if r["kind"] == "validation"]
    assert release["all_sent"] == pytest.approx(numbers[-1]["accuracy"], abs=0.03), "the server is that of the base"


def test_with_everything_sent_it_is_the_finished_model(base: RunDirectory, added: RunDirectory) -> None:
    one, other = open_run(base.path), open_run(added.path)
    other.model.threshold = 1.0
    x, _ = one.data.test.get(slice(0, 40))

    def noise() -> torch.Generator:
        return torch.Generator().manual_seed(1)

    with torch.no_grad():
        assert torch.equal(other.model.encode(x), one.model.encode(x))
        assert torch.equal(other.model.look(x).z, one.model.encode(x))
        assert torch.equal(other.model.release(x, generator=noise()), one.model.release(x, generator=noise()))
        assert torch.equal(other.model(x, noise()), one.model(x, noise()))
        other.model.threshold = 0.0
        assert torch.equal(other.model(x, noise()), other.model.look(x).answers)


def test_a_head_needs_the_network_of_the_finished_run(tmp_path: Path, tiny: dict[str, Any], base: RunDirectory) -> None:
    with pytest.raises(ConfigError, match="does not fit the network"):
        options = {**tiny, "model.width": 8, **HEAD}
        train("demo-none", options, out=tmp_path / "run", init_from=base.path, progress=silent)
    assert not (tmp_path / "run").exists()


# fingerprint and seals


def test_the_fingerprint_changes_with_threshold_and_head_and_else_stays(joint: RunDirectory) -> None:
    facts, config = facts_of(joint), joint.config
    release = release_of(facts)
    assert release == {"threshold": facts["release"]["threshold"], "head": facts["sha256"]["head.safetensors"]}

    def mark(release: dict[str, Any] | None) -> str:
        sha256 = facts["sha256"]["client.safetensors"]
        return fingerprint(sha256, config.channel_options, config.front_end_options, release)

    assert open_run(joint.path).fingerprint == mark(release)
    others = [mark({**release, "threshold": 0.123}), mark({**release, "head": "0" * 64}), mark(None), mark(release)]
    assert len(set(others)) == 4
    assert mark({}) == mark(None), "runs without a head keep their fingerprints"
    assert release_of({"sha256": {}}) == {}


@pytest.fixture
def keyed(small_run: Make, tmp_path: Path) -> Path:
    """A copy of a run with keyed noise and a head."""
    return Path(shutil.copytree(small_run("demo", **SHARE, **{"channel.noise": "keyed"}), tmp_path / "keyed"))


def edit_facts(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    for file in run.glob("checkpoints/*/checkpoint.json"):
        facts = json.loads(file.read_text())
        change(facts)
        file.write_text(json.dumps(facts))


def lower(facts: dict[str, Any]) -> None:
    facts["release"]["threshold"] = 1.0


def other_head(run: Path) -> None:
    """Put the head of the first checkpoint into the last, with the right hash."""
    first, last = (run / "checkpoints" / f"epoch-0000{number}" for number in (1, 2))
    shutil.copy(first / "head.safetensors", last / "head.safetensors")
    sha256 = hash_file(last / "head.safetensors")
    facts = json.loads((last / "checkpoint.json").read_text())
    facts["sha256"]["head.safetensors"] = sha256
    (last / "checkpoint.json").write_text(json.dumps(facts))


EDITS: dict[str, Callable[[Path], None]] = {
    "a threshold at which everything is sent": lambda run: edit_facts(run, lower),
    "another head": other_head,
}


@pytest.mark.parametrize("name", EDITS)
def test_a_sealed_decision_cannot_be_changed(keyed: Path, name: str) -> None:
    assert predict(keyed, "test:0", weights="last").findings == []
    EDITS[name](keyed)
    for use in (lambda: open_run(keyed, weights="last"), lambda: seal_run(keyed)):
        with pytest.raises(RunError, match="does not fit"):
            use()


def test_a_new_key_seals_the_decision_too_and_shows_it(keyed: Path, capfd: Any) -> None:
    (keyed / "noise.key").unlink()
    edit_facts(keyed, lambda facts: facts.pop("seal"))
    assert main(["seal", str(keyed), "--new-key"]) == 0
    threshold = facts_of(RunDirectory.open(keyed), "last")["release"]["threshold"]
    assert f"{threshold:.6g} (epoch-00002)" in " ".join("".join(capfd.readouterr()).split())
    assert not open_run(keyed).no_release
    edit_facts(keyed, lower)
    with pytest.raises(RunError, match="does not fit"):
        open_run(keyed)


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no threshold": (lambda facts: facts.pop("release"), "the head of the client, or its threshold, is missing"),
    "no number": (lambda facts: facts["release"].update(threshold="much"), "threshold"),
    "above 1": (lambda facts: facts["release"].update(threshold=7.0), "threshold from 0 to 1"),
    "not finite": (lambda facts: facts["release"].update(threshold=float("nan")), "threshold|NaN|nan"),
    "another kind": (lambda facts: facts.update(release=[1]), "release"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_decision_is_named(joint: RunDirectory, tmp_path: Path, capfd: Any, name: str) -> None:
    run = Path(shutil.copytree(joint.path, tmp_path / "run"))
    damage, words = DAMAGES[name]
    edit_facts(run, damage)
    with pytest.raises(RunError, match=words):
        open_run(run)
    assert main(["predict", str(run), "test:0"]) == 2
    assert "Traceback" not in capfd.readouterr().err


def test_a_lost_head_is_named(joint: RunDirectory, tmp_path: Path) -> None:
    run = Path(shutil.copytree(joint.path, tmp_path / "run"))
    for file in run.glob("checkpoints/*/head.safetensors"):
        file.unlink()
    with pytest.raises(RunError, match=r"head"):
        open_run(run)


def test_a_configuration_that_forgets_the_head_is_refused(joint: RunDirectory, tmp_path: Path) -> None:
    """Else the same fingerprint would stand for a client that sends everything."""
    run = Path(shutil.copytree(joint.path, tmp_path / "run"))
    edit_config(run, lambda text: text.replace("when: unsure", "when: always").replace("share: 0.3", "share: null"))
    with pytest.raises(RunError, match=r"config\.yaml says release\.when=always: it was changed"):
        open_run(run)


# weights that follow the doubt


SURROGATES: dict[str, dict[str, Any]] = {
    "doubt": {"name": "capacity", "sample_weights": "doubt"},
    "gated doubt": {"name": "gated", "sample_weights": "doubt"},
    "worst": {"name": "capacity", "sample_weights": "worst"},
}


@pytest.mark.parametrize("name", SURROGATES)
def test_a_penalty_with_weights_trains_the_client(tmp_path: Path, tiny: dict[str, Any], name: str) -> None:
    options = {**tiny, "training.epochs": 2, **SHARE, "surrogate": SURROGATES[name], "training.penalty_weight": 1}
    run = train("demo-none", options, out=tmp_path / "run", progress=silent)
    trained = [record for record in run.records() if record["kind"] == "train"]
    assert 0 < trained[-1]["rob_loss"] < trained[0]["rob_loss"]
    assert 0 < trained[-1]["effective_samples"] < 1, "not all samples of a class weigh alike"
    assert any("gradient_ratio" in record for record in trained), "the measured gradient has doubts too"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["doubt", "gated doubt"])
def test_two_processes_train_a_head_with_doubts(tmp_path: Path, tiny: dict[str, Any], name: str) -> None:
    """Each sees half of every batch; the doubts of both weigh the samples of both."""
    options = {**tiny, "training.epochs": 1, **SHARE, "surrogate": SURROGATES[name], "training.penalty_weight": 1}
    options |= {"device": "cpu", "data.horizontal_flip": False, "data.crop_padding": 0}
    one, two = (
        train("demo-none", {**options, "processes": number}, out=tmp_path / str(number), progress=silent)
        for number in (1, 2)
    )
    first, second = (run.load("last").facts["release"] for run in (one, two))
    assert second["share"] == pytest.approx(first["share"], abs=0.02)
    assert set(two.load("last").weights) == set(one.load("last").weights)


def test_a_look_compiles_to_one_graph() -> None:
    config = load_config("demo", {"model.width": 4, **SHARE}).config
    model = build_model(config, MINI).eval()
    x = torch.rand(4, *MINI.shape)
    torch._dynamo.reset()
    with torch.no_grad():
        z, answers = torch.compile(lambda x: tuple(model.look(x)), backend="eager", fullgraph=True)(x)
        plain = model.look(x)
    assert torch.equal(z, plain.z) and torch.equal(answers, plain.answers)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("name", SURROGATES)
def test_a_compiled_step_is_the_plain_one(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each part that a GPU compiles becomes one graph: the head, the doubts, the penalty and its own loss."""

    def compiled(function: Any) -> Any:
        return torch.compile(function, backend="eager", fullgraph=True, dynamic=False)

    monkeypatch.setattr(objective, "compile_function", compiled)
    options = {**tiny, **SHARE, "surrogate": SURROGATES[name], "training.penalty_weight": 1}
    config, weights = load_config("demo-none", {**options, "training.batch_size": 64}).config, []
    torch._dynamo.reset()
    for fast in (False, True):
        made = Trainer(config, None).objective
        made.begin_epoch(0)
        made.set_rates(1.0)
        functions = made.functions.compiled() if fast else made.functions
        images = torch.randint(256, (64, 1, 28, 28), generator=torch.Generator().manual_seed(0)).byte()
        for _ in range(2):
            made._step(functions, images, torch.arange(64) % 10)
        weights.append([*made.model.parameters(), *made.surrogate.parameters()])
    for plain, other in zip(*weights, strict=True):
        torch.testing.assert_close(other, plain, rtol=1e-4, atol=1e-6)


# your own modules


@pytest.mark.slow
def test_a_head_on_your_own_modules_is_kept_and_opened_from_onnx(tmp_path: Path, tiny: dict[str, Any]) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 4, 5, stride=4), nn.Sigmoid())
    server = nn.Sequential(nn.Flatten(), nn.Linear(144, 10))
    options = {**{key: value for key, value in tiny.items() if key != "model.width"}, **SHARE, "training.epochs": 1}
    run = train("demo-none", options, out=tmp_path / "run", modules=(encoder, server), progress=silent)
    mine, stored = open_run(run.path, modules=(encoder, server)), open_run(run.path)
    assert stored.model.head is not None and stored.fingerprint == mine.fingerprint
    x, _ = mine.data.test.get(slice(0, 20))
    with torch.no_grad():
        assert torch.allclose(stored.model.look(x).answers, mine.model.look(x).answers, atol=1e-4)
    assert len(predict(run.path, ["test:0", "test:1"]).predictions) == 2


# the command line


def test_train_predict_and_explain_from_the_command_line(tmp_path: Path, capfd: Any) -> None:
    """A lean client of the demo; an image that is sent and one that is not."""
    run, out = tmp_path / "run", tmp_path / "out"
    settings = ["release.when=unsure", "release.share=0.3", "training.epochs=2", "data.held_out_fraction=0.8"]
    settings += ["model.macs=300000", "device=cpu"]
    assert main(["train", "--config", "demo-lean", "--out", str(run), *settings]) == 0
    opened = open_run(run)
    with torch.no_grad():
        x, _ = opened.data.test.get(slice(0, 40))
        sent = opened.model.sends(opened.model.look(x).answers).tolist()
    asked = [sent.index(True), sent.index(False)]
    capfd.readouterr()
    images = [f"test:{number}" for number in asked]
    assert main(["predict", str(run), *images, "--save", str(out), "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)["predictions"]
    assert [row["decision"]["sent"] for row in rows] == [True, False]
    assert rows[0]["release"]["shape"] == [8, 4, 4] and rows[1]["release"] is None
    assert [bool(row["saved"]) for row in rows] == [True, False]
    assert len(list(out.iterdir())) == 1, "nothing is written for an image that is not sent"
    assert main(["predict", str(run), *images]) == 0
    assert "answers on the device: nothing is sent" in " ".join(capfd.readouterr().out.split())
    for image in images:
        page = tmp_path / f"{image[5:]}.html"
        assert main(["explain", str(run), image, "--out", str(page)]) == 0
        text = page.read_text()
        assert ("nothing is sent" in text) == (image == images[1])


def test_training_says_what_is_sent_and_what_is_not_reached(tmp_path: Path, capfd: Any) -> None:
    settings = ["training.epochs=1", "data.held_out_fraction=0.8", "model.width=4", "device=cpu"]
    words = ["train", "--config", "demo-none", "--out", str(tmp_path / "run"), *settings, "release.when=unsure"]
    assert main([*words, "release.accuracy=0.99"]) == 0
    out = " ".join("".join(capfd.readouterr()).split())
    assert "of 500 validation images" in out and "with the client’s head alone" in out
    assert "release.accuracy=0.99 is not reached, whatever is sent" in out


def test_a_head_is_added_from_the_command_line(tmp_path: Path, base: RunDirectory, tiny: dict[str, Any]) -> None:
    settings = [f"{key}={value}" for key, value in {**tiny, "training.epochs": 1, "device": "cpu"}.items()]
    words = ["train", "--config", "demo-none", "--out", str(tmp_path / "run"), "--init-from", str(base.path), *settings]
    assert main([*words, "release.when=unsure", "release.learn=head"]) == 0
    run = RunDirectory.open(tmp_path / "run")
    assert same(run.load("best").weights["client"], base.load("best").weights["client"])


WRONG: dict[str, tuple[list[str], str]] = {
    "a share without a head": (["release.share=0.3"], "needs a head that decides what is sent"),
    "two goals": (["release.when=unsure", "release.share=0.3", "release.accuracy=0.9"], "give one"),
    "an unknown goal": (["release.when=unsure", "release.shares=0.3"], "did you mean release.share"),
    "few validation images": (
        ["release.when=unsure", "data.images_per_class=100", "data.validation_fraction=0.1"],
        "at least 200 are needed; raise data.validation_fraction",
    ),
    "a head on nothing": (["release.when=unsure", "release.learn=head"], "model.init_from must name"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_end_with_one_line(tmp_path: Path, capfd: Any, name: str) -> None:
    options, words = WRONG[name]
    assert main(["train", "--config", "demo-none", "--out", str(tmp_path / "run"), *options]) == 2
    err = capfd.readouterr().err
    assert words in " ".join(err.split()) and "Traceback" not in err
    assert not (tmp_path / "run").exists()
