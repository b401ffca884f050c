"""The live page from a bundle made by hand: its facts, its policy, its words; what it refuses. Without torch."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from attncem.base.texts import speaking
from attncem.base.types import ConfigError, RunError
from attncem.cli.main import main
from attncem.deploy import browser
from attncem.deploy.browser import LICENSES, web_client
from attncem.deploy.serving.limits import Limits
from attncem.deploy.serving.running import Place, open_service
from attncem.live import app, sources
from attncem.live.facts import NAME, Example, LiveFacts, Shown, Stop, Stronger, open_shown, to_text
from attncem.live.page import page_of, policy_of, write_live
from attncem.live.sources import packaged_models, prepared
from attncem.records.judgement import Judgement
from attncem_edge.errors import BundleError
from bundles import make_bundle, server_half, weights

CLIENT = b"the client"
DECODER = b"a decoder"
KEYED = {"name": "gaussian", "noise_std": 0.1, "noise": "keyed"}
CODES = {"name": "quantise", "bits": 4, "low": -1.0, "high": 1.0}


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client for browsers of a few letters."""
    folder = tmp_path / "built"
    folder.mkdir()
    for name in (browser.SCRIPT, browser.WASM, browser.LICENSES):
        (folder / name).write_text(f"/* {name} */")
    monkeypatch.setattr(browser.web_client, "__defaults__", (folder,))


def bundle(folder: Path, **changes: Any) -> Path:
    """A bundle with a client."""
    files = {"server.onnx": server_half(weights()), "client.onnx": CLIENT, "card.json": b'{"use": "tests"}'}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    made = make_bundle(folder, **{"files": hashes, "audited": True, "audits": [{"id": "a"}], **changes})
    for name, data in files.items():
        (made / name).write_bytes(data)
    return made


def stop(releases: int, **changes: Any) -> Stop:
    facts: dict[str, Any] = {"row": "ridge", "mse": 0.0312, "low": 0.03, "high": 0.033, "images": 1000}
    return Stop(releases, **{"state": "shown", **facts, "floor": "class mean", "blind": 0.0624, **changes})


def facts_of(folder: Path, *stops: Stop, **changes: Any) -> LiveFacts:
    identity = json.loads((folder / "manifest.json").read_text())["identity"]
    return LiveFacts(
        identity, "set", [Example(7, 2, "cG5n")], list(stops), source="A Set, its maker", audits=["audit-1"], **changes
    )


@pytest.fixture
def packed(tmp_path: Path, built: None) -> Callable[..., Shown]:
    """A folder of --pack with these stops."""

    def make(*stops: Stop, changes: dict[str, Any] | None = None, **manifest: Any) -> Shown:
        folder = bundle(tmp_path / "packed", **manifest)
        shown = [it for it in stops if it.state == "shown"]
        files = {it.file: hashlib.sha256(DECODER).hexdigest() for it in shown}
        for name in files:
            (folder / name).write_bytes(DECODER)
        (folder / NAME).write_text(to_text(facts_of(folder, *stops, files=files, **(changes or {}))))
        return open_shown(folder)

    return make


