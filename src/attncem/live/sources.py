"""What `attncem live` is asked to show: a run, a bundle, a folder of --pack, or a model of the package."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attncem.base.progress import Progress
from attncem.base.types import ConfigError
from attncem.config.loading.suggest import nearest
from attncem.live.facts import Shown, open_shown

MODELS = Path(__file__).parent / "models"
"""The models of the package: a folder of `attncem live --pack` for each name."""


def packaged_models() -> list[str]:
    """The names of the models of the package."""
    return sorted(file.parent.name for file in MODELS.glob("*/live.json"))


@contextmanager
def prepared(
    source: str,
    *,
    audits: Sequence[str] = (),
    weights: str = "best",
    progress: Progress | None = None,
) -> Iterator[Shown]:
    """What is shown of a source. A run is exported into a folder that exists only inside."""
    folder = Path(source)
    if (folder / "config.yaml").is_file():
        from attncem.live.packing import pack

        with tempfile.TemporaryDirectory(prefix="attncem-live-") as place:
            made = pack(folder, Path(place) / "bundle", audits=audits, weights=weights, progress=progress)
            yield open_shown(made)
        return
    if audits:
        raise ConfigError(f"--audit: names audits of a run, and {source} is none: its attacks are in its folder")
    yield open_shown(folder_of(source))


def folder_of(source: str) -> Path:
    """The folder of a bundle, or of a model of the package; ConfigError where it is neither."""
    folder = Path(source)
    if folder.is_dir():
        return folder
    if source in packaged_models():
        return MODELS / source
    names = packaged_models()
    hint = f"; the package has {', '.join(names)}" if names else ""
    near = f"; did you mean {close}?" if (close := nearest(source, names)) else ""
    raise ConfigError(f"{source}: no run, no bundle of attncem export, and no model of the package{hint}{near}")
