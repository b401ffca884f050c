"""train(): from a configuration to a run folder. One loop, one backward, readable top to bottom."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

import attncem
from attncem.build import Modules, RunData, build_model, build_surrogate_for, check, config_of, load_data
from attncem.config.load import dump_config, load_config
from attncem.config.run import RunConfig
from attncem.data.batches import augment
from attncem.engine import (
    Engine,
    Monitor,
    Trainable,
    adam,
    describe_device,
    first_not_finite,
    limited_threads,
    resolve_device,
    seeded,
    set_rate,
    sgd,
)
from attncem.health import SHOWN, Watch, warning
from attncem.metrics import accuracy
from attncem.models.cost import count_cost
from attncem.models.split import SplitModel, feature_shape
from attncem.monitoring import GradientRatio, Latch
from attncem.progress import Report, show_line, show_progress, tell
from attncem.runs import RunDirectory, free_path
from attncem.schedules import penalty_weight, rate_factor
from attncem.seeding import make_generator
from attncem.surrogates import Surrogate
from attncem.types import RunError, TrainingError

_EVALUATION_BATCH = 500


def train(
    config: str | Path | RunConfig | Mapping[str, Any] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    out: str | Path | None = None,
    resume: str | Path | RunDirectory | None = None,
    modules: Modules | None = None,
    report: Report | None = None,
) -> RunDirectory:
    """Train a split model and return its run folder.

    `config` is a packaged name (`attncem config --list`), a YAML file, a mapping or a RunConfig;
    `overrides` are dotted, e.g. ``["training.epochs=3"]``. `out` must be a new folder; by default
    runs/NAME-001, -002 … `resume` goes on with an interrupted run instead. `modules` replaces the
    network by your own (encoder, server).
    """
    if resume is not None:
        if config is not None or overrides or out is not None:
            raise RunError("resume takes everything from the run folder: give no configuration, override or out")
        run = RunDirectory.open(resume)
        if run.manifest["status"] == "finished":
            return run
        _check_modules(run, modules)
        resolved = config_of(run)
    else:
        run, resolved = None, load_config(config, overrides).config
    check(resolved, custom_network=modules is not None)
    with limited_threads(resolved.threads):
        # All that can be refused is refused here, before a folder is made.
        trainer = _Trainer(resolved, modules)
        run = run or _new_run(resolved, out, modules)
        with run.locked():
            _train_locked(trainer, run, report)
    return run


def _new_run(config: RunConfig, out: str | Path | None, modules: Modules | None) -> RunDirectory:
    path = Path(out) if out is not None else free_path("runs", config.name)
    manifest = {
        "name": config.name,
        "custom_network": modules is not None,
        "versions": {"attncem": attncem.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    return RunDirectory.create(path, config_yaml=dump_config(config), manifest=manifest)


def _train_locked(trainer: _Trainer, run: RunDirectory, report: Report | None) -> None:
    """Train to the end, telling `report`, or else the terminal; the manifest says how it ended."""
    try:
        if report is not None:
            trainer.run_all(run, report)
            return
        for caution in trainer.cautions:
            show_line(f"caution: {caution}")
        with show_progress() as shown:
            trainer.run_all(run, shown)
    except KeyboardInterrupt:
        run.update_manifest(status="stopped")
        raise
    except TrainingError:
        run.update_manifest(status="failed")
        raise


@dataclass
class _Progress:
    """How far the run has come: epochs and steps done, and the best checkpoint so far."""

    epoch: int
    step: int
    best: dict[str, Any]


class _Trainer:
    """Everything one run needs while it trains; the folder comes with `run_all`."""

    run: RunDirectory
    report: Report
    watch: Watch

    def __init__(self, config: RunConfig, modules: Modules | None) -> None:
        self.config = config
        self.device = resolve_device(config.device)
        self.data: RunData = load_data(config, self.device)
        self.engine = Engine(self.device, config.training.precision)
        with seeded(self.device, config.seed, "init"):
            self.model: SplitModel = build_model(config, self.data.spec, modules)
            self.surrogate: Surrogate = build_surrogate_for(config, self.model, self.data.spec)
        self.engine.place(self.model)
        self.surrogate.to(self.device)
        self.optimizers = self._build_optimizers()
        self.trainable = Trainable(
            {"client": self.model.encoder, "server": self._server(), "surrogate": self.surrogate}, self.optimizers
        )
        self.steps_per_epoch = len(self.data.train) // config.training.batch_size
        self.weight = torch.zeros((), device=self.device)
        self.fitting = torch.zeros((), device=self.device)
        self.latch = Latch(self.data.spec.num_classes, self.device)
        self.gradient_ratio = self._build_gradient_ratio()

    def _server(self) -> torch.nn.Module:
        if self.model.server is None:
            raise RunError("training needs a server half")
        return self.model.server

    def _build_optimizers(self) -> dict[str, Optimizer]:
        options = self.config.training
        optimizers = {"model": sgd(self.model.parameters(), options.optimizer, self.device)}
        own = [p for p in self.surrogate.parameters() if p.requires_grad]
        if own:
            optimizers["surrogate"] = adam(iter(own), options.surrogate_lr, self.device)
        return optimizers

    def _build_gradient_ratio(self) -> GradientRatio | None:
        """What measures the gradients, where there is a penalty and an encoder that learns."""
        options = self.config.training
        learns = any(weight.requires_grad for weight in self.model.encoder.parameters())
        if not (options.gradient_ratio_every and options.penalty_weight and learns):
            return None
        return GradientRatio(self.engine, self.model, self.surrogate, self.config.seed)

    @property
    def cautions(self) -> list[str]:
        """What a person should know about the chosen options before the run is used."""
        return [self.surrogate.caution] if self.surrogate.caution else []

    def run_all(self, run: RunDirectory, report: Report) -> None:
        """Every epoch that is still to do."""
        self.run, self.report, self.watch = run, report, Watch(self.data.spec.num_classes)
        self.latest: dict[str, float] = {}
        _check_same_split(run, self.data)
        progress = self._start()
        options = self.config.training
        for epoch in range(progress.epoch, options.epochs):
            started = time.perf_counter()
            with seeded(self.device, self.config.seed, "epoch", epoch):
                features = self._train_epoch(epoch, progress)
                progress.epoch = epoch + 1
                validated = self._validate(progress)
                if self.surrogate.needs_refresh:
                    self.surrogate.refresh(features)
            self.run.log({"epoch": progress.epoch, "seconds": time.perf_counter() - started}, "timing.jsonl")
            self._checkpoint(progress, validated)
        seconds = sum(record["seconds"] for record in self.run.records("timing.jsonl"))
        # A run killed between its last checkpoint and this file has an older one.
        run.write("best.json", {"checkpoint": progress.best["checkpoint"]})
        self.run.update_manifest(status="finished", best=progress.best, training_seconds=seconds)

    def _start(self) -> _Progress:
        """Begin, or go on where the newest intact checkpoint stands."""
        shape = feature_shape(self.model.encoder, self.data.spec.shape)
        self.run.update_manifest(
            status="running",
            split=self.data.split.counts(),
            device=describe_device(self.device),
            feature_shape=list(shape),
            **asdict(count_cost(self.model, self.data.spec.shape)),
            cautions=self.cautions,
        )
        checkpoint, problems = self.run.load_newest_intact()
        for problem in problems:
            self.run.log({"problem": problem}, "problems.jsonl")
        if checkpoint is None:
            if problems:
                raise RunError("no intact checkpoint is left:\n" + "\n".join(problems))
            self.run.cut_back(dict.fromkeys(self.run.offsets(), 0))
            return _Progress(0, 0, {"checkpoint": "", "epoch": 0, "validation_accuracy": -1.0})
        self.trainable.restore(checkpoint.weights, checkpoint.optimizer)
        facts = checkpoint.facts
        self.run.cut_back(facts["offsets"])
        for record in self.run.records():
            self.watch.update(record)
        return _Progress(facts["epoch"], facts["step"], facts["best"])

    def _train_epoch(self, epoch: int, progress: _Progress) -> Iterable[tuple[Tensor, Tensor]]:
        """One pass over the training images; returns the features for the surrogate's refit."""
        options, seed = self.config.training, self.config.seed
        order = make_generator(self.device, seed, "data", epoch)
        noise = make_generator(self.device, seed, "noise", epoch)
        monitor, rare = Monitor(), Monitor()
        self.latch.clear()
        features: list[tuple[Tensor, Tensor]] = []
        self.model.train()
        for position, (images, labels) in enumerate(self.data.train.shuffled(options.batch_size, order), 1):
            now = epoch + (position - 1) / self.steps_per_epoch
            lr, weight = self._set_rates(now)
            x = augment(images, self.config.data, order)
            if self.gradient_ratio is not None and weight > 0 and progress.step % options.gradient_ratio_every == 0:
                rare.add({"gradient_ratio": self.gradient_ratio.measure(x, labels, self.weight, progress.step)})
            values, z = self._step(x, labels, noise)
            monitor.add(values)
            if self.surrogate.needs_refresh and options.refresh_features == "trained":
                features.append((z, labels))
            progress.step += 1
            if position % options.log_every == 0 or position == self.steps_per_epoch:
                numbers = monitor.read() | rare.read()
                if position == self.steps_per_epoch and options.penalty_weight > 0:
                    numbers |= self.latch.read()
                self._log_step(progress, epoch + position / self.steps_per_epoch, lr, weight, numbers)
        return features if options.refresh_features == "trained" else self._second_pass(order)

    def _set_rates(self, now: float) -> tuple[float, float]:
        """Learning rate and penalty weight at a fractional epoch."""
        options = self.config.training
        lr = options.optimizer.lr * rate_factor(options.schedule, now / options.epochs)
        set_rate(self.optimizers["model"], lr)
        weight = penalty_weight(
            options,
            warmup_epochs=self.config.warmup_epochs,
            loss_scale=self.config.surrogate.loss_scale,
            epoch=now,
            lr=lr,
        )
        self.weight.fill_(weight)
        self.fitting.fill_(float(weight > 0))
        return lr, weight

    def _step(self, x: Tensor, y: Tensor, noise: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
        """One backward over CE + weight · loss + fit_loss; returns scalars on the device, and the clean z.

        Nothing here waits for the host: the weights lie on the device. While the penalty is off (warm-up),
        the surrogate's own weights do not learn either.
        """
        with self.engine.autocast():
            z = self.model.encode(x)
            logits = self.model.predict(self.model.transmit(z, x, noise))
            ce = F.cross_entropy(logits.float(), y)
        penalty = self.surrogate(z, y)
        loss = ce + self.weight * penalty.loss
        if penalty.fit_loss is not None:
            loss = loss + self.fitting * penalty.fit_loss
        self.engine.descend(loss, list(self.optimizers.values()))
        self.latch.add(penalty.per_class, penalty.loss)
        values = {"ce": ce, "train_accuracy": accuracy(logits, y).mean(), **penalty.diagnostics}
        return values, z.detach()

    def _log_step(self, progress: _Progress, epoch: float, lr: float, weight: float, numbers: dict[str, float]) -> None:
        """Write one line of metrics.jsonl, unless a number in it is not finite."""
        record = {"kind": "train", "step": progress.step, "epoch": epoch, "lr": lr, "penalty_weight": weight, **numbers}
        self._stop_unless_finite(record, numbers)
        self._log(record)
        self.report(
            f"train {self.config.name}",
            progress.step,
            self.steps_per_epoch * self.config.training.epochs,
            self._shown(numbers, weight),
        )

    def _log(self, record: Mapping[str, Any]) -> None:
        """Write a line, and each warning that begins or ends with it."""
        self.run.log(record)
        for change in self.watch.update(record):
            self.run.log(change)
            tell(self.report, f"warning: {self.config.name}, epoch {record['epoch']:.3g}: {change['text']}")

    def _shown(self, numbers: dict[str, float], weight: float) -> dict[str, float]:
        """What the progress line says; the gradient ratio is the last one measured."""
        self.latest |= numbers
        named = {"ce": "ce", "rob_loss": "rob_loss", "train_accuracy": "train_accuracy", **(SHOWN if weight else {})}
        return {short: self.latest[name] for name, short in named.items() if name in self.latest}

    def _stop_unless_finite(self, record: Mapping[str, Any], numbers: Mapping[str, float]) -> None:
        """End the run with its diagnostics saved when a number became NaN or infinite."""
        broken = first_not_finite(numbers)
        if broken is None:
            return
        readable = {
            key: value if isinstance(value, str) or math.isfinite(value) else None for key, value in record.items()
        }
        self.run.write("failure.json", {**readable, "broken": broken, "value": str(numbers[broken])})
        self.run.log(warning("not_finite", broken, None, begins=True, step=record["step"], epoch=record["epoch"]))
        raise TrainingError(
            f"{broken} became {numbers[broken]} by step {record['step']}: training stopped. "
            f"The numbers are in {self.run.path / 'failure.json'}; earlier checkpoints are intact"
        )

    @torch.no_grad()
    def _second_pass(self, order: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Features of all training images, augmented, in evaluation mode: what the baseline refits on."""
        self.model.eval()
        for images, labels in self.data.train.in_order(_EVALUATION_BATCH):
            yield self.model.encode(augment(images, self.config.data, order)), labels

    @torch.no_grad()
    def _validate(self, progress: _Progress) -> float:
        """Accuracy through the channel on the validation images, with the same noise every time."""
        self.model.eval()
        noise = make_generator(self.device, self.config.seed, "validation")
        right, ce = [], []
        for images, labels in self.data.validation.in_order(_EVALUATION_BATCH):
            logits = self.model.predict(self.model.release(images, generator=noise)).float()
            right.append(accuracy(logits, labels))
            ce.append(F.cross_entropy(logits, labels, reduction="none"))
        value = float(torch.cat(right).mean())
        numbers = {"accuracy": value, "ce": float(torch.cat(ce).mean())}
        record = {"kind": "validation", "epoch": progress.epoch, "step": progress.step, **numbers}
        self._stop_unless_finite(record, numbers)
        self._log(record)
        return value

    def _checkpoint(self, progress: _Progress, validated: float) -> None:
        """Save when due, at the end, and whenever an epoch becomes the best."""
        options = self.config.training
        opens = options.epochs * (1 - options.selection_window)
        was_open = progress.best["epoch"] > opens
        better = not was_open or validated > progress.best["validation_accuracy"]
        due = progress.epoch % options.checkpoint_every == 0 or progress.epoch == options.epochs
        if not (due or (better and progress.epoch > opens)):
            return
        if better:
            name = f"epoch-{progress.epoch:05d}"
            progress.best = {"checkpoint": name, "epoch": progress.epoch, "validation_accuracy": validated}
        facts = {"epoch": progress.epoch, "step": progress.step, "best": progress.best, "offsets": self.run.offsets()}
        self.run.save(self.trainable.weights(), self.trainable.optimizer_state(), facts)


def _check_modules(run: RunDirectory, modules: Modules | None) -> None:
    """A resumed run must get the kind of network it was begun with."""
    custom = run.manifest["custom_network"]
    if custom and modules is None:
        raise RunError(f"{run.path} trains your own networks: pass them again as modules=(encoder, server)")
    if modules is not None and not custom:
        raise RunError(f"{run.path} trains the network {config_of(run).model.name}: it takes no modules")


def _check_same_split(run: RunDirectory, data: RunData) -> None:
    """A resumed run must see the images it saw before."""
    known = run.manifest.get("split")
    if known is not None and known["sha256"] != data.split.sha256:
        raise RunError(f"the data or its split has changed since {run.path} was begun: it cannot be resumed with them")
