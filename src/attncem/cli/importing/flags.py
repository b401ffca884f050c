"""Translates the flags of the baseline's training command to a configuration, with notes on the differences."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attncem.base.texts import text
from attncem.base.types import ConfigError
from attncem.config.loading.suggest import known

DATASETS: dict[str, dict[str, Any]] = {
    "cifar10": {"name": "cifar10", "crop_padding": 4},
    "cifar100": {"name": "cifar100", "crop_padding": 4},
    "facescrub": {"name": "facescrub", "image_size": 48},
    "tinyimagenet": {"name": "tiny_imagenet_200"},
}
"""The baseline's data sets that we support, with its augmentations other than mirror and rotation."""
NETWORKS = {"vgg11_bn": "vgg11_bn", "resnet20": "resnet20", "resnet18": "resnet18", "mobilenetv2": "mobilenet_v2"}
DEFAULTS = {
    **{"arch": "vgg11_bn", "cutlayer": "4", "batch_size": "128", "num_epochs": "100", "learning_rate": "0.01"},
    **{"local_lr": "-1", "dataset": "cifar10", "regularization": "None", "regularization_strength": "0"},
    **{"var_threshold": "0.1", "AT_regularization": "None", "AT_regularization_strength": "0", "log_entropy": "0"},
    **{"ssim_threshold": "0.0", "gan_AE_type": "custom", "gan_loss_type": "SSIM", "bottleneck_option": "None"},
    **{"optimize_computation": "1", "random_seed": "123", "num_client": "1", "filename": "cem"},
}
"""Defaults of the baseline's parser."""
_OWN_TO_CEM = ("lambd", "AT_regularization", "log_entropy", "var_threshold")
"""Flags that ResSFL, its ancestor, lacks: without any of them there is no entropy penalty."""
_MILESTONES = {120: (30, 60, 90, 105)}
_USUAL_MILESTONES = (60, 120, 180, 210, 260)
_WITHOUT_A_PLACE = (
    *("folder", "scheme", "client_sample_ratio", "noniid", "dataset_portion", "decoder_sync", "transfer_source_task"),
    *("load_from_checkpoint", "load_from_checkpoint_server", "finetune_freeze_bn", "save_more_checkpoints"),
    *("initialize_different", "collude_use_public", "collude_not_regularize", "num_client_regularize"),
)
"""Flags for paths or for features that we lack; a note lists those that would change the training."""
_SILENT = ("folder", "scheme")
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
_LARGEST = 2**31


@dataclass
class Translated:
    """A configuration as a mapping, and notes for the user."""

    config: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def note(self, key: str, /, **values: Any) -> None:
        """Add a note, once."""
        if (said := text(f"import.note.{key}", **values)) not in self.notes:
            self.notes.append(said)


def flags_of(words: Sequence[str]) -> dict[str, str]:
    """The flags after the name of a program: `--a=b`, `--a b`, and `--a` alone; the last one of a name wins."""
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            found[name] = value if given else ""
            name = "" if given else name
        elif name:
            found[name], name = word, ""
    return found


def translate(given: Mapping[str, str]) -> Translated:
    """The configuration for the same training as the flags; ConfigError for what we do not support."""
    flags = {**DEFAULTS, "lambd": "1.0" if any(name in given for name in _OWN_TO_CEM) else "0", **given}
    made = Translated({"name": _name(flags["filename"]), "seed": _whole(flags, "random_seed")})
    for part in (_data, _network, _channel, _training, _surrogate, _companions):
        part(flags, made)
    _tell_the_rest(given, made)
    return made


