"""Small audited runs as folders for the live page, and a browser that remembers what a page computes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attncem
from attncem.base.progress import silent
from attncem.config.options.attacks import ClassMeanOptions, MeanImageOptions, RidgeOptions
from attncem.config.options.suites import Suite
from attncem.live.packing import pack

FLOORS = {"mean image": MeanImageOptions(), "class mean": ClassMeanOptions()}
ATTACKS = {"ridge": RidgeOptions(num_releases=2), "ridge x16": RidgeOptions(num_releases=1, releases=16)}
DONE = re.compile("^Done|That did not work")
SENSIBLE = {"training.epochs": 4, "data.held_out_fraction": 0.5, "model.width": 8}
"""A model that is worth looking at."""
REMEMBERING = """
let made;
const remembered = (open) => async (bytes, names) => {
  const run = await open(bytes, names);
  return async (numbers, dims) => {
    const outputs = await run(numbers, dims);
    (globalThis.computed ??= []).push({ file: names.file, input: [...numbers], output: [...outputs[0]] });
    return outputs;
  };
};
Object.defineProperty(globalThis, "attncem", {
  get: () => made,
  set: (it) => { made = { ...it, openGraph: remembered(it.openGraph) }; },
});
"""
"""Remembers what goes into and comes out of the graphs that the page itself opens."""


def audited(run: Path, folder: Path, **rows: Any) -> Path:
    """A copy of a run with an audit at 1 and 16 releases."""
    shutil.copytree(run, folder)
    suite = Suite(name="tiny", version=1, meaning="", rows={**FLOORS, **(rows or ATTACKS)})
    attncem.audit(folder, suite, progress=silent)
    return folder


def packed(run: Path, folder: Path) -> Path:
    """The folder of a page."""
    return pack(run, folder, progress=silent)


@contextmanager
def showing(folder: Path, *options: str) -> Iterator[str]:
    """The address of the page of a running `attncem live`."""
    command = [sys.executable, "-m", "attncem", "live", str(folder), "--no-browser", *options]
    environment = {**os.environ, "ATTNCEM_LANG": "en"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        address = re.match(r"http://127\.0\.0\.1:\d+/", line)
        assert address is not None, (line, process.poll())
        yield address[0]
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Watched:
    """A page with its requests, what the console said, and what it computed."""

    def __init__(self, context: Any) -> None:
        context.add_init_script(REMEMBERING)
        self.context, self.page = context, context.new_page()
        self.requests: list[Any] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request))  # noqa: PLW0108 - no builtin
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))

    def go(self, address: str) -> None:
        """Open the page and wait for the first picture."""
        self.page.goto(address)
        self.wait()

    def wait(self) -> None:
        """Wait until the picture was seen and rebuilt."""
        self.page.locator("#status", has_text=DONE).wait_for(timeout=60_000)
        assert self.page.locator("#status").inner_text() == "Done.", self.page.locator("#status").inner_text()

    def see(self, act: Callable[[], None]) -> None:
        """Do what brings a picture in, and wait for what the page makes of it."""
        self.page.evaluate("document.getElementById('status').textContent = ''")
        act()
        self.wait()

    @property
    def sent(self) -> list[bytes]:
        """The bodies of all requests that had one."""
        return [body for it in self.requests if (body := it.post_data_buffer)]

    def computed(self, file: str) -> list[dict[str, Any]]:
        """Inputs and outputs of a graph."""
        return [it for it in self.page.evaluate("globalThis.computed ?? []") if it["file"] == file]

    def pixels(self, canvas: str) -> list[int]:
        """The first channel of what a canvas shows."""
        values = self.page.evaluate(
            "(id) => { const it = document.getElementById(id);"
            " return [...it.getContext('2d').getImageData(0, 0, it.width, it.height).data]; }",
            canvas,
        )
        return list(values[::4])
