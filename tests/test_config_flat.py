"""Options as one list of dotted keys."""

from __future__ import annotations

from attncem.config.loading.flat import flat_options
from attncem.config.loading.load import load_config


def test_options_are_flat_by_the_keys_that_people_write() -> None:
    one = load_config("demo-none").config
    found = flat_options(one)
    assert (found["channel.name"], found["training.epochs"]) == ("gaussian", one.training.epochs)
    assert found["penalties"] == [] and "channel" not in found
    assert not any(isinstance(value, dict) and value for value in found.values())


def test_several_options_of_a_list_have_their_places() -> None:
    stages = [{"name": "top_k"}, {"name": "gaussian", "noise_std": 0.5}]
    found = flat_options(load_config("demo-none", {"channel": stages}).config)
    assert (found["channel.0.name"], found["channel.1.noise_std"]) == ("top_k", 0.5)


def test_the_keys_can_be_given_again_as_overrides() -> None:
    config = load_config("demo").config
    found = {key: value for key, value in flat_options(config).items() if value != []}
    assert load_config(None, found).config == config
