"""The live page as one HTML file: with all files inside, or for a server on this machine that holds them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from attncem import __version__
from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.deploy.browser import LICENSES, SCRIPT, WASM, web_client
from attncem.live.facts import Shown, Stop
from attncem.reporting import answers, html, wording
from attncem_edge.channel import Channel
from attncem_edge.manifest import CLIENT, NAME, SERVER

RUNTIME = "runtime.wasm"
"""The name by which the page asks for onnxruntime's WebAssembly."""
_OWN = Path(html.__file__).with_name("live.js")
_GUESSES = ("mean_image", "class_mean")


@dataclass(frozen=True)
class StopWords:
    """One stop as the page shows it; `command` makes what is missing."""

    releases: int
    shown: bool
    sentence: str
    notes: list[str]
    command: str


def files_of(shown: Shown, *, offline: bool) -> dict[str, bytes]:
    """The files that the page loads, by name; without a server also the server half."""
    runtime = (web_client() / WASM).read_bytes()
    halves = (CLIENT, SERVER) if offline else (CLIENT,)
    return {RUNTIME: runtime, **{name: (shown.folder / name).read_bytes() for name in halves}, **shown.files}


def page_of(shown: Shown, *, offline: bool) -> str:
    """The page; ``offline``: it holds all its files and may ask nobody."""
    scripts = [(web_client() / SCRIPT).read_text(encoding="utf-8"), _OWN.read_text(encoding="utf-8")]
    assert not any("</script" in script.lower() for script in scripts), "a script would end the page's script"
    return html.render(_context(shown, scripts, offline=offline), "live.html.j2")


def write_live(shown: Shown, out: Path) -> Path:
    """Write the page that needs no server."""
    html.refuse_foreign(out, f'content="{html.PAGES["live"]} ')
    html.write_page(out, page_of(shown, offline=True))
    return out


def policy_of(scripts: Sequence[str], *, offline: bool) -> str:
    """What the browser lets the page do: run these scripts, and ask nobody, or only the server that it comes from."""
    asked = "'none'" if offline else "'self'"
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes} 'wasm-unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"media-src blob:; connect-src {asked}; base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _context(shown: Shown, scripts: Sequence[str], *, offline: bool) -> Mapping[str, Any]:
    manifest, facts = shown.manifest, shown.facts
    channel = Channel(manifest.channel, manifest.fingerprint, manifest.noise_scheme)
    return {
        "version": __version__,
        "generator": f"{html.PAGES['live']} {__version__}",
        "policy": Markup(policy_of(scripts, offline=offline)),
        "offline": offline,
        "it": shown,
        "warnings": _warnings(shown),
        "limit": manifest.nats.get("1"),
        "stops": [_words(shown, stop) for stop in facts.stops],
        "repeats": _repeats(channel),
        "judgement": _judgement(shown) if _is_reliable(shown) else "",
        "data": htmlsafe_json_dumps(_data(shown, channel, offline=offline), json.dumps),  # base64 may look like a path
        "licences": (web_client() / LICENSES).read_text(encoding="utf-8") if offline else "",
        "inlined": _inlined(files_of(shown, offline=True)) if offline else {},
        "scripts": [Markup(script) for script in scripts],
    }


def _warnings(shown: Shown) -> list[str]:
    """What a visitor must know first."""
    if not shown.manifest.audited:
        return [text("live.not_audited")]
    if not shown.facts.audits:
        return [text("live.no_decoders")]
    return [] if _is_reliable(shown) else [_judgement(shown)]


def _is_reliable(shown: Shown) -> bool:
    return shown.facts.judgement is None or shown.facts.judgement.state == "reliable"


def _judgement(shown: Shown) -> str:
    """Whether the audit is able to tell, and why not; empty where nothing was audited."""
    return "" if shown.facts.judgement is None else answers.describe(shown.facts.judgement)


def _repeats(channel: Channel) -> str:
    """Why more releases show nothing new; empty where they do."""
    if not channel.repeats:
        return ""
    return text("live.repeats.keyed") if channel.keyed else text("live.repeats")


def _limit(shown: Shown, releases: int) -> str:
    """The proven limit in nats; empty where none was audited."""
    nats = shown.manifest.nats.get(str(releases))
    return "" if nats is None else text("certificates.most", high=nats, bits=nats / math.log(2))


def _words(shown: Shown, stop: Stop) -> StopWords:
    notes = [_limit(shown, stop.releases)]
    if stop.state == "shown" and not stop.reliable:
        notes.insert(0, text("live.stop.unreliable"))
    if stop.state == "shown" and stop.stronger is not None:
        stronger = {"attack": row_title(stop.stronger.row), "error": wording.decimal(stop.stronger.mse)}
        notes.insert(0, text("live.stop.stronger", **stronger))
    return StopWords(stop.releases, stop.state == "shown", _sentence(stop), list(filter(None, notes)), stop.command)


def _sentence(stop: Stop) -> str:
    """What was audited at a stop."""
    count = {"releases": stop.releases}
    if stop.state == "not_audited":
        return text("live.stop.not_audited", **count)
    if stop.stronger is not None and stop.state != "shown":
        facts = {"attack": row_title(stop.row), "error": wording.decimal(stop.stronger.mse), **count}
        return (
            text("live.stop.not_kept", **facts) if stop.state == "not_kept" else text("live.stop.not_exported", **facts)
        )
    errors = {name: wording.decimal(getattr(stop, name)) for name in ("mse", "low", "high")}
    audited = text("live.stop.shown", attack=row_title(stop.row), images=f"{stop.images:,}", **count, **errors)
    if stop.blind is None:
        return audited
    return text("live.stop.both", audited=audited, guess=_beside_guess(stop, stop.blind))


def _beside_guess(stop: Stop, blind: float) -> str:
    """The error of a stop beside that of the best blind guess."""
    facts = {"guess": row_title(stop.floor), "error": wording.decimal(blind)}
    if stop.mse >= blind:
        return text("live.stop.no_better", **facts)
    return text("live.stop.blind", share=wording.percent(stop.mse / blind, 0), **facts)


def _data(shown: Shown, channel: Channel, *, offline: bool) -> dict[str, Any]:
    """What the page's script reads."""
    manifest, facts = shown.manifest, shown.facts
    image = manifest.image
    return {
        "manifest": (shown.folder / NAME).read_text(encoding="utf-8"),
        "image": {"channels": image.channels, "height": image.height, "width": image.width},
        "shape": manifest.feature.shape,
        "labels": manifest.labels,
        "threshold": None if manifest.decision is None else manifest.decision.threshold,
        "keyed": channel.keyed,
        "repeats": channel.repeats,
        "offline": offline,
        "mean": facts.mean,
        "class_means": facts.class_means,
        "guesses": {"mean_image": row_title("mean image"), "class_mean": row_title("class mean")},
        "stops": [
            {
                "releases": stop.releases,
                "file": stop.file if stop.state == "shown" else "",
                "attack": row_title(stop.row),
                "blind": stop.guess or _GUESSES[-1],
            }
            for stop in facts.stops
        ],
    }


def _inlined(files: Mapping[str, bytes]) -> dict[str, Markup]:
    """Files as text, compressed."""
    return {name: Markup(base64.b64encode(gzip.compress(data, mtime=0)).decode()) for name, data in files.items()}
