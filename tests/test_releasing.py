"""Nothing leaves a device with weaker noise than a run was trained with: scheme, key file, seals, and older runs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from attncem.base.progress import silent
from attncem.base.seeding import derive_seed
from attncem.base.types import AttncemError, ConfigError, RunError
from attncem.cli.main import main
from attncem.judging.auditing import audit
from attncem.judging.inference import predict
from attncem.judging.opening import open_encoder, open_run
from attncem.models import releasing
from attncem.models.channels import SYSTEM
from attncem.models.releasing import seal_run
from attncem.records import seals
from attncem.records.files import hash_file
from attncem.records.runs import RunDirectory
from attncem.reporting.explain.explaining import explain
from attncem.training.train import train
from attncem_edge import noise
from editing import edit_config

Make = Callable[..., Path]
Edit = Callable[[Path], None]
posix = pytest.mark.skipif(os.name != "posix", reason="modes say nothing about other users here")


@pytest.fixture
def keyed(small_run: Make, tmp_path: Path) -> Path:
    """A copy of a run with keyed noise."""
    return Path(shutil.copytree(small_run(**{"channel.noise": "keyed"}), tmp_path / "keyed"))


@pytest.fixture
def fresh(small_run: Make, tmp_path: Path) -> Path:
    """A copy of a run with fresh noise."""
    return Path(shutil.copytree(small_run(), tmp_path / "fresh"))


def edit_json(file: Path, **values: Any) -> None:
    """Set entries of a JSON file; `...` removes one."""
    data = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps({name: value for name, value in data.items() if value is not ...}))


def edit_manifest(**values: Any) -> Edit:
    return lambda run: edit_json(run / "manifest.json", **values)


def without_seals(run: Path) -> Path:
    """The run as version 0.2 leaves it."""
    for file in run.glob("checkpoints/*/checkpoint.json"):
        edit_json(file, seal=...)
    return run


def of_scheme_0(run: Path) -> Path:
    """The run as version 0.1 leaves it."""
    (run / "noise.key").unlink(missing_ok=True)
    edit_json(run / "manifest.json", noise_scheme=..., config_sha256=..., data=..., architecture=...)
    return without_seals(run)


def released(run: Path, out: Path) -> torch.Tensor:
    return load_file(str(predict(run, "test:0", save=out).predictions[0].saved))["released"]


# scheme 0


@pytest.mark.parametrize("scheme", [..., 0])
def test_a_deleted_scheme_stops_everything(keyed: Path, tmp_path: Path, capfd: Any, scheme: Any) -> None:
    """The release that this made had noise from the public seed: it was taken off to 6e-8."""
    edit_json(keyed / "manifest.json", noise_scheme=scheme)
    assert main(["predict", str(keyed), "test:0", "--save", str(tmp_path / "out")]) == 2
    out, err = capfd.readouterr()
    message = "manifest.json was changed or damaged: noise_scheme is missing or 0, but noise.key belongs to scheme 1"
    assert (out, message in err, 'put "noise_scheme": 1 back' in err) == ("", True, True)
    assert not (tmp_path / "out").exists()
    uses: list[Callable[[], object]] = [
        lambda: open_run(keyed),
        lambda: audit(keyed, "quick", only=["grey"], progress=silent),
        lambda: explain(keyed, "test:0", progress=silent),
        lambda: seal_run(keyed),
        lambda: seal_run(keyed, with_new_key=True),
    ]
    for use in uses:
        with pytest.raises(RunError, match="was changed or damaged"):
            use()


def test_a_seal_beside_scheme_0_is_enough_to_refuse(keyed: Path) -> None:
    edit_json(keyed / "manifest.json", noise_scheme=...)
    (keyed / "noise.key").unlink()
    with pytest.raises(RunError, match=r"but the seal of epoch-0000\d belongs to scheme 1"):
        open_run(keyed)


def test_keyed_noise_of_scheme_0_is_read_and_never_released(keyed: Path, tmp_path: Path) -> None:
    of_scheme_0(keyed)
    opened = open_run(keyed)
    assert [item.code for item in opened.findings] == ["scheme_0"]
    with pytest.raises(RunError, match=r"keyed noise has scheme 0 .* Train it again, or make a key with .* --new-key"):
        predict(keyed, "test:0", save=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    x = opened.data.test.get(slice(0, 1))[0]
    with torch.no_grad(), pytest.raises(RunError, match="may not be released"):
        opened.model.release(x, generator=SYSTEM)
    assert audit(keyed, "quick", only=["grey"], progress=silent).subject.noise_scheme == 0


def test_an_old_run_gets_a_key_and_noise_that_its_seed_does_not_tell(keyed: Path, tmp_path: Path) -> None:
    of_scheme_0(keyed)
    weak = open_run(keyed)
    x = weak.data.test.get(slice(0, 1))[0]
    with torch.no_grad():
        z, guess = weak.model.encode(x)[0], weak.model.release(x)[0]
    assert seal_run(keyed, with_new_key=True).checkpoints == RunDirectory.open(keyed).checkpoints()
    drawn = released(keyed, tmp_path / "out") - z
    assert float((drawn - (guess - z)).abs().mean()) > 0.5 * weak.config.noise_std
    public = hashlib.sha256(f"channel key {derive_seed(weak.config.seed, 'channel')}".encode()).digest()
    assert (keyed / "noise.key").read_bytes() != public
    assert open_run(keyed).fingerprint == weak.fingerprint, "its audits still match"


def test_fresh_noise_of_scheme_0_is_refused_until_the_scheme_is_raised(fresh: Path) -> None:
    of_scheme_0(fresh)
    with pytest.raises(RunError, match=r"manifest.json has noise scheme 0 .* with attncem seal \S+fresh$"):
        predict(fresh, "test:0")
    with pytest.raises(ConfigError, match="has no keyed noise, so it needs no key"):
        seal_run(fresh, with_new_key=True)
    assert seal_run(fresh).checkpoints == []
    assert predict(fresh, "test:0").findings == []


@pytest.mark.parametrize("kind", ["keyed", "fresh"])
def test_an_unknown_scheme_is_named(kind: str, request: pytest.FixtureRequest, capfd: Any) -> None:
    run = request.getfixturevalue(kind)
    messages = {
        **{2: "noise_scheme 2 is unknown: this version knows 0 and 1", -1: "noise_scheme -1 is unknown"},
        **dict.fromkeys(("x", True, 1.5, None, "1"), "noise_scheme must be a whole number"),
    }
    for scheme, message in messages.items():
        edit_json(run / "manifest.json", noise_scheme=scheme)
        assert main(["predict", str(run), "test:0"]) == 2
        assert message in capfd.readouterr().err
        with pytest.raises(RunError, match=message):
            audit(run, "quick", only=["grey"], progress=silent)


# seals


def swap_weights(run: Path) -> None:
    """Put the encoder of the first checkpoint into the last, with the right hash."""
    first, last = (run / "checkpoints" / f"epoch-0000{number}" for number in (1, 2))
    shutil.copy(first / "client.safetensors", last / "client.safetensors")
    facts = json.loads((last / "checkpoint.json").read_text())
    facts["sha256"]["client.safetensors"] = hash_file(last / "client.safetensors")
    (last / "checkpoint.json").write_text(json.dumps(facts))


def in_config(old: str, new: str) -> Edit:
    def edit(text: str) -> str:
        assert old in text, text
        return text.replace(old, new, 1)

    return lambda run: edit_config(run, edit)


def edit_data(run: Path) -> None:
    facts = json.loads((run / "manifest.json").read_text())["data"]
    edit_json(run / "manifest.json", data={**facts, "std": [1e-3]})


EDITS: dict[str, tuple[Edit, str]] = {
    "less noise": (in_config("noise_std: 0.05", "noise_std: 0.0001"), "does not fit"),
    "another stage": (in_config("channel:\n", "channel:\n- name: top_k\n  keep: 1.0\n"), "does not fit"),
    "fresh noise": (in_config("noise: keyed", "noise: fresh"), "its channel has no keyed noise, but noise.key belongs"),
    "no front end": (in_config("name: local_contrast\n    s: 3.0\n    a: 0.0", "name: none"), "does not fit"),
    "weaker front end": (in_config("s: 3.0", "s: 4.0"), "does not fit"),
    "another option": (in_config("epochs: 2", "epochs: 3"), "does not fit"),
    "brighter images": (edit_data, "does not fit"),
    "other weights": (swap_weights, "does not fit"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_run_releases_nothing_with_its_seal_or_without(keyed: Path, name: str) -> None:
    edit, message = EDITS[name]
    edit(keyed)
    with pytest.raises(RunError, match=message):
        open_run(keyed, weights="last")
    with pytest.raises(RunError, match=message):
        seal_run(keyed)
    without_seals(keyed)
    with pytest.raises(RunError, match="no keyed noise, but" if name == "fresh noise" else "has no seal"):
        predict(keyed, "test:0", weights="last")


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every entry of JSON data, at every depth."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in pairs:
        yield (*above, name)
        yield from places(item, (*above, name))


def changed(data: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of JSON data with another value at one place; `...` removes it."""
    copy = json.loads(json.dumps(data))
    inner = copy
    for name in place[:-1]:
        inner = inner[name]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manifest.json", "checkpoints/epoch-00002/checkpoint.json"])
