"""Costs of the client on a device: size of an environment with attncem-edge alone, time of its import, of one picture.

python scripts/edge_costs.py results/edge_costs.json

Needs Linux and a package registry: it makes a new environment. The model is that of the demo, trained for one epoch.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

COMMAND = "python scripts/edge_costs.py results/edge_costs.json"
ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 21
INSTALLERS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel")
"""Packages that a device does not need."""
IMPORT = """
import sys, time
start = time.perf_counter()
exec(sys.argv[1])
print(time.perf_counter() - start)
"""
IMPORTS = {
    "the package": "import attncem_edge",
    "all that a client needs": "import onnxruntime; from attncem_edge import Client",
}
PICTURE = """
import json, statistics, sys, time
from pathlib import Path
from attncem_edge import Budget, Client
bundle, folder, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
photo = folder / "photo.jpg"
client = Client(bundle, url="http://127.0.0.1:1", device=folder, budget=Budget(total=10**6))
def milliseconds(work):
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return round(statistics.median(times), 2)
pixels, _ = client._pixels(photo)
z, _ = client.look(pixels)
made = {
    "decode and scale a JPEG of 1600x1200": milliseconds(lambda: client._pixels(photo)),
    "front end and encoder": milliseconds(lambda: client.look(pixels)),
    "count and draw a release": milliseconds(lambda: client._released(z, pixels)),
}
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
memory = int(status["VmHWM"].split()[0]) / 1000
print(json.dumps({"milliseconds": made, "peak_memory_mb": round(memory), "features": int(z.size)}))
"""


def measure() -> dict[str, Any]:
    """Every number, with the command that makes it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = make_environment(folder / "environment")
        sizes = sizes_of(python)
        imports = {name: median_seconds(python, words) for name, words in IMPORTS.items()}
        bundle = make_bundle(folder)
        draw_picture(folder / "photo.jpg")
        facts = json.loads(run(python, "-c", PICTURE, bundle, folder, ROUNDS))
    return {
        "command": COMMAND,
        "python": sys.version.split()[0],
        "rounds": ROUNDS,
        "threads": 1,
        "megabytes": round(sum(sizes.values()), 1),
        "megabytes_by_package": sizes,
        "import_seconds": imports,
        **facts,
    }


def make_environment(folder: Path) -> Path:
    """A new environment with attncem-edge and what it needs; its Python."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", ROOT / "edge")
    return python


def sizes_of(python: Path) -> dict[str, float]:
    """Megabytes of each folder of the environment's packages of at least 0.1, the largest first."""
    place = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    sizes: defaultdict[str, int] = defaultdict(int)
    for file in (path for path in place.rglob("*") if path.is_file()):
        top = file.relative_to(place).parts[0].partition("-")[0]
        if top not in INSTALLERS:
            sizes[top.removesuffix(".libs").lower()] += file.stat().st_size
    megabytes = {name: round(size / 1e6, 1) for name, size in sorted(sizes.items(), key=lambda it: -it[1])}
    return {name: size for name, size in megabytes.items() if size >= 0.1}


def median_seconds(python: Path, words: str) -> float:
    """Median seconds of an import, each in a new process."""
    return round(statistics.median(float(run(python, "-c", IMPORT, words)) for _ in range(ROUNDS)), 3)


def draw_picture(file: Path) -> None:
    """A JPEG of 1600x1200 px with smooth colours."""
    grey = np.add.outer(np.arange(1200), np.arange(1600))
    Image.fromarray(np.stack([grey % 256, grey // 3 % 256, grey // 7 % 256], 2).astype(np.uint8)).save(file)


def make_bundle(folder: Path) -> Path:
    """The bundle of the demo's model, trained for one epoch."""
    import attncem
    from attncem.base.progress import silent
    from attncem.deploy.exporting import export

    trained = attncem.train("demo", {"training.epochs": 1, "device": "cpu"}, out=folder / "run", progress=silent)
    return export(trained.path, folder / "bundle").folder


def table(measured: dict[str, Any]) -> str:
    """The numbers as docs/deploy.md shows them."""
    largest = ", ".join(f"{name} {size:g}" for name, size in list(measured["megabytes_by_package"].items())[:3])
    rows = {
        "size of an environment with attncem-edge alone": f"{measured['megabytes']:.0f} MB ({largest})",
        **{f"import of {name}": f"{seconds:.2f} s" for name, seconds in measured["import_seconds"].items()},
        "memory at most": f"{measured['peak_memory_mb']} MB",
        **{name: f"{time:g} ms" for name, time in measured["milliseconds"].items()},
    }
    return "| what | |\n|---|--:|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows.items())


def run(*words: object) -> str:
    """What a command prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([str(it) for it in words], check=True, capture_output=True, text=True, env=environment)
    return done.stdout


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
