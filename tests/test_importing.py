"""Moving over from CEM: its commands become configurations that load, its checkpoints runs that can be audited."""

from __future__ import annotations

import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.base.types import ConfigError, RunError
from attncem.cli.importing import import_commands
from attncem.cli.importing.flags import flags_of, translate
from attncem.cli.importing.shell import commands
from attncem.cli.importing.weights import import_weights
from attncem.cli.main import main
from attncem.config.loading.load import load_config
from attncem.judging.auditing import audit
from attncem.records.runs import RunDirectory
from test_readers import write_cifar10

FLAGS = (
    "--arch=${arch} --cutlayer=$cutlayer --batch_size=128 --filename=$filename --num_client=1 --num_epochs=$num_epochs "
    "--dataset=cifar10 --scheme=V2_epoch --regularization=${regularization} --regularization_strength=$strength "
    "--log_entropy=1 --AT_regularization=${AT} --AT_regularization_strength=0.3\\\n --random_seed=125 "
    "--learning_rate=$learning_rate --lambd=$lambd --gan_AE_type ${ae} --gan_loss_type SSIM --local_lr -1 "
    "--bottleneck_option noRELU_C8S1 --folder saves/${AT}_x --ssim_threshold 0.5 --var_threshold ${var_threshold}"
)
SCRIPT = f"""#!/bin/bash
# cd "$(dirname "$0")"
GPU_id=0
arch=vgg11_bn_sgm ##if sgm, pls change this
AT=SCA_new #"gan_adv_step1;dropout0.2"
ae=res_normN4C64
regularization='Gaussian_kl' #'Gaussian_Nonekl'
var_threshold=0.125
strength_list="0.025 0.1"
lambd_list="0 16" #
cutlayer_list="4"
pretrain="False"
for lambd in $lambd_list; do
    for strength in $strength_list; do
        for cutlayer in $cutlayer_list; do

            filename=lambd_${{lambd}}_noise_${{strength}}
########################### training ########
            if [ "$pretrain" = "True" ]; then
                num_epochs=80
                learning_rate=0.0001
                python main_MIA.py {FLAGS} --load_from_checkpoint
            else
                num_epochs=240
                learning_rate=0.05
                CUDA_VISIBLE_DEVICES=${{GPU_id}} python main_MIA.py {FLAGS}
            fi
            python main_test_MIA.py --arch=${{arch}} --attack_epochs=50
        done
    done
done
"""


def one(*words: str) -> dict[str, Any]:
    return translate(flags_of(words)).config


# scripts


def test_the_baselines_script_gives_what_its_loops_would_train() -> None:
    found, attacks = import_commands(SCRIPT)
    assert [item.config.name for item in found] == [
        f"lambd_{weight}_noise_{s}" for weight in (0, 16) for s in (0.025, 0.1)
    ]
    assert attacks == 4
    assert all(item.config.training.epochs == 240 for item in found)


@pytest.mark.parametrize(
    ("name", "packaged"), [("lambd_0_noise_0.025", "paper-sca"), ("lambd_16_noise_0.025", "paper-sca-cem")]
)
def test_a_training_is_the_packaged_configuration_of_it(name: str, packaged: str) -> None:
    found = next(item for item in import_commands(SCRIPT)[0] if item.config.name == name)
    assert found.config == load_config(packaged, {"name": name, "seed": 125}).config


