"""Help made from the schema."""

import pytest

from attncem.base.types import ConfigError
from attncem.config.loading.describe import COMMON, chosen_options, describe_options, format_help
from attncem.config.loading.load import load_config
from attncem.config.loading.tree import known_keys, option_tree
from attncem.config.options.run import RunConfig

OPTIONS = describe_options()
KEYS = known_keys(option_tree(RunConfig))


def test_every_option_says_what_it_is():
    assert len(OPTIONS) > 300
    silent = [option for option in OPTIONS if not (option.meaning and option.default and option.type)]
    assert silent == []
    assert [option for option in OPTIONS if "\n" in option.meaning] == []


def test_every_known_key_is_described():
    sections = {key for key in KEYS if any(other.startswith(f"{key}.") for other in KEYS)}
    assert set(KEYS) - sections <= {option.key for option in OPTIONS}
    assert len({(option.key, option.when) for option in OPTIONS}) == len(OPTIONS)


def test_members_of_a_union():
    found = {(option.when, option.key): option for option in OPTIONS}
    clusters = found["surrogate.name=kmeans", "surrogate.num_clusters"]
    assert (clusters.type, clusters.default) == ("integer >= 1", "5")
    assert found["surrogate.name=kmeans", "surrogate.gamma"].default == "0.01"
    assert found["surrogate.name=gated", "surrogate.gamma"].default == "1e-06"
    name = found["", "surrogate.name"]
    assert name.choices[:2] == ("none", "kmeans")
    assert name.default == "none"


def test_lists_sections_and_constants():
    found = {option.key: option for option in OPTIONS}
    assert found["channel"].default == "[gaussian]"
    assert found["channel.name"].choices[:2] == ("gaussian", "identity")
    assert found["model.bottleneck"].type == "options or null"
    assert found["training.optimizer.name"].choices == ("sgd",)
    assert found["training.schedule.milestones"].default == "[0.25, 0.5, 0.75, 0.875]"


def test_defaults_can_be_typed_back():
    for option in OPTIONS:
        if option.default != "[gaussian]":
            load_config(None, [f"{option.key}={option.default}", *([option.when] if option.when else [])])


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_fits_the_width(width):
    text = format_help(width)
    long = [line for line in text.splitlines() if len(line) > width]
    assert all(" " not in line.strip() or "=[" in line for line in long)


def test_help_has_sections_members_and_every_key():
    text = format_help(100)
    for section in ("run", "data", "model", "channel", "surrogate", "training"):
        assert f"\n{section}: " in text
    assert "with surrogate.name=kmeans: The formula of the baseline CEM" in text
    assert "with surrogate.name=none: No penalty" in text
    assert all(f" {option.key}={option.default}" in text for option in OPTIONS)


def test_the_common_options_are_thirty_and_there() -> None:
    found = [option.key for option in chosen_options(None)]
    assert sorted(found) == sorted(COMMON)
    assert len(found) == 30
    assert len(format_help(100, section=None).splitlines()) < 90, "two screens"


def test_the_help_of_a_section_is_its_options() -> None:
    gated = chosen_options("surrogate.gated")
    assert {option.when for option in gated} == {"surrogate.name=gated"}
    assert {option.key.partition(".")[0] for option in chosen_options("training")} == {"training"}
    assert [option.key for option in chosen_options("training.epochs")] == ["training.epochs"]
    assert chosen_options("all") == describe_options()
    assert "surrogate.attention_loss_scale" in format_help(100, section="surrogate.gated")


@pytest.mark.parametrize(("asked", "guess"), [("surrogate.gatde", "surrogate.gated"), ("epochs", "training.epochs")])
def test_the_help_of_what_is_not_there_leads_somewhere(asked: str, guess: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean {guess}"):
        chosen_options(asked)
