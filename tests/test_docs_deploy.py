"""docs/deploy.md: its commands work as they are typed, without torch on the device; its numbers are measured."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:python)?\n(.*?)```", PAGE, flags=re.DOTALL)
BIN = Path(sys.executable).parent
READY = "http://127.0.0.1:8000/v2/health/ready"


def typed(words: str, folder: Path) -> str:
    """What a line prints that a person types in this folder."""
    done = subprocess.run(
        words, shell=True, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    """`attncem` is that of this environment, and the device's own folder is below this one."""
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / "state")}


@contextmanager
def serving(words: str, folder: Path) -> Iterator[None]:
    """The server that a line starts, until it is not needed."""
    process = subprocess.Popen(shlex.split(words), cwd=folder, env=environment(folder), stderr=subprocess.PIPE)
    try:
        for _ in range(300):
            assert process.poll() is None, process.stderr and process.stderr.read()
            try:
                urllib.request.urlopen(READY, timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.slow
def test_the_commands_work_as_they_are_typed(tmp_path: Path) -> None:
    """From a run to a label in an environment without torch; the port is the one of the page."""
    for name in ("edge", "constraints.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    grey = np.add.outer(np.arange(300), np.arange(400))
    Image.fromarray(np.stack([grey % 256, grey // 2, grey // 3], 2).astype(np.uint8)).save(tmp_path / "photo.jpg")
    on_server, on_device, program = BLOCKS[:3]
    *before, serve = on_server.splitlines()
    for words in before:
        typed(words, tmp_path)
    with serving(serve, tmp_path):
        (tmp_path / "bundle" / "server.onnx").rename(tmp_path / "server.onnx")
        *install, predict = on_device.splitlines()
        for words in install:
            typed(words, tmp_path)
        said = typed(predict, tmp_path)
        assert re.fullmatch(r"photo\.jpg: [\w/ -]+ \d+\.\d % \(sent 818 bytes\)\n", said), said
        (tmp_path / "program.py").write_text(program)
        assert typed("edge-env/bin/python program.py", tmp_path).split()[-2:] == ["False", "818"]
        heavy = "import sys, attncem_edge.command, onnxruntime; print({'torch', 'attncem'} & set(sys.modules))"
        assert typed(f'edge-env/bin/python -c "{heavy}"', tmp_path) == "set()\n"
        for _ in range(2):
            typed(predict, tmp_path)
        with pytest.raises(AssertionError, match="the budget of this image is spent: 4 of 4 releases"):
            typed(predict, tmp_path)


def test_the_first_blocks_are_the_ones_that_are_tried() -> None:
    assert BLOCKS[0].splitlines()[-1].startswith("attncem serve") and "attncem export" in BLOCKS[0]
    assert "pip install -c constraints.txt ./edge" in BLOCKS[1] and "Client(" in BLOCKS[2]


def test_the_costs_are_the_measured_ones_and_within_what_was_promised() -> None:
    from scripts.edge_costs import COMMAND, table

    found = json.loads((ROOT / "results/edge_costs.json").read_text(encoding="utf-8"))
    assert found["command"] == COMMAND and f"`{COMMAND}`" in PAGE
    assert table(found) in PAGE
    assert found["megabytes"] <= 175 and max(found["import_seconds"].values()) <= 0.5
    assert "torch" not in found["megabytes_by_package"]