def test_every_edit_of_one_entry_is_refused_or_changes_no_release(keyed: Path, tmp_path: Path, name: str) -> None:
    file, picture = keyed / name, tmp_path / "one.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)).save(picture)
    data, outcomes = json.loads(file.read_text()), list[bool]()
    expected = predict(keyed, picture, weights="last").predictions[0]
    for place in places(data):
        for value in (..., 0, 7, -0.5, True, "x", None, [], {}):
            file.write_text(json.dumps(changed(data, place, value)))
            try:
                assert predict(keyed, picture, weights="last").predictions[0].release == expected.release, place
                outcomes.append(True)
            except AttncemError:
                outcomes.append(False)
    assert 0 < sum(outcomes) < len(outcomes), "some entries decide nothing, such as the time"


def test_without_its_key_an_edited_channel_is_known_by_the_seal(keyed: Path) -> None:
    (keyed / "noise.key").unlink()
    in_config("noise: keyed", "noise: fresh")(keyed)
    with pytest.raises(RunError, match=r"no keyed noise, but the seal of epoch-0000\d belongs"):
        open_run(keyed)


def test_a_wrong_seal_and_one_of_another_checkpoint_are_refused(keyed: Path) -> None:
    facts = [keyed / "checkpoints" / name / "checkpoint.json" for name in ("epoch-00001", "epoch-00002")]
    marks = [json.loads(file.read_text())["seal"] for file in facts]
    assert marks[0] != marks[1] and {len(mark) for mark in marks} == {64}
    for wrong in (marks[0], marks[1][:-1], marks[1] + "0", "é"):
        edit_json(facts[1], seal=wrong)
        with pytest.raises(RunError, match=r"the seal of \S+epoch-00002 does not fit"):
            open_run(keyed, weights="last")
    edit_json(facts[1], seal=3)
    with pytest.raises(RunError, match="seal must be text"):
        open_run(keyed, weights="last")


