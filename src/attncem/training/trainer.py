"""Trainer: one run from its start or checkpoint to its last epoch: steps, validation, checkpoints, warnings."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor

from attncem.base.progress import Progress, tell
from attncem.base.record import read
from attncem.base.seeding import make_generator
from attncem.base.texts import text, translated, written
from attncem.base.types import RunError, TrainingError
from attncem.config.options.run import RunConfig
from attncem.data.batches import augment
from attncem.models.client_head import confidence
from attncem.models.cost import count_cost, sides
from attncem.models.pruning import channel_importance, prune
from attncem.models.split import SplitModel, feature_shape
from attncem.records.checkpoints import (
    Broken,
    Checkpoint,
    broken_tensor,
    check_optimizers,
    checkpoint_called,
    endless_buffers,
    fitting,
    last_finite,
)
from attncem.records.metrics import accuracy
from attncem.records.run_files import BestFacts
from attncem.records.runs import RunDirectory
from attncem.records.selection import Selection
from attncem.training.build import Modules, RunData, build_model, build_penalties, build_surrogate_for, load_data
from attncem.training.choosing_threshold import merit, require_validation, select
from attncem.training.client_time import ONNX_FROM, time_client
from attncem.training.engine import Engine, describe_device, first_not_finite, peak_memory, resolve_device, seeded
from attncem.training.health import SHOWN, Watch, warning
from attncem.training.initial import check_same_split, start_line, time_left
from attncem.training.objective import Objective
from attncem.training.processes import World
from attncem.training.surrogates import Surrogate

_EVALUATION_BATCH = 500


def _numbers_of(selection: Selection) -> dict[str, float]:
    """Numbers of the selection that a line of validation adds."""
    return {
        "accuracy_alone": selection.alone,
        "accuracy_all_sent": selection.all_sent,
        "share_sent": selection.share,
        "threshold": selection.threshold,
    }


@dataclass
class _Progress:
    """Progress of the run: epochs and steps done, and the best checkpoint so far."""

    epoch: int
    step: int
    best: dict[str, Any]


class Trainer:
    """Everything that one run needs during training; `run_all` sets the folder."""

    run: RunDirectory
    told: Progress
    watch: Watch
    selection: Selection | None = None

    def __init__(self, config: RunConfig, modules: Modules | None, world: World | None = None) -> None:
        self.config = config
        self.world = world or World()
        self.device = resolve_device(config.device)
        self.data: RunData = load_data(config, self.device)
        require_validation(config.release, len(self.data.validation))
        engine = Engine(self.device, config.training.precision, self.world)
        with seeded(self.device, config.seed, "init"):
            self.model: SplitModel = build_model(config, self.data.spec, modules)
            self.surrogate: Surrogate = build_surrogate_for(config, self.model, self.data.spec)
        if config.release.learn == "head":
            self.model.encoder.requires_grad_(False)
            self.model.server.requires_grad_(False)  # type: ignore[union-attr]
        engine.place(self.model)
        self.surrogate.to(self.device)
        penalties = build_penalties(config, self.model, self.data.spec, engine)
        self.steps_per_epoch = len(self.data.train) // config.training.batch_size
        num_steps = self.steps_per_epoch * config.training.epochs
        self.objective = Objective(config, self.model, self.surrogate, penalties, engine, num_steps=num_steps)
        self.objective.step.penalty_weight = self.objective.weight
        self.trainable = self.objective.trainable
        self.endless = endless_buffers(self.trainable.modules)

    @property
    def cautions(self) -> list[str]:
        """Warnings about the chosen options, for the user."""
        return [self.surrogate.caution] if self.surrogate.caution else []

    def run_all(self, run: RunDirectory, told: Progress, *, alone: bool = False) -> None:
        """Train the remaining epochs; ``alone`` also shows a summary first and a time estimate after epoch 1."""
        self.run, self.told, self.watch = run, told, Watch(self.data.spec.num_classes)
        self.latest: dict[str, float] = {}
        check_same_split(run, self.data.split.sha256)
        progress = self._start()
        options = self.config.training
        if alone:
            tell(told, start_line(run, self.config, progress.epoch))
        for epoch in range(progress.epoch, options.epochs):
            started = time.perf_counter()
            with seeded(self.device, self.config.seed, *self.objective.stream("epoch", epoch)):
                self._prune_when_due(progress)
                features = self._train_epoch(epoch, progress)
                progress.epoch = epoch + 1
                validated = self._validate(progress) if self.world.first else 0.0
                if self.world.first:
                    self._refresh(features, progress)
                self.world.align(*self.trainable.modules.values())
            self.run.log({"epoch": progress.epoch, "seconds": time.perf_counter() - started}, "timing.jsonl")
            self._say_how_steps_are_taken()
            self._checkpoint(progress, validated)
            if alone and epoch == 0 and (left := time_left(run, self.config, progress.epoch)):
                tell(told, text("command.left", run=self.config.name, left=text("progress.left", time=left)))
        seconds = sum(record["seconds"] for record in self.run.records("timing.jsonl"))
        # A run killed between its last checkpoint and this write has an older file.
        run.write("best.json", {"checkpoint": progress.best["checkpoint"]})
        took = {"training_seconds": seconds, **peak_memory(self.device)}
        cost = asdict(count_cost(self.model, self.data.spec.shape))  # after pruning less than at the start
        if self.world.first:
            client, _ = sides(self.model)
            cost |= time_client(client, self.data.spec.shape, onnx=seconds >= ONNX_FROM)._asdict()
        self.run.update_manifest(status="finished", best=progress.best, **took, **cost)
        self.run.path = self.world.from_first(self.run.path)  # no process leaves before the run is complete

    def _say_how_steps_are_taken(self) -> None:
        """Record the kind of step in the manifest, once it is known or has changed."""
        step = self.objective.step
        if self.run.manifest.get("steps") != step.mode:
            self.run.update_manifest(steps=step.mode, step_problems=step.problems, step_differences=step.differences)
            for problem in step.problems:
                tell(self.told, f"{self.config.name}: {problem}")

    def _start(self) -> _Progress:
        """Start, or resume from the newest intact checkpoint."""
        checkpoint = self._newest_intact()
        shape = feature_shape(self.model.encoder, self.data.spec.shape)
        self.run.update_manifest(
            status="running",
            split=self.data.split.counts(),
            device=describe_device(self.device),
            feature_shape=list(shape),
            **asdict(count_cost(self.model, self.data.spec.shape)),
            cautions=self.cautions,
            processes=self.world.size,
        )
        checkpoint = self.world.from_first(checkpoint)
        if checkpoint is None:
            self.world.align(*self.trainable.modules.values())
            self.run.cut_back(dict.fromkeys(self.run.offsets(), 0))
            return _Progress(0, 0, {"checkpoint": "", "epoch": 0, "validation_accuracy": -1.0})
        return self._go_on(checkpoint)

    def _newest_intact(self) -> Checkpoint | None:
        """The checkpoint to resume from; problems of newer ones are reported."""
        notes = self.run.clear_leftovers()
        checkpoint, problems = self.run.load_newest_intact(self.endless)
        if checkpoint is not None:
            notes += self.run.log_problems(checkpoint.facts.get("offsets", {}))
        self._note(*notes, *problems)
        if checkpoint is None and problems:
            raise RunError("no intact checkpoint is left:\n" + "\n".join(problems))
        return checkpoint

    def _note(self, *problems: str) -> None:
        """Write problems to problems.jsonl of the run, and report them."""
        for problem in problems:
            self.run.log({"problem": problem}, "problems.jsonl")
            tell(self.told, f"{self.config.name}: {problem}")

    def _go_on(self, checkpoint: Checkpoint) -> _Progress:
        """Restore everything from a checkpoint."""
        facts, file = checkpoint.facts, self.run.path / "checkpoints" / checkpoint.name
        with fitting(f"{file} does not fit the run"):
            check_optimizers(self.trainable.optimizers, checkpoint.optimizer)
            self.trainable.restore(checkpoint.weights, checkpoint.optimizer)
            read(BestFacts, facts["best"], f"{file}: best")
            progress = _Progress(facts["epoch"], facts["step"], facts["best"])
            self.run.cut_back(facts["offsets"])
            self.run.write("best.json", {"checkpoint": progress.best["checkpoint"]})  # a kill leaves an older one
        with fitting(f"{self.run.path / 'metrics.jsonl'} is damaged"):
            for record in self.run.records():
                self.watch.update(record)
        return progress

    def _prune_when_due(self, progress: _Progress) -> None:
        """Prune the client's least important channels, ranked by CE on training batches in evaluation mode."""
        options, seed = self.config.model.pruning, self.config.seed
        if options is None or progress.epoch != self.config.pruning_epoch:
            return
        order, noise = (make_generator(self.device, seed, "pruning", name) for name in ("data", "noise"))
        rows = self.data.train.epoch_order(self.config.training.batch_size, order, self.config.training.batches)
        self.model.eval()

        def losses() -> Iterator[Tensor]:
            for x, y in map(self.data.train.get, rows[: options.batches]):
                released = self.model.release(augment(x, self.config.data, order), generator=noise)
                smoothing = self.config.training.label_smoothing
                yield F.cross_entropy(self.model.predict(released), y, label_smoothing=smoothing)

        importance = channel_importance(self.model.encoder, losses())
        prune(self.model.encoder, importance, options.ratio, self.objective.optimizers["model"])
        self.world.align(self.model)
        cost = count_cost(self.model, self.data.spec.shape)
        numbers = {"client_parameters": cost.client_parameters, "client_macs": cost.client_macs}
        self.run.log({"kind": "pruning", "epoch": progress.epoch, "step": progress.step, **numbers})

    def _train_epoch(self, epoch: int, progress: _Progress) -> Iterable[tuple[Tensor, Tensor]]:
        """One pass over the training images; returns the features for the surrogate's refit."""
        options, objective = self.config.training, self.objective
        objective.begin_epoch(epoch)
        features: Tensor | None = None
        order = self.data.train.epoch_order(options.batch_size, objective.order, options.batches)
        part = order[:, self.world.part(options.batch_size)]
        for position, (images, labels) in enumerate(self.data.train.batches(part), 1):
            lr, weight = objective.set_rates(epoch + (position - 1) / self.steps_per_epoch)
            objective.measure_gradients(images, labels, weight, progress.step)
            z = objective.step(images, labels)
            if self.surrogate.needs_refresh and options.refresh_features == "trained" and self.world.first:
                features = z.new_empty(len(order), *z.shape) if features is None else features
                features[position - 1] = z
            progress.step += 1
            ends = position == self.steps_per_epoch
            if position % options.log_every == 0 or ends:
                numbers = objective.read(epoch_ends=ends)
                self._log_step(progress, epoch + position / self.steps_per_epoch, lr, weight, numbers)
        if features is None:
            return self._second_pass()
        return [(features.flatten(0, 1), self.data.train.labels[order.flatten()])]

    def _log_step(self, progress: _Progress, epoch: float, lr: float, weight: float, numbers: dict[str, float]) -> None:
        """Write one line of metrics.jsonl, unless a number in it is not finite."""
        record = {"kind": "train", "step": progress.step, "epoch": epoch, "lr": lr, "penalty_weight": weight, **numbers}
        self._stop_unless_finite(record, numbers)
        self._log(record)
        self.told(
            written("stage.train", run=self.config.name),
            progress.step,
            self.steps_per_epoch * self.config.training.epochs,
            {"epoch": math.ceil(epoch), **self._shown(numbers, weight)},
        )

    def _log(self, record: Mapping[str, Any]) -> None:
        """Write a line, and each warning that starts or ends with it."""
        self.run.log(record)
        for change in self.watch.update(record):
            self.run.log(change)
            said = {"epoch": record["epoch"], "said": translated(change["text"])}
            tell(self.told, text("health.training", run=self.config.name, **said))

    def _shown(self, numbers: dict[str, float], weight: float) -> dict[str, float]:
        """The values of the progress line; the gradient ratio is the last one measured."""
        self.latest |= numbers
        named = {"ce": "ce", "rob_loss": "rob_loss", "train_accuracy": "train_accuracy", **(SHOWN if weight else {})}
        return {short: self.latest[name] for name, short in named.items() if name in self.latest}

    def _stop_unless_finite(self, record: Mapping[str, Any], numbers: Mapping[str, float]) -> None:
        """End the run and save its diagnostics when a number is NaN or infinite."""
        broken = first_not_finite(numbers)
        if broken is None:
            return
        self._stop(record, Broken(broken, str(numbers[broken])))

    def _stop(self, record: Mapping[str, Any], broken: Broken) -> NoReturn:
        """End the run: the cause is saved, and the error names the checkpoint to return to."""
        readable = {
            key: value if isinstance(value, str) or math.isfinite(value) else None for key, value in record.items()
        }
        self.run.write("failure.json", {**readable, "broken": broken.name, "value": broken.value})
        self.run.log(warning("not_finite", broken.name, None, begins=True, step=record["step"], epoch=record["epoch"]))
        # Other processes of a run have no checkpoints.
        left = last_finite(self.run.path / "checkpoints", self.endless) if self.world.first else "see the first process"
        raise TrainingError(
            f"{broken.name} became {broken.value} by step {record['step']}: training stopped. "
            f"The numbers are in {self.run.path / 'failure.json'}; {left}"
        )

    @torch.no_grad()
    def _second_pass(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Features of all training images, augmented, in evaluation mode: the baseline refits on these."""
        self.model.eval()
        for images, labels in self.data.train.in_order(_EVALUATION_BATCH):
            yield self.model.encode(augment(images, self.config.data, self.objective.order)), labels

    @torch.no_grad()
    def _validate(self, progress: _Progress) -> float:
        """Accuracy through the channel on the validation images, with the same noise every time."""
        self.model.eval()
        noise = make_generator(self.device, self.config.seed, "validation")
        right, ce, alone, sure = [], [], [], []
        for images, labels in self.data.validation.in_order(_EVALUATION_BATCH):
            z, answers = (self.model.encode(images), None) if self.model.head is None else self.model.look(images)
            logits = self.model.predict(self.model.transmit(z, images, noise)).float()
            right.append(accuracy(logits, labels))
            ce.append(F.cross_entropy(logits, labels, reduction="none"))
            if answers is not None:
                alone.append(accuracy(answers, labels))
                sure.append(confidence(answers))
        value = float(torch.cat(right).mean())
        numbers = {"accuracy": value, "ce": float(torch.cat(ce).mean())}
        if sure:
            self.selection = select(self.config.release, torch.cat(sure), torch.cat(alone) > 0, torch.cat(right) > 0)
            self.model.threshold, value = self.selection.threshold, self.selection.accuracy
            numbers |= {"accuracy": value, **_numbers_of(self.selection)}
        record = {"kind": "validation", "epoch": progress.epoch, "step": progress.step, **numbers}
        self._stop_unless_finite(record, numbers)
        self._log(record)
        return value

    def _refresh(self, features: Iterable[tuple[Tensor, Tensor]], progress: _Progress) -> None:
        """Refit the surrogate's stored state and log the result."""
        self.surrogate.refresh(features)
        record = self.surrogate.epoch_record()
        if record:
            self.run.log({"kind": "surrogate", "epoch": progress.epoch, "step": progress.step, **record})

    def _checkpoint(self, progress: _Progress, validated: float) -> None:
        """Save when due, at the end, and whenever an epoch becomes the best."""
        options = self.config.training
        opens = options.epochs * (1 - options.selection_window)
        was_open = progress.best["epoch"] > opens
        worth = validated if self.selection is None else merit(self.config.release, self.selection)
        better = not was_open or worth > progress.best.get("merit", progress.best["validation_accuracy"])
        due = progress.epoch % options.checkpoint_every == 0 or progress.epoch == options.epochs
        if not (due or (better and progress.epoch > opens)):
            return
        if better:
            name = checkpoint_called(progress.epoch)
            progress.best = {"checkpoint": name, "epoch": progress.epoch, "validation_accuracy": validated}
            progress.best |= {"merit": worth} if worth != validated else {}
        facts = {"epoch": progress.epoch, "step": progress.step, "best": progress.best, "offsets": self.run.offsets()}
        if self.selection is not None:
            facts["release"] = self.selection.to_dict()
        weights, state = self.trainable.weights(), self.trainable.optimizer_state()
        # Infinite batch norm variance makes every output 0: the losses stay finite, but the model is lost.
        if self.world.first and (broken := broken_tensor(weights, state, self.endless)):
            self._stop({"kind": "checkpoint", "epoch": progress.epoch, "step": progress.step}, broken)
        self.run.save(weights, state, facts)
