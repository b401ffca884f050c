"""The client for browsers in node: its noise, channel, pixels, answers and requests are those of attncem-edge."""

from __future__ import annotations

import base64
import json
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_answering import LOGITS, Reply, answer_in_json, answering, drop, late, of_body, of_status
from edge_bundles import CLASSES, CODES, FEATURES, KEYED, PRINT, make_bundle, pixels
from edge_channels import EXAMPLES, WRONG, example
from edge_golden import GOLDEN, KEY, SECRET, pattern
from PIL import Image
from test_fuzz_edge import changed, write

from attncem_edge import noise
from attncem_edge.channel import Channel
from attncem_edge.client import Client, _softmax, open_session
from attncem_edge.decoding import TURNS
from attncem_edge.errors import BundleError
from attncem_edge.manifest import NAME, read_manifest
from attncem_edge.pictures import _coloured, _sized
from attncem_edge.wire import make_request
from web import answers_of, ask_web, encoded, needs_web, refusals

pytestmark = needs_web
LAWS = ("normal", "laplace", "uniform")
STAGES = (0, 1, 7)
MAP = (3, 6, 5)
Z = [0.5] * FEATURES
SPELT = {"noise_std=True": "noise_std=", "rate=1.0": "rate=1"}
"""How JavaScript writes values that Python writes otherwise."""


# noise


def test_noise_has_the_numbers_of_the_edge_client() -> None:
    cases = [(law, place) for law in LAWS for place in STAGES]
    made = ask_web(*(("draw", encoded(SECRET), law, 20_000, place) for law, place in cases))
    for (law, place), row in zip(cases, made, strict=True):
        np.testing.assert_allclose(row, noise.draw(SECRET, law, 20_000, place), rtol=1e-12, atol=0, err_msg=law)
        np.testing.assert_allclose(row[:6], GOLDEN["draws"][f"{law} {place}"][:6], rtol=1e-12, atol=0)


def test_keyed_secrets_have_the_same_bytes() -> None:
    parts = [("", 0, b""), ("ab" * 32, 3, bytes(range(256)) * 3), ("Ünder", 2, b"\x00\xff")]
    made = ask_web(*(("secret", encoded(KEY), name, place, encoded(data)) for name, place, data in parts))
    assert made == [encoded(noise.keyed_secret(KEY, *it)) for it in parts]


# channel


def compare_releases(chains: list[list[dict[str, Any]]], z: Any, **how: bytes) -> list[Any]:
    """Page and edge client release the same through each of these channels, with this secret or key; the releases."""
    options = {key: encoded(it) for key, it in how.items()}
    made = ask_web(*(("release", chain, PRINT, z.ravel().tolist(), z.shape, options) for chain in chains))
    for row, chain in zip(made, chains, strict=True):
        ours = Channel(chain, PRINT).release(z, how.get("pixels", b""), how.get("key"))
        np.testing.assert_array_equal(np.array(row, np.float32), ours.ravel(), err_msg=str(chain))
    return made


@pytest.mark.parametrize("shape", [MAP, (700,)])
def test_every_stage_releases_what_the_edge_client_releases(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "fresh_secret", lambda: SECRET)
    z = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    chains = [
        *([example(name)] for name in EXAMPLES),
        *([example(name, noise="keyed")] for name in EXAMPLES if "noise" in EXAMPLES[name]),
        *([example("shaped", tilt=tilt)] for tilt in (-2.5, 0, 3)),
        *([example("quantise", bits=bits, low=-0.3, high=0.7)] for bits in (1, 8, 16)),
        *([example("top_k", keep=keep)] for keep in (1e-9, 0.5, 1)),
        [example("dropout", rescale=False)],
        [example("gaussian", noise_std=0)],
        [
            example("gaussian", noise="keyed"),
            example("laplace"),
            example("quantise"),
            example("gaussian", noise="keyed"),
        ],
    ]
    compare_releases(chains, z, pixels=b"\x01\x02", key=KEY, secret=SECRET)


def test_releases_on_a_grid_have_the_numbers_of_the_edge_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "fresh_secret", lambda: SECRET)
    for size in (5, 8, 127, 129, 3000):
        z = np.random.default_rng(size).normal(size=size).astype(np.float32) * 3
        compare_releases([[example("local_dp", clip=2.5, noise_std=0.7)]], z, secret=SECRET)


