"""The client: what leaves the device and what does not, keys, tampering, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_answering import answering, of_status
from edge_bundles import CODES, KEYED, LABELS, PRINT, client_graph, make_bundle, photo, pixels

from attncem_edge import Budget, BudgetSpent, BundleError, Client, ConfigError, DataError, ServerError
from attncem_edge.channel import Channel
from attncem_edge.command import main
from attncem_edge.device import noise_key
from attncem_edge.manifest import CLIENT, NAME, Manifest, read_manifest


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    make_bundle(tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("ATTNCEM_TOKEN", raising=False)
    monkeypatch.setattr("attncem_edge.wire._FIRST_PAUSE", 0.001)


# what is sent


def test_what_leaves_is_z_through_the_channel(bundle: Path, tmp_path: Path) -> None:
    with answering() as server, Client(bundle, url=server.url) as client:
        answer = client.predict(photo(tmp_path))
        assert (answer.label, answer.on_device, answer.bytes_sent) == ("dog", False, len(server.bodies[0]))
        assert list(answer.probabilities) == LABELS and sum(answer.probabilities.values()) == pytest.approx(1)
        for _ in range(300):
            client.predict(pixels())
        z, _ = client.look(pixels())
        noise = np.array([server.z(place) for place in range(1, 301)]) - z
    assert noise.std() == pytest.approx(0.1, rel=0.05) and abs(noise.mean()) < 0.01
    assert len({row.tobytes() for row in noise}) == 300


def test_keyed_noise_is_that_of_the_devices_key(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle", KEYED)
    with answering() as server:
        for device in ("one", "one", "other"):
            with Client(tmp_path / "bundle", url=server.url, device=tmp_path / device) as client:
                client.predict(pixels())
        z, _ = client.look(pixels())
        key = noise_key(tmp_path / "one")
    expected = Channel([KEYED], PRINT).release(z, pixels().tobytes(), key)
    assert np.array_equal(server.z(0), expected) and np.array_equal(server.z(1), expected)
    assert not np.array_equal(server.z(2), expected)
    assert (tmp_path / "one" / "noise.key").stat().st_mode & 0o777 == 0o600
    assert key not in b"".join(path.read_bytes() for path in (tmp_path / "bundle").iterdir())


def test_codes_leave_as_levels(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle", CODES)
    with answering() as server, Client(tmp_path / "bundle", url=server.url) as client:
        client.predict(pixels())
    assert set(np.round(server.z() * 3, 5)) <= {0.0, 1.0, 2.0, 3.0}


def test_a_sure_client_answers_itself(tmp_path: Path) -> None:
    make_bundle(tmp_path / "never", threshold=0.0)
    make_bundle(tmp_path / "always", threshold=1.0)
    with answering() as server:
        with Client(tmp_path / "never", url=server.url) as client:
            answer = client.predict(photo(tmp_path))
            assert answer.on_device and answer.bytes_sent == 0 and server.bodies == []
            assert answer.confidence == max(answer.probabilities.values())
        with Client(tmp_path / "always", url=server.url) as client:
            assert not client.predict(photo(tmp_path)).on_device and len(server.bodies) == 1
    alone = Client(tmp_path / "never")
    assert alone.predict(photo(tmp_path)).on_device
    with pytest.raises(ConfigError, match="has no url"):
        Client(tmp_path / "always").predict(photo(tmp_path))


def test_threads_share_a_client(bundle: Path) -> None:
    with answering() as server, Client(bundle, url=server.url) as client, ThreadPoolExecutor(8) as pool:
        labels = list(pool.map(lambda seed: client.predict(pixels(seed)).label, range(64)))
    assert labels == ["dog"] * 64 and len(server.bodies) == 64


def test_pixels_of_another_kind_are_refused(bundle: Path) -> None:
    for wrong in (pixels()[0], pixels().astype(np.float32), np.zeros((3, 8, 8), np.uint8)):
        with pytest.raises(DataError, match="the client takes uint8"):
            Client(bundle, url="http://127.0.0.1:1").predict(wrong)


# budgets


def test_a_spent_budget_lets_nothing_leave(bundle: Path, tmp_path: Path) -> None:
    with answering() as server, Client(bundle, url=server.url, budget=Budget(per_image=2, total=3)) as client:
        for _ in range(2):
            client.predict(pixels())
        with pytest.raises(BudgetSpent, match="this image is spent: 2 of 2 releases"):
            client.predict(pixels())
        client.predict(pixels(1))
        with pytest.raises(BudgetSpent, match="this device is spent: 3 of 3 releases"):
            client.predict(pixels(2))
        assert len(server.bodies) == 3


def test_a_retry_costs_nothing(bundle: Path) -> None:
    with answering(*[of_status(503)] * 3) as server:
        with Client(bundle, url=server.url, budget=Budget(per_image=1)) as client:
            client.predict(pixels())
        assert len(server.bodies) == 4


def test_a_request_that_failed_stays_counted(bundle: Path) -> None:
    """The server may have seen it."""
    with Client(bundle, url="http://127.0.0.1:1", retries=0, budget=Budget(per_image=1)) as client:
        with pytest.raises(ServerError):
            client.predict(pixels())
        with pytest.raises(BudgetSpent):
            client.predict(pixels())


@pytest.mark.parametrize("stage", [KEYED, CODES, {"name": "identity"}])
def test_what_repeats_is_counted_once(tmp_path: Path, stage: dict[str, Any]) -> None:
    make_bundle(tmp_path / "bundle", stage)
    with answering() as server:
        with Client(tmp_path / "bundle", url=server.url, budget=Budget(total=1)) as client:
            for _ in range(5):
                client.predict(pixels())
            with pytest.raises(BudgetSpent):
                client.predict(pixels(1))
        assert len({server.z(place).tobytes() for place in range(5)}) == 1


def test_another_key_or_runtime_is_another_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of two keys can be averaged, and two runtimes may compute two codes."""
    make_bundle(tmp_path / "keyed", KEYED)
    make_bundle(tmp_path / "codes", CODES)
    with answering() as server:
        for name, change in (("keyed", (tmp_path / "device" / "noise.key").unlink), ("codes", lambda: None)):
            options: dict[str, Any] = {"url": server.url, "device": tmp_path / "device"}
            budget = Budget(per_image=1, file=tmp_path / f"{name}.sqlite")
            Client(tmp_path / name, budget=budget, **options).predict(pixels())
            Client(tmp_path / name, budget=budget, **options).predict(pixels())
            change()
            if name == "codes":
                monkeypatch.setattr("onnxruntime.__version__", "99")
            with pytest.raises(BudgetSpent):
                Client(tmp_path / name, budget=budget, **options).predict(pixels())


