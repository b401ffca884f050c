"""Dotted overrides from a program or a command line."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config
from attncem.config.loading.overrides import parse_cli_overrides
from attncem.config.options.run import RunConfig

KMEANS = {"surrogate": {"name": "kmeans", "num_clusters": 7, "var_threshold": 0.25}}


def config(source=None, *overrides: str) -> RunConfig:
    return load_config(source, overrides).config


def message(source=None, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides)
    return str(caught.value)


def test_values_are_yaml():
    loaded = config(None, "training.surrogate_lr=1e-4", "model.bottleneck=null", "training.schedule={name: multi_step}")
    assert loaded.training.surrogate_lr == 1e-4
    assert loaded.model.bottleneck is None
    assert loaded.training.schedule.name == "multi_step"
    assert config(None, "surrogate.variant=002", "surrogate.name=gated").surrogate.statistic == "softplus"


def test_a_mapping_of_overrides():
    loaded = load_config(
        None, {"training.epochs": 3, "training.schedule": {"name": "multi_step", "milestones": (0.5,)}}
    )
    assert (loaded.config.training.epochs, loaded.config.training.schedule.milestones) == (3, (0.5,))


def test_a_mapping_value_keeps_its_siblings_and_the_specific_key_wins():
    base = {"training": {"batch_size": 9, "epochs": 4}}
    for order in (1, -1):
        loaded = config(base, *["training={epochs: 5, log_every: 3}", "training.epochs=6"][::order])
        assert (loaded.training.batch_size, loaded.training.epochs, loaded.training.log_every) == (9, 6, 3)


def test_the_same_key_twice_takes_the_last():
    assert config(None, "seed=1", "seed=2").seed == 2


CHOICES = [
    "surrogate.name=kmeans", "surrogate.num_clusters=9", "surrogate.gamma=0.5", "training.penalty_weight=2.5",
    "channel.name=gaussian", "channel.1.name=gaussian", "channel.1.noise_std=0.5", "channel.0.noise_std=0.25",
    "training.schedule.milestones.0=0.125", "training.schedule.name=multi_step", "model.bottleneck=null",
    "model.bottleneck.channels=3", "training={epochs: 30, warmup_epochs: 2}", "training.epochs=40", "name=x",
]  # fmt: skip


@given(st.permutations(CHOICES))
def test_the_order_of_different_keys_does_not_matter(order):
    assert load_config({"surrogate": {"name": "gated", "gamma": 0.1}}, order) == load_config(
        {"surrogate": {"name": "gated", "gamma": 0.1}}, CHOICES
    )


def test_a_mapping_with_free_keys():
    given = {"model": {"arguments": {"depth": 2}}}
    assert config(given, "model.arguments.img_size=64").model.arguments == {"depth": 2, "img_size": 64}
    assert config(None, "model.arguments={img_size: 64, flat: true}").model.arguments == {"img_size": 64, "flat": True}
    assert "model.arguments.x=[1]: must be true or false or integer" in message(None, "model.arguments.x=[1]")
    assert message(None, "model.arguments=3") == "model.arguments=3: must be a mapping with any keys"


def test_list_items():
    assert config(None, "channel.0.noise_std=0.2").noise_std == 0.2
    assert config(None, "channel.noise_std=0.2").noise_std == 0.2
    two = config(None, "channel.1.name=identity")
    assert [stage.name for stage in two.channel] == ["gaussian", "identity"]
    assert [stage.name for stage in config(None, "channel=[{name: identity}]").channel] == ["identity"]
    schedule = config(None, "training.schedule.name=multi_step", "training.schedule.milestones.4=0.9").training.schedule
    assert schedule.milestones == (0.25, 0.5, 0.75, 0.875, 0.9)


def test_list_positions_that_cannot_be():
    assert message(None, "channel.2.name=identity") == "channel.2.name: channel has 1 item(s); the next position is 1"
    two = {"channel": [{"noise_std": 0.1}, {"name": "identity"}]}
    assert "channel has 2 items; say which: channel.0.noise_std" in message(two, "channel.noise_std=1")
    assert "channel.1.name: is missing; must be one of: gaussian, identity" in message(None, "channel.1.noise_std=1")
    assert "channel.-1" in message(None, "channel.-1.noise_std=1")


def test_an_override_into_something_else():
    assert "surrogate=3: must be a mapping with a name" in message({"surrogate": 3}, "surrogate.name=kmeans")


def test_a_changed_name_notes_what_it_drops():
    notes = load_config(KMEANS, ["surrogate.var_threshold=0.5", "surrogate.name=gated"]).notes
    assert notes == ["surrogate.name: kmeans → gated drops num_clusters=7, var_threshold=0.25"]
    assert config(KMEANS, "surrogate.name=gated").surrogate.var_threshold == 0.1
    assert load_config(KMEANS, ["surrogate={name: gated}"]).notes[0].startswith("surrogate.name: kmeans → gated drops")


@pytest.mark.parametrize(
    ("source", "override"),
    [
        (None, "surrogate.name=kmeans"),
        (KMEANS, "surrogate.name=kmeans"),
        ({"surrogate": {"name": "kmeans"}}, "surrogate.name=gated"),
        (None, "channel.name=identity"),
        ({"data": {"root": "x"}}, "data.name=other"),
        ({"seed": 3}, "name=other"),
    ],
)
def test_no_note_when_nothing_is_dropped(source, override):
    assert load_config(source, [override]).notes == []


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], []),
        (["training.epochs=3"], ["training.epochs=3"]),
        (["--training.epochs=3", "--device", "cpu"], ["training.epochs=3", "device=cpu"]),
        (["--surrogate.margin_m", "-0.1", "--seed", "3"], ["surrogate.margin_m=-0.1", "seed=3"]),
        (["--surrogate.margin_m", "-.5"], ["surrogate.margin_m=-.5"]),
        (["--model.sigmoid", "--seed", "3"], ["model.sigmoid=true", "seed=3"]),
        (["--model.sigmoid", "seed=3"], ["model.sigmoid=true", "seed=3"]),
        (["--model.sigmoid", "false"], ["model.sigmoid=false"]),
        (["--model.sigmoid"], ["model.sigmoid=true"]),
        (["--data.root=a=b", "--name", "x"], ["data.root=a=b", "name=x"]),
    ],
)
def test_command_line(tokens, expected):
    assert parse_cli_overrides(tokens) == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["junk"], "junk: expected key=value, --key=value or --key value"),
        (["training.epochs", "3"], "did you mean --training.epochs?"),
        (["-x"], "-x: expected"),
        (["-x=3"], "-x=3: expected"),
        (["--"], "--: expected"),
        (["---seed", "3"], "---seed: expected"),
        ([""], "'': expected"),
        (["=3"], "=3: expected"),
        (["--seed"], "--seed: needs a value"),
        (["--seed", "--device", "cpu"], "--seed: needs a value"),
        (["--trainig.epochs", "3"], "did you mean training.epochs?"),
        (["--seed", "3", "4"], "4: expected"),
    ],
)
def test_command_line_errors(tokens, expected):
    with pytest.raises(ConfigError, match=re.escape(expected)):
        parse_cli_overrides(tokens)


def test_another_kind_of_network_sets_back_what_it_decides_itself() -> None:
    lean = load_config("cifar10-none", ["model.macs=4e6", "model.name=lean", "model.front_end.name=standardise"])
    assert (lean.config.model.cut, lean.config.model.macs) == (2, 4e6)
    assert lean.config.model.front_end.name == "standardise"
    assert lean.notes == ["model.name: vgg11_bn → lean drops cut=4"]
    assert load_config("cifar10-none", ["model.cut=3", "model.name=lean"]).config.model.cut == 3, (
        "asked for: refused later"
    )
    back = load_config(lean.config, ["model.name=resnet20"])
    assert back.config.model.macs is None and back.notes == ["model.name: lean → resnet20 drops macs=4000000.0"]
    assert load_config("cifar10-none", ["model.name=resnet18"]).config.model.cut == 4, "both have cuts of their own"