def words_of(page: str) -> str:
    """What a visitor reads, in one line: without style, scripts and tags."""
    text = re.sub(r"<(style|script).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


# facts


def test_facts_are_read_as_they_were_written(packed: Callable[..., Shown]) -> None:
    shown = packed(stop(1, stronger=Stronger("white box", 0.02)), Stop(16, "not_audited", command="attncem audit x"))
    assert shown.facts.stops[0].stronger == Stronger("white box", 0.02)
    assert shown.facts.stops[1] == Stop(16, "not_audited", command="attncem audit x")
    assert shown.files == {"decoder-1.onnx": DECODER}


def test_a_changed_decoder_is_refused(packed: Callable[..., Shown]) -> None:
    shown = packed(stop(1))
    (shown.folder / "decoder-1.onnx").write_bytes(b"another")
    with pytest.raises(RunError, match=r"decoder-1\.onnx was changed after it was written"):
        _ = shown.files


def test_a_decoder_outside_of_the_folder_is_refused(packed: Callable[..., Shown]) -> None:
    shown = packed(stop(1))
    facts = replace(shown.facts, files={"../outside": "0" * 64})
    with pytest.raises(RunError, match="is no file name"):
        _ = replace(shown, facts=facts).files


def test_facts_of_another_bundle_are_refused(packed: Callable[..., Shown]) -> None:
    shown = packed(stop(1))
    (shown.folder / NAME).write_text(to_text(replace(shown.facts, identity="0" * 64)))
    with pytest.raises(RunError, match="belongs to another bundle"):
        open_shown(shown.folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"identity": 3}', '{"identity": NaN}', "[" * 100_000])
def test_damaged_facts_are_refused(packed: Callable[..., Shown], text: str) -> None:
    shown = packed(stop(1))
    (shown.folder / NAME).write_text(text)
    with pytest.raises(RunError, match="is damaged"):
        open_shown(shown.folder)


def test_a_changed_bundle_is_refused(packed: Callable[..., Shown]) -> None:
    shown = packed(stop(1))
    (shown.folder / "client.onnx").write_bytes(b"another client")
    with pytest.raises(BundleError, match=r"client\.onnx was changed"):
        open_shown(shown.folder)


# the page


def test_the_page_may_ask_nobody_or_only_its_server(packed: Callable[..., Shown]) -> None:
    shown = packed(stop(1))
    for offline, asked in ((True, "connect-src 'none'"), (False, "connect-src 'self'")):
        page = page_of(shown, offline=offline)
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
        assert policy.startswith("default-src 'none'") and asked in policy
        scripts = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
        assert policy == policy_of(scripts, offline=offline), "exactly the scripts of the page may run"
        assert policy != policy_of([*scripts[:-1], scripts[-1] + " "], offline=offline)
        assert "'unsafe-eval'" not in policy and "script-src 'unsafe-inline'" not in policy


def test_the_file_holds_everything_and_the_served_page_only_words(packed: Callable[..., Shown]) -> None:
    shown = packed(stop(1), stop(16))
    names = {"runtime.wasm", "client.onnx", "server.onnx", "decoder-1.onnx", "decoder-16.onnx"}
    assert set(re.findall(r'id="file-([^"]+)"', page_of(shown, offline=True))) == names
    assert "file-" not in page_of(shown, offline=False).replace("`file-${name}`", "")


def test_the_file_holds_the_licences_of_what_it_contains(packed: Callable[..., Shown]) -> None:
    shown, licences = packed(stop(1)), escape((web_client() / LICENSES).read_text(encoding="utf-8"))
    assert licences.strip() and str(licences) in page_of(shown, offline=True)
    assert str(licences) not in page_of(shown, offline=False), "there they lie beside the files"


def test_every_stop_says_what_was_audited_or_which_command_does_it(packed: Callable[..., Shown]) -> None:
    missing = Stop(16, "not_audited", command="attncem audit runs/x --only 'decoder global x16'")
    lost = Stop(256, "not_kept", row="ridge x256", stronger=Stronger("ridge x256", 0.01), command="attncem audit again")
    shown = packed(stop(1, reliable=False, stronger=Stronger("white box", 0.021)), missing, lost)
    assert "no better" not in words_of(page_of(shown, offline=True))
    words = words_of(page_of(shown, offline=True))
    assert "Test images (A Set, its maker)" in words
    assert "“ridge”, error (MSE) 0.0312 [0.0300, 0.0330] on 1,000 test images" in words
    assert "“class mean”, has 0.0624, so 50 % of its error remains" in words
    assert "not reliable" in words and "“white box”, error (MSE) 0.0210" in words
    assert "No audited attack for this number of releases: 16." in words and "decoder global x16" in words
    assert "was not kept" in words and "attncem audit again" in words


def test_an_attack_that_is_no_better_than_a_guess_is_called_so(packed: Callable[..., Shown]) -> None:
    words = words_of(page_of(packed(stop(1, blind=0.03)), offline=True))
    assert "no better than the best blind guess, “class mean”, which has 0.0300" in words


@pytest.mark.parametrize(("state", "tag"), [("reliable", "section"), ("not_enough", "header")])
def test_an_audit_that_cannot_tell_says_so_first(packed: Callable[..., Shown], state: Any, tag: str) -> None:
    page = page_of(packed(stop(1), changes={"judgement": Judgement(state)}), offline=True)
    (part,) = re.findall(rf"<{tag}[^>]*>(?:(?!</{tag}>).)*This audit is(?:(?!</{tag}>).)*</{tag}>", page, re.DOTALL)
    assert page.count("This audit is") == 1 and part


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [({"audited": False, "audits": []}, "Nothing was audited"), ({}, "There is no audited attack to show")],
)
def test_a_bundle_alone_shows_no_attack_and_says_why(
    tmp_path: Path, built: None, manifest: dict[str, Any], sentence: str
) -> None:
    shown = open_shown(bundle(tmp_path / "bundle", **manifest))
    assert [it.state for it in shown.facts.stops] == ["not_audited"] * 3
    assert "This command" not in words_of(page_of(shown, offline=True)), "there is none without the run"
    assert sentence in words_of(page_of(shown, offline=True))


