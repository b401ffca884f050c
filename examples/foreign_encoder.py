"""Audit an encoder that was trained elsewhere, from its ONNX file (docs/networks.md).

python examples/foreign_encoder.py net.onnx audits

Without a file of that name, one is made: the first layers of a network that was never trained. Needs attncem[onnx].
"""

import sys
from pathlib import Path

import torch
from torch import nn

import attncem


def export(file):
    """Write an encoder of grey images of 28 px; z has 8 values for each of 7×7 places."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 8, 5, stride=4, padding=2), nn.ReLU()).eval()
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        encoder, (torch.rand(2, 1, 28, 28),), dynamo=True, dynamic_shapes=({0: batch},), verbose=False
    )
    program.save(file)


def main(file, out):
    """Attack what the encoder would send through noise of standard deviation 0.1."""
    if not Path(file).exists():
        export(file)
    data, channel = {"name": "fashion_mnist_mini"}, {"name": "gaussian", "noise_std": 0.1}
    result = attncem.audit(attncem.open_encoder(file, data=data, channel=channel), "quick", out=out)
    attack = result.strongest_attack
    print(f"{attack.name}: MSE {attack.scores['mse'].mean:.4f}; the audit is {result.state.replace('_', ' ')}")
    print("What it leaves open:", *result.warnings, sep="\n  ")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ("net.onnx", "audits")))
