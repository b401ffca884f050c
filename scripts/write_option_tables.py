#!/usr/bin/env python3
"""Write the option tables of docs/surrogates.md anew from the schema.

Each stands between `<!-- options: NAME -->` and `<!-- end -->`. A test compares the page with what this would write.
"""

from __future__ import annotations

import re
from pathlib import Path

from attncem.config.describe import options_table

PAGE = Path(__file__).parent.parent / "docs" / "surrogates.md"
TABLE = re.compile(r"(<!-- options: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def renewed(text: str) -> str:
    """The page with every table as the schema has it now."""
    return TABLE.sub(lambda found: f"{found[1]}{options_table(f'surrogate.name={found[2]}')}{found[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE} is up to date")
