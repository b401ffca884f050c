"""The messages that people get for a configuration that cannot be used."""

import re

import pytest

from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config


def message(source=None, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"surrogate": {"name": "kmeans", "num_clusters": -1}}, "surrogate.num_clusters=-1: must be an integer >= 1"),
        ({"surrogate": {"name": "kmeans", "gamma": "x"}}, "surrogate.gamma=x: must be a number > 0"),
        ({"channel": [{"noise_std": -1}]}, "channel.0.noise_std=-1: must be a number >= 0"),
        ({"data": {"held_out_fraction": 1}}, "data.held_out_fraction=1: must be a number >= 0 and < 1"),
        ({"training": {"warmup_epochs": "x"}}, "training.warmup_epochs=x: must be an integer >= 0 or null"),
        ({"model": {"cut": [1]}}, "model.cut=[1]: must be an integer or text"),
        ({"model": {"bottleneck": 3}}, "model.bottleneck=3: must be null or a mapping with keys: channels, stride"),
        ({"model": {"bottleneck": {"kernel": 2}}}, "model.bottleneck.kernel=2: must be one of: 1, 3, 5"),
        ({"model": None}, "model=null: must be a mapping with keys: name, cut"),
        ({"model": {"sigmoid": 7}}, "model.sigmoid=7: must be true or false"),
        ({"device": "cdua"}, "device=cdua: must be one of: auto, cpu, cuda; did you mean cuda?"),
        ({"channel": []}, "channel=[]: must be a list of 1 to 32, each a mapping with a name, one of: gaussian"),
        ({"name": "a b"}, "name=a b: must be text of at most 100 letters matching ^"),
        ({"name": 3}, 'to give it as text, put it in quotes: "3"'),
        ({"surrogate": {"name": "kmean"}}, "surrogate.name=kmean: must be one of: none, kmeans, gmm"),
        ({"surrogate": {"name": None}}, "surrogate.name=null: must be one of: none, kmeans"),
        ({"surrogate": {"name": ["a"]}}, "surrogate.name=[a]: must be one of: none, kmeans"),
        ({"surrogate": "kmeans"}, "did you mean surrogate.name=kmeans?"),
        ({"surrogate": {"num_clusters": 3}}, "is an option of surrogate.name=kmeans or surrogate.name=gmm, not of"),
        ({"training": {"schedule": {"name": "multi_step", "milestones": ["a"]}}}, "milestones.0=a: must be a number"),
        ({1: 2}, "1: a key must be text"),
        ({"training.epochs": 3}, "write nested keys, training: {epochs: ...}"),
        ({"data": {"validation_fraction": 0.6, "held_out_fraction": 0.6}}, "data: validation_fraction + held_out"),
        ({"surrogate": {"name": "gated", "variance_space": "layernorm"}}, "surrogate: statistic=capacity needs"),
        ({"training": {"penalty_weight": 1}}, "training.penalty_weight is above 0 but surrogate.name is none"),
    ],
)  # fmt: skip
def test_messages(source, expected):
    found = message(source)
    assert expected in found
    assert not re.search(r"pydantic|Value error|Traceback|Input should", found)


def test_an_unknown_key_names_the_nearest_and_the_allowed():
    found = message({"surrogate": {"name": "kmeans", "num_cluster": 3}})
    assert found.startswith(
        "surrogate.num_cluster: unknown key; did you mean surrogate.num_clusters? Allowed: name, num"
    )
    assert "did you mean model.bottleneck.kernel?" in message({"model": {"kernel": 3}})
    assert message({"model": {"bottleneck": {"zzz": 3}}}).startswith("model.bottleneck.zzz: unknown key. Allowed: chan")


@pytest.mark.parametrize(
    ("override", "guess"),
    [
        ("trainig.epochs=3", "training.epochs"),
        ("epochs=3", "training.epochs"),
        ("training.epoch=3", "training.epochs"),
        ("seed.x=3", "seed"),
        ("training.shedule.name=constant", "training.schedule.name"),
        ("channel.0.noise_sdt=1", "channel.0.noise_std"),
        ("chanel.0.noise_std=1", "channel.noise_std"),
    ],
)
def test_an_unknown_override_names_the_nearest(override, guess):
    found = message(None, override)
    assert found.startswith(override.partition("=")[0] + ": unknown key")
    assert f"did you mean {guess}?" in found


def test_every_problem_has_its_line():
    lines = message({"seed": -1, "device": "x"}, "model.width=1").splitlines()
    assert lines[0] == "3 problems in the configuration:"
    assert sorted(line.split("=")[0] for line in lines[1:]) == ["  device", "  model.width", "  seed"]
    assert len(message(None, "a.b=1", "c.d=2").splitlines()) == 3


@pytest.mark.parametrize("override", ["seed", "=3", "name=@x", "name=[1"])
def test_overrides_that_cannot_be_read(override):
    assert override in message(None, override)
