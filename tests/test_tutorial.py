"""docs/tutorial.md: every command is typed, in both languages the same, and each does what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from attncem.cli.main import main

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```\n(.+?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = {
    "audit runs/plain --suite quick": ("This audit is", "Strongest attack on each run", "floor: class mean"),
    "audit runs/defended --suite quick": ("the client alone: not known; run attncem train --on-device",),
    "--suite certificates": ("at most", "nats (95 % confidence), a proven bound", "releases of one image: 256"),
    "compare": ("95 % interval",),
}
"""What the page tells a reader to look for, by a part of the command."""


def commands(page: str) -> list[str]:
    """The lines of all blocks of a page of docs/."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [line for block in BLOCK.findall(text) for line in block.splitlines()]


def test_both_languages_have_the_same_commands() -> None:
    assert len(commands("tutorial.md")) >= 9
    assert commands("tutorial.md") == commands("tutorial.zh-CN.md")


@pytest.mark.slow
def test_the_commands_of_the_tutorial_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in commands("tutorial.md"):
        words = shlex.split(line, comments=True)
        assert words[0] == "attncem"
        expected = int(code[1]) if (code := re.search(r"# exit code (\d)$", line)) else 0
        assert main(words[1:]) == expected, line
        printed = " ".join(capfd.readouterr().out.split())
        wanted = [part for key, parts in PRINTED.items() if key in line for part in parts]
        assert [part for part in wanted if part not in printed] == [], line
    assert all((tmp_path / name).is_file() for name in ("runs/defended/card/card.html", "private.html"))
