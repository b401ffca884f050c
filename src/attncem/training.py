"""train(): from a configuration to a run folder. One loop, one backward, readable top to bottom."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

import attncem
from attncem.build import (
    Modules,
    RunData,
    build_model,
    build_penalties,
    build_surrogate_for,
    check,
    config_of,
    load_data,
)
from attncem.capture import TOLERANCE, Beside, Step, compile_function
from attncem.config.load import dump_config, load_config
from attncem.config.run import RunConfig
from attncem.data.batches import as_floats, augment, draw_moves, move
from attncem.engine import (
    Engine,
    Monitor,
    Trainable,
    adam,
    describe_device,
    fastest_convolutions,
    first_not_finite,
    limited_threads,
    memory_given_back,
    resolve_device,
    seeded,
    set_rate,
    sgd,
)
from attncem.health import SHOWN, Watch, warning
from attncem.initial import start_from_given
from attncem.metrics import accuracy
from attncem.models.cost import count_cost
from attncem.models.pruning import channel_importance, prune
from attncem.models.split import SplitModel, feature_shape
from attncem.monitoring import GradientRatio, Latch
from attncem.processes import World, joined, launched_processes
from attncem.progress import Report, show_line, show_progress, silent, tell
from attncem.runs import RunDirectory, UnwrittenRun, free_path
from attncem.schedules import penalty_weight, rate_factor
from attncem.seeding import derive_seed, make_generator
from attncem.surrogates import Surrogate
from attncem.types import ConfigError, RunError, SurrogateOutput, TrainingError
from attncem.types import Step as Seen

_EVALUATION_BATCH = 500
_RATIO_EVERY = {"cpu": 200, "cuda": 2000}
_COMPILE_FROM = 50_000
_COMPILE_SURROGATE_FROM = 10_000
"""Steps from which compiling everything, or only the surrogate, gains more time than it takes."""


def train(
    config: str | Path | RunConfig | Mapping[str, Any] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    out: str | Path | None = None,
    resume: str | Path | RunDirectory | None = None,
    init_from: str | Path | RunDirectory | None = None,
    modules: Modules | None = None,
    report: Report | None = None,
) -> RunDirectory:
    """Train a split model and return its run folder.

    `config` is a packaged name (`attncem config --list`), a YAML file, a mapping or a RunConfig;
    `overrides` are dotted, e.g. ``["training.epochs=3"]``. `out` must be a new folder; by default
    runs/NAME-001, -002 … `resume` goes on with an interrupted run instead. `init_from` (a run or a
    .safetensors file) sets model.init_from. `modules` replaces the network by your own (encoder, server).
    """
    if resume is not None:
        if config is not None or overrides or out is not None or init_from is not None:
            raise RunError(
                "resume takes everything from the run folder: give no configuration, override, out or init_from"
            )
        run = RunDirectory.open(resume)
        if run.manifest["status"] == "finished":
            return run
        _check_modules(run, modules)
        resolved = config_of(run)
    else:
        run, resolved = None, load_config(config, overrides).config
        if init_from is not None:
            resolved = load_config(resolved, {"model.init_from": os.fspath(init_from)}).config
    resolved = _for_launch(resolved, begun=run is not None)
    check(resolved, custom_network=modules is not None)
    device = resolve_device(resolved.device)
    others = joined(resolved.processes, device, _help_to_train, (resolved, modules))
    with memory_given_back(device), limited_threads(resolved.threads), fastest_convolutions(device), others as world:
        # All that can be refused is refused here, before a folder is made.
        trainer = _Trainer(resolved, modules, world)
        if not world.first:
            return _follow(trainer)
        # A run that has a checkpoint goes on from that.
        if run is None or not run.checkpoints():
            initial = start_from_given(trainer.model, resolved.model)
            run = run or _new_run(resolved, out, modules, initial)
            _check_same_start(run, initial)
        with run.locked():
            _train_locked(trainer, run, report)
        del trainer
    return run


def _for_launch(config: RunConfig, *, begun: bool) -> RunConfig:
    """The configuration with the number of processes that torchrun started, if it did."""
    launched = launched_processes()
    if launched in (1, config.processes):
        return config
    if begun or config.processes > 1:
        raise ConfigError(f"processes={config.processes} in this run, but torchrun started {launched}")
    return load_config(config, {"processes": launched}).config


def _help_to_train(world: World, config: RunConfig, modules: Modules | None) -> None:
    """What the processes do that the first one started."""
    with limited_threads(config.threads), fastest_convolutions(resolve_device(config.device)):
        _follow(_Trainer(config, modules, world))


def _follow(trainer: _Trainer) -> RunDirectory:
    """Take part in a run that the first process writes."""
    run = UnwrittenRun()
    trainer.run_all(run, silent)
    return RunDirectory(run.path)


def _new_run(
    config: RunConfig, out: str | Path | None, modules: Modules | None, initial: Mapping[str, Any] | None
) -> RunDirectory:
    path = Path(out) if out is not None else free_path("runs", config.name)
    manifest = {
        "name": config.name,
        "custom_network": modules is not None,
        **({"init_from": initial} if initial is not None else {}),
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


@dataclass(frozen=True)
class _Functions:
    """The parts of a step that may be compiled."""

    prepare: Callable[[Tensor, Sequence[Tensor]], Tensor]
    encode: Callable[[Tensor], Tensor]
    predict: Callable[[Tensor], Tensor]
    penalise: Callable[[Tensor, Tensor], SurrogateOutput]

    def compiled(self) -> _Functions:
        """The same, compiled when they are first called."""
        parts = (self.prepare, self.encode, self.predict, self.penalise)
        return _Functions(*(compile_function(part) for part in parts))


class _Trainer:
    """Everything one run needs while it trains; the folder comes with `run_all`."""

    run: RunDirectory
    report: Report
    watch: Watch

    def __init__(self, config: RunConfig, modules: Modules | None, world: World | None = None) -> None:
        self.config = config
        self.world = world or World()
        self.device = resolve_device(config.device)
        self.data: RunData = load_data(config, self.device)
        self.engine = Engine(self.device, config.training.precision, self.world)
        with seeded(self.device, config.seed, "init"):
            self.model: SplitModel = build_model(config, self.data.spec, modules)
            self.surrogate: Surrogate = build_surrogate_for(config, self.model, self.data.spec)
        self.engine.place(self.model)
        self.surrogate.to(self.device)
        self.optimizers = self._build_optimizers()
        self.penalties = build_penalties(config, self.model, self.data.spec, self.engine)
        self.trainable = self._build_trainable()
        self.steps_per_epoch = len(self.data.train) // config.training.batch_size
        self.weight = torch.zeros((), device=self.device)
        self.fitting = torch.zeros((), device=self.device)
        self.order = torch.Generator(self.device)
        self.noise = torch.Generator(self.device)
        if self.world.size > 1:
            self.surrogate.generator = torch.Generator(self.device)
        self.monitor, self.rare = Monitor(self.device), Monitor(self.device)
        self.latch = Latch(self.data.spec.num_classes, self.device)
        self.functions = _Functions(self._prepare, self.model.encode, self.model.predict, self.surrogate)
        self.step = self._build_step()
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

    def _build_trainable(self) -> Trainable:
        """Everything that a checkpoint must hold: penalties with what they train themselves."""
        modules = {"client": self.model.encoder, "server": self._server(), "surrogate": self.surrogate}
        optimizers = dict(self.optimizers)
        for name, penalty in self.penalties.items():
            modules[f"penalty-{name}"] = penalty
            optimizers |= {f"penalty-{name}-{own}": inner for own, inner in penalty.optimizers.items()}
        return Trainable(modules, optimizers)

    def _build_step(self) -> Step:
        """The step, to be captured and compiled as `training.fast` says."""
        options = self.config.training
        fast, obstacle = self.device.type == "cuda" and options.fast != "off", self._obstacle_to_recording()
        record = fast and not obstacle
        faster = self._compiled_functions() if record else None
        step = Step(
            partial(self._step, self.functions),
            state=lambda: [*self.trainable.tensors(), self.monitor.total, *self.latch.tensors],
            watched=list(self.model.parameters()),
            generators=(self.order, self.noise),
            record=record,
            compiled=None if faster is None else partial(self._step, faster),
            tolerance=TOLERANCE[options.precision],
        )
        if fast and obstacle:
            step.problems.append(f"steps are not captured: {obstacle}")
        return step

    def _compiled_functions(self) -> _Functions | None:
        """The step's parts, compiled as far as the run is long enough to gain by it; None: not at all."""
        fast, steps = self.config.training.fast, self.steps_per_epoch * self.config.training.epochs
        if fast == "compile" or (fast == "auto" and steps >= _COMPILE_FROM):
            return self.functions.compiled()
        if fast == "auto" and steps >= _COMPILE_SURROGATE_FROM:
            return replace(self.functions, penalise=compile_function(self.functions.penalise))
        return None

    def _obstacle_to_recording(self) -> str:
        """Why steps cannot be replayed; nothing if they can."""
        if self.world.size > 1:
            # Those that did not agree on how steps are taken would wait for each other.
            return "several processes take them together"
        changing = [name for name, penalty in self.penalties.items() if not penalty.static]
        return f"the penalty {changing[0]} does not do the same in every step" if changing else ""

    def _build_gradient_ratio(self) -> GradientRatio | None:
        """What measures the gradients, where there is a penalty and an encoder that learns."""
        options = self.config.training
        given = options.gradient_ratio_every
        self.gradient_ratio_every = _RATIO_EVERY[self.device.type] if given is None else given
        learns = any(weight.requires_grad for weight in self.model.encoder.parameters())
        alone = self.world.size == 1  # of several processes each sees a part of the batch
        if not (self.gradient_ratio_every and options.penalty_weight and learns and alone):
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
            with seeded(self.device, self.config.seed, *self._stream("epoch", epoch)):
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
        seconds = sum(record["seconds"] for record in self.run.records("timing.jsonl"))
        # A run killed between its last checkpoint and this file has an older one.
        run.write("best.json", {"checkpoint": progress.best["checkpoint"]})
        cost = asdict(count_cost(self.model, self.data.spec.shape))  # less than at the start after pruning
        self.run.update_manifest(status="finished", best=progress.best, training_seconds=seconds, **cost)
        self.run.path = self.world.from_first(self.run.path)  # and nobody leaves before the run is whole

    def _stream(self, name: str, epoch: int) -> tuple[str | int, ...]:
        """Name of a random stream of this epoch: of several processes each has its own."""
        return (name, epoch) if self.world.size == 1 else (name, epoch, "process", self.world.rank)

    def _say_how_steps_are_taken(self) -> None:
        """Into the manifest, once it is known or has changed."""
        if self.run.manifest.get("steps") != self.step.mode:
            self.run.update_manifest(steps=self.step.mode, step_problems=self.step.problems)
            for problem in self.step.problems:
                tell(self.report, f"{self.config.name}: {problem}")

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
            processes=self.world.size,
        )
        checkpoint, problems = self.run.load_newest_intact()
        for problem in problems:
            self.run.log({"problem": problem}, "problems.jsonl")
        if checkpoint is None and problems:
            raise RunError("no intact checkpoint is left:\n" + "\n".join(problems))
        checkpoint = self.world.from_first(checkpoint)
        if checkpoint is None:
            self.world.align(*self.trainable.modules.values())
            self.run.cut_back(dict.fromkeys(self.run.offsets(), 0))
            return _Progress(0, 0, {"checkpoint": "", "epoch": 0, "validation_accuracy": -1.0})
        self.trainable.restore(checkpoint.weights, checkpoint.optimizer)
        facts = checkpoint.facts
        self.run.cut_back(facts["offsets"])
        for record in self.run.records():
            self.watch.update(record)
        return _Progress(facts["epoch"], facts["step"], facts["best"])

    def _prune_when_due(self, progress: _Progress) -> None:
        """Close the client's least important channels, judged by CE on training batches in evaluation mode."""
        options, seed = self.config.model.pruning, self.config.seed
        if options is None or progress.epoch != self.config.pruning_epoch:
            return
        order, noise = (make_generator(self.device, seed, "pruning", name) for name in ("data", "noise"))
        rows = self.data.train.epoch_order(self.config.training.batch_size, order, self.config.training.batches)
        self.model.eval()

        def losses() -> Iterator[Tensor]:
            for x, y in map(self.data.train.get, rows[: options.batches]):
                released = self.model.release(augment(x, self.config.data, order), generator=noise)
                yield F.cross_entropy(self.model.predict(released), y)

        importance = channel_importance(self.model.encoder, losses())
        prune(self.model.encoder, importance, options.ratio, self.optimizers["model"])
        self.world.align(self.model)
        cost = count_cost(self.model, self.data.spec.shape)
        numbers = {"client_parameters": cost.client_parameters, "client_macs": cost.client_macs}
        self.run.log({"kind": "pruning", "epoch": progress.epoch, "step": progress.step, **numbers})

    def _train_epoch(self, epoch: int, progress: _Progress) -> Iterable[tuple[Tensor, Tensor]]:
        """One pass over the training images; returns the features for the surrogate's refit."""
        options, seed = self.config.training, self.config.seed
        self.order.manual_seed(derive_seed(seed, "data", epoch))
        self.noise.manual_seed(derive_seed(seed, *self._stream("noise", epoch)))
        if self.surrogate.generator is not None:  # the same draws in every process: those of a single one
            self.surrogate.generator.manual_seed(derive_seed(seed, "epoch", epoch))
        self.latch.clear()
        features: Tensor | None = None
        for penalty in self.penalties.values():
            penalty.begin_epoch(epoch, options.epochs)
        self.model.train()
        order = self.data.train.epoch_order(options.batch_size, self.order, options.batches)
        part = order[:, self.world.part(options.batch_size)]
        for position, (images, labels) in enumerate(self.data.train.batches(part), 1):
            now = epoch + (position - 1) / self.steps_per_epoch
            lr, weight = self._set_rates(now)
            self._measure_gradients(images, labels, weight, progress.step)
            z = self.step(images, labels)
            if self.surrogate.needs_refresh and options.refresh_features == "trained" and self.world.first:
                features = z.new_empty(len(order), *z.shape) if features is None else features
                features[position - 1] = z
            progress.step += 1
            if position % options.log_every == 0 or position == self.steps_per_epoch:
                numbers = self.world.average(self.monitor.read(), self.device) | self.rare.read()
                if position == self.steps_per_epoch and options.penalty_weight > 0:
                    numbers |= self.latch.read()
                self._log_step(progress, epoch + position / self.steps_per_epoch, lr, weight, numbers)
        if features is None:
            return self._second_pass()
        return [(features.flatten(0, 1), self.data.train.labels[order.flatten()])]

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
            fine_tuning=self.config.model.init_from is not None,
        )
        self.weight.fill_(weight)
        self.fitting.fill_(float(weight > 0))
        self.surrogate.set_epoch(now - self.config.warmup_epochs)
        return lr, weight

    def _step(self, functions: _Functions, images: Tensor, y: Tensor) -> Tensor:
        """One step on a batch of images as they are stored; returns the clean z of all processes.

        Moves are drawn for the images of all, so that an image's do not depend on the number of processes.
        """
        total = len(images) * self.world.size
        moves = [drawn[self.world.part(total)] for drawn in draw_moves(total, self.config.data, self.order)]
        return self._descend(functions, functions.prepare(images, moves), y)

    def _prepare(self, images: Tensor, moves: Sequence[Tensor]) -> Tensor:
        """Images in [0, 1] from bytes, augmented as drawn."""
        return move(as_floats(images), moves, self.config.data)

    def _descend(self, functions: _Functions, x: Tensor, y: Tensor) -> Tensor:
        """One backward over CE + weight · loss + fit_loss + penalties; sums its scalars there, returns the clean z.

        Nothing here waits for the host, and everything it changes lies in tensors that stay: the step can be
        captured. While the penalty is off (warm-up), the surrogate's own weights do not learn either.
        The surrogate sees the batch of all processes.
        """
        with self.engine.autocast():
            z = functions.encode(x)
        with Beside() as beside:
            whole_z, whole_y = self.world.gather(z, y)
            penalty = functions.penalise(whole_z, whole_y)
        with self.engine.autocast():
            released = self.model.transmit(z, x, self.noise)
            logits = functions.predict(released)
            ce = F.cross_entropy(logits.float(), y)
        beside.join()
        loss = ce + self.weight * penalty.loss
        if penalty.fit_loss is not None:
            loss = loss + self.fitting * penalty.fit_loss
        terms, told = self._further_terms(Seen(x, y, z, released, logits))
        loss = sum(terms, loss)
        self.engine.descend(loss, list(self.optimizers.values()))
        self.latch.add(penalty.per_class, penalty.loss)
        values = {"ce": ce, "train_accuracy": accuracy(logits, y).mean(), **penalty.diagnostics, **told}
        self.monitor.add(values)
        return whole_z.detach()

    def _measure_gradients(self, images: Tensor, y: Tensor, weight: float, step: int) -> None:
        """Now and then, how the penalty's gradient compares with that of the cross entropy on this batch."""
        if self.gradient_ratio is None or weight == 0 or step % self.gradient_ratio_every:
            return
        ratio = self.gradient_ratio.measure(as_floats(images), y, self.weight, step)
        self.rare.add({"gradient_ratio": ratio})

    def _further_terms(self, step: Seen) -> tuple[list[Tensor], dict[str, Tensor]]:
        """What the penalties add to the loss, each after its own inner step, and their diagnostics."""
        terms: list[Tensor] = []
        told: dict[str, Tensor] = {}
        for penalty in self.penalties.values():
            penalty.inner_step(step)
            term, diagnostics = penalty(step)
            terms.append(term)
            told.update(diagnostics)
        return terms, told

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
    def _second_pass(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Features of all training images, augmented, in evaluation mode: what the baseline refits on."""
        self.model.eval()
        for images, labels in self.data.train.in_order(_EVALUATION_BATCH):
            yield self.model.encode(augment(images, self.config.data, self.order)), labels

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

    def _refresh(self, features: Iterable[tuple[Tensor, Tensor]], progress: _Progress) -> None:
        """Let the surrogate renew its stored state and say what came of it."""
        self.surrogate.refresh(features)
        record = self.surrogate.epoch_record()
        if record:
            self.run.log({"kind": "surrogate", "epoch": progress.epoch, "step": progress.step, **record})

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


def _check_same_start(run: RunDirectory, initial: Mapping[str, Any] | None) -> None:
    """A run that was stopped before its first checkpoint must start again from the same weights."""
    if initial is not None and run.manifest["init_from"]["sha256"] != initial["sha256"]:
        raise RunError(f"{initial['source']} has changed since {run.path} was begun: it cannot be resumed from it")


def _check_same_split(run: RunDirectory, data: RunData) -> None:
    """A resumed run must see the images it saw before."""
    known = run.manifest.get("split")
    if known is not None and known["sha256"] != data.split.sha256:
        raise RunError(f"the data or its split has changed since {run.path} was begun: it cannot be resumed with them")
