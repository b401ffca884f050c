"""Export networks of torchvision and timm as bundles: what works, how close it is, and what is refused and why.

python scripts/export_foreign.py results/foreign_export.json

Needs torchvision, timm and the extra `onnx`. Every network is trained for one epoch of the embedded images, because
the files are compared and not the accuracy.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import attncem
from attncem.base.progress import silent
from attncem.base.types import AttncemError
from attncem.deploy.exporting import export
from attncem_edge.manifest import CLIENT, SERVER

COMMAND = "python scripts/export_foreign.py results/foreign_export.json"
LIBRARIES = ("torch", "torchvision", "timm", "onnx", "onnxscript", "onnxruntime")
SETTINGS = ("training.epochs=1", "data.images_per_class=64")
MAPS = {"channels": 8}
"""The bottleneck of networks whose feature is a map or tokens."""
TOKENS = {"img_size": 28, "patch_size": 4}
NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "torchvision/resnet18": {"cut": "layer1"},
    "torchvision/squeezenet1_1": {"cut": "features.3"},
    "torchvision/mobilenet_v3_small": {"cut": "features.3"},
    "torchvision/efficientnet_b0": {"cut": "features.2"},
    "torchvision/mnasnet0_5": {"cut": "layers.8"},
    "torchvision/shufflenet_v2_x0_5": {"cut": "stage2"},
    "torchvision/regnet_y_400mf": {"cut": "trunk_output.block1"},
    "torchvision/convnext_tiny": {"cut": "features.1"},
    "torchvision/swin_t": {"cut": "features.1", "bottleneck": None},
    "timm/resnet18": {"cut": "layer1"},
    "timm/mobilenetv3_small_100": {"cut": "blocks.1"},
    "timm/efficientnet_lite0": {"cut": "blocks.1"},
    "timm/regnetx_002": {"cut": "s1"},
    "timm/convnext_atto": {"cut": "stages.0"},
    "timm/mobilevit_xxs": {"cut": "stages.1"},
    "timm/vit_tiny_patch16_224": {"cut": "blocks.1", "arguments": TOKENS},
    "timm/mixer_s32_224": {"cut": "blocks.1", "arguments": TOKENS},
    "timm/swin_tiny_patch4_window7_224": {"cut": "layers.0", "arguments": {"img_size": 28}, "bottleneck": None},
}
"""Options of the networks, all with random weights."""


WHY = {
    "does not take images of shape": "too small images for it",
    "cannot be built with": "its library does not build it for these images",
    "gives tokens there": "`model.bottleneck.stride` must be 1 for tokens",
    "the exported z differ": "z differs by more than 1e-5",
}
"""Words of the table for a part of the error."""


def tried(name: str, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What the export of one network gave: sizes and differences, or the sentence that refuses it."""
    model = {"name": name, "bottleneck": MAPS, **options}
    overrides = [*SETTINGS, *(f"model.{key}={json.dumps(value)}" for key, value in model.items())]
    row: dict[str, Any] = {"network": name, "cut": options["cut"]}
    try:
        run = attncem.train("demo-none", overrides, out=folder / "run", progress=silent)
        bundle = export(run, folder / "bundle")
    except Exception as error:  # an error without a sentence for people is a result too
        return {**row, "exported": False, "reason": reason(error).replace(str(folder), "")}
    return {
        **row,
        "exported": True,
        "feature": bundle.manifest.feature.shape,
        "z_differs_by": float(f"{bundle.comparison.change:.1e}"),
        "logits_differ_by": float(f"{bundle.comparison.logits_change:.1e}"),
        "client_kilobytes": round((bundle.folder / CLIENT).stat().st_size / 1000),
        "server_kilobytes": round((bundle.folder / SERVER).stat().st_size / 1000),
    }


def reason(error: Exception) -> str:
    """The sentence of an error; the name of its class before it, if it is none of ours."""
    words = " ".join(str(error).split())[:600]
    return words if isinstance(error, AttncemError) else f"{type(error).__name__}: {words}"


def measured(networks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The versions of the libraries, and one row for every network."""
    rows = []
    for name, options in networks.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(tried(name, options, Path(folder)))
        print(json.dumps(rows[-1]), flush=True)
    return {"command": COMMAND, "versions": {it: installed(it) for it in LIBRARIES}, "networks": rows}


def table_of(result: Mapping[str, Any]) -> str:
    """The table of docs/deploy.md: the networks that were exported, and why each of the others was not."""
    lines = ["| network, cut | z | z differs by | logits differ by |", "|---|---|--:|--:|"]
    for row in result["networks"]:
        title = f"`{row['network']}`, `{row['cut']}`"
        if row["exported"]:
            z = "×".join(map(str, row["feature"]))
            lines.append(f"| {title} | {z} | {row['z_differs_by']:.0e} | {row['logits_differ_by']:.0e} |")
        else:
            lines.append(f"| {title} | not exported: {WHY[refusal(row['reason'])]} | | |")
    return "\n".join(lines)


def refusal(reason: str) -> str:
    """The part of an error by which WHY names its kind."""
    return next(part for part in WHY if part in reason)


def installed(library: str) -> str | None:
    """The version of a library without the part behind +, None if it is not there."""
    try:
        return version(library).split("+")[0]
    except PackageNotFoundError:
        return None


def main(out: Path) -> None:
    """Measure all networks and write the file."""
    out.write_text(json.dumps(measured(NETWORKS), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
