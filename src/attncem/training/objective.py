"""One training step of a run: its loss, its optimisers, and the numbers that it sums on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from attncem.base.seeding import derive_seed
from attncem.base.types import RunError, StepView, SurrogateOutput
from attncem.config.options.run import RunConfig
from attncem.data.batches import as_floats, draw_moves, move
from attncem.models.client_head import doubt
from attncem.models.split import SplitModel
from attncem.records.metrics import accuracy
from attncem.training.capture import SideStream, Step, compile_function, forget_compiled, worth_compiling
from attncem.training.engine import Engine, Monitor, Trainable, adam, set_rate, sgd
from attncem.training.monitoring import GradientRatio, Latch
from attncem.training.penalties import Penalty
from attncem.training.schedules import penalty_weight, rate_factor
from attncem.training.surrogates import Surrogate
from attncem.training.surrogates.base import Batch

_RATIO_EVERY = {"cpu": 200, "cuda": 2000}


@dataclass(frozen=True)
class Functions:
    """The parts of a step that may be compiled."""

    prepare: Callable[[Tensor, Sequence[Tensor]], Tensor]
    look: Callable[[Tensor], tuple[Tensor, Tensor | None]]
    predict: Callable[[Tensor], Tensor]
    share: Callable[[Batch], Batch]
    penalise: Callable[[Batch], SurrogateOutput]
    fit: Callable[[Batch], Tensor | None]

    def compiled(self) -> Functions:
        """All parts compiled, each on its first call."""
        networks = {name: compile_function(getattr(self, name)) for name in ("prepare", "look", "predict")}
        return replace(self.with_compiled_surrogate(), **networks)

    def with_compiled_surrogate(self) -> Functions:
        """Only the surrogate's parts compiled."""
        return replace(self, **{name: compile_function(getattr(self, name)) for name in ("share", "penalise", "fit")})