def _name(filename: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", filename).strip("-._")[:100] or "cem"


def _data(flags: Mapping[str, str], made: Translated) -> None:
    name = known("--dataset", flags["dataset"], DATASETS)
    shared = {"horizontal_flip": True, "rotation_degrees": 15, "held_out_fraction": 0, "validation_fraction": 0.05}
    made.config["data"] = {**DATASETS[name], **shared}
    made.note("validation")
    if name in ("facescrub", "tinyimagenet"):
        made.note("normalisation", dataset=name)
    if _whole(flags, "num_client") > 1:
        raise ConfigError("--num_client: only one client is supported")


def _network(flags: Mapping[str, str], made: Translated) -> None:
    arch = flags["arch"]
    bounded = arch.endswith("_sgm")
    name = known("--arch", arch.removesuffix("_sgm"), NETWORKS)
    bottleneck = _bottleneck(flags["bottleneck_option"])
    made.config["model"] = {
        "name": NETWORKS[name],
        "cut": _whole(flags, "cutlayer"),
        "sigmoid": bounded,
        "bottleneck": bottleneck,
    }
    if not bounded and bottleneck is not None:
        made.note("no_sigmoid")
    if name != "vgg11_bn":
        made.note("cut", arch=arch)


def _bottleneck(option: str) -> dict[str, Any] | None:
    """`noRELU_C8S1`, `C16S2K5`: channels, stride, kernel."""
    sizes = {letter: _digits(value, option) for letter, value in re.findall(r"([CSK])([0-9]+)", option)}
    if "C" not in sizes:
        return None
    made = {"channels": sizes["C"], "stride": sizes.get("S", 1), "kernel": sizes.get("K", 3)}
    return {**made, "relu": "norelu" not in option.lower()}


def _channel(flags: Mapping[str, str], made: Translated) -> None:
    strength = _number(flags, "regularization_strength")
    noisy = "gaussian" in flags["regularization"].lower() and strength > 0
    stage = {"name": "gaussian", "noise_std": strength} if noisy else {"name": "identity"}
    made.config["channel"] = [stage]


def _training(flags: Mapping[str, str], made: Translated) -> None:
    epochs, rate = _whole(flags, "num_epochs", least=1), _number(flags, "learning_rate")
    drops = [place for place in _MILESTONES.get(epochs, _USUAL_MILESTONES) if place < epochs]
    schedule = {"name": "multi_step", "milestones": [place / epochs for place in drops], "warmup": min(0.5, 1 / epochs)}
    made.config["training"] = {
        "epochs": epochs,
        "batch_size": _whole(flags, "batch_size"),
        "optimizer": {"name": "sgd", "lr": rate, "momentum": 0.9, "weight_decay": 5e-4},
        "schedule": schedule,
        "selection_window": 1 / 6,
    }
    made.note("warm_up")
    made.note("selection")
    if _number(flags, "local_lr") not in (-1, rate):
        made.note("local_lr", value=flags["local_lr"], rate=flags["learning_rate"])


def _surrogate(flags: Mapping[str, str], made: Translated) -> None:
    weight, noisy = _number(flags, "lambd"), made.config["channel"][0]["name"] == "gaussian"
    if weight == 0:
        return
    if not noisy:
        made.note("no_noise", weight=flags["lambd"])
        return
    made.config["surrogate"] = {
        "name": "kmeans",
        "num_clusters": 5 if flags["arch"].endswith("_sgm") else 15,
        "var_threshold": _number(flags, "var_threshold"),
        "log_entropy": _number(flags, "log_entropy") == 1,
        "small_sample_correction": False,
    }
    made.config["training"] |= {
        "penalty_weight": weight,
        "penalty_schedule": {"name": "cem_lr"},
        "refresh_features": "second_pass",
    }
    made.note("index_defect")


# companions: the substrings of --AT_regularization, in ResSFL of --regularization


def _companions(flags: Mapping[str, str], made: Translated) -> None:
    """Translate further defences; each word is searched in the option's text, as the baseline does."""
    strength = _number(flags, "AT_regularization_strength")
    option = flags["AT_regularization"] if strength else ""
    if "gaussian" not in flags["regularization"].lower() and _number(flags, "regularization_strength"):
        option, strength = f"{option} {flags['regularization']}", _number(flags, "regularization_strength")
    for word, act in _ACTS.items():
        if word in option:
            act(option, strength, flags, made)
    if option.strip() not in ("", "None") and not any(word in option for word in _ACTS):
        raise ConfigError(f"--AT_regularization={option.strip()}: unknown; one of: {', '.join(_ACTS)}, None")


def _adversarial(option: str, strength: float, flags: Mapping[str, str], made: Translated) -> None:
    said = option.rsplit("step", maxsplit=1)[-1] if "step" in option else ""
    step = re.match(r"[0-9]+", said)
    if step and not said.split()[0].isdecimal():
        made.note("steps", option=option.strip())
    shape = re.search(r"N([0-9]+)C([0-9]+)", flags["gan_AE_type"])
    penalty: dict[str, Any] = {
        "name": "adversarial",
        "weight": strength,
        "steps": _digits(step[0], option) if step else 3,
    }
    if flags["gan_loss_type"].upper() == "MSE":
        penalty["loss"] = "mse"
    else:
        penalty["threshold"] = _number(flags, "ssim_threshold")
    if shape:
        penalty |= {"blocks": _digits(shape[1], shape[0]), "width": _digits(shape[2], shape[0])}
    every = _whole(flags, "optimize_computation")
    made.config.setdefault("penalties", []).append({**penalty, **({"every": every} if every > 1 else {})})
    made.note("adversarial")


def _sparse(option: str, strength: float, flags: Mapping[str, str], made: Translated) -> None:
    made.config["model"]["sparse_coding"] = {"threshold": 0.01}


def _dropout(option: str, strength: float, flags: Mapping[str, str], made: Translated) -> None:
    made.config["channel"].append({"name": "dropout", "rate": _behind("dropout", option)})
    made.note("attacked_without", stage="dropout")


def _top_k(option: str, strength: float, flags: Mapping[str, str], made: Translated) -> None:
    made.config["channel"].append({"name": "top_k", "keep": 1 - _behind("topkprune", option)})
    made.note("attacked_without", stage="top_k")
    made.note("top_k")


def _correlation(option: str, strength: float, flags: Mapping[str, str], made: Translated) -> None:
    weight = strength if flags["dataset"] == "cifar10" else 0.1 * strength
    made.config.setdefault("penalties", []).append({"name": "distance_correlation", "weight": weight})


def _pruning(option: str, strength: float, flags: Mapping[str, str], made: Translated) -> None:
    made.config["model"]["extra_layer"] = True
    if "topkprune" in option or not (named := re.search(r"pruning([0-9]+)", option)):
        return
    epochs, at = made.config["training"]["epochs"], _digits(named[1], option)
    if not 0 < at < epochs:
        raise ConfigError(f"--AT_regularization={option.strip()}: pruning after epoch {at} of {epochs}")
    made.config["model"]["pruning"] = {"after": at / epochs, "ratio": 0.05}
    made.note("pruning")


def _local_dp(option: str, strength: float, flags: Mapping[str, str], made: Translated) -> None:
    raise ConfigError(
        f"--AT_regularization={option.strip()}: the baseline adds such noise without clipping z, so that its ε says "
        "nothing; use channel.name=local_dp with a clip and an epsilon of your own"
    )


_ACTS: dict[str, Callable[[str, float, Mapping[str, str], Translated], None]] = {
    "gan_adv": _adversarial,
    "SCA": _sparse,
    "dropout": _dropout,
    "topkprune": _top_k,
    "nopeek": _correlation,
    "pruning": _pruning,
    "local_dp": _local_dp,
}
"""Word → function that translates it."""


def _behind(word: str, option: str) -> float:
    number = _NUMBER.match(option.partition(word)[2])
    if number is None or not 0 <= float(number[0]) < 1:
        raise ConfigError(f"--AT_regularization={option.strip()}: {word} must be followed by a share below 1")
    return float(number[0])


def _tell_the_rest(given: Mapping[str, str], made: Translated) -> None:
    """Add notes on the flags that were not translated."""
    for name, value in given.items():
        if name in _WITHOUT_A_PLACE and name not in _SILENT and value not in ("1", "1.0"):
            made.note("left_out", flag=name)
        elif name not in DEFAULTS and name != "lambd" and name not in _WITHOUT_A_PLACE:
            made.note("unknown", flag=name)


def _number(flags: Mapping[str, str], name: str) -> float:
    try:
        return float(flags[name])
    except ValueError:
        raise ConfigError(f"--{name}={flags[name]}: must be a number") from None


def _whole(flags: Mapping[str, str], name: str, least: int = 0) -> int:
    value = _number(flags, name)
    if not value.is_integer() or not least <= value <= _LARGEST:
        raise ConfigError(f"--{name}={flags[name]}: must be a whole number from {least} to {_LARGEST:,}")
    return int(value)


def _digits(words: str, option: str) -> int:
    """The number in a part of an option, such as the 8 of C8."""
    if len(words) > len(str(_LARGEST)):
        raise ConfigError(f"{option[:60]}: {words[:20]}… is too large")
    return int(words)
