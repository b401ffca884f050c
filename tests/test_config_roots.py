"""Any options class as the root of loading: its own keys, words and files, never those of RunConfig."""

from typing import Annotated, Literal

import pytest
from pydantic import ConfigDict, Field

from attncem.base.types import ConfigError
from attncem.config.loading.describe import describe_options, format_help
from attncem.config.loading.load import Loaded, dump_config, load
from attncem.config.loading.overrides import parse_cli_overrides
from attncem.config.loading.tree import option_tree
from attncem.config.options.base import Options
from attncem.config.options.run import RunConfig


class Oak(Options):
    """A slow one."""

    name: Literal["oak"] = "oak"
    age: int = Field(100, ge=1)
    """Years."""


class Birch(Options):
    """A quick one."""

    name: Literal["birch"] = "birch"
    bark: Literal["white", "grey"] = "white"
    """Colour."""


class Fern(Options):
    """No tree."""

    name: Literal["fern"] = "fern"
    fronds: int = 3
    """Leaves."""


Tree = Annotated[Oak | Birch, Field(discriminator="name")]
Plant = Annotated[Tree | Fern, Field(discriminator="name")]


class Garden(Options):
    """A garden."""

    model_config = ConfigDict(title="garden")

    owner: str
    """Who."""
    size: float = Field(1.0, gt=0)
    """In hectares."""
    fenced: bool = False
    """Whether."""
    front: Plant = Oak()
    """Before the house."""
    beds: dict[str, Plant] = Field({})
    """By name."""
    hedges: list[Plant] = Field([])
    """All around."""


GIVEN = {"owner": "Ada", "beds": {"north side": {"name": "oak", "age": 5}, "south": {"name": "birch"}}}


def message(source, *overrides: str, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        load(Garden, source, overrides, **options)
    text = str(caught.value)
    assert not any(word in text for word in ("training", "surrogate", "channel", "seed", "configuration"))
    return text


def test_a_root_is_loaded_with_overrides():
    loaded = load(Garden, GIVEN, ["front.name=fern", "front.fronds=7", "beds.north side.age=6", "fenced=yes"])
    assert loaded == Loaded(
        Garden(owner="Ada", fenced=True, front=Fern(fronds=7), beds={"north side": Oak(age=6), "south": Birch()}), []
    )
    assert load(Garden, loaded.config).config == loaded.config


def test_it_survives_its_yaml(tmp_path):
    garden = load(Garden, GIVEN).config
    (tmp_path / "mine.yaml").write_text(dump_config(garden), encoding="utf-8")
    assert load(Garden, tmp_path / "mine.yaml").config == garden
    assert load(Garden, "mine", folder=tmp_path).config == garden


def test_members_of_unions_inside_unions():
    assert list(option_tree(Garden).keys["front"].members) == ["oak", "birch", "fern"]


def test_the_same_rules_hold_inside_a_free_mapping(tmp_path):
    assert load(Garden, GIVEN, ["beds.north side.name=birch"]).notes == [
        "beds.north side.name: oak → birch drops age=5"
    ]
    (tmp_path / "base.yaml").write_text(dump_config(load(Garden, GIVEN).config), encoding="utf-8")
    child = {"extends": "base", "beds": {"east": {"name": "fern"}, "north side": {"name": "birch"}}}
    beds = load(Garden, child, folder=tmp_path).config.beds
    assert list(beds) == ["north side", "south", "east"]
    assert beds["north side"] == Birch()
    assert load(Garden, GIVEN, ["hedges.fronds=1", "hedges.name=fern"]).config.hedges == [Fern(fronds=1)]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("sze=3", "sze: unknown key; did you mean size? Allowed at the top: owner, size, fenced, front, beds, hedges"),
        ("frond.age=3", "did you mean front.age? Allowed at the top: owner, size, fenced, front, beds, hedges"),
        ("trainig.epochs=3", "trainig.epochs: unknown key. Allowed at the top: owner, size"),
        ("epochs=3", "epochs: unknown key. Allowed at the top: owner, size"),
        ("beds.north side.aeg=3", "beds.north side.aeg: unknown key; did you mean beds.north side.age? Allowed: name"),
        ("beds.south.age=3", "is an option of beds.south.name=oak, not of beds.south.name=birch; allowed: name, bark"),
        ("beds.south.bark=gray", "beds.south.bark=gray: must be one of: white, grey; did you mean grey?"),
        ("beds.south.name=bich", "beds.south.name=bich: must be one of: oak, birch, fern; did you mean birch?"),
        ("front=oak", "did you mean front.name=oak?"),
        ("size", "size: not an override; expected key=value, e.g. hedges.fronds=..."),
    ],
)
def test_messages_have_the_keys_of_this_root(override, expected):
    text = message(GIVEN, override)
    assert expected in text


def test_other_messages_have_its_word(tmp_path):
    assert message(GIVEN, "size=0", "fenced=3").startswith("2 problems in the garden:\n")
    assert message("demo") == "demo: no packaged garden of this name (there are none). A file must end in .yaml"
    assert message({"extends": "demo"}).startswith("the mapping: extends demo: no packaged garden")
    assert message({"owner": "Ada", "beds": {1: {"name": "oak"}}}) == "beds.1: a key must be text"
    assert message({"owner": "Ada", "beds": {"Beds": {"name": "oak", "age": 0}}}).startswith("beds.Beds.age=0: must")
    assert message({"size": 2}) == "owner: Field required"


def test_the_command_line():
    assert parse_cli_overrides(["--fenced", "--size", "2"], Garden) == ["fenced=true", "size=2"]
    for words in (["--seed", "3"], ["training.epochs"], ["a b=3"]):
        with pytest.raises(ConfigError) as caught:
            parse_cli_overrides(words, Garden)
        assert "did you mean" not in str(caught.value)


def test_help():
    found = {(option.when, option.key): option.default for option in describe_options(Garden)}
    assert found["", "owner"] == "..."
    assert found["front.name=fern", "front.fronds"] == "3"
    text = format_help(100, Garden)
    assert "\ngarden: A garden.\n" in text and "with front.name=birch: A quick one." in text
    assert "\nrun: " not in text and "training" not in text


def test_run_config_is_one_root_among_others():
    assert load(RunConfig, "demo").config.name == "demo-gated"
    assert load(RunConfig, {"channel": [{"name": "gaussian"}, {"name": "identity"}]}).notes == []