def test_a_budget_in_nats_costs_what_was_audited(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle", nats={"1": 0.5, "4": 1.0})
    budget = Budget(per_image=1.5, unit="nats")
    with answering() as server, Client(tmp_path / "bundle", url=server.url, budget=budget) as client:
        for _ in range(5):
            client.predict(pixels())
        with pytest.raises(BudgetSpent, match=r"1\.5 of 1\.5 nats, and this release costs 0\.5"):
            client.predict(pixels())
    make_bundle(tmp_path / "unaudited")
    with pytest.raises(ConfigError, match="no audited limit in nats"):
        Client(tmp_path / "unaudited", budget=Budget(per_image=1, unit="nats"))


# a bundle that was changed


def changed(folder: Path, **facts: Any) -> Path:
    """Change a manifest as somebody does who knows how its identity is made."""
    (folder / NAME).write_text(replace(read_manifest(folder), **facts).to_text())
    return folder


def test_a_changed_bundle_is_refused(bundle: Path) -> None:
    identity = read_manifest(bundle).identity
    text = (bundle / NAME).read_text()
    for old, new in (('"noise_std": 0.1', '"noise_std": 0.0'), ('"small"', '"other"'), (PRINT, "cd" * 32)):
        (bundle / NAME).write_text(text.replace(old, new))
        with pytest.raises(BundleError, match="was changed after the export"):
            Client(bundle)
    (bundle / NAME).write_text(text)
    (bundle / CLIENT).write_bytes((bundle / CLIENT).read_bytes() + b"\0")
    with pytest.raises(BundleError, match=r"client\.onnx was changed after the export"):
        Client(bundle)
    (bundle / CLIENT).unlink()
    with pytest.raises(BundleError, match=r"client\.onnx is missing"):
        Client(bundle)
    (bundle / CLIENT).write_bytes(client_graph(head=False))
    Client(bundle, identity=identity)
    changed(bundle, channel=[{"name": "identity"}])
    assert Client(bundle).manifest.channel == [{"name": "identity"}], "nothing but its identity shows this"
    with pytest.raises(BundleError, match="is another bundle: its identity is"):
        Client(bundle, identity=identity)


WRONG: dict[str, Any] = {
    "name": ["", "a/b", "..", 7, "a" * 101],
    "fingerprint": ["", "ab", 7],
    "labels": [[], ["a", "a"], [1], "abc"],
    "channel": [[7], {"name": "identity"}, [{"name": 3}], [{}]],
    "files": [{"client.onnx": "x"}, []],
    "noise_scheme": ["1", True],
    "front_end": [[]],
    "nats": [{"x": 1.0}, {"1": -1.0}, {"1": "many"}],
    "audits": [{}, [7], [{}]],
    "audited": [True, None, 0],
    "checked": [[]],
    "versions": [{"a": 1}],
}


@pytest.mark.parametrize("key", WRONG)
def test_values_that_cannot_be_are_refused(bundle: Path, key: str) -> None:
    for value in WRONG[key]:
        manifest = changed_facts(bundle, key, value)
        with pytest.raises(BundleError, match=r"damaged|changed"):
            read_manifest(manifest)


def changed_facts(bundle: Path, key: str, value: Any) -> Path:
    """A bundle whose manifest has another value, with an identity that fits it."""
    folder = bundle.with_name("changed")
    folder.mkdir(exist_ok=True)
    facts = {**read_manifest(bundle).facts, key: value}
    whole = Manifest(**facts)
    (folder / NAME).write_text(json.dumps({**facts, "identity": whole.identity}))
    return folder


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "damaged"),
        ("[]", "no version"),
        ("{}", "no version"),
        ('{"bundle": 2}', "version 2 of the format"),
        ('{"bundle": 1}', "damaged"),
        ('{"bundle": 1, "more": 1}', "unknown keys more"),
        ('{"bundle": true}', "no version"),
        ("[" * 100_000, "damaged"),
        (" " * (1 << 20) + "{}", "more than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(BundleError, match=words):
        read_manifest(tmp_path)


def test_a_folder_without_a_manifest_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="attncem export RUN"):
        Client(tmp_path)