def test_a_run_of_the_last_version_is_audited_and_sealed_once(keyed: Path, tmp_path: Path, capfd: Any) -> None:
    before = released(keyed, tmp_path / "before")
    without_seals(keyed)
    opened = open_run(keyed)
    assert (opened.findings, opened.key_missing) == ([], False)
    assert audit(keyed, "quick", only=["grey"], progress=silent).subject.fingerprint == opened.fingerprint
    with pytest.raises(RunError, match=r"has no seal, .* seal the run once with attncem seal \S+keyed$"):
        predict(keyed, "test:0")
    assert main(["seal", str(keyed)]) == 0
    shown = capfd.readouterr().out
    assert "sealed epoch-00001, epoch-00002 with the channel name=gaussian noise=keyed noise_std=0.05" in shown
    assert torch.equal(released(keyed, tmp_path / "after"), before), "the key and its noise are the same"


def test_a_lost_key_is_replaced_only_on_request(keyed: Path, capfd: Any) -> None:
    assert main(["seal", str(keyed), "--new-key"]) == 2
    assert "noise.key exists and was not changed" in capfd.readouterr().err
    old = (keyed / "noise.key").read_bytes()
    (keyed / "noise.key").unlink()
    assert [item.code for item in open_run(keyed).findings] == ["key_missing"]
    assert main(["predict", str(keyed), "test:0"]) == 2
    assert "noise.key is missing" in capfd.readouterr().err
    assert main(["seal", str(keyed)]) == 2
    assert "make a new one with --new-key" in capfd.readouterr().err
    assert main(["seal", str(keyed), "--new-key"]) == 0
    assert (keyed / "noise.key").read_bytes() != old
    assert predict(keyed, "test:0").findings == []


