"""Manifests and answers with any value in any place: a device reads them, or refuses them with an error for people."""

from __future__ import annotations

import copy
import http.client
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_bundles import CODES, KEYED, make_bundle, pixels

from attncem_edge import AttncemError, Client, ServerError
from attncem_edge.manifest import NAME, Manifest, read_manifest
from attncem_edge.wire import HEADER, _complaint, _logits, make_request

COUNT = int(os.environ.get("ATTNCEM_FUZZ_COUNT", "2000"))
SEED = int(os.environ.get("ATTNCEM_FUZZ_SEED", "0"))
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, 1e-320, 1e999, float("nan")),
    *("", "a", "keyed", "../../etc/passwd", "\x00", "\ud800", "1" * 5000, "identity", "gaussian", "quantise"),
    *([], [[]], {}, {"name": "identity"}, [1], ["a"], {"": ""}, [{"name": "top_k", "keep": 0.5}]),
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside nested data."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*place, key)
        yield from places(item, (*place, key))


def changed(facts: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The facts with up to three values replaced, removed or added."""
    facts = copy.deepcopy(facts)
    for _ in range(chance.randint(1, 3)):
        *path, last = chance.choice(list(places(facts)) or [("more",)])
        inside: Any = facts
        for key in path:
            inside = inside[key]
        action = chance.random()
        if action < 0.15:
            inside.pop(last, None) if isinstance(inside, dict) else inside.pop(last)
        elif action < 0.25 and isinstance(inside, dict):
            inside[chance.choice(("more", "noise", "name", ""))] = copy.deepcopy(chance.choice(VALUES))
        else:
            inside[last] = copy.deepcopy(chance.choice(VALUES))
    return facts


def write(folder: Path, facts: dict[str, Any]) -> None:
    """The manifest with the identity that fits it, where it has one."""
    try:
        identity = Manifest(**facts).identity
    except (TypeError, ValueError):
        identity = ""
    text = json.dumps({**facts, "identity": identity})
    (folder / NAME).write_text(text, encoding="utf-8", errors="surrogatepass")


@pytest.mark.slow
def test_any_manifest_is_opened_or_refused(tmp_path: Path) -> None:
    chance, ended = random.Random(SEED), Counter[str]()
    manifest = make_bundle(tmp_path / "bundle", KEYED, CODES, threshold=0.5, nats={"1": 1.0})
    for _ in range(COUNT):
        facts = changed(manifest.facts, chance)
        write(tmp_path / "bundle", facts)
        try:
            with np.errstate(all="ignore"), Client(tmp_path / "bundle", device=tmp_path / "device") as client:
                z, _ = client.look(pixels())
                client.release(z, pixels())
            ended["opened"] += 1
        except AttncemError as error:
            assert len(str(error)) < 20_000, facts
            ended["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{facts}") from error
    print(f"\n{dict(ended)}")  # noqa: T201
    assert ended["opened"] > COUNT // 50 and ended["refused"] > COUNT // 2


def test_a_manifest_that_was_written_is_read(tmp_path: Path) -> None:
    manifest = make_bundle(tmp_path / "bundle", KEYED, CODES, threshold=0.5, nats={"1": 1.0})
    assert read_manifest(tmp_path / "bundle") == manifest


@pytest.mark.slow
def test_any_answer_is_read_or_refused() -> None:
    chance, ended, request = random.Random(SEED), Counter[str](), make_request(np.zeros(4, np.float32), "ab" * 32)
    part = {"name": "logits", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}
    other = {"name": "other", "shape": [1], "datatype": "FP32", "data": [1.0]}
    for _ in range(COUNT):
        facts = {"id": request.mark, "outputs": [part, other]}
        data = bytearray(json.dumps(changed(facts, chance) if chance.random() < 0.9 else facts).encode())
        for _ in range(chance.choice((0, 0, 1, 4))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        headers = http.client.HTTPMessage()
        if chance.random() < 0.9:
            headers[HEADER] = str(chance.choice((*[len(data)] * 5, -1, 0, 10**9, "x", "9" * 5000)))
        behind = chance.randbytes(chance.choice((12, 12, 0, 5, 40)))
        try:
            assert _logits("http://here", headers, bytes(data) + behind, request, 3).shape == (3,)
            ended["read"] += 1
        except ServerError:
            ended["refused"] += 1
        _complaint(bytes(data))
    print(f"\n{dict(ended)}")  # noqa: T201
    assert ended["read"] > COUNT // 100 and ended["refused"] > COUNT // 2
