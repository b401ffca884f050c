"""Whether a run may release: its scheme of noise, its key and its seals must agree with each other.

`check_noise` refuses what contradicts itself, for every use of a run. `release_problem` says why nothing may leave a
device. `seal_run` seals a run of an older version, or one with a new key. docs/channels.md gives the reasons.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attncem.base.types import ConfigError, RunError
from attncem.records.checkpoints import read_facts, write_sealed
from attncem.records.files import explain_os_error, write_private
from attncem.records.fingerprints import release_of
from attncem.records.runs import KEY_FILE, RunDirectory
from attncem.records.seals import open_mode, same_seal
from attncem_edge.noise import SCHEME, new_key


@dataclass(frozen=True)
class NoiseFacts:
    """Facts of a run's noise that agree with each other; ``sealed``: a seal under the key confirms them."""

    scheme: int
    keyed: bool
    key: bool
    sealed: bool

    @property
    def key_missing(self) -> bool:
        """Whether the noise needs the key, which is not there."""
        return self.keyed and self.scheme == SCHEME and not self.key


def check_noise(run: RunDirectory, name: str, facts: Mapping[str, Any], *, onnx: bool = False) -> NoiseFacts:
    """The noise of a run with a checkpoint of these facts; RunError where files of the run contradict each other.

    With `onnx`, the client is the one that is stored as ONNX, which has a separate seal.
    """
    scheme, keyed, key = int(run.manifest.get("noise_scheme", 0)), run.config.keyed, run.noise_key is not None
    if scheme not in (0, SCHEME):
        raise RunError(
            f"{run.path / 'manifest.json'}: noise_scheme {scheme} is unknown: this version knows 0 and {SCHEME}; "
            "upgrade attncem, or restore the file if somebody changed it"
        )
    seals = _seals(run, name, facts, onnx=onnx)
    if key or any(mark for mark, _ in seals):
        _refuse_downgrade(run, scheme, keyed, KEY_FILE if key else f"the seal of {name}")
    if key and not all(same_seal(mark, expected) for mark, expected in seals if mark):
        raise RunError(
            f"the seal of {run.path / 'checkpoints' / name} does not fit: {KEY_FILE}, manifest.json, config.yaml or "
            "the weights are not those that were sealed; restore them, or train a new run"
        )
    return NoiseFacts(scheme, keyed, key, key and all(mark for mark, _ in seals))


def _seals(run: RunDirectory, name: str, facts: Mapping[str, Any], *, onnx: bool) -> list[tuple[str, str]]:
    """Every seal of a checkpoint: as it is stored, empty if it is not, and as it should be."""
    if not facts:
        return []
    encoder = facts["sha256"]["client.safetensors"]
    decides = {"release": release} if (release := release_of(facts)) else {}
    seals = [(str(facts.get("seal", "")), run.seal(encoder, **decides))]
    if onnx and name in run.manifest.get("onnx", {}):
        kept = dict(run.manifest["onnx"][name])
        seals.append((kept.pop("seal", ""), run.seal(encoder, onnx=kept)))
    return seals


def _refuse_downgrade(run: RunDirectory, scheme: int, keyed: bool, sign: str) -> None:
    """RunError where the manifest or the configuration says that noise is weaker than this sign of a key shows."""
    if scheme == 0:
        raise RunError(
            f"{run.path / 'manifest.json'} was changed or damaged: noise_scheme is missing or 0, but {sign} belongs to "
            f'scheme {SCHEME}; restore the file, or put "noise_scheme": {SCHEME} back'
        )
    if not keyed:
        raise RunError(
            f"{run.path / 'config.yaml'} was changed: its channel has no keyed noise, but {sign} belongs to a keyed "
            "channel; restore the file"
        )


def check_checkpoints(run: RunDirectory) -> None:
    """Check the noise of a run and of its readable checkpoints, before it resumes."""
    check_noise(run, "", {})
    for name, facts in _readable(run).items():
        check_noise(run, name, facts)


def _readable(run: RunDirectory) -> dict[str, dict[str, Any]]:
    """The facts of all checkpoints; a damaged one is left out, and reported where it is used."""
    facts = dict[str, dict[str, Any]]()
    for name in run.checkpoints():
        with contextlib.suppress(RunError):
            facts[name] = read_facts(run.path / "checkpoints" / name)
    return facts


