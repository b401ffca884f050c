"""Tracking: also writes the log of a run for TensorBoard (extra `track`), into RUN/tensorboard.

metrics.jsonl does not change. The event file is written again from it whenever a run starts or resumes, so nothing
appears twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attncem.base.types import ConfigError
from attncem.config.loading.flat import flat_options
from attncem.config.options.run import RunConfig
from attncem.records.runs import RunDirectory, explain_os_error

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
_EVENTS = "events.out.tfevents.*"
_PLACES = ("schema_version", "kind", "step", "epoch")
"""Keys of a line that locate it and are not drawn."""
_JUDGED = "validation/accuracy"
"""Metrics that TensorBoard shows with the hyperparameters."""


def check_tracker(config: RunConfig) -> None:
    """ConfigError before training if the extra for the tracker is missing."""
    if config.training.track is None:
        return
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"training.track={config.training.track} needs tensorboard, which cannot be imported ({error}): "
            'install the extra with pip install "attncem[track]", or set training.track=null'
        ) from error


@contextmanager
def tracked(run: RunDirectory, config: RunConfig) -> Iterator[RunDirectory]:
    """The run to log to during training: itself, or with tracking, one that also writes events."""
    if config.training.track is None:
        yield run
        return
    following = TrackedRun(run, config)
    try:
        yield following
    finally:
        following.close()


class TrackedRun(RunDirectory):
    """A run whose metrics are also written as events."""

    def __init__(self, run: RunDirectory, config: RunConfig) -> None:
        super().__init__(run.path)
        self._config = config
        self._writer: SummaryWriter | None = None

    def log(self, record: Mapping[str, Any], file: str = "metrics.jsonl") -> None:
        """Append one line of JSON; its numbers become events."""
        super().log(record, file)
        if file == "metrics.jsonl":
            self._draw(record)

    def cut_back(self, offsets: Mapping[str, int]) -> None:
        """Shorten the logs and write the events again from the rest."""
        super().cut_back(offsets)
        with explain_os_error(self.path):
            self._begin()

    def close(self) -> None:
        """Write pending events."""
        if self._writer is not None:
            self._writer.close()

    def _begin(self) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        folder = self.path / FOLDER
        for old in folder.glob(_EVENTS):
            old.unlink()
        self._writer = SummaryWriter(str(folder))
        events = self._writer._get_file_writer()
        for summary in hparams(hyperparameters(self._config), {_JUDGED: 0.0}):  # add_hparams makes a run of its own
            events.add_summary(summary)
        for record in self.records():
            self._draw(record)

    def _draw(self, record: Mapping[str, Any]) -> None:
        if self._writer is None:
            return
        for name, value in numbers(record).items():
            self._writer.add_scalar(name, value, int(record["step"]))
        if record.get("kind") == "validation":
            self._writer.flush()


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line of metrics.jsonl by the name of their curve, such as train/rob_loss."""
    if record.get("kind") == "warning":
        return {}
    return {
        f"{record['kind']}/{key}": float(value)
        for key, value in record.items()
        if key not in _PLACES and isinstance(value, int | float) and not isinstance(value, bool)
    }


def hyperparameters(config: RunConfig) -> dict[str, bool | float | str]:
    """Every option by its dotted key; values other than numbers as text."""
    options = flat_options(config)
    return {key: value if isinstance(value, bool | int | float) else str(value) for key, value in options.items()}
