"""The live page in a real browser: what leaves it, what it rebuilds, its stops, its camera, its file, its looks."""

from __future__ import annotations

import base64
import http.client
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from attncem.base.texts import speaking
from attncem.deploy.exporting import export
from attncem.judging.auditing.kept import kept_attack
from attncem.live.facts import open_shown
from attncem.live.page import write_live
from attncem.records.ledger import ledgers
from attncem_edge import Client
from browsing import BROWSER, CONTRAST, SCREENS, lacking, needs_browser
from live_packs import ATTACKS, SENSIBLE, Watched, audited, packed, showing

pytestmark = [pytest.mark.slow, needs_browser]
KEYED = {"channel": [{"name": "gaussian", "noise_std": 0.05, "noise": "keyed"}]}


@pytest.fixture(scope="module")
def run(small_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audited(small_run("demo", **SENSIBLE), tmp_path_factory.mktemp("live") / "run")


@pytest.fixture(scope="module")
def folder(run: Path) -> Path:
    return packed(run, run.parent / "pack")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with showing(folder) as url:
        yield url


@pytest.fixture(scope="module")
def selective(small_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("selective")
    trained = small_run("demo-selective", **SENSIBLE)
    return packed(audited(trained, place / "run", ridge=ATTACKS["ridge"]), place / "pack")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    assert lacking() == ""
    from playwright.sync_api import sync_playwright

    camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    with sync_playwright() as player:
        started = player.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", *camera])
        yield started
        started.close()


@pytest.fixture
def watched(chromium: Any) -> Iterator[Watched]:
    """A page that must end without a word in the console."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, permissions=["camera"])
    made = Watched(context)
    yield made
    assert made.said == []
    context.close()


def pictures_of(folder: Path) -> list[np.ndarray[Any, Any]]:
    """The pixels of the examples, [H, W]."""
    files = [base64.b64decode(it.png) for it in open_shown(folder).facts.examples]
    return [np.asarray(Image.open(io.BytesIO(file))) for file in files]


def forms(pixels: np.ndarray[Any, Any]) -> list[bytes]:
    """A line of pixels that is no plain background, in the forms in which it could leave."""
    line = max(pixels, key=lambda it: len(set(it.tolist())))
    floats = (line / np.float32(255)).astype(np.float32)
    texts = (json.dumps(line.tolist()), json.dumps(line.tolist(), separators=(",", ":")))
    raw = [
        line.tobytes(),
        floats.astype("<f4").tobytes(),
        floats.astype("<f8").tobytes(),
        floats.astype("<f2").tobytes(),
    ]
    return [*raw, *(text.strip("[]").encode() for text in texts), b"\x89PNG", b"IDAT", b"\xff\xd8\xff", b"data:image"]


def test_only_the_release_leaves_and_no_request_carries_pixels(watched: Watched, address: str, folder: Path) -> None:
    watched.go(address)
    for number in range(5):
        watched.see(watched.page.locator(".example").nth(number).click)
    bodies = watched.sent
    assert len(bodies) == 6, "one request for each picture, and nothing else has a body"
    sizes = {it.url for it in watched.requests if it.method == "POST"}
    assert sizes == {f"{address}v2/models/{open_shown(folder).manifest.name}/infer"}
    assert all(it.url.startswith(address) for it in watched.requests if not it.url.startswith("data:"))
    secrets = [form for pixels in pictures_of(folder)[:5] for form in forms(pixels)]
    texts = [it.url.encode() + json.dumps(it.headers).encode() for it in watched.requests if it.url.startswith(address)]
    assert [form for form in secrets for body in (*bodies, *texts) if form in body] == []
    assert watched.page.locator("#bytes").inner_text() == f"{sum(map(len, bodies)):,}"
    assert "Releases sent: 6." in watched.page.locator("#count-note").inner_text()


def test_what_is_searched_for_would_be_there(folder: Path) -> None:
    """The search of the test above finds pixels in every form."""
    pixels = pictures_of(folder)[0]
    floats = (pixels / np.float32(255)).astype(np.float32)
    bodies = [pixels.tobytes(), floats.tobytes(), json.dumps(pixels.tolist()).encode(), floats.astype("<f8").tobytes()]
    assert all(any(form in body for form in forms(pixels)) for body in bodies)


@torch.no_grad()
def rebuilt(run: Path, row: str, z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the audit's attack rebuilds of one z, by torch."""
    (ledger,) = ledgers(run / "audits")
    released = torch.from_numpy(z)[None]
    attack = kept_attack(ledger, ledger.result().row(row), released)
    assert attack is not None
    return attack.reconstruct(released)[0].numpy()


def test_what_is_rebuilt_is_what_the_audited_attack_rebuilds(
    watched: Watched, address: str, run: Path, folder: Path
) -> None:
    shape = open_shown(folder).manifest.feature.shape
    watched.go(address)
    watched.page.locator("#stop").press("ArrowRight")
    watched.page.locator("#rebuilt-note", has_text="ridge x16").wait_for()
    for file, row in (("decoder-1.onnx", "ridge"), ("decoder-16.onnx", "ridge x16")):
        (made,) = watched.computed(file)
        expected = rebuilt(run, row, np.array(made["input"], np.float32).reshape(shape))
        assert np.abs(np.array(made["output"]) - expected.ravel()).max() < 1e-3
    shown = np.array(watched.pixels("rebuilt")) / 255
    assert np.abs(shown - expected[0].ravel()).max() < 0.5 / 255 + 1e-3, "and the canvas shows it"
    note = watched.page.locator("#rebuilt-note").inner_text()
    error = np.square(expected[0] - pictures_of(folder)[0] / 255).mean()
    assert f"{error:.4f}" in note, note


def test_the_first_release_of_an_average_is_the_one_that_was_sent(watched: Watched, address: str, folder: Path) -> None:
    watched.go(address)
    watched.page.locator("#stop").press("ArrowRight")
    watched.page.locator("#rebuilt-note", has_text="ridge x16").wait_for()
    (one,), (sixteen,) = watched.computed("decoder-1.onnx"), watched.computed("decoder-16.onnx")
    assert len(watched.sent) == 1, "the others are drawn in the page"
    assert watched.sent[0].endswith(np.array(one["input"], "<f4").tobytes())
    shown, pixels = open_shown(folder), pictures_of(folder)[0]
    with Client(shown.folder) as client:
        z = client.look(pixels[None])[0]
    noise = shown.manifest.channel[0]["noise_std"]
    apart = [np.array(it["input"]) - z.ravel() for it in (one, sixteen)]
    assert [float(it.std()) for it in apart] == pytest.approx([noise, noise / 4], rel=0.35)


def test_stops_are_reached_by_keyboard_and_a_missing_one_names_its_command(watched: Watched, address: str) -> None:
    watched.go(address)
    watched.page.locator("#stop").focus()
    for key, releases in (("ArrowRight", 16), ("ArrowRight", 256), ("Home", 1), ("End", 256)):
        watched.page.keyboard.press(key)
        assert watched.page.locator("#stop").get_attribute("aria-valuetext") == f"Releases: {releases}"
    assert watched.page.locator(".stop:visible pre").inner_text().startswith("attncem audit ")
    assert watched.page.locator("#no-attack").inner_text() == "No audited attack to show"
    assert not watched.page.locator("#rebuilt").is_visible()


def test_examples_are_one_stop_of_the_tabulator_and_arrows_go_on(watched: Watched, address: str) -> None:
    watched.go(address)
    first, second = (watched.page.locator(".example").nth(place) for place in (0, 1))
    first.focus()
    watched.page.keyboard.press("ArrowRight")
    assert second.evaluate("it => it === document.activeElement")
    watched.see(lambda: watched.page.keyboard.press("Enter"))
    assert second.get_attribute("aria-pressed") == "true" and first.get_attribute("aria-pressed") == "false"
    assert watched.page.locator(".example[tabindex='0']").count() == 1


def test_what_is_shown_belongs_to_the_last_picture_however_fast_they_come(watched: Watched, address: str) -> None:
    watched.go(address)
    buttons = watched.page.locator(".example").all()
    watched.see(lambda: [button.click(no_wait_after=True) for button in buttons])  # type: ignore[func-returns-value]
    assert watched.page.locator(".card.stale").count() == 0
    assert buttons[-1].get_attribute("data-label") in watched.page.locator("#picture-note").inner_text()
    made = watched.computed("decoder-1.onnx")[-1]
    assert watched.sent[-1].endswith(np.array(made["input"], "<f4").tobytes())
    shown = np.array(watched.pixels("rebuilt")) / 255
    assert np.abs(shown - np.clip(made["output"], 0, 1)).max() < 0.5 / 255 + 1e-6


def test_nothing_is_sent_where_the_client_answers(watched: Watched, selective: Path) -> None:
    with showing(selective) as address:
        watched.go(address)
        kept = sent = 0
        for button in watched.page.locator(".example").all():
            before = len(watched.sent)
            watched.see(button.click)
            nothing = watched.page.locator("#nothing").is_visible()
            assert len(watched.sent) - before == (0 if nothing else 1)
            assert watched.page.locator("#no-attack").is_visible() == nothing
            assert watched.page.locator("#sent").is_visible() != nothing
            kept, sent = kept + nothing, sent + (not nothing)
        assert kept > 0 and sent > 0, "both happen among the examples"


def test_a_picture_comes_from_a_file_a_drop_a_paste_and_the_camera(
    watched: Watched, address: str, tmp_path: Path
) -> None:
    photo = tmp_path / "photo.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (90, 120, 3), np.uint8)).save(photo)
    watched.go(address)
    watched.see(lambda: watched.page.locator("#file").set_input_files(photo))
    note = watched.page.locator("#picture-note")
    assert "cropped to the middle 90x90 of 120x90 px" in note.inner_text() and "No test image" in note.inner_text()
    data = base64.b64encode(photo.read_bytes()).decode()
    for kind, files in (("drop", "dataTransfer"), ("paste", "clipboardData")):
        watched.see(watched.page.locator(".example").first.click)
        watched.see(lambda kind=kind, files=files: watched.page.evaluate(GIVING, [kind, files, data]))  # type: ignore[misc]
        assert "cropped to the middle 90x90" in note.inner_text(), kind
    watched.page.locator("#camera").click()
    watched.page.locator("#video").wait_for()
    before = len(watched.sent)
    watched.page.wait_for_timeout(800)
    watched.see(watched.page.locator("#take").click)
    assert "of 640x480 px" in note.inner_text() and len(watched.sent) == before + 1
    watched.page.locator("#camera").click()
    assert not watched.page.locator("#stage").is_visible()


GIVING = """([kind, files, data]) => {
  const transfer = new DataTransfer();
  const bytes = Uint8Array.from(atob(data), (it) => it.charCodeAt(0));
  transfer.items.add(new File([bytes], "photo.jpg", { type: "image/jpeg" }));
  const event = kind === "drop" ? new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true })
    : new ClipboardEvent(kind, { clipboardData: transfer, bubbles: true });
  document.body.dispatchEvent(event);
}"""


def test_a_bundle_alone_asks_for_a_picture_and_answers(watched: Watched, run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "bundle")
    file = write_live(open_shown(tmp_path / "bundle"), tmp_path / "page.html")
    photo = tmp_path / "photo.png"
    Image.fromarray(np.full((28, 28), 90, np.uint8)).save(photo)
    watched.page.goto(file.as_uri())
    watched.page.locator("#status", has_text="Take, open, drop or paste a picture.").wait_for()
    watched.see(lambda: watched.page.locator("#file").set_input_files(photo))
    assert watched.page.locator("#answer li").count() == 5
    assert watched.page.locator("#no-attack").inner_text() == "No audited attack to show"
    assert watched.page.locator("#blind-note").inner_text() == "No blind guess to show."


def test_a_file_that_is_no_picture_is_named_and_the_page_goes_on(
    watched: Watched, address: str, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    watched.go(address)
    watched.page.locator("#file").set_input_files(broken)
    watched.page.locator("#status", has_text="broken.png").wait_for()
    watched.see(watched.page.locator(".example").nth(1).click)


def test_a_server_that_is_gone_is_named(watched: Watched, folder: Path) -> None:
    with showing(folder) as address:
        watched.go(address)
    watched.page.locator(".example").nth(1).click()
    watched.page.locator("#status", has_text="That did not work").wait_for(timeout=30_000)
    assert all("ERR_CONNECTION_REFUSED" in line for line in watched.said), watched.said
    watched.said.clear()


def test_keyed_noise_shows_nothing_new(
    watched: Watched, small_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("keyed")
    folder = packed(audited(small_run("demo", **KEYED, **SENSIBLE), place / "run"), place / "pack")
    page = write_live(open_shown(folder), place / "page.html")
    watched.go(page.as_uri())
    watched.page.locator("#stop").press("ArrowRight")
    watched.page.locator("#rebuilt-note", has_text="ridge x16").wait_for()
    (one,), (sixteen,) = watched.computed("decoder-1.onnx"), watched.computed("decoder-16.onnx")
    assert one["input"] == sixteen["input"]
    assert "More releases of it show nothing new" in watched.page.locator("main").inner_text()


def test_the_file_works_without_a_network(chromium: Any, folder: Path, tmp_path: Path) -> None:
    file = write_live(open_shown(folder), tmp_path / "page.html")
    watched = Watched(chromium.new_context(offline=True))
    watched.go(file.as_uri())
    watched.see(watched.page.locator(".example").nth(3).click)
    assert [it.url for it in watched.requests if not it.url.startswith("data:")] == [file.as_uri()]
    assert watched.page.locator("#bytes").inner_text() == "0"
    assert "the server half too" in watched.page.locator("header").inner_text()
    assert "0." in watched.page.locator("#rebuilt-note").inner_text()
    refused = "fetch('https://example.org').then(() => 'asked', () => 'refused')"
    assert watched.page.evaluate(refused) == "refused"
    assert any("Content Security Policy" in line for line in watched.said), "by the policy, not by the missing network"
    watched.context.close()


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
def test_nothing_lies_off_any_screen(
    chromium: Any, folder: Path, tmp_path: Path, language: str, width: int, height: int, scheme: str
) -> None:
    with speaking(language):
        file = write_live(open_shown(folder), tmp_path / "page.html")
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    watched = Watched(context)
    watched.page.goto(file.as_uri())
    watched.page.locator("#rebuilt-note", has_text="0.").wait_for(timeout=60_000)
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    for card in watched.page.locator(".card").all():
        box = card.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
    if width > 1000:
        box = watched.page.locator("#card-rebuilt").bounding_box()
        assert box["y"] + box["height"] <= height, "the slider and all pictures are on the first screen"
    page, contrast = watched.page.evaluate(CONTRAST)
    assert (page < 0.5) == (scheme == "dark") and contrast > 7
    assert watched.said == []
    context.close()


def test_another_site_cannot_ask_through_a_name_of_its_own(address: str) -> None:
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    for name, status in (("evil.example", 400), (f"localhost:{port}", 200)):
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("GET", "/", headers={"Host": name})
        answer = connection.getresponse()
        assert answer.status == status
        assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        connection.close()