def test_the_other_branch_is_taken_where_it_holds() -> None:
    found, _ = import_commands(SCRIPT.replace('pretrain="False"', 'pretrain="True"'))
    assert {item.config.training.epochs for item in found} == {80}
    assert any("load_from_checkpoint" in note for note in found[0].notes)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("a='$b c'; run $a \"$a\" x\\ y", ["run", "$b", "c", "$b c", "x y"]),
        ("run a#b # c\n", ["run", "a#b"]),
        ("for a in x; do run ${a}y; done", ["run", "xy"]),
        ('if [ a != b ]; then run "a;b"; fi', ["run", "a;b"]),
        ("run $nothing z", ["run", "z"]),
    ],
)
def test_words_are_read_as_a_shell_reads_them(script: str, words: list[str]) -> None:
    assert commands(script) == [words]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("for a in b; do run", "done is missing"),
        ("done", "it has no start"),
        ("if true; then run; fi", "only"),
        ("for ((i=0;i<3;i++)); do run; done", "do is missing"),
        ("x='a b c d e f g h i j'\n" + "for a in $x; do " * 5 + "run" + "; done" * 5, "statements"),
        ("for a in b; do " * 40, "deep"),
        ("echo hello", "main_MIA.py"),
        ("a=aaaaaaaaaa\n" + "a=$a$a\n" * 40 + "python main_MIA.py --filename=$a", "more than 65,536 characters"),
    ],
)
def test_what_is_not_understood_is_refused(script: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        import_commands(script)


def test_nothing_of_a_script_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with pytest.raises(ConfigError, match="must be a number"):
        import_commands(f"python main_MIA.py --lambd=$(touch {mark}; echo 1)".replace(";", "&&"))
    assert not mark.exists()


# flags


@pytest.mark.parametrize(
    ("option", "packaged"),
    [
        ("gan_adv_step1", "paper-ressfl-cem"),
        ("nopeek", "paper-distcorr-cem"),
        ("dropout0.3", "paper-dropout-cem"),
        ("None", "paper-bottleneck-cem"),
        ("gan_adv_step1_pruning180", "paper-patrol-cem"),
    ],
)
def test_companions_are_those_of_the_packaged_configurations(option: str, packaged: str) -> None:
    found, _ = import_commands(SCRIPT.replace("AT=SCA_new", f"AT={option}").replace('"0.025 0.1"', '"0.01"'))
    asked = load_config(packaged, {"name": found[1].config.name, "seed": 125}).config
    assert load_config(found[1].config, _decoder_as(asked)).config == asked


def _decoder_as(asked: Any) -> dict[str, Any]:
    """The packaged decoders say nothing of their size, which is the default."""
    return {} if not asked.penalties else {"penalties": [option.model_dump() for option in asked.penalties]}


def test_ressfl_has_no_entropy_penalty() -> None:
    made = one("--regularization=gan_adv_step3", "--regularization_strength=0.3", "--bottleneck_option=C16S2K5")
    assert "surrogate" not in made and made["channel"] == [{"name": "identity"}]
    assert made["penalties"][0]["steps"] == 3
    assert made["model"]["bottleneck"] == {"channels": 16, "stride": 2, "kernel": 5, "relu": True}


def test_other_lengths_keep_the_places_of_their_milestones() -> None:
    assert one("--num_epochs=100")["training"]["schedule"]["milestones"] == [0.6]
    assert one("--num_epochs=120")["training"]["schedule"]["milestones"] == [0.25, 0.5, 0.75, 0.875]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dataset=svhn"], "cifar10"),
        (["--arch=vgg11"], "did you mean vgg11_bn"),
        (["--num_client=10"], "one client"),
        (["--num_epochs=1.5"], "whole number"),
        (["--num_epochs=0"], "from 1 to"),
        (["--num_epochs=1e300"], "whole number"),
        (["--bottleneck_option=C" + "9" * 5000], "too large"),
        (
            ["--AT_regularization=gan_adv", "--AT_regularization_strength=1", "--gan_AE_type=N4C" + "9" * 5000],
            "too large",
        ),
        (["--AT_regularization=pruning" + "9" * 5000, "--AT_regularization_strength=1"], "too large"),
        (["--AT_regularization=local_dp", "--AT_regularization_strength=1"], "clip"),
        (["--AT_regularization=magic", "--AT_regularization_strength=1"], "unknown"),
        (["--AT_regularization=dropout", "--AT_regularization_strength=1"], "share"),
    ],
)
def test_what_cannot_be_had_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        translate(flags_of(words))


def test_what_is_not_the_same_is_told() -> None:
    words = ["--lambd=4", "--local_lr=0.1", "--noniid=0.5", "--mystery=1", "--arch=resnet20", "--regularization=None"]
    notes = " ".join(translate(flags_of(words)).notes)
    for said in ("--local_lr=0.1", "--noniid", "--mystery", "resnet20", "without noise"):
        assert said in notes


# the command


