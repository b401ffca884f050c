"""ONNX files of others: what is taken, and a clear answer to what is not; nothing in a file is executed."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from attncem.base.types import ConfigError, NotApplicable, RunError
from attncem.config.loading.load import load
from attncem.config.options.encoder import EncoderOptions
from attncem.models import onnx_file
from attncem.models.onnx_file import read_onnx
from attncem.models.onnx_network import OnnxNetwork, onnx_encoder
from attncem.models.split import passes_gradients
from attncem.models.trial import try_encoder
from onnx_making import SHAPE, WEIGHT, conv, external, model, value, write

GREY = (1, 28, 28)
X = torch.rand(6, *GREY, generator=torch.Generator().manual_seed(0))
EXPECTED = F.conv2d(X, torch.from_numpy(WEIGHT), stride=7)


def encoder_of(file: Path, shape: tuple[int, int, int] = GREY, **options: Any) -> torch.nn.Module:
    how = load(EncoderOptions, options).config
    return onnx_encoder(read_onnx(file, how.output), how, shape)


def test_a_file_is_run_as_a_module(tmp_path: Path) -> None:
    encoder = encoder_of(write(tmp_path / "a.onnx", model([conv()])))
    torch.testing.assert_close(encoder(X), EXPECTED)
    try_encoder(encoder, X)
    assert not passes_gradients(encoder)
    other = copy.deepcopy(encoder).eval().requires_grad_(False)
    torch.testing.assert_close(other(X), EXPECTED, rtol=0, atol=0)


def test_a_gradient_is_refused_and_not_silently_zero(tmp_path: Path) -> None:
    network = OnnxNetwork(read_onnx(write(tmp_path / "a.onnx", model([conv()]))))
    with pytest.raises(NotApplicable, match="gives no gradients"):
        network(X.clone().requires_grad_())
    with torch.no_grad():
        assert network(X.clone().requires_grad_()).shape == EXPECTED.shape


# what is no ONNX file


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no model", b"\x00" * 100, pickle.dumps({"a": 1})])
def test_what_is_no_onnx_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.onnx"
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"a\.onnx is not an ONNX file"):
        read_onnx(file)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is a folder; give an ONNX file"):
        read_onnx(tmp_path)
    with pytest.raises(RunError, match="is not there"):
        read_onnx(tmp_path / "none.onnx")


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    raw = model([conv()]).SerializeToString()
    for length in range(1, len(raw), 37):
        (tmp_path / "a.onnx").write_bytes(raw[:length])
        with pytest.raises(RunError):
            OnnxNetwork(read_onnx(tmp_path / "a.onnx"))(X)


@pytest.mark.parametrize("name", [b"x", b"z", b"w", b"made", b"batch"])
def test_names_that_are_not_utf_8_are_refused(tmp_path: Path, name: bytes) -> None:
    raw = model([conv()]).SerializeToString()
    at = bytes([len(name)]) + name
    assert at in raw
    (tmp_path / "a.onnx").write_bytes(raw.replace(at, bytes([len(name)]) + b"\xff" * len(name), 1))
    with pytest.raises(RunError, match=r"a\.onnx is damaged: the text of a \w+ in it is not UTF-8"):
        read_onnx(tmp_path / "a.onnx")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a.onnx", model([conv()]))
    monkeypatch.setattr(onnx_file, "LARGEST", 100)
    with pytest.raises(RunError, match="larger than 2 GiB"):
        read_onnx(file)


@pytest.mark.parametrize("library", ["onnx", "onnxruntime"])
def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    file = write(tmp_path / "a.onnx", model([conv()]))
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=rf'ONNX needs {library}.*pip install "attncem\[onnx\]"'):
        OnnxNetwork(read_onnx(file))


# operators


@pytest.mark.parametrize("domain", ["com.example", "com.microsoft", "ai.onnx.contrib"])
def test_custom_operators_are_refused(tmp_path: Path, domain: str) -> None:
    made = model([conv(output="y"), helper.make_node("Own", ["y"], ["z"], domain=domain)], domains=[domain])
    with pytest.raises(RunError, match=rf"uses the operator Own of {domain}, not part of ONNX"):
        read_onnx(write(tmp_path / "a.onnx", made))


def test_custom_operators_are_found_inside_of_branches(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("Own", ["x"], ["y"], domain="com.example")], "i", [], [value("y", None)]
    )
    plain = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "p", [], [value("y", None)])
    yes = numpy_helper.from_array(np.array(True), "yes")
    node = helper.make_node("If", ["yes"], ["z"], then_branch=plain, else_branch=inner)
    with pytest.raises(RunError, match=r"operator Own of com\.example"):
        read_onnx(write(tmp_path / "a.onnx", model([node], weights=[yes], domains=["com.example"])))


def test_functions_that_the_file_defines_of_onnx_operators_are_taken(tmp_path: Path) -> None:
    twice = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    made = model([conv(output="y"), helper.make_node("Twice", ["y"], ["z"], domain="local")], domains=["local"])
    made.functions.append(twice)
    torch.testing.assert_close(encoder_of(write(tmp_path / "a.onnx", made))(X), 2 * EXPECTED)


DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.nchwc"}
DOMAINS |= {"com.ms.internal.nhwc", "org.pytorch.aten", *(each.domain for each in get_all_operator_schema())}


@pytest.mark.parametrize("domain", sorted(DOMAINS))
def test_functions_where_the_runtime_has_operators_are_refused(tmp_path: Path, domain: str) -> None:
    """onnxruntime runs its own Gelu, and not the function that was checked."""
    other = helper.make_node("Neg", ["a"], ["b"])
    made = model([conv(output="y"), helper.make_node("Gelu", ["y"], ["z"], domain=domain)], domains=[domain])
    made.functions.append(helper.make_function(domain, "Gelu", ["a"], ["b"], [other], [helper.make_opsetid("", 17)]))
    with pytest.raises(RunError, match=r"defines the function Gelu in .*where onnxruntime has operators of its own"):
        read_onnx(write(tmp_path / "a.onnx", made))


def test_settings_of_the_runtime_in_a_file_are_left_out(tmp_path: Path) -> None:
    made = model([conv()])
    made.metadata_props.add(key="ort_config", value='{"session_options": {"enable_profiling": true}}')
    assert b"ort_config" not in read_onnx(write(tmp_path / "a.onnx", made)).graph


def test_an_operator_that_onnx_does_not_have_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.onnx", model([helper.make_node("Steal", ["x"], ["z"])]))
    with pytest.raises(RunError, match=r"a\.onnx cannot be run by onnxruntime: .*Steal"):
        encoder_of(file)


# weights in other files


def test_weights_beside_the_file_are_read_and_belong_to_its_name(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"1234" + WEIGHT.tobytes())
    file = read_onnx(external(tmp_path / "a.onnx", "w.bin", offset="4", length=str(WEIGHT.nbytes)))
    torch.testing.assert_close(OnnxNetwork(file)(X), EXPECTED)
    (tmp_path / "w.bin").write_bytes(b"1234" + (2 * WEIGHT).tobytes())
    torch.testing.assert_close(OnnxNetwork(file)(X), EXPECTED, msg="what was read is what is run")
    assert read_onnx(tmp_path / "a.onnx").sha256 != file.sha256


@pytest.mark.parametrize("how", ["../secret.bin", "{absolute}", "inside/../../secret.bin", "link.bin", ""])
def test_weights_outside_of_the_folder_are_not_read(tmp_path: Path, how: str) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(WEIGHT.tobytes())
    folder = tmp_path / "model"
    (folder / "inside").mkdir(parents=True)
    (folder / "link.bin").symlink_to(secret)
    file = external(folder / "a.onnx", how.format(absolute=secret))
    with pytest.raises(RunError, match="outside of its folder: these are not read"):
        read_onnx(file)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"offset": "8", "length": str(WEIGHT.nbytes)}, "too short"),
        ({"offset": "99999999"}, "too short"),
        ({"offset": "-4"}, "too short"),
        ({"offset": "four"}, "is damaged"),
        ({"location": "none.bin"}, "has weights in none.bin, which is missing"),
        ({"location": "sub"}, "has weights in sub, which is missing"),
        ({"location": "a\0b"}, r"has weights in 'a\\x00b', which cannot be the name of a file"),
        ({"location": "a" * 5000}, "a, which cannot be the name of a file"),
    ],
)
def test_weights_that_are_not_all_there_are_named(tmp_path: Path, entries: dict[str, str], said: str) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "sub").mkdir()
    given = {"location": "w.bin", **entries}
    with pytest.raises(RunError, match=said):
        read_onnx(external(tmp_path / "a.onnx", given.pop("location"), **given))


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes()[:-4])
    with pytest.raises(RunError, match="cannot be run by onnxruntime"):
        encoder_of(external(tmp_path / "a.onnx", "w.bin"))


# the cut


def test_a_graph_is_cut_at_an_inner_tensor_and_its_rest_is_left_out(tmp_path: Path) -> None:
    rest = [helper.make_node("Relu", ["z"], ["r"]), helper.make_node("MatMul", ["r", "huge"], ["logits"])]
    huge = numpy_helper.from_array(np.zeros((4, 1000), np.float32), "huge")
    weights = (numpy_helper.from_array(WEIGHT, "w"), huge)
    extra = (value("x", SHAPE), value("mask", [1]))
    nodes = [conv(), *rest, helper.make_node("Add", ["logits", "mask"], ["out"])]
    file = write(tmp_path / "a.onnx", model(nodes, inputs=extra, outputs=["out"], weights=weights))
    cut = read_onnx(file, "z")
    torch.testing.assert_close(OnnxNetwork(cut)(X), EXPECTED)
    assert len(cut.graph) < 2000 < file.stat().st_size
    assert cut.sha256 != read_onnx(file, "r").sha256, "the cut belongs to the name"
    with pytest.raises(RunError, match=r"needs 2 inputs for out \(x, mask\)"):
        read_onnx(file)


def test_a_branch_keeps_what_it_reads_from_outside(tmp_path: Path) -> None:
    plain = helper.make_graph([helper.make_node("Identity", ["y"], ["b"])], "p", [], [value("b", None)])
    other = helper.make_graph([helper.make_node("Neg", ["y"], ["c"])], "o", [], [value("c", None)])
    yes = numpy_helper.from_array(np.array(True), "yes")
    nodes = [conv(output="y"), helper.make_node("If", ["yes"], ["z"], then_branch=plain, else_branch=other)]
    made = model([*nodes, helper.make_node("Relu", ["z"], ["r"])], outputs=["r"], weights=[yes])
    made.graph.initializer.append(numpy_helper.from_array(WEIGHT, "w"))
    torch.testing.assert_close(encoder_of(write(tmp_path / "a.onnx", made), output="z")(X), EXPECTED)


def test_a_wrong_tensor_is_answered_with_those_that_are_there(tmp_path: Path) -> None:
    nodes = [conv(output="stem"), helper.make_node("Relu", ["stem"], ["z"])]
    nodes.append(helper.make_node("Neg", ["w"], ["constant"]))
    file = write(tmp_path / "a.onnx", model(nodes))
    with pytest.raises(RunError, match=r"no tensor sten .*; did you mean stem.*; they are stem, z$"):
        read_onnx(file, "sten")
    with pytest.raises(RunError, match="no tensor constant that depends on its input"):
        read_onnx(file, "constant")
    many = [helper.make_node("Relu", [f"t{n}" if n else "x"], [f"t{n + 1}"]) for n in range(200)]
    with pytest.raises(RunError, match=r"some of its 200 are t1, t6, .*t196$"):
        read_onnx(write(tmp_path / "b.onnx", model(many, outputs=["t200"])), "q")


def test_several_outputs_ask_for_one(tmp_path: Path) -> None:
    file = write(tmp_path / "a.onnx", model([conv(), helper.make_node("Relu", ["z"], ["r"])], outputs=["z", "r"]))
    with pytest.raises(RunError, match=r"has 2 outputs \(z, r\): choose a tensor"):
        read_onnx(file)
    assert read_onnx(file, "r").output == "r"


# inputs


@pytest.mark.parametrize("batch", [1, 4])
def test_a_fixed_batch_works(tmp_path: Path, batch: int) -> None:
    made = model([conv()], inputs=[value("x", [batch, *GREY])])
    encoder = encoder_of(write(tmp_path / "a.onnx", made))
    torch.testing.assert_close(encoder(X), EXPECTED)
    torch.testing.assert_close(encoder(X[:1]), EXPECTED[:1])


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_of_no_size_is_free(tmp_path: Path, batch: int) -> None:
    encoder = encoder_of(write(tmp_path / "a.onnx", model([conv()], inputs=[value("x", [batch, *GREY])])))
    torch.testing.assert_close(encoder(X), EXPECTED)


def test_a_batch_that_fills_the_memory_is_refused(tmp_path: Path) -> None:
    encoder = encoder_of(write(tmp_path / "a.onnx", model([conv()], inputs=[value("x", [2**40, *GREY])])))
    with pytest.raises(RunError, match=r"takes 1099511627776 images at once, too many: export it with a free batch"):
        encoder(X)


def test_an_input_without_a_shape_works(tmp_path: Path) -> None:
    torch.testing.assert_close(
        encoder_of(write(tmp_path / "a.onnx", model([conv()], inputs=[value("x", None)])))(X), EXPECTED
    )


def test_mean_std_and_layout(tmp_path: Path) -> None:
    rgb = torch.rand(3, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    wanted = (rgb - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    same = model([helper.make_node("Identity", ["x"], ["z"])], inputs=[value("x", ["b", 3, "h", "w"])], weights=())
    file = write(tmp_path / "a.onnx", same)
    torch.testing.assert_close(encoder_of(file, (3, 28, 28), mean=mean, std=std)(rgb), wanted)
    last = model([helper.make_node("Identity", ["x"], ["z"])], inputs=[value("x", ["b", 28, 28, 3])], weights=())
    found = encoder_of(write(tmp_path / "b.onnx", last), (3, 28, 28), mean=mean, std=std, layout="nhwc")(rgb)
    torch.testing.assert_close(found, wanted.permute(0, 2, 3, 1))
    torch.testing.assert_close(encoder_of(file)(X), X.expand(-1, 3, -1, -1), msg="grey as three equal channels")
    with pytest.raises(
        ConfigError, match=r"takes \[any, 28, 28, 3\]: with layout=nchw that is 28 channels.*try .*nhwc"
    ):
        encoder_of(tmp_path / "b.onnx", (3, 28, 28))
    with pytest.raises(ConfigError, match="mean has 2 numbers, and the encoder takes 3 channels"):
        encoder_of(file, (3, 28, 28), mean=[0.1, 0.2])
    with pytest.raises(ConfigError, match="std=0: must be above 0"):
        encoder_of(file, std=[0.0])


@pytest.mark.parametrize(("kind", "off"), [(TensorProto.FLOAT16, 1e-3), (TensorProto.DOUBLE, 0.0)])
def test_other_floats_work(tmp_path: Path, kind: int, off: float) -> None:
    made = model([helper.make_node("Add", ["x", "x"], ["z"])], inputs=[value("x", SHAPE, kind)], weights=())
    found = encoder_of(write(tmp_path / "a.onnx", made))(X)
    torch.testing.assert_close(found, 2 * X, rtol=0, atol=off)


def test_pixels_as_bytes_are_given_as_they_were(tmp_path: Path) -> None:
    node = helper.make_node("Cast", ["x"], ["z"], to=TensorProto.FLOAT)
    file = write(tmp_path / "a.onnx", model([node], inputs=[value("x", SHAPE, TensorProto.UINT8)], weights=()))
    pixels = torch.arange(784).remainder(256).view(1, 1, 28, 28)
    torch.testing.assert_close(encoder_of(file)(pixels / 255), pixels.float(), rtol=0, atol=0)
    with pytest.raises(ConfigError, match="takes pixels as uint8, which have no mean and std"):
        encoder_of(file, mean=[0.5])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (value("x", SHAPE, TensorProto.INT64), "takes int64; images can be given as float, float16, double, uint8"),
        (value("x", SHAPE, 99), "takes the unknown type 99"),
        (value("x", ["b", 784]), "takes a tensor of 2 axes"),
        (value("x", ["b", 3, 32, 32]), "takes images of 32x32 px, and these have 28x28"),
        (value("x", ["b", 1, 28, 27]), "takes images of 28x27 px"),
        (value("x", ["b", 5, 28, 28]), "that is 5 channels"),
    ],
)
def test_what_takes_no_such_images_is_refused(tmp_path: Path, source: Any, said: str) -> None:
    made = model([helper.make_node("Identity", ["x"], ["z"])], inputs=[source], weights=())
    with pytest.raises(ConfigError, match=said):
        encoder_of(write(tmp_path / "a.onnx", made))


def test_colours_are_not_made_grey(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes 1 channels, and the images have 3"):
        encoder_of(write(tmp_path / "a.onnx", model([conv()])), (3, 28, 28))


def test_sizes_that_only_the_inside_refuses_are_told(tmp_path: Path) -> None:
    wrong = [conv(output="y"), helper.make_node("MatMul", ["y", "w2"], ["z"])]
    weights = (numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.zeros((5, 2), np.float32), "w2"))
    made = model(wrong, inputs=[value("x", ["b", "c", "h", "w"])], weights=weights)
    with pytest.raises(RunError, match=r"a\.onnx cannot be run on an input of \[6, 1, 28, 28\]"):
        encoder_of(write(tmp_path / "a.onnx", made))(X)


# features


def scaled(name: str) -> Any:
    return helper.make_node(name, ["y"], ["z"])


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([scaled("RandomNormalLike")], "not deterministic: encoding the same images again gives other features"),
        ([helper.make_node("ReduceMean", ["y"], ["m"], axes=[0]), helper.make_node("Sub", ["y", "m"], ["z"])], "batch"),
        ([scaled("Log")], "hold NaN or infinity"),
        ([helper.make_node("Mul", ["y", "big"], ["z"])], r"features reach \de\+34 .*too large to compute with"),
        ([helper.make_node("Cast", ["y"], ["z"], to=TensorProto.INT32)], "is of type int32"),
        ([helper.make_node("Transpose", ["y"], ["z"], perm=[1, 0, 2, 3])], r"z is \[3, 6, 4, 4\] for a batch of 6"),
        ([helper.make_node("ReduceMean", ["y"], ["z"], keepdims=0)], r"z is \[\] for a batch of 6"),
    ],
    ids=["random", "company", "nan", "large", "integers", "transposed", "scalar"],
)
def test_features_that_cannot_be_judged_are_refused(tmp_path: Path, nodes: list[Any], said: str) -> None:
    weights = [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.array(2e34, np.float32), "big")]
    encoder = encoder_of(write(tmp_path / "a.onnx", model([conv(output="y"), *nodes], weights=weights)))
    with pytest.raises(RunError, match=said):
        try_encoder(encoder, X)


def test_a_feature_of_endless_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncem.models.trial.LARGEST", 100)
    with pytest.raises(RunError, match="has 784 values, more than 100: cut it elsewhere"):
        try_encoder(torch.nn.Identity(), X)


def test_a_module_that_gives_no_tensor_is_refused() -> None:
    class Pair(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x, x

    with pytest.raises(RunError, match="the encoder gives tuple for images"):
        try_encoder(Pair(), X)
    with pytest.raises(RunError, match="not deterministic"):
        try_encoder(torch.nn.Dropout(), X)