def release_problem(run: RunDirectory, name: str, noise: NoiseFacts) -> str:
    """Why nothing that passed this run's channel may leave a device; empty where it may."""
    file, seal = run.path / KEY_FILE, f"attncem seal {run.path}"
    if noise.scheme != SCHEME and noise.keyed:
        return (
            f"{run.path} may release nothing: its keyed noise has scheme {noise.scheme} (attncem 0.1), and anyone who "
            f"knows the seed can remove it. Train it again, or make a key with {seal} --new-key"
        )
    if noise.scheme != SCHEME:
        return (
            f"{run.path} may release nothing: its manifest.json has noise scheme {noise.scheme} (attncem 0.1). Train "
            f"it again, or change it to scheme {SCHEME} with {seal}"
        )
    if noise.keyed and not noise.key:
        return (
            f"{file} is missing: the channel's noise is keyed, and without the key nothing may be released. Restore "
            f"it, or make a new one with {seal} --new-key"
        )
    if noise.keyed and (mode := open_mode(file)):
        return f"{file} is open to other users (mode {mode}), who could remove the noise: run chmod 600 {file}"
    if noise.keyed and not noise.sealed:
        return (
            f"{run.path / 'checkpoints' / name} has no seal, so a change of its channel would go unnoticed. Runs of "
            "attncem 0.2 have none; a newer run has lost it. If config.yaml is as you trained it, seal the run once "
            f"with {seal}"
        )
    return ""


def key_cautions(run: RunDirectory) -> list[str]:
    """A warning where other users can read the key of a run."""
    file = run.path / KEY_FILE
    mode = open_mode(file) if file.is_file() else ""
    return [f"{file} is open to other users (mode {mode}): predict refuses it until you run chmod 600"] if mode else []


# sealing


@dataclass(frozen=True)
class Sealed:
    """The checkpoints that `seal_run` sealed, with this channel and front end; none where no noise is keyed.

    ``thresholds``: of clients with a head, by checkpoint.
    """

    checkpoints: list[str]
    channel: list[dict[str, Any]]
    front_end: dict[str, Any]
    thresholds: dict[str, float] = field(default_factory=dict)


def seal_run(run: str | Path | RunDirectory, *, with_new_key: bool = False) -> Sealed:
    """Seal a run of an older version with its present channel, so that it may release; scheme 0 becomes 1.

    `with_new_key` makes the key of a keyed channel where there is none, and replaces seals of the lost key. With its
    key in place, a seal that does not fit is an error.
    """
    folder = RunDirectory.open(run)
    with folder.locked(), explain_os_error(folder.path, "fix this and seal the run again"):
        noise, facts = _sealable(folder, with_new_key)
        # A kill leaves a run that releases nothing; the same command, without a new key once it is there, completes it.
        if noise.scheme != SCHEME:
            folder.update_manifest(noise_scheme=SCHEME)
        if with_new_key:
            _write_seals(folder, facts, lambda *_, **__: "")
            write_private(folder.path / KEY_FILE, new_key())
        if noise.keyed:
            _write_seals(folder, facts, folder.seal)
    config, sealed = folder.config, list(facts) if noise.keyed else []
    decides = {name: release["threshold"] for name in sealed if (release := release_of(facts[name]))}
    return Sealed(sealed, config.channel_options, config.front_end_options, decides)


def _sealable(run: RunDirectory, with_new_key: bool) -> tuple[NoiseFacts, dict[str, dict[str, Any]]]:
    """The noise of a run and the facts of its checkpoints; an error where it cannot be sealed."""
    facts = _readable(run)
    if not facts:
        raise RunError(f"{run.path} has no checkpoint that can be read: there is nothing to seal")
    for name in facts:
        noise = check_noise(run, name, facts[name], onnx=True)
    if with_new_key and not noise.keyed:
        raise ConfigError(f"--new-key: the channel of {run.path} has no keyed noise, so it needs no key")
    if with_new_key and noise.key:
        raise RunError(f"{run.path / KEY_FILE} exists and was not changed: seal the run without --new-key")
    if noise.keyed and not noise.key and not with_new_key:
        raise RunError(f"{run.path / KEY_FILE} is missing: restore it, or make a new one with --new-key")
    return noise, facts


def _write_seals(run: RunDirectory, facts: Mapping[str, Mapping[str, Any]], sealer: Callable[..., str]) -> None:
    """Write the seals of these checkpoints, and of their halves that are stored as ONNX."""
    for name, its in facts.items():
        write_sealed(run.path / "checkpoints" / name, its, sealer)
    halves = dict(run.manifest.get("onnx", {}))
    for name in halves.keys() & facts.keys():
        kept = {file: sha256 for file, sha256 in halves[name].items() if file != "seal"}
        mark = sealer(facts[name]["sha256"]["client.safetensors"], onnx=kept)
        halves[name] = {**kept, "seal": mark} if mark else kept
    if halves:
        run.update_manifest(onnx=halves)
