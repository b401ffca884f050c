#!/usr/bin/env python3
"""Write the option tables of docs/surrogates.md and docs/front-ends.md anew from the schema.

Each stands between `<!-- options: KEY.name=NAME -->` and `<!-- end -->`; a NAME alone is a surrogate's. A test compares
the pages with what this would write.
"""

from __future__ import annotations

import re
from pathlib import Path

from attncem.config.describe import options_table

PAGES = [Path(__file__).parent.parent / "docs" / name for name in ("surrogates.md", "front-ends.md")]
TABLE = re.compile(r"(<!-- options: (\S+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def renewed(text: str) -> str:
    """The page with every table as the schema has it now."""
    return TABLE.sub(lambda found: f"{found[1]}{options_table(_choice(found[2]))}{found[3]}", text)


def _choice(name: str) -> str:
    return name if "=" in name else f"surrogate.name={name}"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{page} is up to date")