def test_shaped_noise_has_the_committed_numbers() -> None:
    data = np.ascontiguousarray(pattern(12, 9, 3).transpose(2, 0, 1)).tobytes()
    chains = [[example("shaped", noise="keyed", noise_std=0.3, tilt=tilt)] for tilt in (1.0, -2.5)]
    made = compare_releases(chains, np.zeros((2, 6, 5), np.float32), pixels=data, key=KEY)
    assert made == [GOLDEN["shaped"]["1.0"], GOLDEN["shaped"]["-2.5"]]


def test_of_equal_numbers_the_first_are_kept() -> None:
    z = np.array([1, 0, -0.0, 1, 2, 0, 2, -1], np.float32)
    compare_releases([[example("top_k", keep=keep)] for keep in (0.1, 0.25, 0.4, 0.6, 0.9)], z)


def test_fresh_noise_differs_from_release_to_release() -> None:
    question = ("release", [example("gaussian")], PRINT, [0.0] * 8, [8], {})
    first, second = ask_web(question, question)
    assert not set(first) & set(second)


def test_a_stage_that_cannot_be_applied_is_refused() -> None:
    sentences = refusals(*(("channel", [wrong]) for wrong, _ in WRONG))
    for sentence, (wrong, words) in zip(sentences, WRONG, strict=True):
        assert sentence.startswith("BundleError: the channel of the bundle cannot be applied: "), wrong
        assert SPELT.get(words, words) in sentence, wrong


def test_another_scheme_of_noise_is_refused() -> None:
    (sentence,) = refusals(("channel", [example("gaussian")], 2))
    assert sentence == "BundleError: the bundle has noise of scheme 2, and this program draws scheme 1"


# pixels


def test_pixels_are_those_of_pillow() -> None:
    rng = np.random.default_rng(0)
    sizes = [(1, 1), (7, 3), (28, 28), (32, 32), (33, 90), (90, 33), (61, 47), (64, 64), (31, 200), (300, 220)]
    facts = [(3, 32, 32), (1, 28, 28), (3, 16, 40), (1, 9, 9)]
    cases = [(size, shape, squash) for size in sizes for shape in facts for squash in (False, True)]
    questions, wanted = [], []
    for (width, height), (channels, rows, columns), squash in cases:
        colours = rng.integers(0, 256, (height, width, 4), dtype=np.uint8)
        image = Image.fromarray(colours).convert("L" if channels == 1 else "RGB")
        picture = _sized(image, (channels, rows, columns), [], squash=squash)
        wanted.append(np.asarray(picture).reshape(rows, columns, channels).transpose(2, 0, 1))
        shape = {"channels": channels, "height": rows, "width": columns, "squash": squash}
        questions.append(("convert", encoded(colours), width, height, shape))
    for case, (made, _), ours in zip(cases, ask_web(*questions), wanted, strict=True):
        assert made == encoded(np.ascontiguousarray(ours)), case


def test_steps_are_those_of_the_edge_client() -> None:
    shape = {"channels": 1, "height": 8, "width": 8}
    colours = np.random.default_rng(0).integers(0, 256, (30, 40, 4), dtype=np.uint8)
    ((_, made),) = ask_web(("convert", encoded(colours), 40, 30, shape))
    steps: list[str] = []
    _sized(_coloured(Image.fromarray(colours), 1, steps), (1, 8, 8), steps, squash=False)
    assert made == steps and len(steps) == 4


def test_exif_orientations_turn_as_pillow_does(tmp_path: Path) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (11, 7, 4), dtype=np.uint8)
    colours[..., 3] = 255
    shapes = {turn: (7, 11) if turn < 5 else (11, 7) for turn in range(1, 9)}
    questions = [
        ("convert", encoded(colours), 7, 11, {"channels": 3, "width": width, "height": height}, turn)
        for turn, (width, height) in shapes.items()
    ]
    for turn, (made, steps) in zip(shapes, ask_web(*questions), strict=True):
        image = Image.fromarray(colours).convert("RGB")
        upright = image if turn == 1 else image.transpose(TURNS[turn])
        assert made == encoded(np.ascontiguousarray(np.asarray(upright).transpose(2, 0, 1))), turn
        assert steps == []