@pytest.mark.parametrize(
    ("stage", "sentence"), [(KEYED, "noise of this channel is keyed"), (CODES, "adds no new noise")]
)
def test_a_channel_that_repeats_says_so(packed: Callable[..., Shown], stage: dict[str, Any], sentence: str) -> None:
    assert sentence in words_of(page_of(packed(stop(1), channel=[stage]), offline=True))


def test_a_channel_with_fresh_noise_says_nothing_of_repeating(packed: Callable[..., Shown]) -> None:
    assert "always gives the same release" not in words_of(page_of(packed(stop(1)), offline=True))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_page_calls_anything_safe(packed: Callable[..., Shown], language: str) -> None:
    with speaking(language):
        page = page_of(packed(stop(1), Stop(16, "not_audited", command="x")), offline=True)
    words = words_of(page) + page[page.index('id="words"') :][:6000]
    assert not re.search(r"\bsafe|\bsecure|安全", words, re.IGNORECASE)
    assert f'<html lang="{ {"en": "en", "zh": "zh-CN"}[language] }"' in page


def test_names_of_classes_end_no_script(packed: Callable[..., Shown]) -> None:
    name = "</script><script>alert(1)</script>"
    page = page_of(packed(stop(1), labels=["0", "1", name, "3", "4"]), offline=True)
    assert "<script>alert" not in page
    (data,) = re.findall(r'id="page-data">(.*?)</script>', page)
    assert json.loads(data)["labels"][2] == name


def test_what_looks_like_a_path_stays_in_the_data(packed: Callable[..., Shown]) -> None:
    mean = "/usr/lib/python" * 5
    page = page_of(packed(stop(1), changes={"mean": mean}), offline=True)
    (data,) = re.findall(r'id="page-data">(.*?)</script>', page)
    assert json.loads(data)["mean"] == mean


def test_a_page_of_others_is_not_overwritten(packed: Callable[..., Shown], tmp_path: Path) -> None:
    shown, out = packed(stop(1)), tmp_path / "page.html"
    assert write_live(shown, out).read_text() == write_live(shown, out).read_text()
    out.write_text("mine")
    with pytest.raises(RunError, match="was not written by attncem"):
        write_live(shown, out)


# what is shown


def test_a_name_of_the_package_is_a_folder_of_models(
    packed: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = packed(stop(1))
    monkeypatch.setattr(sources, "MODELS", shown.folder.parent)
    assert packaged_models() == ["packed"]
    with prepared("packed") as found:
        assert found.facts == shown.facts
    with pytest.raises(ConfigError, match="the package has packed; did you mean packed"):
        prepared("paked").__enter__()


def test_mistakes_are_named(packed: Callable[..., Shown], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(packed(stop(1)).folder)
    for words, complaint in {
        ("nothing",): "no run, no bundle of attncem export, and no model of the package",
        (folder, "--audit", "a"): "--audit: names audits of a run",
        (folder, "--out", "a.html", "--pack", "b"): "one of both",
        (folder, "--out", "."): "give the name of a file",
        (folder, "--pack", "b"): "is no run folder",
        (folder, "--port", "70000", "--no-browser"): "from 0 to 65535",
        (str(tmp_path),): "manifest.json is missing",
    }.items():
        assert main(["live", *words]) == 2, words
        assert complaint in capsys.readouterr().err


def test_without_the_client_for_browsers_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(browser.web_client, "__defaults__", (tmp_path,))
    assert main(["live", "runs/any"]) == 2
    assert "npm" in capsys.readouterr().err


def test_a_token_for_other_servers_does_not_close_the_page(
    packed: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNCEM_TOKEN", "a-token-of-sixteen-letters")
    served = list[Place]()
    monkeypatch.setattr(app, "serve", lambda bundles, place, *rest, **options: served.append(place))
    shown = packed(stop(1))
    app.show(shown, 0, lambda url: None)
    with closing(open_service([shown.folder], served[0], Limits())) as service:
        assert list(service.tokens) == []
    with closing(open_service([shown.folder], Place(), Limits())) as service:
        assert len(service.tokens) == 1, "any other server takes it"