@pytest.mark.parametrize("stops_at", range(4))
def test_a_kill_while_sealing_leaves_a_run_that_can_be_sealed(
    keyed: Path, stops_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (keyed / "noise.key").unlink()
    steps = iter(range(9))

    def stopping(write: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*arguments: Any) -> None:
            if next(steps) == stops_at:
                raise KeyboardInterrupt
            write(*arguments)

        return wrapped

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        for name in ("write_sealed", "write_private"):
            patched.setattr(releasing, name, stopping(getattr(releasing, name)))
        seal_run(keyed, with_new_key=True)
    assert open_run(keyed, weights="last").no_release
    seal_run(keyed, with_new_key=not (keyed / "noise.key").exists())
    assert not open_run(keyed, weights="last").no_release


def test_a_run_without_weights_or_in_training_is_not_sealed(keyed: Path) -> None:
    with RunDirectory.open(keyed).locked(), pytest.raises(RunError, match="is being trained by another process"):
        seal_run(keyed)
    shutil.rmtree(keyed / "checkpoints")
    with pytest.raises(RunError, match="there is nothing to seal"):
        seal_run(keyed)


def test_a_resume_refuses_an_edited_channel_and_seals_what_it_trains(keyed: Path) -> None:
    edit_json(keyed / "manifest.json", status="stopped")
    shutil.rmtree(keyed / "checkpoints" / "epoch-00002")
    edit_json(keyed / "best.json", checkpoint="epoch-00001")
    edited = Path(shutil.copytree(keyed, keyed.with_name("edited")))
    EDITS["less noise"][0](edited)
    with pytest.raises(RunError, match="does not fit"):
        train(resume=edited, progress=silent)
    assert not (edited / "checkpoints" / "epoch-00002").exists()
    without_seals(keyed)
    train(resume=keyed, progress=silent)
    assert not open_run(keyed, weights="last").no_release
    assert "has no seal" in open_run(keyed, weights="epoch-00001").no_release


def test_the_seal_is_an_hmac_of_the_facts_of_the_run(keyed: Path) -> None:
    run = RunDirectory.open(keyed)
    facts = run.load("best", optimizer=False).facts
    config, key = run.config, (keyed / "noise.key").read_bytes()
    covered = {
        "noise_scheme": 1,
        "channel": config.channel_options,
        "front_end": config.front_end_options,
        "fingerprint": open_run(keyed).fingerprint,
        "config_sha256": hash_file(keyed / "config.yaml"),
        "data": run.manifest["data"],
        "custom_network": False,
    }
    assert facts["seal"] == seals.sealed(key, covered)
    assert seals.sealed(bytes(range(32)), {"b": 1, "a": "é"}) == GOLDEN
    assert seals.KEY_BYTES == noise.SECRET_BYTES


GOLDEN = "101e9c4eb4752d5ec4c58ca627d30f299daa8fc3c71e07e8fb2d335788086cf7"
"""Seal of {"a": "é", "b": 1} under the key 00 01 … 1f: seals of written runs must stay valid."""


def test_fresh_runs_have_neither_key_nor_seal(fresh: Path) -> None:
    assert not (fresh / "noise.key").exists()
    assert "seal" not in RunDirectory.open(fresh).load("best", optimizer=False).facts
    (fresh / "noise.key").write_bytes(noise.new_key())
    with pytest.raises(RunError, match=r"its channel has no keyed noise, but noise\.key belongs to a keyed channel"):
        open_run(fresh)


def test_keyed_noise_is_the_same_in_every_batch_and_the_release_up_to_rounding(keyed: Path) -> None:
    opened = open_run(keyed)
    x = opened.data.test.get(slice(0, 60))[0]
    with torch.no_grad():
        z = torch.zeros_like(opened.model.encode(x))
        together, alone = (
            torch.cat([opened.model.transmit(z[:size], part) for part in x.split(size)]) for size in (60, 1)
        )
        assert torch.equal(together, alone), "noise alone"
        together, alone = (torch.cat([opened.model.release(part) for part in x.split(size)]) for size in (60, 1))
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


# the key file


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it must hold 32 bytes, not 0"),
        (bytes(range(31)), "it must hold 32 bytes, not 31"),
        (bytes(range(33)), "it must hold 32 bytes, not 33"),
        (bytes(32), "all of its bytes are equal"),
        (b"\xff" * 32, "all of its bytes are equal"),
    ],
)
def test_a_key_that_cannot_be_one_is_refused(keyed: Path, data: bytes, message: str) -> None:
    (keyed / "noise.key").write_bytes(data)
    for use in (lambda: open_run(keyed), lambda: seal_run(keyed)):
        with pytest.raises(RunError, match=rf"noise\.key is damaged: {message}"):
            use()