def test_orientations_are_read_from_files(tmp_path: Path) -> None:
    files = []
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        for ending in ("png", "jpg", "webp"):
            file = tmp_path / f"{turn}.{ending}"
            Image.fromarray(pattern(20, 30, 3)).save(file, exif=exif)
            files.append((turn, file))
    questions = [("orientation", encoded(file.read_bytes())) for _, file in files]
    assert ask_web(*questions) == [turn for turn, _ in files]
    cut = [("orientation", encoded(files[5][1].read_bytes()[:size])) for size in range(0, 200, 7)]
    assert set(ask_web(*cut)) <= {1, files[5][0]}, "a file that is cut short has an orientation or none"


# manifest


def test_identities_are_those_of_python(tmp_path: Path) -> None:
    manifest = make_bundle(
        tmp_path / "bundle",
        KEYED,
        labels=["cat", "dög 😀", 'a"\\\x7f\n'],
        nats={"1": 1.5, "16": 2e-7},
        checked={"images": 200, "a b": [1.0, -0.0, {}, [], None, True], "a": {"z": "}", "y": "]"}},
    )
    text = (tmp_path / "bundle" / "manifest.json").read_text()
    assert ask_web(("identity", text), ("manifest", text)) == [manifest.identity, manifest.name]


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"bundle": 2}, "has version 2 of the format, and this program reads 1"),
    ({"bundle": None}, "belongs to no bundle"),
    ({"more": 1}, "unknown keys more"),
    ({"name": "a b"}, "the value of name"),
    ({"fingerprint": "x"}, "the value of fingerprint"),
    ({"image": {"channels": 2, "height": 8, "width": 8}}, "the value of image"),
    ({"feature": {"shape": [0]}}, "the value of feature"),
    ({"feature": {"shape": [4], "low": 1, "high": 0}}, "the value of feature"),
    ({"labels": ["a", "a"]}, "the value of labels"),
    ({"channel": [{}]}, "the value of channel"),
    ({"files": {"client.onnx": "00"}}, "the value of files"),
    ({"decision": {"threshold": 2, "share": 0}}, "the value of decision"),
    ({"nats": {"1": -1}}, "the value of nats"),
    ({"audited": True}, "the value of audited"),
    ({"versions": {"torch": 2}}, "the value of versions"),
]


def test_manifests_that_cannot_be_are_refused(tmp_path: Path) -> None:
    facts = make_bundle(tmp_path / "bundle").facts
    assert ask_web(("manifest", facts)) == ["small"]
    sentences = refusals(*(("manifest", {**facts, **change}) for change, _ in CHANGES))
    for sentence, (change, words) in zip(sentences, CHANGES, strict=True):
        assert sentence.startswith("BundleError: manifest.json") and words in sentence, change
    text = (tmp_path / "bundle" / "manifest.json").read_text()
    changed, cut = refusals(("manifest", text.replace('"cat"', '"cow"')), ("manifest", text[:-9]))
    assert "BundleError: manifest.json was changed after the export" in changed
    assert "BundleError: manifest.json is damaged" in cut


def accepted(folder: Path) -> bool:
    """Whether the edge client takes the manifest and the channel of a bundle."""
    try:
        manifest = read_manifest(folder)
        Channel(manifest.channel, manifest.fingerprint, manifest.noise_scheme)
    except BundleError:
        return False
    return True


def test_any_manifest_is_accepted_or_refused_as_by_the_edge_client(tmp_path: Path) -> None:
    folder, chance = tmp_path / "bundle", random.Random(0)
    manifest = make_bundle(folder, KEYED, CODES, threshold=0.5, nats={"1": 1.0})
    texts, ours = [], []
    for _ in range(800):
        write(folder, {**manifest.facts, **changed(manifest.facts, chance)})
        texts.append((folder / NAME).read_text(encoding="utf-8", errors="surrogatepass"))
        ours.append(accepted(folder))
    answers = answers_of(*(("accept", text) for text in texts))
    for text, answer, right in zip(texts, answers, ours, strict=True):
        assert ("error" not in answer) == right, (text, answer)
        assert answer.get("error", "BundleError") == "BundleError", (text, answer)
    assert 20 < sum(ours) < 300


# client