def test_the_command_writes_yaml_that_loads_and_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run_exp.sh").write_text(SCRIPT)
    assert main(["import-cem", "run_exp.sh"]) == 0
    files = sorted(Path("cem").iterdir())
    assert len(files) == 4
    assert [load_config(str(file)).config.name for file in files] == [file.stem for file in files]
    assert files[0].read_text().startswith(f"# attncem train --config {files[0]}\n# From: python main_MIA.py")
    assert main(["import-cem", "run_exp.sh"]) == 0
    files[1].write_text("mine")
    assert main(["import-cem", "run_exp.sh"]) == 2
    assert files[1].read_text() == "mine"


def test_one_command_behind_two_dashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["import-cem", "--out", "x", "--", "python", "main_MIA.py", "--filename", "a\nb: c", "--lambd=0"]) == 0
    (file,) = Path("x").iterdir()
    assert load_config(str(file)).config.name == "a-b-c"
    assert main(["import-cem", "--", "python", "other.py"]) == 2
    assert main(["import-cem", "missing.sh"]) == 2


# checkpoints


def convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]


def baseline_halves() -> dict[str, nn.Module]:
    """Networks of the layout that the baseline saves: vgg11_bn_sgm, cut 4, noRELU_C8S1, ten classes."""
    torch.manual_seed(0)
    pool = nn.MaxPool2d(2)
    client = [*convolution(3, 64), pool, *convolution(64, 128), pool, nn.Conv2d(128, 8, 3, padding=1), nn.Sigmoid()]
    deep = [*convolution(256, 512), *convolution(512, 512), pool, *convolution(512, 512), *convolution(512, 512), pool]
    cloud = [nn.Conv2d(8, 128, 3, padding=1), *convolution(128, 256), *convolution(256, 256), pool, *deep]
    dense = [nn.Dropout(), nn.Linear(512, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 512), nn.ReLU()]
    parts = {"f": client, "cloud": cloud, "classifier": [*dense, nn.Linear(512, 10)]}
    return {name: nn.Sequential(*layers).eval() for name, layers in parts.items()}


def save(folder: Path, which: str = "best", **changes: Any) -> dict[str, nn.Module]:
    folder.mkdir(exist_ok=True)
    halves = baseline_halves()
    states = {name: half.state_dict() for name, half in halves.items()} | changes
    for name, state in states.items():
        torch.save(state, folder / f"checkpoint_{name}_{which}.tar")
    return halves


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    write_cifar10(tmp_path / "cifar-10-batches-py", 40)
    return tmp_path / "cifar-10-batches-py"


def config_of(cifar: Path, name: str = "lambd_0_noise_0.025", at: str = "None") -> Any:
    found, _ = import_commands(SCRIPT.replace("AT=SCA_new", f"AT={at}"), [f"data.root={cifar}", "device=cpu"])
    return next(item.config for item in found if item.config.name == name)


def test_the_layout_is_the_baselines() -> None:
    """Names and places as its own code saves them (cloud ends with 21, a pool; the client's last layer is 8)."""
    halves = baseline_halves()
    layers = {name: sorted({int(key.split(".")[0]) for key in half.state_dict()}) for name, half in halves.items()}
    assert layers["f"] == [0, 1, 4, 5, 8]
    assert layers["cloud"] == [0, 1, 2, 4, 5, 8, 9, 11, 12, 15, 16, 18, 19]
    assert layers["classifier"] == [1, 4, 6]


def test_a_checkpoint_becomes_a_run_that_computes_the_same(tmp_path: Path, cifar: Path) -> None:
    from attncem.judging.opening import open_run

    halves = save(tmp_path / "saves")
    run = import_weights(tmp_path / "saves", config_of(cifar), tmp_path / "run")
    assert run.is_finished and run.manifest["imported"]
    opened = open_run(run)
    x = torch.rand(5, 3, 32, 32)
    spec = opened.spec
    normal = (x - torch.tensor(spec.mean).view(3, 1, 1)) / torch.tensor(spec.std).view(3, 1, 1)
    with torch.no_grad():
        z = halves["f"](normal)
        logits = halves["classifier"](halves["cloud"](z).flatten(1))
        torch.testing.assert_close(opened.model.encode(x), z, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(opened.model.predict(z), logits, atol=1e-4, rtol=1e-3)


def test_such_a_run_is_audited_from_the_command_line(
    tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "saves", "80")
    script = tmp_path / "run_exp.sh"
    script.write_text(SCRIPT.replace("AT=SCA_new", "AT=None"))
    words = ["import-cem", str(script), "--weights", str(tmp_path / "saves"), "--which", "80", "--data", str(cifar)]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "--only" in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path / "run"), "--only", "lambd_16_noise_0.1"]) == 0
    result = audit(tmp_path / "run", "quick", only=["mean image", "ridge"], device="cpu", progress=silent)
    assert result.subject.surrogate == "kmeans" and result.subject.noise_std == 0.1
    assert all(row.ok for row in result.rows)


