"""Pages of other origins: a server answers those that it names, and no other page."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncem.base.types import ConfigError
from attncem.deploy.serving.origins import allow
from bundles import make_bundle
from serving import INFER, Server, binary, numbers, serving

HERE, ELSEWHERE = "https://page.example", "https://other.example"


def headers_for(
    server: Server, origin: str, verb: str = "OPTIONS", path: str = INFER, body: bytes | None = None, **others: str
) -> dict[str, str]:
    """What the server tells a browser on behalf of a page of this origin."""
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,inference-header-content-length",
    }
    connection = server.connect()
    connection.request(verb, path, body, {**asked, **others})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return {name.lower(): value for name, value in answer.headers.items() if name.lower().startswith("access-")}


def test_a_named_origin_may_ask_and_read(tmp_path: Path) -> None:
    body, headers = binary(numbers(1))
    with serving(tmp_path / "log", [make_bundle(tmp_path / "demo")], "--origin", HERE) as server:
        before, after = headers_for(server, HERE), headers_for(server, HERE, "GET", "/v2")
        answer = headers_for(server, HERE, "POST", INFER, body, **headers)
        assert answer == after
        assert before["access-control-allow-origin"] == after["access-control-allow-origin"] == HERE
        assert "inference-header-content-length" in before["access-control-allow-headers"].lower()
        assert "Inference-Header-Content-Length" in after["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in {**before, **after}
        for verb, path in (("OPTIONS", INFER), ("GET", "/v2")):
            assert "access-control-allow-origin" not in headers_for(server, ELSEWHERE, verb, path)


def test_no_origin_may_ask_where_none_is_named(tmp_path: Path) -> None:
    with serving(tmp_path / "log", [make_bundle(tmp_path / "demo")]) as server:
        assert [headers_for(server, HERE), headers_for(server, HERE, "GET", "/v2")] == [{}, {}]


@pytest.mark.parametrize(
    "origin", ["*", "null", "page.example", "https://page.example/", "https://Page.example", "file://", "https://a:b@c"]
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ConfigError) as caught:
        allow([HERE, origin])
    assert str(caught.value).startswith(f"origin={origin}: must be what a browser calls the page's origin")
