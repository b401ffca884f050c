"""A person's path, typed as README says, on photographs of their own: of many sizes, turned by a camera."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from attncem.records.ledger import joined, ledgers
from attncem.records.runs import RunDirectory

ROOT = Path(__file__).parent.parent
TURNED = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
"""How a camera stores a picture, by the orientation that it notes."""


def photographs(root: Path, each: int = 40) -> Path:
    """Parts of four photographs, a folder for each; every part has a size and an orientation of its own."""
    rng = np.random.default_rng(7)
    for name in ("astronaut", "chelsea", "coffee", "rocket"):
        whole = Image.fromarray(getattr(data, name)())
        (root / name).mkdir(parents=True)
        for number in range(each):
            width, height = (int(rng.integers(60, 200)) for _ in range(2))
            left, top = int(rng.integers(0, whole.width - width)), int(rng.integers(0, whole.height - height))
            part, turned = whole.crop((left, top, left + width, top + height)), int(rng.choice([1, *TURNED]))
            exif = Image.Exif()
            exif[0x0112] = turned
            stored = part.transpose(TURNED[turned]) if turned in TURNED else part
            stored.save(root / name / f"IMG_{number:04d}.{'JPG' if number % 2 else 'jpeg'}", exif=exif)
    return root


def own_pictures_block() -> list[str]:
    """The commands of README's part on own pictures."""
    part = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Your own pictures")[2].partition("\n## ")[0]
    return re.findall(r"^attncem .*$", part, flags=re.MULTILINE)


def typed(line: str, where: Path) -> str:
    """What a command prints, on both streams; it must end well."""
    words = [sys.executable, "-m", "attncem", *shlex.split(line)[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    done = subprocess.run(words, cwd=where, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_path_of_somebody_with_photographs(tmp_path: Path) -> None:
    photographs(tmp_path / "photos")
    commands = own_pictures_block()
    assert [command.split()[1] for command in commands] == ["train", "audit", "report"]
    said = [typed(command, tmp_path) for command in commands]
    run = RunDirectory.open(tmp_path / "runs/photos")
    assert run.manifest["status"] == "finished"
    (audit,) = (joined(ledger.path) for ledger in ledgers(tmp_path / "runs/photos/audits"))
    assert audit.accuracy is not None and audit.accuracy.mean > 0.5, "four classes"
    assert "Next: attncem audit runs/photos" in said[0]
    page = (tmp_path / "photos.html").read_text(encoding="utf-8")
    assert "data:image/png;base64" in page
    photo = "photos/coffee/IMG_0004.jpeg"
    assert "coffee" in typed(f"attncem predict runs/photos {photo}", tmp_path)
    typed(f"attncem explain runs/photos {photo} --out one.html", tmp_path)
    assert "coffee" in (tmp_path / "one.html").read_text(encoding="utf-8")