def test_sparse_coding_is_read_too(tmp_path: Path, cifar: Path) -> None:
    client = OrderedDict(baseline_halves()["f"].state_dict())
    client["9.weights"] = torch.eye(512)
    save(tmp_path / "saves", f=client)
    run = import_weights(tmp_path / "saves", config_of(cifar, at="SCA_new"), tmp_path / "run")
    assert torch.equal(run.load("best").weights["client"]["6.dictionary"], torch.eye(512))


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def broken(tmp_path: Path) -> dict[str, tuple[dict[str, Any], str]]:
    state: dict[str, Tensor] = baseline_halves()["f"].state_dict()
    endless = {**state, "0.bias": torch.full((64,), float("nan"))}
    return {
        "code": ({"f": {**state, "x": Evil(tmp_path / "ran")}}, "cannot be read"),
        "not tensors": ({"f": {**state, "9.words": "hello"}}, "more than the tensors"),
        "not finite": ({"f": endless}, "not finite"),
        "sparse": ({"f": {**state, "0.bias": state["0.bias"].to_sparse()}}, "0.bias is no plain tensor"),
        "meta": ({"f": {**state, "0.bias": state["0.bias"].to("meta")}}, "0.bias is no plain tensor"),
        "wide": ({"f": {**state, "0.bias": torch.zeros(1).expand(2**31)}}, "its tensors would take 8 GiB"),
        "another network": ({"f": nn.Sequential(nn.Linear(3, 3)).state_dict()}, "layers with weights|has"),
        "another width": ({"classifier": nn.Sequential(nn.Linear(3, 3)).state_dict()}, "layers with weights|has"),
    }


@pytest.mark.parametrize(
    "kind",
    ["code", "not tensors", "not finite", "sparse", "meta", "wide", "another network", "another width"],
)
def test_a_checkpoint_that_is_none_is_refused_and_nothing_in_it_runs(tmp_path: Path, cifar: Path, kind: str) -> None:
    changes, said = broken(tmp_path)[kind]
    save(tmp_path / "saves", **changes)
    with pytest.raises(RunError, match=said):
        import_weights(tmp_path / "saves", config_of(cifar), tmp_path / "run")
    assert not (tmp_path / "ran").exists() and not (tmp_path / "run").exists()


def test_a_checkpoint_that_grows_is_not_unpacked(tmp_path: Path, cifar: Path) -> None:
    save(tmp_path / "saves", f={"0.weight": torch.zeros(2**20)})
    plain = tmp_path / "saves" / "checkpoint_f_best.tar"
    small = tmp_path / "small.tar"
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(small, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info), zipfile.ZIP_DEFLATED)
    assert small.stat().st_size < plain.stat().st_size / 100
    small.replace(plain)
    with pytest.raises(RunError, match=r"checkpoint_f_best\.tar is not read: unpacked it takes 4 MiB"):
        import_weights(tmp_path / "saves", config_of(cifar), tmp_path / "run")


def test_a_folder_without_checkpoints_says_what_it_has(tmp_path: Path, cifar: Path) -> None:
    save(tmp_path / "saves", "80")
    with pytest.raises(RunError, match=r"checkpoint_f_80\.tar"):
        import_weights(tmp_path / "saves", config_of(cifar), tmp_path / "run")
    with pytest.raises(RunError, match="is not a folder"):
        import_weights(tmp_path / "nothing", config_of(cifar), tmp_path / "run")


def test_flags_of_another_network_do_not_fit(tmp_path: Path, cifar: Path) -> None:
    save(tmp_path / "saves")
    with pytest.raises(RunError, match="flags"):
        import_weights(tmp_path / "saves", config_of(cifar, at="SCA_new"), tmp_path / "run")
    assert np.all([not (tmp_path / "run").exists()])
    assert RunDirectory(tmp_path / "run").checkpoints() == []
