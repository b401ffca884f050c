"""The client for browsers in tests: its modules asked in node, and why it cannot be asked here."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import hatch_build

NODE = shutil.which("node")
ANSWERING = hatch_build.SOURCES / "tests" / "answer.js"


def lacking_web() -> str:
    """Why the client cannot be run here; in continuous integration it must be."""
    if NODE is None:
        return "node is not installed"
    if not hatch_build.is_built() or not (hatch_build.SOURCES / "node_modules").is_dir():
        return "the client for browsers is not built from these sources: .venv/bin/python hatch_build.py"
    return ""


needs_web = pytest.mark.skipif(
    bool(lacking_web()) and os.environ.get("CI") != "true", reason=lacking_web() or "the client is there"
)
"""For tests that run the client for browsers."""


def encoded(data: Any) -> str:
    """Bytes, or an array's, for a question."""
    return base64.b64encode(data if isinstance(data, bytes) else data.tobytes()).decode()


def ask_web(*questions: tuple[Any, ...]) -> list[Any]:
    """The answers of the client's modules in node; AssertionError where one is an error."""
    answers = answers_of(*questions)
    assert not [it["message"] for it in answers if "error" in it]
    return [it.get("answer") for it in answers]


def refusals(*questions: tuple[Any, ...]) -> list[str]:
    """The class and the sentence of the error that each question ends in."""
    answers = answers_of(*questions)
    assert not [question for question, it in zip(questions, answers, strict=True) if "error" not in it]
    return [f"{it['error']}: {it['message']}" for it in answers]


def answers_of(*questions: tuple[Any, ...]) -> list[dict[str, Any]]:
    """For each question its `answer`, or the class of its `error` and the `message`."""
    assert lacking_web() == "", "continuous integration builds it: .ci/run"
    done = subprocess.run(
        [str(NODE), str(ANSWERING)], input=json.dumps(questions), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def bundle_texts(folder: Path) -> tuple[str, str]:
    """Manifest and client of a bundle, for a page."""
    return (folder / "manifest.json").read_text(encoding="utf-8"), encoded((folder / "client.onnx").read_bytes())