@pytest.mark.parametrize("threshold", [None, 0.525])
def test_features_codes_and_decisions_of_200_images_are_those_of_the_edge_client(
    tmp_path: Path, threshold: float | None
) -> None:
    make_bundle(tmp_path / "bundle", CODES, threshold=threshold)
    client, images = Client(tmp_path / "bundle", url="http://127.0.0.1:9"), [pixels(seed) for seed in range(200)]
    place, names = str(tmp_path / "bundle"), [encoded(it) for it in images]
    looks, codes = ask_web(("look", place, names), ("releases", place, {}, names))
    for image, look, code in zip(images, looks, codes, strict=True):
        z, answers = client.look(image)
        np.testing.assert_allclose(look["z"], z, rtol=0, atol=1e-5 * np.abs(z).max())
        np.testing.assert_array_equal(np.array(code, np.float32), Channel([CODES], PRINT).release(z, b""))
        assert (look["answers"] is None, look["confidence"] is None) == (threshold is None,) * 2
        if answers is not None:
            np.testing.assert_allclose(look["answers"], answers, rtol=0, atol=1e-5 * np.abs(answers).max())
            assert look["onDevice"] == (_softmax(answers).max() > threshold)
    alone = sum(look["onDevice"] for look in looks)
    assert alone == 0 if threshold is None else 20 < alone < 180