class Objective:
    """CE + weight · loss + fit_loss + penalties, and one gradient step on it.

    ``num_steps`` is the number of steps of the whole run. Rates and weights are on the device, and every tensor that a
    step changes keeps its address, so that the step can be captured.
    """

    def __init__(
        self,
        config: RunConfig,
        model: SplitModel,
        surrogate: Surrogate,
        penalties: Mapping[str, Penalty],
        engine: Engine,
        *,
        num_steps: int,
    ) -> None:
        self.config, self.model, self.surrogate, self.penalties = config, model, surrogate, penalties
        self.engine, self.world, self.device = engine, engine.world, engine.device
        self.num_steps = num_steps
        self.optimizers = self._build_optimizers()
        self.trainable = self._build_trainable()
        self.weight = torch.zeros((), device=self.device)
        self.fitting = torch.zeros((), device=self.device)
        self.order = torch.Generator(self.device)
        self.noise = torch.Generator(self.device)
        if self.world.size > 1:
            surrogate.generator = torch.Generator(self.device)
        self.monitor, self.rare = Monitor(self.device), Monitor(self.device)
        self.latch = Latch(surrogate.num_classes, self.device)
        own = (surrogate.share, surrogate.penalise, surrogate.fit)
        self.functions = Functions(self._prepare, self._look, model.predict, *own)
        self.step = self._build_step()
        self.gradient_ratio = self._build_gradient_ratio()

    # its parts

    def _server(self) -> nn.Module:
        if self.model.server is None:
            raise RunError("training needs a server half")
        return self.model.server

    def _build_optimizers(self) -> dict[str, Optimizer]:
        options = self.config.training
        optimizers = {"model": sgd(self.model.parameters(), options.optimizer, self.device)}
        own = [p for p in self.surrogate.parameters() if p.requires_grad]
        if own and self.config.surrogate.in_main_optimizer:
            # Equals one optimiser together with the model: SGD treats every tensor separately.
            optimizers["surrogate"] = sgd(iter(own), options.optimizer, self.device)
        elif own:
            optimizers["surrogate"] = adam(iter(own), options.surrogate_lr, self.device)
        return optimizers

    def _build_trainable(self) -> Trainable:
        """Everything that a checkpoint must hold, including the penalties' trained parts."""
        modules = {"client": self.model.encoder, "server": self._server(), "surrogate": self.surrogate}
        if self.model.head is not None:
            modules["head"] = self.model.head
        optimizers = dict(self.optimizers)
        for name, penalty in self.penalties.items():
            modules[f"penalty-{name}"] = penalty
            optimizers |= {f"penalty-{name}-{own}": inner for own, inner in penalty.optimizers.items()}
        return Trainable(modules, optimizers)

    def _build_step(self) -> Step:
        """The step, captured and compiled as `training.fast` says."""
        options = self.config.training
        fast, obstacle = self.device.type == "cuda" and options.fast != "off", self._obstacle_to_recording()
        record = fast and not obstacle
        faster = self._compiled_functions() if record else {}
        if faster:
            forget_compiled()
        step = Step(
            partial(self._step, self.functions),
            state=lambda: [*self.trainable.tensors(), self.monitor.total, *self.latch.tensors],
            watched=list(self.model.parameters()),
            generators=(self.order, self.noise),
            record=record,
            faster={name: partial(self._step, functions) for name, functions in faster.items()},
            in_32_bits=self.engine.lower_precision,
        )
        if fast and obstacle:
            step.problems.append(f"steps are not captured: {obstacle}")
        return step

    def _compiled_functions(self) -> dict[str, Functions]:
        """The compiled parts of the step, if the options require them or the run is long enough to gain from them."""
        fast = self.config.training.fast
        if fast == "compile" or (fast == "auto" and worth_compiling(self.num_steps)):
            return {"compiled": self.functions.compiled()}
        if fast == "compile_surrogate":
            return {"surrogate compiled": self.functions.with_compiled_surrogate()}
        return {}

    def _obstacle_to_recording(self) -> str:
        """Why steps cannot be replayed; empty if they can."""
        if self.world.size > 1:
            # Processes that take their steps in different ways would wait for each other.
            return "several processes take them together"
        changing = [name for name, penalty in self.penalties.items() if not penalty.static]
        return f"the penalty {changing[0]} does not do the same in every step" if changing else ""

    def _build_gradient_ratio(self) -> GradientRatio | None:
        """The gradient measurement, if there is a penalty and an encoder that learns."""
        options = self.config.training
        given = options.gradient_ratio_every
        self.gradient_ratio_every = _RATIO_EVERY[self.device.type] if given is None else given
        learns = any(weight.requires_grad for weight in self.model.encoder.parameters())
        alone = self.world.size == 1  # with several processes, each sees only a part of the batch
        if not (self.gradient_ratio_every and options.penalty_weight and learns and alone):
            return None
        smoothing = options.label_smoothing
        return GradientRatio(self.engine, self.model, self.surrogate, self.config.seed, label_smoothing=smoothing)

    # an epoch and its steps

    def stream(self, name: str, epoch: int) -> tuple[str | int, ...]:
        """Name of a random stream of this epoch; with several processes, each has its own."""
        return (name, epoch) if self.world.size == 1 else (name, epoch, "process", self.world.rank)

    def begin_epoch(self, epoch: int) -> None:
        """Seed the random numbers of an epoch, and start the epoch in the penalties."""
        seed = self.config.seed
        self.order.manual_seed(derive_seed(seed, "data", epoch))
        self.noise.manual_seed(derive_seed(seed, *self.stream("noise", epoch)))
        if self.surrogate.generator is not None:  # the same draws in every process as in a single one
            self.surrogate.generator.manual_seed(derive_seed(seed, "epoch", epoch))
        self.latch.clear()
        for penalty in self.penalties.values():
            penalty.begin_epoch(epoch, self.config.training.epochs)
        self.model.train()
        if self.config.release.learn == "head":  # nor do the statistics of batch norm change
            self.model.encoder.eval()
            self._server().eval()

    def set_rates(self, now: float) -> tuple[float, float]:
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
        if self.config.surrogate.in_main_optimizer and "surrogate" in self.optimizers:
            set_rate(self.optimizers["surrogate"], lr if weight > 0 else 0.0)  # no weight decay in the warm-up
        self.weight.fill_(weight)
        self.fitting.fill_(float(weight > 0))
        self.surrogate.set_epoch(now - self.config.warmup_epochs)
        self.surrogate.set_penalised(weight > 0)
        return lr, weight

    def measure_gradients(self, images: Tensor, y: Tensor, weight: float, step: int) -> None:
        """At fixed intervals, compare the gradients of penalty and cross entropy on this batch."""
        if self.gradient_ratio is None or weight == 0 or step % self.gradient_ratio_every:
            return
        ratio = self.gradient_ratio.measure(as_floats(images), y, self.weight, step)
        self.rare.add({"gradient_ratio": ratio})

    def read(self, *, epoch_ends: bool) -> dict[str, float]:
        """Means since the last read; at an epoch's end also the share of classes that were hardly ever penalised."""
        numbers = self.world.average(self.monitor.read(), self.device) | self.rare.read()
        if "plain_loss" in numbers:
            numbers["plain_total"] = numbers["plain_loss"] * self.surrogate.num_variances
        if epoch_ends and self.config.training.penalty_weight > 0:
            numbers |= self.latch.read()
        return numbers

    # the step itself

    def _step(self, functions: Functions, images: Tensor, y: Tensor) -> Tensor:
        """One step on a batch of stored images; returns the clean z of all processes.

        Augmentations are drawn for the images of all processes, so that they do not depend on the number of processes.
        """
        total = len(images) * self.world.size
        moves = [drawn[self.world.part(total)] for drawn in draw_moves(total, self.config.data, self.order)]
        return self.descend(functions, functions.prepare(images, moves), y)

    def _look(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The clean feature, and the logits of the client's head if it has one."""
        return (self.model.encode(x), None) if self.model.head is None else self.model.look(x)

    def _prepare(self, images: Tensor, moves: Sequence[Tensor]) -> Tensor:
        """Images in [0, 1] from bytes, augmented with the drawn numbers."""
        return move(as_floats(images), moves, self.config.data)

    def descend(self, functions: Functions, x: Tensor, y: Tensor) -> Tensor:
        """Up to three backward passes (penalty, the surrogate's own loss, the rest) and one step of every optimiser.

        Returns the clean z. Nothing here waits for the host: the scalars are summed on the device. The surrogate's two
        backward passes run in parallel with the server's half; the last backward pass adds the penalty's gradient at z.
        """
        with self.engine.autocast():
            z, answers = functions.look(x)
        with SideStream() as side:
            seen = z.detach().requires_grad_(z.requires_grad)
            whole_z, penalty = self._surrogate_step(functions, seen, y, answers, side)
        with self.engine.autocast():
            released = self.model.transmit(z, x, self.noise)
            logits = functions.predict(released)
            ce = F.cross_entropy(logits.float(), y, label_smoothing=self.config.training.label_smoothing)
        terms, told = self._further_terms(StepView(x, y, z, released, logits))
        if answers is not None:
            term, numbers = self._head_term(answers, y)
            terms, told = [*terms, term], {**told, **numbers}
        if seen.grad is not None:  # from here on: penalties may require gradients of z themselves
            z.register_hook(partial(_added, seen.grad, side))
        self.engine.descend(sum(terms, ce), [self.optimizers["model"]])
        side.join()
        self.latch.add(penalty.per_class, penalty.loss)
        self.monitor.add({"ce": ce, "train_accuracy": accuracy(logits, y).mean(), **penalty.diagnostics, **told})
        return whole_z.detach()

    def _head_term(self, answers: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The cross entropy of the client's head, and its diagnostics."""
        loss = F.cross_entropy(answers.float(), y, label_smoothing=self.config.training.label_smoothing)
        numbers = {"head_ce": loss.detach(), "head_accuracy": accuracy(answers, y).mean()}
        return self.config.release.head_weight * loss, numbers

    def _surrogate_step(
        self, functions: Functions, z: Tensor, y: Tensor, answers: Tensor | None, side: SideStream
    ) -> tuple[Tensor, SurrogateOutput]:
        """The penalty, its gradient at z, and a step of the surrogate; returns z of all processes and the penalty.

        The surrogate sees the batch of all processes. Its own loss shares no gradient with the penalty and runs in
        parallel; only the update waits until the penalty has read the weights. While the penalty is off (warm-up),
        these weights do not learn either.
        """
        whole_z, whole_y = self.world.gather(z, y)
        doubts = self.world.gather(doubt(answers), y)[0] if answers is not None and self.surrogate.weighs else None
        batch = functions.share(self.surrogate.prepare(whole_z, whole_y, doubts=doubts))
        apart = nullcontext() if self.surrogate.fit_reads_penalty else side.fork("fit")
        penalty = functions.penalise(batch)
        losses = [self.weight * penalty.loss]
        if penalty.fit_loss is not None:
            losses.append(self.fitting * penalty.fit_loss)
        if learning := [loss for loss in losses if loss.requires_grad]:
            torch.autograd.backward(learning)
        side.mark("penalty")
        with apart:
            fit_loss = functions.fit(batch)
            if fit_loss is not None:
                (self.fitting * fit_loss).backward()
            side.wait_for("penalty")
            self._update_own()
        return whole_z, penalty

    def _update_own(self) -> None:
        """A step of the surrogate's weights; without a fit, the weights and the optimiser state do not change.

        Zero gradients would count as steps of Adam: after the warm-up its bias correction would be used up, and its
        first updates up to three times too long. SGD's momentum would accumulate the weight decay of the warm-up.
        """
        optimizer = self.optimizers.get("surrogate")
        if optimizer is None:
            return
        self.engine.update([optimizer])
        held = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
        if held:  # empty before the first gradient
            torch._foreach_mul_(held, self.fitting)

    def _further_terms(self, step: StepView) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The penalties' terms of the loss, each after its own inner step, and their diagnostics."""
        terms: list[Tensor] = []
        told: dict[str, Tensor] = {}
        for penalty in self.penalties.values():
            penalty.inner_step(step)
            term, diagnostics = penalty(step)
            terms.append(term)
            told.update(diagnostics)
        return terms, told


def _added(penalty: Tensor, side: SideStream, gradient: Tensor) -> Tensor:
    """The gradient of z plus the penalty's; waits for the latter only here."""
    side.wait_for("penalty")
    return gradient + penalty
