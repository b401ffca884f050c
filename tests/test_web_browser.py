"""The client for browsers in Chromium: pictures, features, answers of a server on another origin; no picture leaves."""

from __future__ import annotations

import base64
import io
import json
import re
import threading
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_bundles import LABELS, PRINT, SIDE, make_bundle, photo
from edge_bundles import pixels as random_pixels
from edge_golden import pattern
from PIL import Image

import hatch_build
from attncem_edge.client import Client, _softmax
from attncem_edge.manifest import ImageFacts
from attncem_edge.pictures import read_picture
from attncem_edge.wire import Request, make_request
from attncem_edge.wire import Server as Wire
from browsing import needs_browser, start_browser
from serving import serving
from web import encoded, needs_web

pytestmark = [needs_browser, needs_web]
DEPLOY = hatch_build.ROOT / "docs" / "deploy.md"
SCRIPT, WASM = "attncem-web.js", "ort-wasm-simd-threaded.wasm"
POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' http://127.0.0.1:*"
PAGE = (
    f'<!doctype html><title>test</title><link rel="icon" href="data:,"><script type="module" src="{SCRIPT}"></script>'
)
KINDS = {".js": "text/javascript", ".html": "text/html", ".wasm": "application/wasm"}


class Handler(BaseHTTPRequestHandler):
    def __init__(self, files: Mapping[str, bytes], *rest: Any) -> None:
        self.files = files
        super().__init__(*rest)

    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        self.send_response(200 if name in self.files else 404)
        self.send_header("Content-Type", KINDS.get(Path(name).suffix, "application/octet-stream"))
        if name == "page.html":
            self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(self.files.get(name, b""))

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def site(others: MutableMapping[str, bytes] | None = None) -> Iterator[str]:
    """The address of a page that holds the client, and of other files."""
    files = {name: (hatch_build.BUILT / name).read_bytes() for name in (SCRIPT, WASM)}
    files["page.html"] = PAGE.encode()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, files if others is None else ChainMap(files, others))
    )
    thread = threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Watched:
    """A page with the client, what it sent and what the console shows."""

    page: Any
    origin: str
    sent: list[tuple[str, str, bytes]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def run(self, script: str, *values: Any) -> Any:
        """What a script gives for these values; with `bytes` to read them."""
        start = "const bytes = (text) => Uint8Array.from(atob(text), (it) => it.charCodeAt(0));"
        return self.page.evaluate(f"async (values) => {{ {start} {script} }}", list(values))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def watched(browser: Any) -> Iterator[Watched]:
    with site() as origin:
        page = browser.new_page()
        watched = Watched(page, origin)
        page.on("request", lambda it: watched.sent.append((it.method, it.url, it.post_data_buffer or b"")))
        page.on("console", lambda message: watched.lines.append(message.text))
        page.on("pageerror", lambda error: watched.lines.append(str(error)))
        page.goto(f"{origin}/page.html")
        watched.run("await attncem.configure({wasm: new URL(values[0], location.href)});", WASM)
        yield watched


OPEN = """
  const [manifest, graph] = values;
  globalThis.client = await attncem.openClient({manifest, graph: bytes(graph)});
"""


def open_bundle(watched: Watched, folder: Path) -> None:
    watched.run(OPEN, (folder / "manifest.json").read_text(), encoded((folder / "client.onnx").read_bytes()))
    watched.sent.clear()


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(turn: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = turn
    return exif


def pictures() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    colours = [rng.integers(0, 256, (*size, 4), dtype=np.uint8) for size in ((21, 40), (64, 9), (8, 8), (3, 200))]
    modes = ("RGB", "RGBA", "L", "LA", "P", "1")
    images = {f"{mode} {row.shape[:2]}": Image.fromarray(row).convert(mode) for row in colours for mode in modes}
    upright = Image.fromarray(colours[0]).convert("RGB")
    return {
        **{name: saved(image, "PNG") for name, image in images.items()},
        **{f"bmp {row.shape[:2]}": saved(Image.fromarray(row).convert("RGB"), "BMP") for row in colours},
        **{f"png turned {turn}": saved(upright, "PNG", exif=turned(turn)) for turn in range(1, 9)},
        **{f"webp turned {turn}": saved(upright, "WEBP", lossless=True, exif=turned(turn)) for turn in (1, 6, 7)},
        "gif": saved(upright.convert("P"), "GIF"),
    }


def test_what_is_no_picture_is_refused(watched: Watched, tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle")
    open_bundle(watched, tmp_path / "bundle")
    script = """
      const files = [new File([], "empty.png"), new File([bytes(values[0])], "text.png")];
      const errors = [];
      for (const it of [...files, document.createElement("video")])
        errors.push(await client.pixels(it).then(() => "", (error) => String(error)));
      return errors;
    """
    empty, text, video = watched.run(script, encoded(b"no picture"))
    assert empty == "DataError: empty.png is empty; use another file"
    assert text.startswith("DataError: text.png cannot be read as an image: ")
    assert video == "DataError: the picture has no pixels yet"


PIXELS = """
  const made = [];
  for (const it of values[0]) {
    const {pixels, steps} = await client.pixels(new Blob([bytes(it)]));
    made.push([btoa(String.fromCharCode(...pixels)), steps]);
  }
  return made;
"""


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_have_the_pixels_of_pillow(watched: Watched, tmp_path: Path, channels: int) -> None:
    make_bundle(tmp_path / "bundle", image=ImageFacts(channels, SIDE, SIDE))
    open_bundle(watched, tmp_path / "bundle")
    files = pictures()
    made = watched.run(PIXELS, [encoded(it) for it in files.values()])
    for (name, data), (pixels, steps) in zip(files.items(), made, strict=True):
        (tmp_path / "picture").write_bytes(data)
        ours = read_picture(tmp_path / "picture", (channels, SIDE, SIDE))
        assert pixels == encoded(np.ascontiguousarray(ours.pixels)), name
        assert steps == [step for step in ours.steps if "grey" not in step or step in steps], name
    assert watched.sent == []


def test_photos_differ_by_their_decoder_alone(watched: Watched, tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle", image=ImageFacts(3, SIDE, SIDE))
    open_bundle(watched, tmp_path / "bundle")
    smooth = Image.fromarray(pattern(90, 70, 3)).resize((700, 900))
    files = [saved(smooth, "JPEG", quality=quality, exif=turned(turn)) for quality in (50, 95) for turn in (1, 3, 6, 8)]
    for data, (pixels, steps) in zip(files, watched.run(PIXELS, [encoded(it) for it in files]), strict=True):
        (tmp_path / "photo").write_bytes(data)
        ours = read_picture(tmp_path / "photo", (3, SIDE, SIDE))
        made = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(ours.pixels.shape)
        assert np.abs(made.astype(int) - ours.pixels).max() <= 2
        assert steps == ours.steps


def test_every_source_has_the_pixels_of_its_file(watched: Watched, tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle", image=ImageFacts(3, SIDE, SIDE))
    open_bundle(watched, tmp_path / "bundle")
    colours = np.random.default_rng(0).integers(0, 256, (20, 31, 3), dtype=np.uint8)
    data = saved(Image.fromarray(colours), "PNG")
    script = """
      const bitmap = await createImageBitmap(new Blob([bytes(values[0])]));
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
      const context = canvas.getContext("2d");
      context.drawImage(bitmap, 0, 0);
      const sources = [new File([bytes(values[0])], "a.png"), bitmap, canvas, context.getImageData(0, 0, 31, 20)];
      const made = [];
      for (const it of sources) made.push(btoa(String.fromCharCode(...(await client.pixels(it)).pixels)));
      return made;
    """
    (tmp_path / "picture.png").write_bytes(data)
    ours = encoded(np.ascontiguousarray(read_picture(tmp_path / "picture.png", (3, SIDE, SIDE)).pixels))
    assert watched.run(script, encoded(data)) == [ours] * 4


LOOK = "const {z, answers, onDevice} = await client.look(bytes(values[0])); return [[...z], [...answers], onDevice];"
PREDICT = """
  const [image, options] = values;
  const data = new Blob([bytes(image)]);
  const {released, ...made} = await client.predict(data, options).catch((error) => ({label: String(error)}));
  return {...made, released: released && [...released]};
"""


def test_features_are_those_of_the_edge_client(watched: Watched, tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle", threshold=0.525)
    open_bundle(watched, tmp_path / "bundle")
    client = Client(tmp_path / "bundle")
    for seed in range(20):
        image = random_pixels(seed)
        z, answers = client.look(image)
        assert answers is not None
        made, shares, on_device = watched.run(LOOK, encoded(image))
        np.testing.assert_allclose(made, z, rtol=0, atol=1e-5 * np.abs(z).max())
        np.testing.assert_allclose(shares, answers, rtol=0, atol=1e-5 * np.abs(answers).max())
        assert on_device == (_softmax(answers).max() > 0.525)


def test_a_server_on_another_origin_answers_and_no_picture_leaves(watched: Watched, tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle", threshold=0.525)
    open_bundle(watched, tmp_path / "bundle")
    files = [photo(tmp_path, seed) for seed in range(12)]
    options = ("--origin", watched.origin, "--origin", "https://elsewhere.example")
    with serving(tmp_path / "log", [tmp_path / "bundle"], *options, ATTNCEM_TOKEN="t" * 32) as server:
        url, on_device = f"http://{server.url}", 0
        client, wire = Client(tmp_path / "bundle"), Wire(url, token="t" * 32)
        for file in files:
            watched.sent.clear()
            made = watched.run(PREDICT, encoded(file.read_bytes()), {"url": url, "token": "t" * 32})
            check_sent(watched.sent, made, f"{url}/v2/models/small/infer")
            z, answers = client.look(np.ascontiguousarray(read_picture(file, (1, SIDE, SIDE)).pixels))
            logits = answers if made["onDevice"] else wire.ask("small", request_for(made["released"]), len(LABELS))
            assert answers is not None and logits is not None
            assert made["onDevice"] == (_softmax(answers).max() > 0.525)
            assert made["confidence"] == pytest.approx(_softmax(answers).max(), abs=1e-6)
            assert list(made["probabilities"].values()) == pytest.approx(_softmax(logits).tolist(), abs=1e-6)
            assert made["label"] == LABELS[logits.argmax()]
            assert made["onDevice"] or np.abs(np.array(made["released"]) - z).max() < 1
            on_device += made["onDevice"]
        wire.close()
        assert 0 < on_device < len(files)


def request_for(released: list[float]) -> Request:
    return make_request(np.array(released, np.float32), PRINT)


def check_sent(sent: list[tuple[str, str, bytes]], made: dict[str, Any], address: str) -> None:
    """Nothing was sent, or one request whose numbers are those of the release."""
    requests = [it for it in sent if it[0] != "OPTIONS"]
    if made["onDevice"]:
        assert (sent, made["bytesSent"], made.get("released")) == ([], 0, None)
        return
    ((verb, url, body),) = requests
    assert (verb, url, len(body)) == ("POST", address, made["bytesSent"])
    size = 4 * len(made["released"])
    assert np.frombuffer(body[-size:], "<f4").tolist() == made["released"]
    assert json.loads(body[:-size]).keys() == {"id", "parameters", "inputs", "outputs"}


def test_a_server_that_does_not_name_the_page_does_not_answer_it(watched: Watched, tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle")
    open_bundle(watched, tmp_path / "bundle")
    with serving(tmp_path / "log", [tmp_path / "bundle"], "--origin", "https://elsewhere.example") as server:
        options = {"url": f"http://{server.url}", "retries": 0}
        made = watched.run(PREDICT, encoded(photo(tmp_path).read_bytes()), options)
    assert made["label"].startswith(f"ServerError: http://{server.url} did not answer after 1 attempts: ")
    assert made["label"].endswith(f"if it runs, start it with attncem serve --origin {watched.origin}")
    watched.lines.clear()  # the browser writes why it did not ask


def test_the_page_of_the_documents_works(browser: Any, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    make_bundle(bundle)
    (example,) = re.findall(r"```html\n(.*?)```", DEPLOY.read_text(encoding="utf-8"), flags=re.DOTALL)
    files = {f"bundle/{name}": (bundle / name).read_bytes() for name in ("manifest.json", "client.onnx")}
    page = browser.new_page()
    with site(files) as origin, serving(tmp_path / "log", [bundle], "--origin", origin) as server:
        files["index.html"] = example.replace("http://127.0.0.1:8000", f"http://{server.url}").encode()
        page.goto(f"{origin}/index.html")
        page.wait_for_function("document.querySelector('input').onchange !== null")
        page.locator("input").set_input_files(photo(tmp_path))
        page.locator("p", has_text="bytes").wait_for()
        shown = page.locator("p").inner_text()
    page.close()
    assert re.fullmatch(rf"({'|'.join(LABELS)}) \(sent 348 bytes\)", shown)


def test_the_console_is_empty(watched: Watched) -> None:
    assert watched.lines == []
