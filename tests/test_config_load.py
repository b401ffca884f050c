"""From YAML and overrides to a validated RunConfig, and the messages on the way."""

import subprocess
import sys
from pathlib import Path

import pytest

from attncem.base.types import ConfigError
from attncem.config.loading.load import Loaded, dump_config, load_config, packaged_configs
from attncem.config.loading.yaml_text import parse_yaml
from attncem.config.options.run import RunConfig

KMEANS = {"surrogate": {"name": "kmeans", "num_clusters": 7, "var_threshold": 0.25}}


def config(source=None, *overrides: str) -> RunConfig:
    return load_config(source, overrides).config


def message(source=None, *overrides: str, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides, **options)
    return str(caught.value)


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


# Sources


def test_none_is_all_defaults():
    assert load_config(None) == Loaded(RunConfig(), [])


def test_a_mapping_is_validated_and_not_changed():
    given = {"training": {"epochs": 3}, "channel": {"noise_std": 0.5}}
    loaded = config(given, "training.epochs=4", "channel.noise_std=1")
    assert (loaded.training.epochs, loaded.noise_std) == (4, 1.0)
    assert given == {"training": {"epochs": 3}, "channel": {"noise_std": 0.5}}


def test_a_config_is_a_source():
    first = config(KMEANS)
    assert config(first) == first
    assert config(first, "seed=3").surrogate == first.surrogate


@pytest.mark.parametrize("as_type", [str, Path])
def test_a_path_is_read(tmp_path, as_type):
    file = write(tmp_path, "mine.yml", "training: {epochs: 3}\n")
    assert config(as_type(file)).training.epochs == 3


def test_a_packaged_name_is_found(tmp_path):
    write(tmp_path, "cem-0.125_a.yaml", "seed: 5\n")
    assert load_config("cem-0.125_a", folder=tmp_path).config.seed == 5


def test_an_unknown_packaged_name_lists_the_others(tmp_path):
    write(tmp_path, "demo.yaml", "")
    write(tmp_path, "cem.yaml", "")
    text = message("dmo", folder=tmp_path)
    assert "dmo" in text and "one of: cem, demo" in text and "did you mean demo?" in text


def test_an_unknown_name_without_any_packaged_one(tmp_path):
    assert "there are none" in message("dmo", folder=tmp_path / "absent")


@pytest.mark.parametrize("name", ["", "de mo", "..", "."])
def test_an_odd_name_is_refused(tmp_path, name):
    assert "no packaged configuration" in message(name, folder=tmp_path)


def test_a_missing_file_is_named(tmp_path):
    assert message(tmp_path / "gone.yaml") == f"{tmp_path / 'gone.yaml'}: no such file"
    assert "cannot be read" in message(tmp_path)


def test_an_unfit_source_is_refused():
    assert "expected a name" in message(3)


# YAML


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4), ("-1E3", -1000.0), ("1.", 1.0), (".5", 0.5), ("1.5e+3", 1500.0), ("-.inf", float("-inf")),
        ("3", 3), ("-3", -3), ("0", 0), ("1_000", 1000), ("0x10", 16),
        ("002", "002"), ("08", "08"), ("yes", "yes"), ("off", "off"), ("none", "none"), ("2024-01-01", "2024-01-01"),
        ("1:30", "1:30"), ("e4", "e4"), ("true", True), ("null", None), ("~", None), ("", None),
    ],
)  # fmt: skip
def test_scalars(text, value):
    found = parse_yaml(text, "here")
    assert found == value
    assert type(found) is type(value)


def test_scientific_notation_in_a_file(tmp_path):
    assert config(write(tmp_path, "a.yaml", "training: {surrogate_lr: 1e-3}")).training.surrogate_lr == 1e-3


def test_words_for_true_and_false_still_work():
    assert config(None, "model.sigmoid=off", "data.horizontal_flip=yes").model.sigmoid is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1, 2\nb: 3\n", "line 2, column 2: "),
        ("seed: 1\nseed: 2\n", "line 2, column 1: the key seed is given twice"),
        ("training:\n  epochs: 1\n  epochs: 2\n", "line 3, column 3: the key epochs is given twice"),
        ("- 1\n", "must hold keys and values at the top, not [1]"),
        ("just text", "must hold keys and values"),
        ("seed: &a 1\nthreads: *a\n", "line 2, column 10: aliases"),
        ("seed: !!python/object:os.system x\n", "line 1, column 7: could not determine a constructor"),
        ("seed: !!int x\n", "!!int does not fit its value"),
        ("---\nseed: 1\n---\nseed: 2\n", "line 3, column 1"),
        ("seed: \x07\n", "special characters"),
        ("[" * 5000, "nested too deeply"),
        ("? [1]\n: 2\n", "unhashable key"),
    ],
)
def test_yaml_errors_name_file_and_place(tmp_path, text, expected):
    file = write(tmp_path, "a.yaml", text)
    found = message(file)
    assert found.startswith(str(file))
    assert expected in found


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe")
    assert "UTF-8" in message(tmp_path / "a.yaml")


def test_an_empty_file_and_a_byte_order_mark(tmp_path):
    assert config(write(tmp_path, "a.yaml", "# only a comment\n")) == RunConfig()
    assert config(write(tmp_path, "b.yaml", "\ufeffseed: 2\n")).seed == 2


# extends