def test_another_key_does_not_fit_the_seal(keyed: Path) -> None:
    (keyed / "noise.key").write_bytes(noise.new_key())
    with pytest.raises(RunError, match=r"does not fit: noise\.key"):
        open_run(keyed)


@posix
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_key_that_is_open_to_others_is_refused_and_told(keyed: Path, mode: int) -> None:
    (keyed / "noise.key").chmod(mode)
    with pytest.raises(RunError, match=rf"open to other users \(mode {mode:04o}\).* run chmod 600 \S+noise\.key$"):
        predict(keyed, "test:0")
    (found,) = open_run(keyed).findings
    assert (found.code, found.values) == ("key_open", {"mode": f"{mode:04o}"})
    (caution,) = releasing.key_cautions(RunDirectory.open(keyed))
    assert f"mode {mode:04o}" in caution
    (keyed / "noise.key").chmod(0o400)
    assert releasing.key_cautions(RunDirectory.open(keyed)) == []
    assert predict(keyed, "test:0").findings == []


def test_modes_mean_nothing_on_windows(keyed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (keyed / "noise.key").chmod(0o666)
    monkeypatch.setattr(seals.os, "name", "nt")
    assert seals.open_mode(keyed / "noise.key") == ""


def test_a_key_for_an_encoder_is_checked() -> None:
    channel = {"name": "gaussian", "noise_std": 0.1, "noise": "keyed"}
    for key, message in ((bytes(32), "all of its bytes are equal"), (b"short", "must hold 32 bytes, not 5")):
        with pytest.raises(ConfigError, match=f"key: .*{message}"):
            open_encoder(torch.nn.Flatten(), data={"name": "fashion_mnist_mini"}, channel=channel, key=key)