def test_keyed_releases_are_those_of_the_edge_client(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle", KEYED)
    client, image = Client(tmp_path / "bundle"), pixels()
    ((made,),) = ask_web(("releases", str(tmp_path / "bundle"), {"key": encoded(KEY)}, [encoded(image)]))
    ours = Channel([KEYED], PRINT).release(client.look(image)[0], image.tobytes(), KEY)
    np.testing.assert_allclose(made, ours, rtol=1e-5)


def test_a_bundle_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    manifest = make_bundle(folder, KEYED)
    place, key = str(folder), encoded(KEY)
    ask_web(("open", place, {"key": key, "identity": manifest.identity}))
    make_bundle(tmp_path / "changed", KEYED)
    client = tmp_path / "changed" / "client.onnx"
    client.write_bytes(client.read_bytes() + b"x")
    make_bundle(tmp_path / "odd", {"name": "gaussian"})
    sentences = refusals(
        ("open", place, {}),
        ("open", place, {"key": encoded(bytes(32))}),
        ("open", place, {"key": key, "identity": "ab"}),
        ("open", str(client.parent), {"key": key}),
        ("open", str(tmp_path / "odd"), {}),
    )
    assert sentences[0].startswith("ConfigError: the bundle's noise is keyed: give the key of this device")
    assert sentences[1] == "ConfigError: key: must be 32 random bytes"
    assert sentences[2].endswith(f"its identity is {manifest.identity}, not ab")
    assert sentences[3].startswith("BundleError: client.onnx was changed after the export")
    assert sentences[4].startswith("BundleError: the channel of the bundle cannot be applied")


def test_any_graph_can_be_run_and_one_that_cannot_is_named(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle")
    server, names = tmp_path / "bundle" / "server.onnx", {"input": "z", "outputs": ["logits"]}
    z = np.random.default_rng(0).normal(size=(4, FEATURES)).astype(np.float32)
    (((made, dims),),) = ask_web(("graph", str(server), names, z.ravel().tolist(), z.shape))
    (ours,) = open_session(server.read_bytes(), "z", ["logits"], server)(z)
    assert dims == [4, CLASSES]
    np.testing.assert_allclose(made, ours.ravel(), rtol=1e-5, atol=1e-6)
    (tmp_path / "broken.onnx").write_bytes(b"no graph")
    broken, other, wrong = refusals(
        ("graph", str(tmp_path / "broken.onnx"), names, [], []),
        ("graph", str(server), {"input": "image", "outputs": ["z"], "file": "server.onnx"}, [], []),
        ("graph", str(server), names, [0.0] * 5, [1, 5]),
    )
    assert broken.startswith("BundleError: the graph cannot be run by onnxruntime: ")
    assert other == "BundleError: server.onnx must take image and give z: export the bundle again"
    assert wrong.startswith("BundleError: the graph cannot be run on [1, 5]: ")


# requests


def test_requests_are_the_bytes_of_the_edge_client(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle")
    z = np.random.default_rng(0).normal(size=FEATURES).astype(np.float32)
    ((body, headers),) = ask_web(("request", str(tmp_path / "bundle"), z.tolist()))
    ours = make_request(z, PRINT)
    assert headers == {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(ours.head),
    }
    head = json.loads(ours.body[: ours.head])

    data = base64.b64decode(body)
    mark = json.loads(data[: ours.head])["id"]
    assert data == ours.body.replace(head["id"].encode(), mark.encode()) and mark != head["id"]


def test_a_server_gets_the_same_bytes_at_every_attempt(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle")
    with answering(of_status(503), drop, answer_in_json) as server:
        (logits,) = ask_web(("ask", str(tmp_path / "bundle"), server.url, Z, {"token": "t" * 16}))
    assert logits == LOGITS.tolist()
    assert len(server.bodies) == 3 and len(set(server.bodies)) == 1
    assert server.headers[0]["Authorization"] == "Bearer " + "t" * 16
    assert server.z().tolist() == Z


PART = {"name": "logits", "datatype": "FP32", "shape": [1, CLASSES]}
BAD: list[tuple[Reply, str]] = [
    (of_status(401, "no token"), "ServerError: URL refused: status 401: no token"),
    (of_status(400, "a\nb\x00c"), "refused: status 400: a b c"),
    (of_status(429), "refused: status 429"),
    (of_status(404, "no such model"), "refused: status 404: no such model"),
    (of_body(b"{"), "URL gave an answer that cannot be read"),
    (of_body({"outputs": []}), "it has no logits"),
    (of_body({"id": "other", "outputs": [{**PART, "data": [1, 2, 3]}]}), "it answers another request"),
    (of_body({"outputs": [{**PART, "data": [1, 2]}]}), "logits have the wrong number"),
    (of_body({"outputs": [{**PART, "data": [1, 2, None]}]}), "logits are not numbers"),
    (of_body({"outputs": [{**PART, "shape": [1, 4], "data": [1, 2, 3, 4]}]}), "and the bundle has 3 labels"),
]
"""Answers of a server, and words of what the client says to them."""


def test_answers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle")
    with ExitStack() as stack:
        urls = [stack.enter_context(answering(reply)).url for reply, _ in BAD]
        busy = stack.enter_context(answering(*[of_status(502)] * 2)).url
        slow = stack.enter_context(answering(late(1))).url
        sentences = refusals(
            *(("ask", str(tmp_path / "bundle"), url, Z, {}) for url in urls),
            ("ask", str(tmp_path / "bundle"), busy, Z, {"retries": 1}),
            ("ask", str(tmp_path / "bundle"), slow, Z, {"retries": 0, "timeout": 0.1}),
        )
    for sentence, url, (_, words) in zip(sentences, urls, BAD, strict=False):
        assert words in sentence.replace(url, "URL"), words
    assert sentences[-2] == f"ServerError: {busy} did not answer after 2 attempts: status 502: busy"
    assert sentences[-1] == f"ServerError: {slow} did not answer after 1 attempts: no answer in time"


ADDRESSES = {
    "ftp://here": "must look like https://HOST:PORT",
    "127.0.0.1:8000": "must look like https://HOST:PORT",
    "https://host/?q=1": "must look like https://HOST:PORT",
    "https://name:word@host": "must hold no password",
    "http://example.org": "everyone on the way could read what is sent",
    "http://127.0.0.1.example.org": "everyone on the way could read what is sent",
}
"""Addresses that are refused before anything is sent, and words of the reason."""


def test_addresses_and_options_that_cannot_be_are_refused(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle")
    place, here = str(tmp_path / "bundle"), "http://127.0.0.1:9"
    options: list[dict[str, Any]] = [{"token": "two\nlines"}, {"timeout": 0}, {"retries": -1}]
    sentences = refusals(
        *(("ask", place, url, Z, {}) for url in ADDRESSES), *(("ask", place, here, Z, it) for it in options)
    )
    for sentence, words in zip(sentences, ADDRESSES.values(), strict=False):
        assert sentence.startswith("ConfigError: url") and words in sentence
    for sentence, words in zip(sentences[-3:], ("one line", "timeout=0", "retries=-1"), strict=True):
        assert sentence.startswith("ConfigError: ") and words in sentence
