"""The server of bundles: the protocol as tritonclient speaks it, and everything that it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException

from attncem.base.types import AttncemError
from attncem.cli.main import main
from attncem.deploy.serving.model import ServedModel, open_models
from attncem.deploy.serving.possible import STAGES, possible_numbers
from attncem_edge.manifest import FeatureFacts, Manifest
from bundles import CLASSES, SHAPE, make_bundle, server_half, weights
from serving import HEADER, INFER, Server, binary, numbers, request, serving

Z = numbers(3)


def expected(z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return z.reshape(len(z), -1) @ weights()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles") / "demo")


@pytest.fixture(scope="module")
def server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    levels = {"name": "quantise", "bits": 2, "low": 0.0, "high": 3.0}
    coded = make_bundle(folder / "coded", name="coded", channel=[levels], fingerprint="cd" * 32)
    with serving(folder / "log.txt", [bundle, coded], "--rows", "4", "--log-requests") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    client = triton.InferenceServerClient(server.url)
    yield client
    client.close()


# the protocol, as tritonclient speaks it


def test_health_and_metadata(client: Any, bundle: Path) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("demo") and client.is_model_ready("demo", "1")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    metadata = client.get_model_metadata("demo")
    assert metadata["inputs"] == [{"name": "z", "datatype": "FP32", "shape": [-1, *SHAPE]}]
    assert metadata["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, CLASSES]}]
    assert metadata["platform"] == "onnx_onnxv1" and metadata["versions"] == ["1"]
    manifest = ServedModel(bundle).manifest
    facts = {"fingerprint": manifest.fingerprint, "identity": manifest.identity, "card": {"use": "tests"}}
    assert metadata["parameters"] == facts


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("back", [True, False, None])
def test_answers_in_json_and_binary(client: Any, sent: bool, back: bool | None) -> None:
    tensor = triton.InferInput("z", list(Z.shape), "FP32")
    tensor.set_data_from_numpy(Z, binary_data=sent)
    outputs = None if back is None else [triton.InferRequestedOutput("logits", binary_data=back)]
    result = client.infer("demo", [tensor], outputs=outputs, request_id="seven", parameters={"fingerprint": "ab" * 32})
    np.testing.assert_allclose(result.as_numpy("logits"), expected(Z), atol=1e-5)
    said = result.get_response()
    assert (said["id"], said["model_name"], said["model_version"]) == ("seven", "demo", "1")
    assert ("data" in said["outputs"][0]) == (back is False)


def test_errors_reach_tritonclient(client: Any) -> None:
    tensor = triton.InferInput("z", [1, 7], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 7), np.float32))
    with pytest.raises(InferenceServerException, match="shape of z") as wrong_shape:
        client.infer("demo", [tensor])
    assert wrong_shape.value.status() == "400"
    with pytest.raises(InferenceServerException, match="no such model; it has demo, coded"):
        client.get_model_metadata("other")
    with pytest.raises(InferenceServerException, match="compressed"):
        client.infer("demo", [tensor], request_compression_algorithm="gzip")


def test_data_may_be_nested_or_flat(server: Server) -> None:
    nested = request(Z)
    nested["inputs"][0]["data"] = Z.tolist()
    answers = [server.ask(INFER, body) for body in (nested, request(Z))]
    assert answers[0] == answers[1] and answers[0][0] == 200
    assert "id" not in answers[0][1]
    np.testing.assert_allclose(answers[0][1]["outputs"][0]["data"], expected(Z).ravel(), atol=1e-5)


def test_a_connection_takes_many_requests_also_after_refusals(server: Server) -> None:
    connection = server.connect()
    statuses = []
    for body in (request(Z), {"inputs": []}, request(Z)):
        connection.request("POST", INFER, json.dumps(body))
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    assert statuses == [200, 400, 200]
    connection.close()


# what is refused


def changed(**changes: Any) -> dict[str, Any]:
    """A right request with changes of its tensor; None removes a key."""
    body = request(Z)
    tensor = {**body["inputs"][0], **changes}
    return {"inputs": [{key: value for key, value in tensor.items() if value is not None}]}


def raw(**changes: Any) -> tuple[bytes, dict[str, str]]:
    """A request with binary numbers and changes of its tensor."""
    body, headers = binary(Z)
    head = json.loads(body[: int(headers[HEADER])])
    head["inputs"][0].update(changes)
    text = json.dumps(head).encode()
    return text + body[int(headers[HEADER]) :], {HEADER: str(len(text))}


FULL = Z.ravel().tolist()
WRONG: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "not JSON"),
    "no text": (b"\xff\xfe{", "not JSON"),
    "nothing": (b"", "not JSON"),
    "a list": ([], "JSON object"),
    "deep": (b"[" * 5000, "JSON"),
    "no inputs": ({}, "one tensor, z"),
    "two inputs": ({"inputs": request(Z)["inputs"] * 2}, "one tensor, z"),
    "input is a word": ({"inputs": ["z"]}, "one tensor, z"),
    "another input": (changed(name="image"), "name z"),
    "FP64": (changed(datatype="FP64"), "FP32"),
    "FP16": (changed(datatype="FP16"), "FP32"),
    "no shape": (changed(shape=None), "whole numbers"),
    "shape of texts": (changed(shape=["3", 4, 3, 3]), "whole numbers"),
    "shape of truths": (changed(shape=[True, *SHAPE]), "whole numbers"),
    "empty shape": (changed(shape=[]), "shape of z is"),
    "no rows": (changed(shape=[0, *SHAPE], data=[]), "shape of z is"),
    "negative rows": (changed(shape=[-1, *SHAPE]), "shape of z is"),
    "too many rows": (request(numbers(5)), "B from 1 to 4"),
    "another shape": (changed(shape=[3, 9, 4]), "shape of z is"),
    "too few numbers": (changed(data=FULL[1:]), "as many numbers"),
    "another nesting": (changed(data=[FULL]), "not nested as its shape says"),
    "nested too deeply": (changed(data=Z[..., None].tolist()), "not nested as its shape says"),
    "ragged": (changed(data=[*Z[:2].tolist(), Z[2, :, :2].tolist()]), "not nested as its shape says"),
    "numbers beside lists": (changed(data=[*Z[:2].tolist(), 1.0]), "not nested as its shape says"),
    "no data": (changed(data=None), "list of numbers"),
    "data is a number": (changed(data=3), "list of numbers"),
    "texts": (changed(data=["1.0", *FULL[1:]]), "numbers only"),
    "truths": (changed(data=[True, *FULL[1:]]), "numbers only"),
    "null": (changed(data=[None, *FULL[1:]]), "numbers only"),
    "NaN": (json.dumps(changed(data=[float("nan"), *FULL[1:]])).encode(), "NaN is no number"),
    "infinity": (json.dumps(changed(data=[float("-inf"), *FULL[1:]])).encode(), "Infinity is no number"),
    "1e999": (json.dumps(changed(data=["@", *FULL[1:]])).replace('"@"', "1e999").encode(), "not finite"),
    "1e39": (changed(data=[1e39, *FULL[1:]]), "not finite"),
    "a long number": (json.dumps(changed(data=["@", *FULL[1:]])).replace('"@"', "9" * 400).encode(), "cannot hold"),
    "a longer one": (json.dumps(changed(data=["@", *FULL[1:]])).replace('"@"', "9" * 5000).encode(), "not JSON"),
    "too large": (changed(data=[1.9, *FULL[1:]]), "1 of 108 numbers of z are outside"),
    "too small": (changed(data=[*FULL[:-2], -1.9, -2]), "2 of 108 numbers of z are outside"),
    "id is a number": (request(Z, id=7), "id must be"),
    "parameters are a list": (request(Z, parameters=[1]), "parameters must be"),
    "another fingerprint": (request(Z, parameters={"fingerprint": "cd" * 32}), "for another model"),
    "fingerprint is none": (request(Z, parameters={"fingerprint": None}), "for another model"),
    "another identity": (request(Z, parameters={"identity": "cd" * 32}), "for another model"),
    "another output": (request(Z, outputs=[{"name": "z"}]), "name logits"),
    "two outputs": (request(Z, outputs=[{"name": "logits"}] * 2), "one tensor, logits"),
    "outputs are a word": (request(Z, outputs="logits"), "one tensor, logits"),
    "binary is a word": (request(Z, parameters={"binary_data_output": "yes"}), "true or false"),
    "classes": (request(Z, outputs=[{"name": "logits", "parameters": {"classification": 2}}]), "extension"),
    "shared memory": (changed(parameters={"shared_memory_region": "a"}), "extension"),
    "size without bytes": (changed(data=None, parameters={"binary_data_size": 432}), "must be as many"),
    "bytes without size": (raw(parameters={}, data=FULL), "no tensor has"),
    "size and data": (raw(data=FULL), "both data"),
    "another size": (raw(parameters={"binary_data_size": 428}), "must be as many"),
    "size is a word": (raw(parameters={"binary_data_size": "432"}), "must be as many"),
    "NaN in bytes": (binary(np.where(Z[0, 0, 0, 0] == Z, np.nan, Z)), "1 of 108 numbers of z are not finite"),
    "header is a word": ((b"{}", {HEADER: "two"}), HEADER),
    "header is negative": ((b"{}", {HEADER: "-1"}), HEADER),
    "header is too long": ((b"{}", {HEADER: "3"}), HEADER),
    "head is too long": ((b" " * 65_600, {HEADER: "65537"}), "at most"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests_get_400_and_a_reason(server: Server, case: str) -> None:
    body, reason = WRONG[case]
    body, headers = body if isinstance(body, tuple) else (body, {})
    status, answer = server.ask(INFER, body, headers)
    assert (status, list(answer)) == (400, ["error"]), answer
    assert reason in answer["error"]


def test_a_number_off_the_grid_is_refused(server: Server) -> None:
    codes = np.arange(36, dtype=np.float32).reshape(1, *SHAPE) % 4
    place = "/v2/models/coded/infer"
    assert server.ask(place, request(codes))[0] == 200
    codes[0, 0, 0, 0] = 0.5
    status, answer = server.ask(place, request(codes))
    assert (status, answer["error"]) == (400, "1 of 36 numbers of z are not on the grid of this model's channel")


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/", 404),
        ("GET", "/v2/models", 404),
        ("GET", "/v2/models/demo/stats", 404),
        ("GET", "/v2/models/none", 404),
        ("GET", "/v2/models/demo/versions/2", 404),
        ("GET", "/v2/models/demo/versions/2/ready", 404),
        ("POST", "/v2/models/none/infer", 404),
        ("GET", INFER, 405),
        ("POST", "/v2", 405),
        ("DELETE", "/v2/models/demo", 405),
    ],
)
def test_unknown_addresses_and_wrong_verbs(server: Server, verb: str, path: str, status: int) -> None:
    code, answer = server.ask(path, verb=verb, body=b"{}" if verb == "POST" else None)
    assert (code, list(answer)) == (status, ["error"])


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_larger_than_z_allows_gets_413(server: Server, chunked: bool) -> None:
    connection = server.connect()
    body = b"x" * 100_000
    connection.request("POST", INFER, iter([body]) if chunked else body, encode_chunked=chunked)
    answer = connection.getresponse()
    assert answer.status == 413 and "at most 70144 bytes" in json.loads(answer.read())["error"]
    connection.request("POST", INFER, json.dumps(request(Z)))
    assert connection.getresponse().status == 200, "the body was read, so the connection goes on"
    connection.close()


def test_the_log_holds_routes_and_no_content(server: Server) -> None:
    marked = request(np.full((1, *SHAPE), 0.4142, np.float32), id="secret-id")
    server.ask(INFER, marked)
    server.ask("/v2/models/secret-path/infer?secret-query", marked)
    log = server.log.read_text()
    assert "infer demo 200" in log and "infer - 404" in log
    assert "4142" not in log and "secret" not in log and "Traceback" not in log


def test_metrics(server: Server) -> None:
    server.ask(INFER, request(Z))
    status, text = server.ask("/metrics")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    values = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    assert status == 200 and len(values) == len(lines)
    answered = values['attncem_requests_total{route="infer",model="demo",code="200"}']
    assert answered >= 1 and values['attncem_rows_total{model="demo"}'] >= 3
    assert values['attncem_request_seconds_bucket{model="demo",le="+Inf"}'] == answered
    assert values['attncem_request_seconds_count{model="demo"}'] == answered
    assert 0 < values['attncem_batches_total{model="demo"}'] <= answered
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} >= {"attncem_rows_total"}


# bundles


def spoil(bundle: Path, name: str, old: str, new: str) -> None:
    text = (bundle / name).read_text()
    assert old in text
    (bundle / name).write_text(text.replace(old, new))


SPOILT: dict[str, tuple[Any, str]] = {
    "weights": (lambda it: (it / "server.onnx").write_bytes(server_half(weights(seed=1))), "server.onnx was changed"),
    "channel": (lambda it: spoil(it, "manifest.json", '"noise_std": 0.1', '"noise_std": 9.0'), "was changed"),
    "fingerprint": (lambda it: spoil(it, "manifest.json", "abab", "cdcd"), "was changed"),
    "card": (lambda it: spoil(it, "card.json", "tests", "all"), "card.json was changed"),
    "no weights": (lambda it: (it / "server.onnx").unlink(), "server.onnx is missing"),
    "a run": (lambda it: (it / "config.yaml").touch(), "is a run and no bundle"),
    "no manifest": (lambda it: (it / "manifest.json").unlink(), "no bundle"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_changed_bundle_is_not_served(tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    change, reason = SPOILT[what]
    change(bundle)
    assert main(["serve", str(bundle), "--port", "0"]) == 2
    assert reason in capsys.readouterr().err


WRONG_MANIFESTS: dict[str, tuple[dict[str, Any], str]] = {
    "another tensor": ({"graph": server_half(weights(), taken="x")}, "must take z and give logits"),
    "another shape": ({"feature": FeatureFacts([4, 9])}, "its manifest says"),
    "no graph": ({"graph": b"nothing"}, "cannot be run by onnxruntime"),
    "an unknown channel": ({"channel": [{"name": "mirror"}]}, "cannot serve the channel stage 'mirror'"),
    "an incomplete channel": ({"channel": [{"name": "gaussian"}]}, "cannot serve the channel stage 'gaussian'"),
    "a name that is a path": ({"name": "a/b"}, "the value of name cannot be"),
}


@pytest.mark.parametrize("what", WRONG_MANIFESTS)
def test_a_bundle_that_cannot_work_is_not_served(tmp_path: Path, what: str) -> None:
    changes, reason = WRONG_MANIFESTS[what]
    with pytest.raises(AttncemError, match=reason):
        open_models([make_bundle(tmp_path / "bundle", **changes)])


def test_two_bundles_of_one_name_are_refused(tmp_path: Path, bundle: Path) -> None:
    with pytest.raises(AttncemError, match="have the same name demo"):
        open_models([bundle, make_bundle(tmp_path / "other", fingerprint="cd" * 32)])


# what a channel can send


def manifest_of(options: list[Any], low: float, high: float) -> Manifest:
    """A manifest as `attncem export` writes its channel."""
    from attncem.config.options.channels import LocalDPOptions

    stages = []
    for one in options:
        stage = {**one.model_dump(mode="json"), **({"noise_std": one.added_noise_std} if one.adds_noise else {})}
        stages.append({**stage, **({"grid": one.grid} if isinstance(one, LocalDPOptions) else {})})
    blank = Manifest("", "", None, FeatureFacts([2, 8, 8], low, high), [], stages, {})  # type: ignore[arg-type]
    return replace(blank, bundle=1)


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("last", [None, "top_k", "quantise"])
def test_what_a_channel_sends_is_possible(name: str, last: str | None) -> None:
    import torch
    from pydantic import TypeAdapter

    from attncem.config.options.channels import Channel
    from attncem.models.channels import SYSTEM, build_channel

    names = [name, *([last] if last else [])]
    options = [TypeAdapter(Channel).validate_python({"name": each}) for each in names]
    z = torch.rand(200, 2, 8, 8, generator=torch.Generator().manual_seed(0)) * 3 - 1
    released = build_channel(options).eval()(z, generator=SYSTEM).numpy()
    possible = possible_numbers(manifest_of(options, -1, 2))
    assert possible.problem(released) is None
    assert "outside" in str(possible.problem(released + 100))
    on_a_grid = name in ("local_dp", "quantise") or last == "quantise"
    assert (possible.grid is not None) == on_a_grid
    if on_a_grid:
        assert "not on the grid" in str(possible.problem(np.float32(0.9) * released))


def test_every_channel_has_its_range() -> None:
    from attncem.models.channels import CHANNELS

    assert set(STAGES) == set(CHANNELS)


def test_a_range_that_is_not_known_has_no_limit(bundle: Path) -> None:
    possible = possible_numbers(replace(ServedModel(bundle).manifest, feature=FeatureFacts([1])))
    assert possible.problem(np.array([[1e30]], np.float32)) is None
    assert "not finite" in str(possible.problem(np.array([[np.inf]], np.float32)))


# the command


def test_the_verb_imports_nothing_heavy() -> None:
    code = (
        "import sys; from attncem.cli.main import _parser; _parser(); import attncem.cli.verbs.serve;"
        "print([it for it in ('torch', 'starlette', 'uvicorn', 'onnxruntime', 'numpy') if it in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_server_runs_without_torch(bundle: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from attncem.deploy.serving.running import open_service, Place;"
        "from attncem.deploy.serving.limits import Limits; from attncem.deploy.serving.app import build_app;"
        f"print(build_app(open_service([{str(bundle)!r}], Place(), Limits())) is not None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "onnxruntime"])
def test_a_missing_extra_is_named(bundle: Path, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from attncem.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "serve", str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"serving needs {missing}: pip install 'attncem[serve]'" in done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--host", "0.0.0.0"], "other machines can reach this address"),
        (["--host", "no.such.host.invalid"], "no address of this machine"),
        (["--port", "70000"], "port=70000: from 0 to 65535"),
        (["--rows", "0"], "rows=0: from 1"),
        (["--budget", "5"], "--budget counts for each token"),
        (["--tls-key", "key.pem"], "need --tls-certificate"),
        (["--tls-certificate", "none.pem"], "none.pem"),
        (["--tokens", "none.txt"], "none.txt"),
    ],
)
def test_wrong_options(bundle: Path, options: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(bundle), *options]) == 2
    assert reason in capsys.readouterr().err


def test_a_taken_port_is_named(server: Server, bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(bundle), "--port", str(server.port)]) == 2
    assert f"port={server.port}" in capsys.readouterr().err