def test_a_client_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle", threshold=0.5)
    changed(tmp_path / "bundle", decision=None)
    with pytest.raises(BundleError, match="must take image and give z:"):
        Client(tmp_path / "bundle")


# the device


def test_a_key_that_others_can_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    key = noise_key(tmp_path)
    assert noise_key(tmp_path) == key and len(key) == 32
    (tmp_path / "noise.key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        noise_key(tmp_path)
    (tmp_path / "noise.key").chmod(0o600)
    for wrong in (b"", bytes(32), b"short"):
        (tmp_path / "noise.key").write_bytes(wrong)
        with pytest.raises(ConfigError, match="is no key"):
            noise_key(tmp_path)


def test_many_threads_make_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: noise_key(tmp_path), range(32)))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["noise.key"]


# the command


def asked(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_command_labels_pictures(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("secret\n")
    with answering() as server:
        common = ("predict", bundle, photo(tmp_path), "--url", server.url, "--token-file", tmp_path / "token")
        code, out, _ = asked(capsys, *common)
        assert code == 0 and "photo0.png: dog " in out and f"(sent {len(server.bodies[0])} bytes)" in out
        assert server.headers[0]["Authorization"] == "Bearer secret"
        code, out, _ = asked(capsys, *common, "--json")
        assert json.loads(out)["label"] == "dog" and json.loads(out)["on_device"] is False
        code, _, err = asked(capsys, *common[:3], *common[2:], "--per-image", "1")
        assert code == 2 and "the budget of this image is spent" in err and "Traceback" not in err


def test_the_token_may_come_from_the_environment(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNCEM_TOKEN", "other")
    with answering() as server, Client(bundle, url=server.url) as client:
        client.predict(pixels())
        assert server.headers[0]["Authorization"] == "Bearer other"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("nowhere", "p.png"), "nowhere is no bundle"),
        (("BUNDLE", "p.png", "--url", "http://127.0.0.1:1"), "p.png is not there"),
        (("BUNDLE", "PHOTO"), "has no url"),
        (("BUNDLE", "PHOTO", "--timeout", "3"), "without url"),
        (("BUNDLE", "PHOTO", "--url", "http://example.org"), "--plain-http"),
        (("BUNDLE", "PHOTO", "--url", "https://example.org", "--token-file", "no"), "no: No such file"),
        (("BUNDLE", "PHOTO", "--unit", "nats"), "--unit needs a budget"),
        (("BUNDLE", "PHOTO", "--per-image", "0"), "each a number above 0"),
        (("BUNDLE", "PHOTO", "--per-image", "1", "--unit", "nats"), "no audited limit"),
        (("BUNDLE", "PHOTO", "--identity", "ab"), "another bundle"),
        (("BUNDLE", "PHOTO", "--url", "http://127.0.0.1:1", "--retries", "0"), "did not answer after 1"),
    ],
)
def test_a_mistake_is_one_line(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    places = {"BUNDLE": bundle, "PHOTO": photo(tmp_path)}
    code, out, err = asked(capsys, "predict", *(places.get(word, word) for word in words))
    assert (code, out) == (2, "") and reason in err and err.count("\n") == 1 and err.startswith("attncem-edge: error: ")


def test_importing_the_package_imports_no_torch_and_nothing_slow() -> None:
    program = (
        "import sys, attncem_edge, attncem_edge.command\n"
        "heavy = {'torch', 'onnxruntime', 'scipy', 'attncem', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert set(attncem_edge.__all__) == set(attncem_edge._HOME)\n"
        "assert all(getattr(attncem_edge, name) for name in attncem_edge.__all__)\n"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True)
