"""The start lines of an audit about its subject: channel, images, normalisation, and the limits of an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attncem.base.texts import text
from attncem.judging.opening import OpenRun
from attncem.models.front_ends import front_end_of
from attncem.models.onnx_network import OnnxNetwork
from attncem.models.onnx_process import LIMITS_MEMORY


def describe_subject(opened: OpenRun) -> str:
    """One line each for the channel, the images, and the limits of ONNX files, if there are any."""
    channel = " → ".join(map(_stage, opened.channel))
    shape = "x".join(map(str, opened.spec.shape))
    return "\n".join([text("command.start.channel", channel=channel), _images(opened, shape), *_limits(opened)])


def _limits(opened: OpenRun) -> list[str]:
    """The limits of the first ONNX file; those of a run's two files are the same."""
    files = (part for part in opened.model.modules() if isinstance(part, OnnxNetwork))
    limits = next((file.limits for file in files), None)
    if limits is None:
        return []
    if LIMITS_MEMORY:
        return [text("command.start.limits", seconds=limits.seconds, memory=limits.memory)]
    return [text("command.start.limits.time", seconds=limits.seconds)]


def _stage(options: Mapping[str, Any]) -> str:
    """A stage of the channel with the values of all its options, also of those that nobody set."""
    others = [f"{key}={_value(value)}" for key, value in options.items() if key != "name"]
    return " ".join([str(options["name"]), *others])


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _images(opened: OpenRun, shape: str) -> str:
    """The size of the images, and what is subtracted from and divided by before the first layer."""
    encoder: Mapping[str, Any] = opened.facts.get("encoder", {})
    if encoder.get("input") == "uint8":
        return text("command.start.images.pixels", shape=shape)
    front_end = front_end_of(opened.model.encoder)
    if encoder:
        mean, std = encoder["mean"], encoder["std"]
    elif front_end is not None:
        mean, std = front_end.mean.flatten().tolist(), front_end.std.flatten().tolist()
    else:
        return text("command.start.images.network", shape=shape)
    return text("command.start.images", shape=shape, mean=_numbers(mean), std=_numbers(std))


def _numbers(values: Sequence[float]) -> str:
    return ",".join(f"{value:.3g}" for value in values)
