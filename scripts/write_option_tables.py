#!/usr/bin/env python3
"""Write the option tables of docs/surrogates.md and other pages from the schema, and the plans of lean clients.

Each table is between `<!-- options: KEY.name=NAME -->` and `<!-- end -->`; a NAME alone is a surrogate or a key of
ROOTS, and PLANS the table of plans in docs/networks.md. A test compares the pages with the output of this script.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import torch

from attncem.config.loading.describe import OptionHelp, describe_options
from attncem.config.options.base import Options
from attncem.config.options.campaigns import ArmOptions, Campaign, CampaignAudit
from attncem.config.options.release import ReleaseOptions
from attncem.config.options.run import RunConfig
from attncem.models.lean import plan, trunk
from attncem.models.split import count_parameters

NAMES = ("surrogates.md", "front-ends.md", "campaigns.md", "networks.md", "penalties.md", "selective.md")
PAGES = [Path(__file__).parent.parent / "docs" / name for name in NAMES]
ROOTS: dict[str, type[Options]] = {
    **{"campaign": Campaign, "arm": ArmOptions, "campaign-audit": CampaignAudit},
    "release": ReleaseOptions,
}
PLANS = "lean-plans"
SHAPES = ((1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 96, 96))
BUDGETS = (1e6, 4e6, 21.23e6)
TABLE = re.compile(r"(<!-- options: (\S+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def renewed(text: str) -> str:
    """The page with every table from the current schema."""
    return TABLE.sub(lambda found: f"{found[1]}{_table(found[2])}{found[3]}", text)


def _table(name: str) -> str:
    if name == PLANS:
        return plans_table()
    if name in ROOTS:
        return options_table("", ROOTS[name])
    return options_table(name if "=" in name else f"surrogate.name={name}")


def plans_table() -> str:
    """The plans of lean clients at a few budgets, as a Markdown table."""
    lines = ["| budget | multiply-accumulates | weights | image → stem → stages → z |", "|--:|--:|--:|---|"]
    for shape, budget in itertools.product(SHAPES, BUDGETS):
        made = plan(shape, budget)
        with torch.device("meta"):
            weights = count_parameters(trunk(shape, made)) + made.channels * (made.width + 1)
        lines.append(f"| {budget / 1e6:g} M | {made.macs:,} | {weights:,} | {made.path} |")
    return "\n".join(lines)


def options_table(when: str, root: type[Options] = RunConfig) -> str:
    """The options of one choice, e.g. ``surrogate.name=gated``, as a Markdown table, without nested options."""
    prefix = when.partition("=")[0].removesuffix("name")
    options = describe_options(root)
    rows = [option for option in options if option.when == when and "." not in option.key[len(prefix) :]]
    lines = [f"| `{row.key.removeprefix(prefix)}` | {row.default} | {_values(row)} | {row.meaning} |" for row in rows]
    return "\n".join(["| option | default | values | meaning and source |", "|---|---|---|---|", *lines])


def _values(option: OptionHelp) -> str:
    return (", ".join(option.choices) or option.type).replace("|", "or")


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{page} is up to date")
