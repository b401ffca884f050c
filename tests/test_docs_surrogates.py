"""docs/surrogates.md says what the schema says: every option, every valid combination, every surrogate."""

from __future__ import annotations

import re
import runpy
from itertools import product
from pathlib import Path

import pytest

from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config, packaged_configs
from attncem.training.surrogates import SURROGATES

ROOT = Path(__file__).parent.parent
SCRIPT = runpy.run_path(str(ROOT / "scripts/write_option_tables.py"))
PAGE = (ROOT / "docs/surrogates.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))
COMBINATION = re.compile(r"^\| `(gated|slot)` \| ([a-z_, ]+) \| ([a-z_, ]+) \| ([a-z_, ]+) \|$", re.MULTILINE)


def listed() -> set[tuple[str, ...]]:
    rows = [(name, *(cell.split(", ") for cell in cells)) for name, *cells in COMBINATION.findall(PAGE)]
    return {(name, *choice) for name, *cells in rows for choice in product(*cells)}


def test_option_tables_are_those_of_the_schema() -> None:
    renewed = SCRIPT["renewed"]
    assert renewed(PAGE) == PAGE, "run python3 scripts/write_option_tables.py"
    other = (ROOT / "docs/front-ends.md").read_text(encoding="utf-8")
    assert renewed(other) == other and other.count("<!-- options: model.front_end.name=") == 5
    campaigns = (ROOT / "docs/campaigns.md").read_text(encoding="utf-8")
    assert renewed(campaigns) == campaigns and campaigns.count("<!-- options: ") == 3
    penalties = (ROOT / "docs/penalties.md").read_text(encoding="utf-8")
    assert renewed(penalties) == penalties and "<!-- options: penalties.name=vib -->\n| option |" in penalties
    networks = (ROOT / "docs/networks.md").read_text(encoding="utf-8")
    assert renewed(networks) == networks and networks.count(" → z 8×") == 12
    selective = (ROOT / "docs/selective.md").read_text(encoding="utf-8")
    assert renewed(selective) == selective and "<!-- options: release -->\n| option |" in selective


@pytest.mark.parametrize("name", SURROGATES)
def test_every_surrogate_has_its_section(name: str) -> None:
    text = SECTIONS[name]
    if len(SCRIPT["options_table"](f"surrogate.name={name}").splitlines()) > 2:
        assert f"<!-- options: {name} -->\n| option |" in text
    if name != "none":
        missing = [word for word in ("L_c", "**Cost:**", "**When:**", "**What can go wrong:**") if word not in text]
        assert missing == []


@pytest.mark.parametrize(
    "combination",
    list(
        product(
            ("gated", "slot"),
            ("hinge", "softplus", "difference", "capacity"),
            ("raw", "layernorm", "enhanced"),
            ("penalty", "fit", "worst_case", "frozen"),
        )
    ),
    ids="-".join,
)
def test_the_listed_combinations_are_the_valid_ones(combination: tuple[str, str, str, str]) -> None:
    name, statistic, space, learn = combination
    options = {"name": name, "statistic": statistic, "variance_space": space, "learn": learn}
    if combination in listed():
        assert load_config({"surrogate": options}).config.surrogate.name == name
        return
    with pytest.raises(ConfigError, match=r"needs variance_space=raw: |variance_space=\w+: must be one of: raw, "):
        load_config({"surrogate": options})


def test_the_page_names_every_packaged_surrogate_configuration() -> None:
    others = ("demo", "paper-")  # those of the penalties' page
    missing = [name for name in packaged_configs() if not name.startswith(others) and f"`{name}`" not in PAGE]
    assert missing == []