def test_extends_merges_deeply(tmp_path):
    (tmp_path / "sub").mkdir()
    write(tmp_path, "base.yaml", "seed: 4\ntraining: {epochs: 9, schedule: {rise: 0.5}}\nchannel: {noise_std: 0.3}\n")
    middle = "extends: ../base.yaml\ntraining: {batch_size: 7}\n"
    write(tmp_path / "sub", "middle.yaml", middle)
    child = write(tmp_path / "sub", "child.yaml", "extends: ./middle.yaml\ntraining: {schedule: {start_factor: 0.5}}\n")
    loaded = config(child)
    assert (loaded.seed, loaded.training.epochs, loaded.training.batch_size, loaded.noise_std) == (4, 9, 7, 0.3)
    assert (loaded.training.schedule.rise, loaded.training.schedule.start_factor) == (0.5, 0.5)


def test_extends_with_another_name_drops_the_base_options(tmp_path):
    write(tmp_path, "base.yaml", "surrogate: {name: kmeans, num_clusters: 7, gamma: 0.5}\ndata: {name: a, root: b}\n")
    child = write(tmp_path, "child.yaml", "extends: base\nsurrogate: {name: gated}\ndata: {name: c}\n")
    loaded = load_config(child, folder=tmp_path)
    assert loaded.config.surrogate.gamma == 1e-6
    assert loaded.config.data.root == "b"
    assert loaded.notes == []


def test_extends_in_a_mapping(tmp_path):
    write(tmp_path, "base.yaml", "seed: 4\n")
    assert load_config({"extends": "base", "threads": 2}, folder=tmp_path).config.seed == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("extends: b.yaml\n", "extends itself (a.yaml → b.yaml → a.yaml)"),
        ("extends: a.yaml\n", "extends itself (a.yaml → a.yaml)"),
        ("extends: gone.yaml\n", "a.yaml: extends gone.yaml: no such file"),
        ("extends: gone\n", "a.yaml: extends gone: no packaged configuration"),
        ("extends: [b.yaml]\n", "extends=[b.yaml]: must be a packaged name or the path"),
    ],
)
def test_extends_errors(tmp_path, text, expected):
    write(tmp_path, "b.yaml", "extends: a.yaml\n")
    assert expected in message(write(tmp_path, "a.yaml", text))


# Dump, schema, packaged files


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["surrogate.name=gated", "surrogate.variant=002", "surrogate.snr_thresh=1e-7"],
        ["training.schedule.name=multi_step", "model.bottleneck=null", "training.selection_window=0.3333333333333333"],
        ["model.cut='1e-4'", "data.root='null'", "channel.1.name=identity", "data.name=σ"],
        ["model.cut='3'", "data.root='002'", "data.name='yes'", "model.name='0x1F'"],
    ],
)
def test_dump_round_trip(tmp_path, overrides):
    first = config(None, *overrides)
    text = dump_config(first)
    second = config(write(tmp_path, "a.yaml", text))
    assert second == first
    assert dump_config(second) == text
    assert list(parse_yaml(text, "here")) == list(RunConfig.model_fields)


def test_floats_are_readable():
    text = dump_config(config(None, "training.surrogate_lr=1e-5"))
    assert "surrogate_lr: 1e-05\n" in text
    assert "noise_std: 0.1\n" in text


def test_packaged_configs(tmp_path):
    write(tmp_path, "b.yaml", "# attncem train --config b\n#\n# The baseline.\nseed: 1\n")
    write(tmp_path, "a.yaml", "seed: 1\n")
    write(tmp_path, "c.yaml", "# $ attncem train --config c\n")
    write(tmp_path, "notes.txt", "# no\n")
    assert packaged_configs(tmp_path) == {"a": "", "b": "The baseline.", "c": "$ attncem train --config c"}
    assert packaged_configs(tmp_path / "absent") == {}
    assert isinstance(packaged_configs(), dict)


# Imports


def test_torch_is_not_imported():
    code = "import sys, attncem.config.loading.load, attncem.config.loading.describe; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# names


OWN = ["data.name=image_folder"]


@pytest.mark.parametrize(
    ("source", "root", "name"),
    [
        ("demo", "photos", "photos-gated"),
        ("own-pictures", "photos", "photos"),
        ("demo-none", "my photos/Été 2024/", "t-2024-none"),
        ("recommended-light", "/data/faces", "faces-recommended-light"),
        (None, "faces", "faces"),
        ("demo", "照片", "image_folder-gated"),
        ("demo", "/home/alice", "image_folder-gated"),
        ("demo", 200 * "x", 50 * "x" + "-gated"),
    ],
)
def test_a_run_on_own_pictures_is_called_after_them(source: str | None, root: str, name: str) -> None:
    assert load_config(source, [*OWN, f"data.root={root}"]).config.name == name


def test_a_name_that_was_given_stays(tmp_path: Path) -> None:
    own = [*OWN, "data.root=photos"]
    assert load_config("demo", [*own, "name=mine"]).config.name == "mine"
    assert load_config({"name": "mine", "data": {"name": "image_folder", "root": "photos"}}).config.name == "mine"
    (tmp_path / "named.yaml").write_text("extends: demo\nname: mine\n")
    (tmp_path / "nameless.yaml").write_text("extends: demo\n")
    assert load_config(tmp_path / "named.yaml", own).config.name == "mine"
    assert load_config(str(tmp_path / "nameless.yaml"), own).config.name == "photos-gated"
    assert load_config(load_config("demo", [*own, "name=mine"]).config, {"seed": 3}).config.name == "mine"
    assert load_config("demo").config.name == "demo-gated"
